"""generate.py: filters against hand-computed sets, drawing against counts, the cache against none."""

import itertools
import math

import pytest
import torch

import course_utils
from course_utils import generate as g
from course_utils.model import GPT, GPTConfig, Transformer, TransformerConfig


@pytest.fixture(autouse=True)
def seeded():
    course_utils.seed(0)


def gpt(**options):
    """An untrained GPT of 8 positions whose logits differ clearly from token to token."""
    net = GPT(GPTConfig(**{"vocab_size": 13, "d_model": 8, "n_layers": 2, "d_ff": 16, "max_len": 8} | options))
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.4 * torch.randn_like(parameter))
    return net


def kept(logits):
    return [i for i, x in enumerate(logits.tolist()) if x > -math.inf]


LOGITS = torch.tensor([0.1, 0.4, 0.2, 0.3]).log()  # in order of probability: 1, 3, 2, 0


# --- filters ---


def check_top_k(f):
    for k, ids in ((1, [1]), (2, [1, 3]), (3, [1, 2, 3]), (4, [0, 1, 2, 3]), (9, [0, 1, 2, 3])):
        assert kept(f(LOGITS, top_k=k)) == ids
    assert kept(f(torch.tensor([1.0, 2.0, 2.0, 2.0]), top_k=2)) == [1, 2]  # ties: exactly k, lower ids first
    assert kept(f(-5 - torch.tensor([3.0, 1.0, 2.0]), top_k=1)) == [1]  # all negative: a filler of 0 would win
    batch = f(torch.stack([LOGITS, -LOGITS]), top_k=1)
    assert [kept(row) for row in batch] == [[1], [0]]
    assert torch.equal(batch[0, 1], LOGITS[1])  # what stays is unchanged


def check_top_p(f):
    for p, ids in ((0.01, [1]), (0.39, [1]), (0.41, [1, 3]), (0.69, [1, 3]), (0.71, [1, 2, 3]), (0.95, [0, 1, 2, 3])):
        assert kept(f(LOGITS, top_p=p)) == ids
    assert kept(f(torch.zeros(4), top_p=0.5)) == [0, 1]  # ties: as few as reach p, and 0.25 + 0.25 does
    tail = torch.cat([torch.tensor([0.0]), torch.full((1000,), -17.0)])
    assert torch.equal(f(tail, top_p=1.0), tail)  # rounding must not cut the tail off
    assert [kept(row) for row in f(torch.stack([LOGITS, torch.zeros(4)]), top_p=0.41)] == [[1, 3], [0, 1]]


def test_filters():
    check_top_k(g.filter_logits)
    check_top_p(g.filter_logits)
    assert torch.equal(g.filter_logits(LOGITS), LOGITS)
    # top_k first: of 0.4 and 0.3 the first alone has 0.57 of what is left, 0.4 of the whole
    assert kept(g.filter_logits(LOGITS, top_k=2, top_p=0.5)) == [1]
    assert kept(g.filter_logits(LOGITS, top_p=0.5)) == [1, 3]


def by_value(filler):
    def f(logits, top_k):  # the common spelling: everything below the k-th value
        return logits.masked_fill(logits < logits.topk(min(top_k, logits.shape[-1])).values[..., -1:], filler)

    return f


@pytest.mark.parametrize("filler", [-math.inf, 1e-10])
def test_wrong_top_k_is_caught(filler):
    with pytest.raises(AssertionError):  # -inf: keeps too many of a tie; 1e-10: the filler outdoes real logits
        check_top_k(by_value(filler))


def nucleus(crossing, tail=True):
    def f(logits, top_p):
        if tail and top_p == 1:
            return logits
        ranked, order = logits.sort(dim=-1, descending=True, stable=True)
        probs = ranked.softmax(-1)
        keep = probs.cumsum(-1) - (probs if crossing else 0) < top_p
        return logits.masked_fill(~torch.zeros_like(keep).scatter(-1, order, keep), -math.inf)

    return f


@pytest.mark.parametrize("fault", [{"crossing": False}, {"crossing": True, "tail": False}], ids=str)
def test_wrong_top_p_is_caught(fault):
    check_top_p(nucleus(crossing=True))
    with pytest.raises(AssertionError):
        check_top_p(nucleus(**fault))


def test_probabilities():
    probs = torch.tensor([0.1, 0.4, 0.2, 0.3])
    torch.testing.assert_close(g.next_token_probs(LOGITS), probs)
    torch.testing.assert_close(g.next_token_probs(LOGITS, 0.5), probs**2 / (probs**2).sum())
    torch.testing.assert_close(g.next_token_probs(LOGITS, 1.0, top_k=2), torch.tensor([0, 4 / 7, 0, 3 / 7]))
    torch.testing.assert_close(g.next_token_probs(LOGITS, 1.0, top_p=0.5), torch.tensor([0, 4 / 7, 0, 3 / 7]))
    # temperature first: at 1/2 token 1 alone has 16/30 of the probability and passes 0.5
    torch.testing.assert_close(g.next_token_probs(LOGITS, 0.5, top_p=0.5), torch.tensor([0.0, 1, 0, 0]))
    assert g.next_token_probs(torch.stack([LOGITS, LOGITS]), 3.0).sum(-1).tolist() == pytest.approx([1, 1])


@pytest.mark.parametrize("temperature", [0, 0.0, 1e-45, 1e-300])
def test_no_and_next_to_no_temperature_is_the_argmax(temperature):
    assert g.next_token_probs(torch.tensor([[1.0, 50.0, -900.0, 49.0]]), temperature).tolist() == [[0, 1, 0, 0]]


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"temperature": -0.1}, "temperature.*0 is greedy.*-0.1"),
        ({"temperature": math.nan}, "temperature"),
        ({"temperature": math.inf}, "temperature"),
        ({"temperature": None}, "temperature"),
        ({"top_k": 0}, "top_k.*at least 1.*0"),
        ({"top_k": 2.5}, "top_k"),
        ({"top_k": True}, "top_k"),
        ({"top_p": 0}, "top_p.*above 0"),
        ({"top_p": 1.01}, "top_p"),
        ({"top_p": math.nan}, "top_p"),
        ({"top_p": "all"}, "top_p"),
    ],
)
def test_bad_arguments(bad, words):
    with pytest.raises(ValueError, match=words):
        g.next_token_probs(LOGITS, **{"temperature": 1.0} | bad)
    with pytest.raises(ValueError, match=words):
        g.generate(gpt(), torch.tensor([[1]]), 0, **bad)


# --- generate ---


def test_length_beyond_the_context():
    ids = torch.randint(13, (2, 5))
    for use_cache in (True, False):
        out = g.generate(gpt(), ids, 20, use_cache=use_cache, seed=1)
        assert out.shape == (2, 25) and torch.equal(out[:, :5], ids) and out.max() < 13
    long = torch.randint(13, (1, 30))
    assert g.generate(gpt(), long, 3).shape == (1, 33)
    assert torch.equal(g.generate(gpt(), ids, 0), ids)


def check_greedy(generate, net):
    """Against the slowest spelling: the whole window anew for each token."""
    ids = torch.randint(13, (30, 5))
    expected = ids
    for _ in range(12):
        with torch.no_grad():
            new = net(expected[:, -8:])[:, -1].argmax(-1)
        expected = torch.cat([expected, new[:, None]], dim=1)
    assert torch.equal(generate(net, ids, 12, temperature=0), expected)


@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "rotary"])
@pytest.mark.parametrize("use_cache", [True, False])
def test_greedy(positions, use_cache):
    net = gpt(positions=positions)
    check_greedy(lambda *args, **kw: g.generate(*args, use_cache=use_cache, **kw), net)
    with pytest.raises(AssertionError):
        check_greedy(lambda net, ids, n, temperature: g.generate(net, ids, n, 5.0, seed=0), net)


def test_a_cache_whose_new_tokens_stand_at_position_0_is_caught(monkeypatch):
    net = gpt()
    net.embeddings.position.data *= 5  # so that the position matters to the likeliest token
    right = net.embeddings.forward
    check_greedy(g.generate, net)
    monkeypatch.setattr(net.embeddings, "forward", lambda ids, start=0: right(ids, 0))
    with pytest.raises(AssertionError):
        check_greedy(g.generate, net)


def test_cache_and_no_cache_draw_the_same():
    net, ids = gpt(), torch.randint(13, (4, 3))
    runs = [g.generate(net, ids, 15, 1.3, top_k=9, top_p=0.95, use_cache=cache, seed=7) for cache in (True, False)]
    assert torch.equal(*runs)


def rows_computed(net, **options):
    """How many tokens the model is given over a run."""
    rows = []
    hook = net.register_forward_pre_hook(lambda net, args: rows.append(args[0].shape[1]))
    g.generate(net, torch.tensor([[1, 2]]), 9, **options)
    hook.remove()
    return rows


def test_the_cache_saves_work_until_the_window_is_full():
    assert rows_computed(gpt()) == [2, 1, 1, 1, 1, 1, 1, 8, 8]
    assert rows_computed(gpt(), use_cache=False) == [2, 3, 4, 5, 6, 7, 8, 8, 8]


def test_top_k_1_is_the_argmax_for_200_seeds():
    net, ids = gpt(), torch.tensor([[3, 1, 4]])
    greedy = g.generate(net, ids, 1, temperature=0)
    assert all(torch.equal(g.generate(net, ids, 1, 2.0, top_k=1, seed=seed), greedy) for seed in range(200))
    assert len({g.generate(net, ids, 1, 2.0, seed=seed)[0, -1].item() for seed in range(200)}) > 3


def test_draws_follow_the_probabilities():
    net, n = gpt().eval(), 20_000
    ids = torch.tensor([[3, 1, 4]])
    with torch.no_grad():
        probs = g.next_token_probs(net(ids)[0, -1], 1.5, top_k=5)
    drawn = g.generate(net, ids.expand(n, 3), 1, 1.5, top_k=5, seed=3)[:, -1]
    counts = torch.bincount(drawn, minlength=13) / n
    assert ((counts - probs).abs() <= 5 * (probs * (1 - probs) / n).sqrt()).all()


def test_seed_repeats_and_leaves_the_global_state_alone(monkeypatch):
    net, ids = gpt(), torch.tensor([[3, 1, 4]])
    state = torch.get_rng_state()
    a, b, c = (g.generate(net, ids, 20, 2.0, seed=seed) for seed in (5, 5, 6))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(a, b) and not torch.equal(a, c)
    torch.manual_seed(9)
    d = g.generate(net, ids, 20, 2.0)
    torch.manual_seed(9)
    assert torch.equal(d, g.generate(net, ids, 20, 2.0))  # without a seed: torch's own state
    monkeypatch.setenv("COURSE_SEED_SHIFT", str(course_utils.shifted_seed(1)))
    assert torch.equal(g.generate(net, ids, 20, 2.0, seed=5), c)


def test_generates_without_dropout_and_gradients_and_restores_the_mode():
    net = gpt(dropout=0.5).train()
    net.layers[0].eval()
    ids = torch.tensor([[3, 1, 4]])
    a, b = (g.generate(net, ids, 10, temperature=0) for _ in range(2))
    assert torch.equal(a, b)
    assert net.training and not net.layers[0].training and net.layers[1].training
    with pytest.raises(ValueError, match="id 99"):
        g.generate(net, torch.tensor([[99]]), 1)
    assert net.training


@pytest.mark.parametrize(
    ("ids", "n_new", "words"),
    [
        ([3, 1], 1, "tensor"),
        (torch.tensor([3, 1]), 1, r"\(B, T\)"),
        (torch.ones(1, 0, dtype=torch.long), 1, "at least one token"),
        (torch.tensor([[13] + [1] * 20]), 1, "id 13"),  # also where cropping would hide it
        (torch.tensor([[1]]), -1, "n_new"),
        (torch.tensor([[1]]), 2.0, "n_new"),
    ],
)
def test_generate_refuses(ids, n_new, words):
    with pytest.raises(ValueError, match=words):
        g.generate(gpt(), ids, n_new)


def test_an_empty_cache_has_length_0():
    assert len(g.KVCache(2)) == 0


# --- beam search ---

START, A, B, C, END = range(5)
TREE = {  # the likeliest first word, B, leads to nothing likely: greedy ends with 0.6 * 0.4, the best is 0.4 * 0.9
    (): {A: 0.4, B: 0.6},
    (A,): {C: 0.9, A: 0.1},
    (B,): {A: 0.4, B: 0.35, C: 0.25},
}


def tree(ids):
    """Logits (n, T, 5) of the tree: -inf for what cannot come next."""
    probs = torch.zeros(*ids.shape, 5)
    for row, sequence in zip(probs, ids.tolist(), strict=True):
        for token, p in TREE[tuple(sequence[1:])].items():
            row[-1, token] = p
    return probs.log()


def table(n_tokens, depth, seed=0):
    """A function to logits, other ones after each sequence of up to `depth` tokens: asymmetric throughout."""
    rng = torch.Generator().manual_seed(course_utils.shifted_seed(seed))
    prefixes = [p for n in range(depth) for p in itertools.product(range(n_tokens), repeat=n)]
    rows = {prefix: 2 * torch.randn(n_tokens, generator=rng) for prefix in prefixes}

    def model(ids):
        logits = torch.full((*ids.shape, n_tokens), math.nan)  # only the last position may be used
        for i, sequence in enumerate(ids.tolist()):
            logits[i, -1] = rows[tuple(sequence[1:])]
        return logits

    return model


def brute_force(model, n_tokens, depth, alpha, end_id=None):
    """Every sequence that ends, or has `depth` tokens, with its log-probability; best first."""
    found = []

    def grow(sequence, log_prob):
        if len(sequence) == depth or end_id in sequence:
            found.append((log_prob / ((5 + len(sequence)) / 6) ** alpha, [0, *sequence], log_prob))
            return
        following = model(torch.tensor([[0, *sequence]]))[0, -1].double().softmax(-1).log()
        for token in range(n_tokens):
            grow([*sequence, token], log_prob + following[token].item())

    grow([], 0.0)
    return [(ids, log_prob) for _, ids, log_prob in sorted(found, key=lambda entry: -entry[0])]


def plain(found):
    return [(ids.tolist(), round(log_prob, 6)) for ids, log_prob in found]


def test_beam_finds_what_greedy_misses():
    greedy, beam = (g.beam_search(tree, torch.tensor([START]), 2, beam=n) for n in (1, 2))
    assert plain(greedy) == [([START, B, A], round(math.log(0.24), 6))]
    assert plain(beam) == [([START, A, C], round(math.log(0.36), 6)), ([START, B, A], round(math.log(0.24), 6))]
    everything = g.beam_search(tree, torch.tensor([[START]]), 2, beam=50)
    assert [round(math.exp(p), 2) for _, p in everything] == [
        0.36,
        0.24,
        0.21,
        0.15,
        0.04,
    ]  # what cannot be is not there


def check_beam(beam_search, end_id, alpha):
    """A beam as wide as there are sequences finds them all, in order."""
    for seed in range(6):
        model = table(3, 4, seed)
        found = beam_search(model, torch.tensor([0]), 4, beam=3**4, alpha=alpha, end_id=end_id)
        expected = brute_force(model, 3, 4, alpha, end_id)
        assert plain(found) == [(ids, round(log_prob, 6)) for ids, log_prob in expected]


@pytest.mark.parametrize("end_id", [None, 2])
@pytest.mark.parametrize("alpha", [0, 0.6, 3.0])
def test_widest_beam_is_brute_force(end_id, alpha):
    check_beam(g.beam_search, end_id, alpha)


def test_wrong_beams_are_caught():
    def too_narrow(*args, beam, **options):
        return g.beam_search(*args, beam=5, **options)

    def prompt_counts(model, ids, n_new, beam, alpha, end_id):  # in the length
        found = g.beam_search(model, ids, n_new, beam=beam, alpha=0, end_id=end_id)
        return sorted(found, key=lambda entry: -entry[1] / ((6 + len(entry[0])) / 6) ** alpha)

    def goes_on_after_the_end(*args, end_id, **options):
        return g.beam_search(*args, **options)

    for wrong in (too_narrow, prompt_counts, goes_on_after_the_end):
        with pytest.raises(AssertionError):
            check_beam(wrong, end_id=2, alpha=3.0)


def test_length_decides_by_alpha():
    def model(ids):  # end at once with 0.4, or go on, for a likely second word
        probs = torch.tensor([[0.0, 0.6, 0.4], [0.0, 0.0, 1.0]])[min(ids.shape[1], 2) - 1]
        return probs.log().expand(*ids.shape, 3)

    def model_2(ids):  # the same, but the longer one is less likely
        probs = torch.tensor([[0.0, 0.48, 0.52], [0.0, 0.0, 1.0]])[min(ids.shape[1], 2) - 1]
        return probs.log().expand(*ids.shape, 3)

    first = [
        g.beam_search(m, torch.tensor([0]), 5, 2, alpha, end_id=2)[0] for m in (model, model_2) for alpha in (0, 2)
    ]
    assert [ids.tolist() for ids, _ in first] == [[0, 1, 2], [0, 1, 2], [0, 2], [0, 1, 2]]
    assert first[3][1] == pytest.approx(math.log(0.48))  # not divided by anything


def test_unfinished_sequences_count_as_they_stand():
    def model(ids):  # ends with 0.1 at each step
        return torch.tensor([0.6, 0.3, 0.1]).log().expand(*ids.shape, 3)

    found = g.beam_search(model, torch.tensor([0]), 2, beam=3, alpha=0, end_id=2)
    assert [(ids.tolist(), round(math.exp(p), 3)) for ids, p in found] == [
        ([0, 0, 0], 0.36),
        ([0, 0, 1], 0.18),
        ([0, 1, 0], 0.18),
    ]
    rare = g.beam_search(model, torch.tensor([0]), 1, beam=3, alpha=0, end_id=2)
    assert [ids.tolist() for ids, _ in rare] == [[0, 0], [0, 1], [0, 2]]


def test_search_ends_early_and_loses_nothing():
    calls = []

    def model(ids):
        calls.append(ids.shape)
        return torch.tensor([0.05, 0.05, 0.9]).log().expand(*ids.shape, 3)

    found = g.beam_search(model, torch.tensor([0]), 50, beam=2, end_id=2)
    assert found[0][0].tolist() == [0, 2] and len(found) == 2 and len(calls) < 6


@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "rotary"])
def test_beam_of_1_is_greedy(positions):
    net = gpt(positions=positions).train()
    for ids in torch.randint(13, (20, 1, 3)):
        ((found, log_prob),) = g.beam_search(net, ids, 12, beam=1)  # beyond the 8 positions it crops, as generate does
        assert torch.equal(found, g.generate(net, ids, 12, temperature=0)[0])
    assert net.training
    ((found, log_prob),) = g.beam_search(net, ids, 5, beam=1)
    with torch.no_grad():
        log_probs = net.eval()(found[None, :-1]).log_softmax(-1)[0, 2:]
    assert log_prob == pytest.approx(log_probs.gather(1, found[3:, None]).sum().item(), abs=1e-5)
    assert plain(g.beam_search(net, ids, 0)) == [(ids[0].tolist(), 0.0)]


def test_beam_where_nothing_can_follow():
    def blocked(ids):  # after token 1 nothing can come
        logits = torch.tensor([[0.0, 1.0, -math.inf], [-math.inf] * 3, [0.0] * 3])
        return logits[ids]

    found = g.beam_search(blocked, torch.tensor([0]), 3, beam=4)
    assert [ids.tolist() for ids, _ in found] == [[0, 0, 0, 1], [0, 0, 0, 0]]
    assert g.beam_search(blocked, torch.tensor([1]), 3) == []


@pytest.mark.parametrize(
    ("model", "ids", "options", "words"),
    [
        (tree, [0], {}, "tensor.*list"),
        (tree, torch.zeros(2, 3, dtype=torch.long), {}, r"one sequence.*\(2, 3\)"),
        (tree, torch.zeros(0, dtype=torch.long), {}, "one sequence"),
        (tree, torch.tensor([0]), {"n_new": -1}, "n_new"),
        (tree, torch.tensor([0]), {"beam": 0}, "beam.*at least 1.*0"),
        (tree, torch.tensor([0]), {"beam": 2.0}, "beam"),
        (tree, torch.tensor([0]), {"alpha": -1}, "alpha.*-1"),
        (tree, torch.tensor([0]), {"alpha": math.nan}, "alpha"),
        (lambda ids: torch.full((1, 1, 3), math.nan), torch.tensor([0]), {}, "not numbers"),
        (lambda ids: torch.zeros(1, 3), torch.tensor([0]), {}, r"\(B, T, vocab_size\).*\(1, 3\)"),
        (lambda ids: ids, torch.tensor([0]), {}, "vocab_size"),
    ],
)
def test_beam_search_refuses(model, ids, options, words):
    with pytest.raises(ValueError, match=words):
        g.beam_search(model, ids, **{"n_new": 2} | options)


# --- translate ---


def translator(seed=0):
    """An untrained Transformer of 9 words that writes texts of different lengths; 1 starts, 2 ends."""
    course_utils.seed(seed)
    sizes = {"d_model": 8, "n_heads": 2, "n_layers": 2, "d_ff": 16, "max_len": 12, "dropout": 0.3}
    return Transformer(TransformerConfig(9, **sizes, tie_embeddings=False))  # tied ones, untrained, repeat themselves


SRC = torch.tensor([[3, 4, 5, 6], [8, 0, 0, 0], [7, 7, 0, 0], [5, 3, 8, 0], [4, 0, 0, 0], [6, 6, 3, 3]])


def slowly(net, src, n_new):
    """One source after the other, its padding cut off, the whole target anew for each token."""
    written = []
    for row in src:
        ids = [1]
        for _ in range(n_new):
            with torch.no_grad():
                ids.append(net(row[row != 0][None], torch.tensor([ids]))[0, -1].argmax().item())
        ids = ids[: ids.index(2)] if 2 in ids else ids
        written.append([i for i in ids if i > 2])
    return written


def check_translate(translate):
    """Greedy for a batch is greedy row by row; some texts end, some are cut."""
    lengths = set()
    for seed in range(4):
        net = translator(seed).train()
        written = translate(net, SRC, 7, 1, 2)
        assert net.training
        assert written == slowly(net.eval(), SRC, 7)
        lengths |= set(map(len, written))
    assert len(lengths) > 3


def test_translate():
    check_translate(g.translate)
    assert g.translate(translator(), SRC, 0, 1, 2) == [[]] * 6


def test_wrong_translations_are_caught(monkeypatch):
    right = g.translate

    def padding_seen(net, src, *args):  # id 0 counts as a word
        monkeypatch.setattr(net, "_source_mask", lambda src: None)
        return right(net, src, *args)

    def end_overrun(net, src, n_new, start_id, end_id):
        return right(net, src, n_new, start_id, end_id=-1)

    for wrong in (padding_seen, end_overrun):
        with pytest.raises(AssertionError):
            check_translate(wrong)


def test_translate_with_a_beam():
    differ = 0
    for seed in range(4):
        net = translator(seed)
        written = g.translate(net, SRC[:3], 2, 1, 2, beam=9**2)
        for row, found in zip(SRC[:3, None], written, strict=True):

            def model(ids, net=net, row=row):
                with torch.no_grad():
                    return net.eval()(
                        row.expand(len(ids), -1), ids.index_fill(1, torch.tensor([0]), 1)
                    )  # begins with the start

            best, _ = brute_force(model, 9, 2, 0.6, end_id=2)[0]
            assert found == [i for i in best[1:] if i > 2]
        differ += written != g.translate(net, SRC[:3], 2, 1, 2)
    assert differ  # from greedy
