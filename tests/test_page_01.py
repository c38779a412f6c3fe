"""What page 01 defines, tried on texts the page does not show."""

import random
from itertools import pairwise

import numpy as np
import pytest

from course_utils import shifted_seed, text
from course_utils.text import BPETokenizer
from page_code import definitions

GPT2 = BPETokenizer.gpt2()


def symbols():
    """GPT-2's order of the bytes, found another way than the page does: by what prints."""
    printable = [b for b in range(256) if chr(b).isprintable() and not chr(b).isspace()]
    return {b: i for i, b in enumerate(printable + [b for b in range(256) if b not in printable])}


@pytest.fixture(scope="module")
def page():
    return definitions("01", gpt2=GPT2, gpt2_split=text._PIECE, id_of_byte=symbols())


def random_texts(n, alphabet="aabbc dé’'1!\n"):
    rng = random.Random(shifted_seed(1))
    return ["".join(rng.choices(alphabet, k=rng.randint(1, 80))) for _ in range(n)]


# --- the parts of byte-pair encoding -----------------------------------------------------------


def check_count_pairs(count_pairs):
    counts = count_pairs([list("aaa"), list("ba"), list("a")])
    assert dict(counts) == {("a", "a"): 2, ("b", "a"): 1}
    assert dict(count_pairs([])) == {}


def test_count_pairs(page):
    check_count_pairs(page["count_pairs"])


def test_counting_across_words_is_caught(page):
    with pytest.raises(AssertionError):
        check_count_pairs(lambda words: page["count_pairs"]([[token for word in words for token in word]]))


def check_merge_pair(merge_pair):
    assert merge_pair([1, 1, 1, 2, 1], (1, 1), 9) == [9, 1, 2, 1]
    assert merge_pair([1, 2, 1, 2, 2], (1, 2), 9) == [9, 9, 2]
    assert merge_pair([2, 1], (1, 2), 9) == [2, 1]
    assert merge_pair([], (1, 2), 9) == []


def test_merge_pair(page):
    check_merge_pair(page["merge_pair"])


def test_merging_from_the_right_is_caught(page):
    def wrong(word, pair, new):
        return page["merge_pair"](word[::-1], pair[::-1], new)[::-1]

    with pytest.raises(AssertionError):
        check_merge_pair(wrong)


def check_learn_merges(learn_merges, page):
    for sample in random_texts(20):
        words = [page["byte_ids"](piece) for piece in GPT2.pieces(sample)]
        ours = learn_merges(words, 25, page["next_id"])
        assert list(ours.items()) == list(BPETokenizer.train(sample, vocab_size=281).merges.items()), repr(sample)


def test_learn_merges_equals_the_packages(page):
    check_learn_merges(page["learn_merges"], page)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda counts: sorted(counts, key=lambda pair: -counts[pair]),  # of equals, the one met first
        lambda counts: sorted(counts, key=lambda pair: (counts[pair], pair)),  # the rarest
    ],
)
def test_a_wrong_choice_of_pair_is_caught(wrong):
    page = definitions("01", id_of_byte=symbols())
    page["by_frequency"] = wrong
    with pytest.raises(AssertionError):
        check_learn_merges(page["learn_merges"], page)


def test_merges_of_letters_by_hand(page):
    assert page["learn_merges"]([list("aab"), list("ab"), list("b")], 5, page["glued"]) == {
        ("a", "b"): "ab",
        ("a", "ab"): "aab",
    }


# --- encoding ----------------------------------------------------------------------------------


def check_encode(encode):
    for sample in ["My pencil's lead (0.7 mm) isn't mine…", "铅笔  broke\n\n ½ ²", "", *random_texts(60)]:
        assert encode(sample, GPT2.merges) == GPT2.encode(sample), repr(sample)


def test_bpe_encode_gives_gpt2s_ids(page):
    check_encode(page["bpe_encode"])


def test_leftmost_merge_first_is_caught(page):
    def wrong(sample, merges):
        ids = []
        for piece in GPT2.pieces(sample):
            word = page["byte_ids"](piece)
            while known := [pair for pair in pairwise(word) if pair in merges]:
                word = page["merge_pair"](word, known[0], merges[known[0]])
            ids += word
        return ids

    with pytest.raises(AssertionError):
        check_encode(wrong)


def test_all_merges_in_order_give_the_same(page):
    for word in (" mechanical", "Pencils", "aaaaaaa", "é"):
        assert page["encode_in_order"](page["byte_ids"](word), GPT2.merges) == GPT2.encode(word)


# --- any text ------------------------------------------------------------------------------


def check_described(described):
    assert described("") == "0 tokens []"
    assert "half a character" in described("a \ud83d")
    assert described("my pencil") == "2 tokens ['my', ' pencil']"
    assert described("a" * 10_000).startswith("2,500 tokens")


def test_described(page):
    check_described(page["described"])


def test_a_description_that_breaks_is_caught():
    with pytest.raises(ValueError, match="half a character"):
        check_described(lambda sample: f"{len(GPT2.encode(sample))} tokens {GPT2.tokens(sample)[:6]}")


# --- one-hot -----------------------------------------------------------------------------------


def check_one_hot_row(one_hot_row):
    np.testing.assert_array_equal([one_hot_row(i, 7) for i in range(7)], np.eye(7))
    np.testing.assert_array_equal(one_hot_row(2, 5), text.one_hot(2, 5))


def test_one_hot_row(page):
    check_one_hot_row(page["one_hot_row"])


def test_counting_from_one_is_caught(page):
    with pytest.raises(AssertionError):
        check_one_hot_row(lambda i, vocab_size: page["one_hot_row"](i - 1, vocab_size))


# --- what the controls drive ---------------------------------------------------------------


def check_toy_tokens(toy_tokens):
    assert toy_tokens("abc xab", 0) == [" a", "b", "c", " x", "a", "b"]
    assert toy_tokens("abc xab", 1) == [" ab", "c", " x", "ab"]
    assert toy_tokens("abc xab", 2) == [" abc", " x", "ab"]
    assert toy_tokens("", 2) == []


def test_toy_tokens():
    check_toy_tokens(definitions("01", toy_merges={("a", "b"): "ab", ("ab", "c"): "abc"})["toy_tokens"])


def test_toy_merges_in_the_wrong_order_are_caught():
    with pytest.raises(AssertionError):
        check_toy_tokens(definitions("01", toy_merges={("ab", "c"): "abc", ("a", "b"): "ab"})["toy_tokens"])


def test_with_merges_stops_at_the_merges_kept():
    smaller = {n: BPETokenizer(list(GPT2.merges)[:n]) for n in (0, 3)}
    tokens, ids = definitions("01", smaller=smaller)["with_merges"](" pen", 0)
    assert tokens == list(" pen") and len(ids) == 4
    tokens, ids = definitions("01", smaller=smaller)["with_merges"](" the", 3)  # ␣t, ␣a, he
    assert tokens == [" t", "he"] and ids == [256, 258]


def check_pick(pick):
    lines = pick("ink").splitlines()
    assert lines[:2] == ["0 x [ 4 -5]   pen", "1 x [-6  7]   ink"] and lines[-1] == "sum [-6  7]"


def test_pick():
    table = np.array([[4, -5], [-6, 7], [8, -9]])
    names = ["pen", "ink", "red"] + [""] * 3
    check_pick(definitions("01", six=names, small_E=np.vstack([table, -table]))["pick"])
    with pytest.raises(AssertionError):  # rows in another order than the names
        check_pick(definitions("01", six=names, small_E=np.vstack([table[::-1], table]))["pick"])
