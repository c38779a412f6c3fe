"""What page 12 defines, tried on sizes the page does not show; each check is proved able to fail."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import course_utils
from course_utils import data, plots
from course_utils.generate import beam_search, filter_logits, generate, next_token_probs
from course_utils.model import GPT, GPTConfig
from page_code import definitions, verdict

torch.set_num_threads(1)
STORIES = data.PencilStories()
WORDS = STORIES.tokenizer.vocabulary
N_WORDS = len(WORDS)
SENTENCE = "I just dropped my mechanical pencil I can't believe my lead"
TREE = {"": {"a": 0.6, "b": 0.4}, "a": {"c": 0.4, "d": 0.35, "e": 0.25}, "b": {"c": 0.9, "d": 0.1}}
TREE_WORDS = ["<start>", "<end>", "a", "b", "c", "d", "e"]
PAIRS = {f"{a} {b}": p * q for a, p in TREE[""].items() for b, q in TREE[a].items()}


def writer(n_layers=2, vocab_size=N_WORDS, max_len=STORIES.max_len):
    """An untrained GPT whose logits differ clearly, so that a wrong position or a lost key shows."""
    course_utils.seed(5)
    shape = GPTConfig(vocab_size=vocab_size, max_len=max_len, d_model=24, n_heads=3, n_layers=n_layers, d_ff=40)
    model = GPT(shape)
    for weights in model.parameters():
        nn.init.normal_(weights, mean=float(weights.ndim == 1), std=0.3)
    return model.eval()


@pytest.fixture(scope="module")
def page():
    model = writer()
    ids = torch.tensor([[STORIES.start_id, *STORIES.tokenizer.encode(SENTENCE)]])
    with torch.no_grad():
        logits = model(ids)
    names = definitions(
        "12",
        stories=STORIES,
        tokenizer=STORIES.tokenizer,
        words=WORDS,
        sentence=SENTENCE,
        model=model,
        ids=ids,
        logits=logits,
        probs=torch.full((len(WORDS),), 1 / len(WORDS)),
        drawn=np.array([WORDS.index("broke")] * 3 + [WORDS.index("snapped")] * 7),
        tree=TREE,
        tree_words=TREE_WORDS,
        pairs=PAIRS,
    )
    names["toy"] = names["as_model"](TREE, TREE_WORDS)
    return names


def random(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(course_utils.shifted_seed(seed)))


# -- choosing a word --


def test_write_greedily(page):
    model, start = writer(max_len=30), torch.tensor([[3, 5], [7, 2]])
    written = page["write_greedily"](model, start, 9)
    assert torch.equal(written[:, :2], start)
    with torch.no_grad():
        logits = model(written)
    for t in range(1, 10):  # each token is the likeliest, but for a tie
        chosen = logits[:, t].gather(1, written[:, t + 1 : t + 2])
        torch.testing.assert_close(chosen[:, 0], logits[:, t].amax(-1), atol=1e-4, rtol=1e-4)


def test_as_text_stops_at_the_end(page):
    story = STORIES.tokenizer.encode("my pencil broke")
    assert page["as_text"]([0, *story, STORIES.end_id, 9, 9]) == "my pencil broke"
    assert page["as_text"]([0, *story]) == "my pencil broke"


def check_draw(draw):
    probs = torch.tensor([0.1, 0.0, 0.7, 0.2])
    assert [draw(probs, point) for point in (0.0, 0.09, 0.11, 0.79, 0.81, 0.9999999)] == [0, 0, 2, 2, 3, 3]
    assert draw(torch.full((3,), 0.333), 0.9999) == 2  # the line ends before 1


def test_draw(page):
    check_draw(page["draw"])


def test_a_draw_one_too_far_or_past_the_end_is_caught(page):
    for wrong in (
        lambda probs, point: int((probs.cumsum(-1) <= point).sum()),
        lambda probs, point: min(page["draw"](probs, point) + 1, len(probs) - 1),
    ):
        with pytest.raises(AssertionError):
            check_draw(wrong)


def test_show_draws_counts_the_first_draws(page):
    shown = page["show_draws"](10)
    assert shown["broke: share of 10 draws"] == 0.3 and shown["crumbled: share of 10 draws"] == 0
    assert page["show_draws"](3)["broke: share of 3 draws"] == 1


def check_temperature(cool):
    torch.testing.assert_close(cool(torch.tensor([0.8, 0.2]).log(), 2.0), torch.tensor([2 / 3, 1 / 3]))
    torch.testing.assert_close(cool(torch.tensor([0.8, 0.2]).log(), 0.5), torch.tensor([16 / 17, 1 / 17]))


def test_temperature(page):
    check_temperature(page["cool"])
    torch.testing.assert_close(page["cool"](random(4, 9), 0.3), next_token_probs(random(4, 9), 0.3))


def test_a_factor_and_a_division_after_softmax_are_caught(page):
    for wrong in (
        lambda logits, temperature: page["cool"](logits, 1 / temperature),
        lambda logits, temperature: F.normalize(logits.softmax(-1) / temperature, p=1, dim=-1),
    ):
        with pytest.raises(AssertionError):
            check_temperature(wrong)


def check_cuts(keep_top_k, keep_top_p):
    logits = torch.tensor([0.1, 0.4, 0.2, 0.3]).log()
    assert keep_top_k(logits, 2).isfinite().tolist() == [False, True, False, True]
    assert keep_top_k(torch.zeros(5), 2).isfinite().tolist() == [True] * 2 + [False] * 3
    assert keep_top_p(logits, 0.5).isfinite().tolist() == [False, True, False, True]
    assert keep_top_p(logits, 0.001).isfinite().tolist() == [False, True, False, False]
    for k, p in ((1, 0.01), (4, 0.35), (30, 0.97)):
        row = random(31, seed=k).double()
        assert torch.equal(keep_top_k(row, k), filter_logits(row, top_k=k))
        assert torch.equal(keep_top_p(row, p), filter_logits(row, top_p=p))


def test_cuts(page):
    check_cuts(page["keep_top_k"], page["keep_top_p"])


def test_wrong_cuts_are_caught(page):
    def ranks_as_words(logits, k):
        return logits.masked_fill(torch.arange(len(logits)) >= k, -math.inf)

    def below_the_mark(logits, p):  # drops the word that crosses it
        probs, order = logits.softmax(-1).sort(descending=True)
        return logits.index_fill(-1, order[probs.cumsum(-1) > p], -math.inf)

    def zero(logits, k):
        return page["keep_top_k"](logits, k).nan_to_num(neginf=0.0)

    for wrong in (
        {"keep_top_k": ranks_as_words},
        {"keep_top_k": zero},
        {"keep_top_p": below_the_mark},
    ):
        with pytest.raises(AssertionError):
            check_cuts(**{name: page[name] for name in ("keep_top_k", "keep_top_p")} | wrong)


@pytest.mark.parametrize(
    "knobs", [{}, {"temperature": 0}, {"temperature": 2.5, "top_k": 4}, {"top_k": 6, "top_p": 0.4}]
)
def test_all_knobs(page, knobs):
    row = random(40, seed=3).double()
    torch.testing.assert_close(page["next_probs"](row, **knobs), next_token_probs(row, **knobs))


def test_the_knobs_come_in_this_order(page):
    row = torch.tensor([0.6, 0.3, 0.1]).log()  # at temperature 2 the first has less than 0.5, so two are kept
    assert (page["next_probs"](row, temperature=2.0, top_p=0.5) > 0).tolist() == [True, True, False]
    assert (page["next_probs"](row, temperature=1.0, top_p=0.5) > 0).tolist() == [True, False, False]


# -- stories --


def test_read_says_what_is_wrong(page):
    assert page["read"]("I can’t").tolist() == [[0, *STORIES.tokenizer.encode("I can't")]]
    assert page["read"]("").tolist() == [[0]]
    with pytest.raises(ValueError, match="no word 'zebra'"):
        page["read"]("my zebra")
    with pytest.raises(ValueError, match="reads at most 4 words, and this text has 5"):
        page["read"]("my my my my my", room=5)


def check_possible(possible):
    for story in data.PencilStories(seed=9).sample(20):
        assert possible(story) and not possible(story + " my") and not possible(story.split(" ", 1)[1])
    assert not possible(SENTENCE) and not possible("")  # not over yet


def test_possible(page):
    check_possible(page["possible"])
    with pytest.raises(AssertionError):
        check_possible(lambda story: all(word in WORDS for word in story.split()))


def test_leak_is_the_probability_of_impossible_words(page):
    story = data.PencilStories(seed=9).sample(1)[0]
    lost = page["leak"](story, [0.5, 1.0, 1e6])
    assert lost.shape == (len(story.split()) + 1, 3) and lost.min() >= -1e-9 and lost.max() <= 1
    possible = [len(STORIES.next_word(" ".join(story.split()[:t]), held_out=True)) for t in range(len(lost))]
    np.testing.assert_allclose(lost[:, 2], [1 - n / len(WORDS) for n in possible], atol=1e-3)  # all words alike


def test_stories_of_an_untrained_model_are_impossible(page):
    texts = page["write_stories"](5, top_k=3)
    assert len(texts) == 5 and not any(page["possible"](text) for text in texts)
    assert page["show_stories"](temperature=0.0).startswith("possible: 0 of 20; different: 1")


# -- beam search --


def test_as_model_gives_the_tree(page):
    logits = page["toy"](torch.tensor([[0, 3], [0, 2]]))
    assert logits.shape == (2, 2, 7)
    torch.testing.assert_close(logits[0, 1].exp(), torch.tensor([0, 0, 0, 0, 0.9, 0.1, 0]))
    torch.testing.assert_close(logits[1, 0].exp(), torch.tensor([0, 0, 0.6, 0.4, 0, 0, 0]))


def check_beam(search, toy):
    greedy, wide = search(toy, [0], 2, 1)[0], search(toy, [0], 2, 2)[0]
    assert greedy[0] == [0, 2, 4] and math.isclose(greedy[1], math.log(0.24), abs_tol=1e-6)
    assert wide[0] == [0, 3, 4] and math.isclose(wide[1], math.log(0.36), abs_tol=1e-6)
    ends = random(7, 7, seed=4)  # a model that looks at the last token alone; 1 ends
    ends[:, 1] += 2  # so that sentences of different lengths are found
    for beam, alpha in ((1, 0.0), (3, 0.0), (3, 0.6), (5, 2.0)):
        ours = search(lambda ids: ends[ids], [0], 6, beam, alpha, 1)
        theirs = beam_search(lambda ids: ends[ids], torch.tensor([0]), 6, beam=beam, alpha=alpha, end_id=1)
        assert [ids for ids, _ in ours] == [row.tolist() for row, _ in theirs]
        np.testing.assert_allclose([p for _, p in ours], [p for _, p in theirs], atol=1e-5)


def test_beam_by_hand(page):
    check_beam(page["beam_by_hand"], page["toy"])


def test_a_greedy_beam_and_one_that_forgets_the_end_are_caught(page):
    def greedy(model, ids, n_new, beam, alpha=0.0, end_id=None):
        return page["beam_by_hand"](model, ids, n_new, 1, alpha, end_id)

    def no_end(model, ids, n_new, beam, alpha=0.0, end_id=None):
        return page["beam_by_hand"](model, ids, n_new, beam, alpha)

    for wrong in (greedy, no_end):
        with pytest.raises(AssertionError):
            check_beam(wrong, page["toy"])


def test_length_penalty(page):
    assert page["length_penalty"](1, 0.6) == page["length_penalty"](9, 0) == 1
    assert math.isclose(page["length_penalty"](7, 0.5), math.sqrt(2))


def test_the_tree_shows_what_is_kept(page):
    one, two = page["draw_tree"](1), page["draw_tree"](2)
    assert isinstance(one, plots.Picture) and one.alt.endswith("Kept: a, a c. Best found: a c, 0.240.")
    assert two.alt.endswith("Kept: a, a c, b, b c. Best found: b c, 0.360.")


def test_cut_story(page):
    story = "I just found my dog nobody knows why our collar broke"
    assert page["cut_story"](story, "object open") == "I just found my"
    assert page["cut_story"](story, "ending open") == "I just found my dog nobody knows why"


def test_a_beam_of_four_gains_nothing_below_zero_in_one_step(page):
    ((gain, one, four),) = page["gains"](page["model"], [" ".join(["my"] * (STORIES.max_len - 2))])  # one word left
    assert gain == 0 and one == four


# -- the cache --


def test_attention_of_the_newest(page):
    Q, K, V = random(6, 5, seed=1), random(6, 5, seed=2), random(6, 3, seed=3)
    wanted = F.scaled_dot_product_attention(Q[None], K[None], V[None], is_causal=True)[0]
    torch.testing.assert_close(page["attend_all"](Q, K, V), wanted)
    torch.testing.assert_close(page["attend_new"](Q[-1], K, V), wanted[-1])
    torch.testing.assert_close(page["attend_new"](Q[3], K[:4], V[:4]), wanted[3])


def check_step(step, n_layers):
    model, ids = (
        writer(n_layers, vocab_size=17, max_len=9),
        torch.randint(17, (2, 9), generator=torch.Generator().manual_seed(1)),
    )
    kept = [{} for _ in model.layers]
    with torch.no_grad():
        rows = torch.stack([step(model, ids[:, t : t + 1], kept, t) for t in range(9)], dim=1)
        torch.testing.assert_close(rows, model(ids), atol=1e-4, rtol=1e-4)
    assert kept[-1]["k"].shape == (2, 3, 9, 8)


@pytest.mark.parametrize("n_layers", [1, 3])
def test_reading_with_a_cache(page, n_layers):
    check_step(page["read_one"], n_layers)


def test_position_0_and_a_cache_of_two_layers_in_one_are_caught(page):
    def one_dict_for_all(model, new_id, kept, position):
        return page["read_one"](model, new_id, kept[:1] * len(kept), position)

    for wrong in (page["always_zero"], one_dict_for_all):
        with pytest.raises(AssertionError):
            check_step(wrong, n_layers=2)


def test_check_cached_names_the_tokens_that_differ(page):
    assert page["check_cached"](page["read_one"]).max() < 1e-4
    wrong = page["check_cached"](page["always_zero"])
    assert wrong.shape == (12,) and wrong[0] < 1e-4 and wrong[1:].min() > 0.01
    with torch.no_grad():
        torch.testing.assert_close(page["one_by_one"](SENTENCE), page["logits"][0, -1], atol=1e-4, rtol=1e-4)


def test_rows_made(page):
    model = writer(n_layers=3, vocab_size=9, max_len=6)
    assert page["rows_made"](8, True, model) == [1] * 6 + [6] * 2  # the window is full after six
    assert page["rows_made"](8, False, model) == [1, 2, 3, 4, 5, 6, 6, 6]
    lines = page["show_rows"](3).splitlines()
    assert lines[0].endswith("all anew: 6 rows") and [line.split() for line in lines[1:]] == [
        ["#", "#"],
        [".#", "##"],
        ["..#", "###"],
    ]


def test_nanogpt_loop(page):
    model, ids = writer(vocab_size=9, max_len=5), torch.tensor([[2, 7]])
    with torch.no_grad():
        written = page["nanogpt_loop"](model, ids, 6)
    assert torch.equal(written, generate(model, ids, 6, temperature=0, use_cache=False))


# -- exercises --


def test_the_loops_of_the_exercises(page):
    row = random(12, seed=6).double()
    for temperature in (0, 0.4, 3.0):
        wanted = next_token_probs(row, temperature)
        np.testing.assert_allclose(page["temperature_slow"](row.numpy(), temperature), wanted, atol=1e-9)
    for k, p in ((1, 0.1), (5, 0.6), (12, 0.99)):
        assert page["top_k_slow"](row.numpy(), k).tolist() == filter_logits(row, top_k=k).isfinite().tolist()
        probs = row.softmax(-1)
        assert page["top_p_slow"](probs.numpy(), p).tolist() == filter_logits(row, top_p=p).isfinite().tolist()
    assert page["top_k_slow"](np.zeros(4), 2).tolist() == [True, True, False, False]
    q, K, V = random(5), random(4, 5, seed=2), random(4, 5, seed=3)
    slow = page["cache_step_slow"](q.numpy(), K[3].numpy(), V[3].numpy(), K[:3].numpy(), V[:3].numpy())
    np.testing.assert_allclose(slow, page["attend_new"](q, K, V), atol=1e-5)


def softmax(x):
    return np.exp(x - x.max()) / np.exp(x - x.max()).sum()


def top_k(logits, k):
    keep = np.zeros(len(logits), dtype=bool)
    keep[np.argsort(-logits, kind="stable")[:k]] = True
    return keep


def top_p(probs, p):
    order = np.argsort(-probs, kind="stable")
    keep = np.zeros(len(probs), dtype=bool)
    keep[order] = np.cumsum(probs[order]) - probs[order] < p
    return keep


SOLUTIONS = {
    "temperature": lambda logits, t: softmax(logits / t) if t else np.eye(len(logits))[logits.argmax()],
    "top_k": top_k,
    "top_p": top_p,
    "cache_step": lambda q, k, v, K, V: softmax(np.vstack([K, k]) @ q / math.sqrt(len(q))) @ np.vstack([V, v]),
}
MISTAKES = {
    "temperature": lambda logits, t: softmax(logits * t),
    "top_k": lambda logits, k: logits >= np.sort(logits)[::-1][min(k, len(logits)) - 1],  # keeps all that are tied
    "top_p": lambda probs, p: np.cumsum(probs) - probs < p,  # in the order of the words
    "cache_step": lambda q, k, v, K, V: softmax(K @ q / math.sqrt(len(q))) @ V,  # does not look at itself
}


@pytest.mark.parametrize("exercise", SOLUTIONS)
def test_exercises(page, exercise):
    row = random(9, seed=7).double().numpy()
    new, old = random(3, 4, seed=8).numpy(), random(2, 5, 4, seed=9).numpy()
    cases = {
        "temperature": [(row, 0.5), (100 * row, 0.01), (row, 0)],
        "top_k": [(row, 3), (np.array([1.0, 2.0, 2.0, 2.0]), 2), (row, 20)],
        "top_p": [(softmax(row), 0.5), (softmax(row), 0.001), (np.array([0.15, 0.5, 0.05, 0.3]), 0.7)],
        "cache_step": [(*new, *old), (*new, *old[:, :1])],
    }[exercise]
    slow = page[f"{exercise}_slow"]
    assert "equal to" in verdict(SOLUTIONS[exercise], slow, *cases)
    assert "not written yet" in verdict(page[f"my_{exercise}"], slow, *cases)
    assert "other numbers" in verdict(MISTAKES[exercise], slow, *cases)
