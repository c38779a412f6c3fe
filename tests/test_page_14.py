"""What page 14 defines, tried on sizes the page does not show; each check is proved able to fail."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import course_utils
from course_utils import data, plots, train
from course_utils.model import Transformer, TransformerConfig
from page_code import definitions, verdict

torch.set_num_threads(1)
NUMBERS = data.EnglishGermanNumbers()
CONFIG = TransformerConfig(NUMBERS.vocab_size, d_model=16, n_heads=2, n_layers=2, d_ff=16, max_len=12, dropout=0.0)


def untrained(seed=0):
    course_utils.seed(seed)
    return Transformer(CONFIG).eval()


@pytest.fixture(scope="module")
def page():
    words = {NUMBERS.say(n)[1]: NUMBERS.say(n)[0] for n in (*range(1, 20), *range(20, 100, 10))}
    return definitions(
        "14",
        numbers=NUMBERS,
        config=CONFIG,
        right=NUMBERS.say(42)[1].split(),
        steps=np.arange(1, 251),
        word_of=words | {"ein": "one", "hundert": "hundred", "tausend": "thousand"},
        crossings=[3, 5],
        model=untrained(),
        early_model=untrained(1),
        layer=1,
        head=0,
    )


# -- targets and rates --


def check_smooth(smooth):
    got = smooth(torch.tensor([[0, 2]]), 3, 0.3)
    torch.testing.assert_close(got, torch.tensor([[[0.8, 0.1, 0.1], [0.1, 0.1, 0.8]]]))


def spread_over_the_wrong_ones(targets, vocab_size, epsilon):
    one_hot = F.one_hot(targets, vocab_size)
    return (1 - epsilon) * one_hot + epsilon / (vocab_size - 1) * (1 - one_hot)


def test_smoothing(page):
    check_smooth(page["smooth"])
    logits, targets = torch.randn(4, 7, generator=torch.Generator().manual_seed(1)), torch.tensor([6, 0, 3, 3])
    torch.testing.assert_close(
        page["smoothed_loss"](logits, targets, 0.2), F.cross_entropy(logits, targets, label_smoothing=0.2)
    )
    with pytest.raises(AssertionError):
        check_smooth(spread_over_the_wrong_ones)


@pytest.mark.parametrize("vocab_size, epsilon", [(8, 0.2), (37_000, 0.1)])
def test_the_least_loss_is_the_floor(page, vocab_size, epsilon):
    best = 1 - epsilon + epsilon / vocab_size
    floor = train.smoothing_floor(vocab_size, epsilon)
    assert math.isclose(page["loss_at"](best, epsilon, vocab_size), floor)
    for p in (best - 0.01, best + 0.01):
        assert page["loss_at"](p, epsilon, vocab_size) > floor


def test_rate(page):
    for step in (1, 7, 8, 9, 1000):
        wanted = train.paper_schedule(step, steps=1000, lr=3 * (32 * 8) ** -0.5, warmup=8)
        assert math.isclose(page["paper_rate"](step, 32, 8, 3), wanted)
    with pytest.raises(ZeroDivisionError):
        page["paper_rate"](0, 32, 8)


# -- translations --


def test_teacher_forcing_reads_the_right_words(page):
    assert page["what_it_reads"]("vierzig", "writing").splitlines()[2].split()[:2] == ["<start>", "vierzig"]
    assert page["what_it_reads"]("vierzig", "training").splitlines()[2].split()[:2] == ["<start>", "zwei"]


def test_exact_match_asks_for_every_word(page):
    pairs = [("one", "eins"), ("two", "zwei"), ("two hundred", "zwei hundert"), ("three", "drei")]
    assert page["exact_match"](["eins", "drei", "zwei", "drei"], pairs) == 0.5


def test_probabilities_are_those_of_the_lessons(page):
    pairs, model = [NUMBERS.say(7), NUMBERS.say(42_000)], page["model"]
    probs, targets = page["probabilities"](model, pairs)
    assert targets.tolist() == [*NUMBERS.encode("sieben"), 2, *NUMBERS.encode("zwei und vierzig tausend"), 2]
    loss = -probs.log()[range(len(targets)), targets].mean().item()
    assert math.isclose(loss, train.evaluate(model, *NUMBERS.arrays(pairs)), rel_tol=1e-5)
    assert page["words_right"](model, pairs) == (probs.argmax(-1) == targets).double().mean().item()


def test_only_the_first_word_is_spoilt(page):
    """A model that says what it has read: after a wrong first word, one word of each number is wrong."""

    class Echo(torch.nn.Module):
        def forward(self, source, read):
            return F.one_hot(read, NUMBERS.vocab_size).float()

    told_right, told_wrong = page["right_after_mistake"](Echo(), [("two two", "zwei zwei")], np.random.default_rng(0))
    assert (told_right, told_wrong) == (0.5, 0.0)  # the second "zwei" echoes the first; the end echoes nothing


def test_writing_goes_on_from_the_given_word(page):
    for steps in ("90", "250"):
        said = page["go_on"]("sieben", "two", steps)
        assert said.startswith("two -> sieben") and len(said.split()) <= 13
    with pytest.raises(ValueError, match="fourty"):
        page["read_number"]("fourty")
    with pytest.raises(ValueError, match="empty"):
        page["read_number"]("  ")
    assert page["read_number"]("042") == NUMBERS.encode("forty-two")


# -- attention --


def looking(place_of, pairs):
    """Weights (B, 1, 1, 12, 12) of a head whose row t looks at place_of(number, t) alone."""
    weights = np.zeros((len(pairs), 1, 1, 12, 12))
    for b, t in np.ndindex(len(pairs), 12):
        weights[b, 0, 0, t, place_of(b, t)] = 1
    return weights


def test_alignment_knows_the_crossing(page):
    pairs = [NUMBERS.say(42), NUMBERS.say(5)]
    crossed = looking(lambda b, t: (1, 0, 0, 0)[t] if b == 0 and t < 4 else 0, pairs)
    assert page["alignment"](crossed, pairs).tolist() == [[1.0]]
    side_by_side = looking(lambda b, t: min(t, 1) if b == 0 else 0, pairs)
    assert page["alignment"](side_by_side, pairs).round(3).tolist() == [[0.333]]  # "five" alone


def test_share_on_a_word(page):
    pairs = [NUMBERS.say(105), NUMBERS.say(7)]  # one hundred and five -> ein hundert fünf; seven has no "and"
    weights = looking(lambda b, t: 2 if t == 3 else 0, pairs)  # row 3 writes the end
    assert page["share_on"]("and", weights, pairs, writes_end=True).tolist() == [[1.0]]
    assert page["share_on"]("and", weights, pairs, writes_end=False).tolist() == [[0.0]]
    assert page["even_share"]("and", pairs) == 0.25


def test_across_gives_the_cross_attention(page):
    weights = page["across"](page["model"], [NUMBERS.say(42), NUMBERS.say(7)])
    assert weights.shape == (2, 2, 2, 12, 12)
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)
    assert weights[0, ..., 2:].max() == 0  # nobody looks at the padding behind two words


# -- exercises --


def solved_exact(written, right, end=2):
    counts = [(np.cumsum(ids == end, axis=1) - (ids == end)) == 0 for ids in (written, right)]
    differ = (written != right) & (counts[0] | counts[1])
    return (~differ.any(axis=1)).mean()


def solved_greedy(scores, n, n_new):
    ids, ended = np.ones((n, 1), dtype=int), np.zeros(n, dtype=bool)
    for _ in range(n_new):
        new = np.where(ended, 0, scores(ids).argmax(-1))
        ended |= new == 2
        ids = np.hstack([ids, new[:, None]])
    return ids[:, 1:]


def greedy_past_the_end(scores, n, n_new):
    ids = np.ones((n, 1), dtype=int)
    for _ in range(n_new):
        ids = np.hstack([ids, scores(ids).argmax(-1)[:, None]])
    return ids[:, 1:]


def solved_smooth(targets, vocab_size, epsilon):
    smoothed = (1 - epsilon) * np.eye(vocab_size)[np.maximum(targets, 0)] + epsilon / vocab_size
    return smoothed * (targets != -100)[..., None]


SOLUTIONS = {
    "smooth": solved_smooth,
    "rate": lambda steps, d_model, warmup: d_model**-0.5 * np.minimum(steps**-0.5, steps * warmup**-1.5),
    "exact": solved_exact,
    "greedy": solved_greedy,
}
MISTAKES = {
    "smooth": lambda targets, vocab_size, epsilon: (
        (1 - epsilon) * np.eye(vocab_size)[np.maximum(targets, 0)] + epsilon / vocab_size  # lessons at the padding
    ),
    "rate": lambda steps, d_model, warmup: d_model**-0.5 * np.maximum(steps**-0.5, steps * warmup**-1.5),
    "exact": lambda written, right, end=2: (written == right).all(axis=1).mean(),
    "greedy": greedy_past_the_end,
}


@pytest.mark.parametrize("exercise", SOLUTIONS)
def test_exercises(page, exercise):
    ids, spoilt = np.array([[4, 2, 7], [3, 3, 2], [4, 4, 4]]), np.array([[4, 2, 0], [3, 5, 2], [4, 4, 4]])
    cases = {
        "smooth": [(np.array([[2, -100], [0, 1]]), 5, 0.2)],
        "rate": [(np.array([1.0, 5, 6, 7, 50]), 8, 6)],
        "exact": [(ids, spoilt), (ids, ids)],
        "greedy": [(page["made_up"], 4, 6)],
    }[exercise]
    slow = page[f"{exercise}_slow"]
    assert "equal to" in verdict(SOLUTIONS[exercise], slow, *cases)
    assert "not written yet" in verdict(page[f"my_{exercise}"], slow, *cases)
    assert "other numbers" in verdict(MISTAKES[exercise], slow, *cases)


def test_the_slow_loops(page):
    assert page["rate_slow"](np.array([4.0, 16.0]), 4, 16).tolist() == [0.5 * 4 / 64, 0.125]
    assert page["exact_slow"](np.array([[4, 2, 7], [3, 3, 2]]), np.array([[4, 2, 0], [3, 5, 2]])) == 0.5
    said = page["greedy_slow"](page["made_up"], 3, 4)
    assert said[0].tolist() == [4, 2, 0, 0]  # 3 * 1 + 1 + 0, then 3 * 4 + 2 + 0, modulo 6: the end


# -- pictures --


@pytest.mark.parametrize(
    "call, says",
    [
        ("show_floor(0.0, 66)", "least 0.00 nats at 1.00"),
        ("show_floor(0.1, 37_000)", "least 1.38 nats at 0.90"),
        ("show_rate(50, 1.0)", "highest at step 50 with 0.0177"),
        ("show_rate(4000, 1.0)", "highest at step 250 with 0.0001"),
        ("translate_typed('42')", "rows look at forty, two."),
    ],
)
def test_pictures_say_what_they_show(page, call, says):
    picture = eval(call, page)
    assert isinstance(picture, plots.Picture) and says in picture.alt
