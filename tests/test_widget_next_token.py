"""NextToken: bars of what comes next, and what temperature, top-k and top-p make of them."""

import numpy as np
import pytest
import torch

from course_utils import generate
from course_utils.data import PencilStories
from course_utils.widgets.next_token import NextToken, next_token_probs

WORDS = ["ran", "broke", "sank", "snapped"]
LOGITS = np.log([0.1, 0.5, 0.15, 0.25])


def numbers(view, name):
    return np.frombuffer(getattr(view, name), np.float32).tolist()


def check_probs(probs):
    """Agreement with the course's own filters, also where logits are equal, masked or huge."""
    random = np.random.default_rng(3)
    rows = [*random.normal(0, 3, (6, 9)), np.zeros(5), np.array([1.0, 3, 3, -np.inf, 2]), np.array([900.0, -900, 899])]
    for logits in rows:
        for temperature in (0, 0.3, 1.0, 2.0):
            for top_k, top_p in [(None, None), (2, None), (None, 0.6), (3, 0.5), (99, 0.05), (1, 1.0)]:
                expected = generate.next_token_probs(torch.tensor(logits), temperature, top_k, top_p)
                np.testing.assert_allclose(probs(logits, temperature, top_k, top_p), expected, atol=1e-9)


def test_probabilities_equal_the_generator_s():
    check_probs(next_token_probs)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda z, t, k, p: next_token_probs(z, t, k, None),  # top-p forgotten
        lambda z, t, k, p: next_token_probs(z, 1 / t if t else 0, k, p),  # multiplied by the temperature
        lambda z, t, k, p: next_token_probs(z, t, k, p) * (1 if k is None else 0.9),  # not renormalised
    ],
)
def test_wrong_filters_are_caught(wrong):
    with pytest.raises(AssertionError):
        check_probs(wrong)


def test_bars_are_sorted_and_what_is_cut_keeps_its_former_probability():
    view = NextToken(LOGITS, WORDS)
    assert view.names == ["broke", "snapped", "sank", "ran"] and not view.others
    assert numbers(view, "final") == pytest.approx([0.5, 0.25, 0.15, 0.1])
    view.controls["top_k"].value = 2
    assert numbers(view, "final") == pytest.approx([2 / 3, 1 / 3, 0, 0])
    assert numbers(view, "former") == pytest.approx([0.5, 0.25, 0.15, 0.1])
    assert view.summary == "2 of 4 words can be drawn; together they had 0.750 before the cut."
    assert view.details[2] == "sank: logit -1.897, probability 0.1500 before, now cut off: it cannot be drawn."
    view.controls["top_k"].value = 0
    view.controls["temperature"].value = 0.5
    assert numbers(view, "former") == numbers(view, "final") == pytest.approx(np.array([50, 12.5, 4.5, 2]) / 69)
    view.controls["temperature"].value = 0
    assert numbers(view, "final") == [1, 0, 0, 0] and view.summary.startswith("Temperature 0")


def test_the_rest_is_summed():
    view = NextToken(LOGITS, WORDS, top=2)
    assert view.names == ["broke", "snapped", "others"] and view.others
    assert numbers(view, "final") == pytest.approx([0.5, 0.25, 0.25])
    view.controls["top_p"].value = 0.85
    assert numbers(view, "final") == pytest.approx([5 / 9, 2.5 / 9, 1.5 / 9])  # one of the two others is cut
    assert view.details[2] == "2 other words: probability 0.1667, before the cut 0.2500."
    assert NextToken(LOGITS, WORDS, top=3).names[-1] == "ran"  # a sum of one is that one


def test_the_page_s_own_function_makes_the_probabilities():
    asked = []

    def probs(logits, temperature, top_k, top_p):
        asked.append((temperature, top_k, top_p))
        return generate.next_token_probs(logits, temperature, top_k, top_p)

    view = NextToken(torch.tensor(LOGITS), WORDS, probs=probs)
    view.controls["top_p"].value = 0.6
    assert asked[-1] == (1.0, None, 0.6)
    assert numbers(view, "final") == pytest.approx([2 / 3, 1 / 3, 0, 0])


def test_wrong_probabilities_of_the_page_are_told():
    view = NextToken(LOGITS, WORDS, probs=lambda logits, temperature, top_k, top_p: np.exp(logits) / 2)
    assert "add up to 1" in view.error and "0.5" in view.error


def test_a_function_of_a_text_is_asked_again_only_when_its_own_arguments_change():
    asked = []

    def logits(text, step=0):
        asked.append((text, step))
        return LOGITS + step * np.eye(4)[0]

    view = NextToken(logits, WORDS, text="my lead", step=(0, 9))
    view.controls["temperature"].value = 2.0
    view.controls["step"].value = 9
    assert asked == [("my lead", 0), ("my lead", 9)] and view.names[0] == "ran"
    view.box.value = "my pencil"
    assert asked[-1] == ("my pencil", 9)
    assert list(view.controls) == ["text", "step", "temperature", "top_k", "top_p"]


def test_a_dict_has_nothing_to_filter_and_unknown_words_are_told():
    stories = PencilStories()
    view = NextToken(stories.next_word, text="I just dropped my")
    expected = stories.next_word("I just dropped my")
    assert list(view.controls) == ["text"] and view.names[:3] == list(expected)[:3]
    assert numbers(view, "final")[:3] == pytest.approx(list(expected.values())[:3])
    assert sum(numbers(view, "final")) == pytest.approx(1)
    assert view.summary == f"{len(expected)} words can come next." and len(expected) > 3
    view.box.value = "I just zzz"
    assert view.error.startswith("next_word: ") and "'zzz'" in view.error
    view.box.value = "I just dropped my"
    assert view.error == ""


def test_a_dict_may_leave_words_out():
    view = NextToken({"broke": 0.6, "snapped": 0.25})
    assert view.names == ["broke", "snapped", "others"]
    assert numbers(view, "final") == pytest.approx([0.6, 0.25, 0.15])
    assert view.summary == "2 words can come next; others, not named, can too."
    assert NextToken({"broke": 1.0, "snapped": 0.0}).summary == "1 word can come next."


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (np.zeros((1, 3, 4)), r"(1, 3, 4)"),
        (np.full(4, np.nan), "NaN"),
        (np.full(4, -np.inf), "NaN or infinity"),
        ({"a": 1.0}, "leave `words` out"),
        (None, "shape (4,)"),
    ],
)
def test_wrong_logits_are_told_and_the_next_good_ones_recover(result, words):
    view = NextToken(lambda good=True: LOGITS if good else result, WORDS, good=True)
    view.controls["good"].value = False
    assert words in view.error and view.names[0] == "broke"
    view.controls["good"].value = True
    assert view.error == ""


@pytest.mark.parametrize("result", [None, [0.5, 0.5], {}, {"a": 0.9, "b": 0.9}, {"a": -0.5}, {"a": float("nan")}])
def test_a_wrong_dict_is_told(result):
    assert "dict" in NextToken(lambda: result).error


def test_an_array_without_words_is_refused():
    with pytest.raises(ValueError, match="Bars need names"):
        NextToken(LOGITS)
    with pytest.raises(ValueError, match="no argument of that name"):
        NextToken(lambda text: LOGITS, WORDS, text="", stepp=(0, 9))


def test_the_held_bar_stays_and_ends_with_the_bars():
    view = NextToken(LOGITS, WORDS, filters=False, chosen=3)
    assert view.chosen == 3 and view.controls == {}
    short = NextToken(lambda text: dict.fromkeys(text, 1 / len(text)), text="abcd", chosen=3)
    short.box.value = "ab"
    assert short.chosen == -1 and short.rows == 13  # the room of the first stays


def test_words_that_look_like_html_mathematics_or_emoji(tmp_path):
    words = ["<script>", "$x$", "🙂", "\ud83d"]
    view = NextToken(LOGITS, words, chosen=1)
    view.controls["top_k"].value = 1
    assert "<script>" not in view.still_html().replace("&lt;script&gt;", "")
    assert view.alt().startswith("Bars of the next token: $x$ 1.00. 1 of 4 words")
    assert repr(view) == "NextToken(4 words, 4 bars)"
    for ending in ("svg", "png"):
        view.save(tmp_path / f"bars.{ending}")
        assert (tmp_path / f"bars.{ending}").stat().st_size > 3000


def test_cut_bars_are_hatched_in_the_picture():
    view = NextToken(LOGITS, WORDS)
    view.controls["top_k"].value = 2
    ax = view.figure().axes[0]
    hatched = [patch.get_width() for patch in ax.patches if patch.get_hatch()]
    assert hatched == pytest.approx([0.15, 0.1])
    assert [text.get_text() for text in ax.texts][2:4] == ["cut off, was 0.15", "cut off, was 0.10"]
