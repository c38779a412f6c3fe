"""generate.py: filters against hand-computed sets, drawing against counts, the cache against none."""

import math

import pytest
import torch

import course_utils
from course_utils import generate as g
from course_utils.model import GPT, GPTConfig


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
