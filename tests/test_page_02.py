"""The functions of notebook 02, on tables and words that the page does not show."""

import numpy as np
import pytest

from course_utils import plots, vectors
from page_code import definitions

WORDS, TABLE = vectors.load()
WANTED = {"father": "mother", "uncle": "aunt"}
TOY_WORDS, TOY = vectors.toy_plane()


@pytest.fixture(scope="module")
def page():
    return definitions(
        "02",
        words=WORDS,
        E=TABLE.astype(float),
        toy=TOY,
        toy_words=TOY_WORDS,
        toy_of=dict(zip(TOY_WORDS, TOY, strict=True)),
        wanted=WANTED,
        shown=["cat", "lead", "moon"],
    )


def check_cosines(cosines):
    rows = np.array([[6.0, 8.0], [-4.0, 3.0], [4.0, 3.0]])
    np.testing.assert_allclose(cosines(np.array([3.0, 4.0]), rows), [1.0, 0.0, 0.96], atol=1e-12)
    rng = np.random.default_rng(1)
    target, rows = rng.normal(size=7), rng.normal(size=(5, 7))
    slow = [
        sum(a * b for a, b in zip(target, row, strict=True)) / np.sqrt(target @ target) / np.sqrt(row @ row)
        for row in rows
    ]
    np.testing.assert_allclose(cosines(target, rows), slow, atol=1e-12)


def test_cosines(page):
    check_cosines(page["cosines"])


def test_cosines_without_one_of_the_lengths_are_caught():
    for wrong in (
        lambda target, rows: rows @ target,
        lambda target, rows: rows @ target / np.linalg.norm(target),
        lambda target, rows: rows @ target / np.linalg.norm(rows) / np.linalg.norm(target),
    ):
        with pytest.raises(AssertionError):
            check_cosines(wrong)


def check_count_right(count_right):
    doubles = {"ab": "abab", "x": "xx", "qq": "q"}
    assert count_right(lambda start, a, b: doubles.get(start), "y yy", "ab abab x xx qq qqqq") == (2, 3)
    asked = []
    count_right(lambda *words: asked.append(words), "go went", "come came run ran")
    assert asked == [("come", "go", "went"), ("run", "go", "went")]


def test_count_right(page):
    check_count_right(page["count_right"])


def test_count_right_with_couples_the_wrong_way_round_is_caught(page):
    def turned(method, kind, couples):
        return page["count_right"](method, kind, " ".join(couples.split()[::-1]))

    with pytest.raises(AssertionError):
        check_count_right(turned)


def check_arithmetic(arithmetic):
    assert arithmetic("prince", "man", "woman") == "princess"
    assert arithmetic("dad", "man", "woman") == "mom"
    assert arithmetic("king", "queen", "duchess") == "duke"


def test_arithmetic(page):
    check_arithmetic(page["arithmetic"])


def test_the_lazy_method_and_a_wrong_sign_are_no_arithmetic(page):
    with pytest.raises(AssertionError):
        check_arithmetic(page["lazy"])
    with pytest.raises(AssertionError):
        check_arithmetic(lambda start, a, b: page["arithmetic"](start, b, a))


def test_lazy_never_answers_with_a_word_of_the_question(page):
    assert page["lazy"]("king", "man", "woman") == "kings"
    assert page["lazy"]("king", "kings", "woman") == "queen"


def test_more_candidates_can_only_bring_better_ones(page):
    best = [page["compete"]("father", n)[0][1] for n in (10, 60, 150, 300, 417)]
    assert best == sorted(best) and best[0] < best[-1]
    assert page["compete"]("uncle", 417)[0][0] == "aunt"
    assert {word for word, _ in page["compete"]("father", 10)} <= {"mother", *WORDS[:10]}


def check_lean_gap(lean_gap):
    assert lean_gap([5.0, 1.0, 3.0, 10.0], [0, 2], [1]) == 3.0
    assert lean_gap([0.0, 2.0, 4.0], [0], [1, 2]) == -3.0


def test_lean_gap(page):
    check_lean_gap(page["lean_gap"])


def test_lean_gap_of_sums_or_turned_round_is_caught(page):
    with pytest.raises(AssertionError):
        check_lean_gap(lambda values, a, b: page["lean_gap"](values, b, a))
    with pytest.raises(AssertionError):
        check_lean_gap(lambda values, a, b: sum(values[i] for i in a) - sum(values[i] for i in b))


def test_embed_takes_one_row_a_word_whatever_stands_beside_it(page):
    rows = page["embed"]("a cat has a cat")
    assert rows.shape == (5, 384)
    np.testing.assert_array_equal(rows[[0, 1]], rows[[3, 4]])
    np.testing.assert_array_equal(rows[1], TABLE[WORDS.index("cat")])
    with pytest.raises(ValueError, match="'pensil'"):
        page["embed"]("my pensil")


def test_used_like_ranks_rows_of_counts(page):
    page["story_words"], page["row_of"] = ["a", "b", "c", "d"], dict(zip("abcd", range(4), strict=True))
    page["counts"] = np.array([[0, 9, 0, 1], [9, 0, 8, 2], [0, 4, 0, 0], [1, 2, 0, 3]], dtype=float)
    assert page["used_like"]("a", 2) == ["c", "d"]  # a and c both stand beside b, a and b beside one another


@pytest.mark.parametrize(
    "call, says",
    [
        ("neighbours('Seven')", "six is first"),
        ("neighbours('car', 'dot product')", "cat is first"),
        ("neighbours('car', 'cosine')", "house is first"),
        ("push('king', 1.0, True)", "queen is first"),
        ("push('king', 1.0, False)", "king is first with 0.67"),
        ("push('king', 2.0, False)", "woman is first"),
        ("show_compete('father', 417)", "dad is first"),
        ("mix_in('copper', 0.5)", "gold is first"),
        ("look_along('dog', 'cat', 'sun', 'moon')", "dog to cat and sun to moon"),
    ],
)
def test_pictures_say_what_they_show(page, call, says):
    picture = eval(call, page)
    assert isinstance(picture, plots.Picture) and says in picture.alt


def test_nearest_in_toy(page):
    page["toy_of"] = {"a": np.array([0.0, 0.0]), "king": np.array([9.0, 9.0]), "b": np.array([3.0, 4.0])}
    found = page["nearest_in_toy"](np.array([3.0, 3.0]))
    assert found["You are nearest to"] == "b" and list(found)[1:] == ["b", "a"]  # nearest first, king left out
    assert found["b"] == 1 and found["a"] == pytest.approx(18**0.5)


def test_a_word_that_is_not_there_is_named(page):
    with pytest.raises(ValueError, match="pencil"):
        page["neighbours"]("pensil")
