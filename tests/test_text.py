"""text.py against GPT-2's published ids, tiktoken, slow loops and hand-made values."""

import gzip
import random
import time
import unicodedata
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import regex
import tiktoken

from course_utils import seed, shifted_seed, text
from course_utils.text import BPETokenizer, CharTokenizer, WordTokenizer, one_hot

ROOT = Path(__file__).resolve().parents[1]
ARTICLE = ROOT.parent / "shared" / "article.txt"
SENTENCE = "I just dropped my mechanical pencil I can't believe my lead"
SENTENCE_IDS = [40, 655, 5710, 616, 12370, 21613, 314, 460, 470, 1975, 616, 1085]

PROSE = """A tokeniser sees letters, not words.  Give it a line with everything in it: it won't choke, and we'll
read it back unchanged ("my pencil's lead ___", they'd say, and I'm sure you've guessed it's
broke.)\n\n\tIt doesn’t cost 1,234.50 € in 2017 – or ½ of that… I'D'VE said: naïve café, Ωmega,
铅笔断了, карандаш, ✏️🪨 👩‍🔬! a  \x1cb  \x85c\u00a0 d
<|endoftext|> def f(x):\r\n    return x**2  # x²   \n"""

# --- independent judges ----------------------------------------------------------------------


def byte_symbols():
    """GPT-2's bytes in its order, by the symbols of its merges file."""
    printable = [b for b in range(256) if chr(b).isprintable() and not chr(b).isspace()]
    rest = [b for b in range(256) if b not in printable]
    return {chr(b): bytes([b]) for b in printable} | {chr(256 + n): bytes([b]) for n, b in enumerate(rest)}


@pytest.fixture(scope="module")
def gpt2_judge():
    """tiktoken with GPT-2's merges and split pattern, built without a download."""
    symbols = byte_symbols()
    ranks = {byte: i for i, byte in enumerate(symbols.values())}
    with gzip.open(ROOT / "course_utils" / "assets" / "gpt2_merges.txt.gz", "rt", encoding="utf-8") as lines:
        for line in list(lines)[1:]:
            ranks[b"".join(symbols[symbol] for symbol in line.strip().replace(" ", ""))] = len(ranks)
    assert len(ranks) == 50256
    return encoding_of(ranks)


def encoding_of(ranks):
    pattern = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
    return tiktoken.Encoding("judge", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})


def random_texts():
    """4,000 strings: 2,000 of any assigned characters, 2,000 from a pool in which a wrong split shows."""
    rng = random.Random(shifted_seed(1))
    assigned = [c for c in map(chr, range(0x110000)) if unicodedata.category(c) not in ("Cn", "Cs")]
    pool = "abtsdm '12_9²½Ⅷ٣éßΩ\x1c\x85\u00a0\u3000\n\t.,!?—’"
    return ["".join(rng.choices(source, k=rng.randint(1, 30))) for source in (assigned, pool) for _ in range(2000)]


def check_gpt2(encode, judge, texts):
    for sample in texts:
        assert encode(sample) == judge.encode_ordinary(sample), repr(sample)


# --- GPT-2 -----------------------------------------------------------------------------------


def test_gpt2_gives_the_published_ids():
    tokenizer = BPETokenizer.gpt2()
    assert tokenizer.encode(SENTENCE) == SENTENCE_IDS
    assert tokenizer.encode(" broke") == [6265]
    assert tokenizer.encode(" broke.") == [6265, 13]
    assert len(tokenizer.encode("broke.")) == 3
    assert tokenizer.encode("pencil") == [3617, 2856]
    assert tokenizer.encode(" pencil") == [21613]
    assert tokenizer.decode([43403]) == " Publishers"
    assert tokenizer.encode("!") == [0]
    assert tokenizer.vocab_size == 50257
    assert tokenizer.decode([50256]) == "<|endoftext|>"


def test_gpt2_agrees_with_tiktoken(gpt2_judge):
    tokenizer = BPETokenizer.gpt2()
    texts = [PROSE, *random_texts()]
    check_gpt2(tokenizer.encode, gpt2_judge, texts)
    for sample in texts:
        assert tokenizer.decode(tokenizer.encode(sample)) == sample


@pytest.mark.skipif(not ARTICLE.exists(), reason="the article is not beside the repository")
def test_gpt2_agrees_with_tiktoken_on_the_article(gpt2_judge):
    article = ARTICLE.read_text(encoding="utf-8")
    ids = BPETokenizer.gpt2().encode(article)
    assert ids == gpt2_judge.encode_ordinary(article)
    assert BPETokenizer.gpt2().decode(ids) == article


def split_by(pattern):
    """A wrong GPT-2: its merges with another split."""

    def encode(sample):
        return [i for piece in regex.findall(pattern, sample) for i in BPETokenizer.gpt2()._encode_piece(piece)]

    return encode


def merged_by(choose):
    """A wrong GPT-2: its split, its merges, but `choose` picks the next of the possible (rank, place)."""
    merges = BPETokenizer.gpt2().merges

    def encode(sample):
        ids = []
        for piece in BPETokenizer.gpt2().pieces(sample):
            part = text._byte_ids(piece)
            while candidates := [(merges[pair], i) for i, pair in enumerate(pairwise(part)) if pair in merges]:
                new_id, i = choose(candidates)
                part[i : i + 2] = [new_id]
            ids += part
        return ids

    return encode


def longest_match(sample):
    """A wrong GPT-2: from the left, always the longest token of the vocabulary."""
    tokenizer = BPETokenizer.gpt2()
    id_of = {token: i for i, token in enumerate(tokenizer._bytes[:-1])}
    ids = []
    for piece in tokenizer.pieces(sample):
        rest = piece.encode()
        while rest:
            length = next(n for n in range(len(rest), 0, -1) if rest[:n] in id_of)
            ids.append(id_of[rest[:length]])
            rest = rest[length:]
    return ids


RIGHT_SPLIT = text._PIECE.pattern
PYTHON_SPACE = RIGHT_SPLIT.replace(r"(?!\P{White_Space})", r"(?![^\s\x1c-\x1f])").replace(
    r"[^\p{White_Space}", r"[^\s\x1c-\x1f"
)
PYTHON_SPACE = PYTHON_SPACE.replace(r"\p{White_Space}", r"[\s\x1c-\x1f]")


def test_the_frames_of_the_wrong_ones_are_right(gpt2_judge):
    texts = random_texts()[1500:2500]
    check_gpt2(split_by(RIGHT_SPLIT), gpt2_judge, texts)
    check_gpt2(merged_by(min), gpt2_judge, texts)
    everything = "".join(map(chr, range(0x110000)))
    python_space = [c for c in everything if c.isspace()]  # what PYTHON_SPACE must mean
    assert regex.findall(r"[\s\x1c-\x1f]", everything) == python_space


@pytest.mark.parametrize(
    "wrong",
    [
        split_by(PYTHON_SPACE),
        split_by(RIGHT_SPLIT.replace(r"\p{N}", r"\d")),  # ½, ² and Ⅷ are numbers too
        split_by(RIGHT_SPLIT.replace(r"\p{L}", "[A-Za-z]")),
        split_by(RIGHT_SPLIT.replace("[sdmt]|ll|ve|re", "[sdmt]")),
        split_by(RIGHT_SPLIT.replace(r"|\p{White_Space}+(?!\P{White_Space})", "")),  # all spaces taken at once
        split_by("(?s).+"),  # no split
        merged_by(max),
        merged_by(lambda candidates: candidates[0]),  # leftmost, not lowest rank
        merged_by(lambda candidates: candidates[-1]),
        longest_match,
    ],
)
def test_wrong_gpt2_is_caught(wrong, gpt2_judge):
    with pytest.raises(AssertionError):
        check_gpt2(wrong, gpt2_judge, [PROSE, *random_texts()[2000:]])


def test_end_of_text_typed_by_a_reader_is_plain_text():
    tokenizer = BPETokenizer.gpt2()
    ids = tokenizer.encode("my lead<|endoftext|>")
    assert 50256 not in ids and len(ids) > 5
    assert tokenizer.decode(ids) == "my lead<|endoftext|>"


def test_a_curly_apostrophe_is_not_a_straight_one():
    tokenizer = BPETokenizer.gpt2()
    assert tokenizer.tokens(" can't") == [" can", "'t"]
    assert tokenizer.tokens(" can’t") == [" can", "\\xe2\\x80", "\\x99", "t"]
    assert tokenizer.decode(tokenizer.encode(" can’t")[:2]) == " can\ufffd"


def test_gpt2_is_loaded_once():
    assert BPETokenizer.gpt2() is BPETokenizer.gpt2()
    assert repr(BPETokenizer.gpt2()) == "BPETokenizer(vocab_size=50257)"


@pytest.mark.parametrize("alphabet", ["a", "abcdefghijklmnopqrstuvwxyz", "✏铅é"])
def test_long_words_are_fast_and_right(alphabet, gpt2_judge):
    rng = random.Random(shifted_seed(2))
    word = "".join(rng.choices(alphabet, k=10_000))
    start = time.perf_counter()
    ids = BPETokenizer.gpt2().encode(word)
    assert time.perf_counter() - start < 2  # 0.02 s on a quiet machine; a loop over all pairs takes 10 s
    assert ids == gpt2_judge.encode_ordinary(word)


def test_merge_steps_go_from_bytes_to_tokens():
    tokenizer = BPETokenizer.gpt2()
    steps = tokenizer.merge_steps(" mechanical")
    assert steps[0] == list(" mechanical")
    assert all(len(after) == len(before) - 1 for before, after in pairwise(steps))
    assert all("".join(step) == " mechanical" for step in steps)
    assert steps[-1] == tokenizer.tokens(" mechanical")
    with pytest.raises(ValueError, match="2 pieces.*my.* lead"):
        tokenizer.merge_steps("my lead")


def test_pieces_are_cut_where_merges_may_not_cross():
    assert BPETokenizer.gpt2().pieces("my lead's 12   ²b!?") == ["my", " lead", "'s", " 12", "  ", " ²", "b", "!?"]


# --- training BPE ----------------------------------------------------------------------------


def train_slow(corpus, n_merges):
    """The plain reading of BPE: count all pairs again before each merge."""
    words = [text._byte_ids(piece) for piece in BPETokenizer.gpt2().pieces(corpus)]
    merges = []
    for new_id in range(256, 256 + n_merges):
        counts = Counter(pair for word in words for pair in pairwise(word))
        best = min(counts, key=lambda pair: (-counts[pair], pair))
        merges.append(best)
        for word in words:
            i = 0
            while i < len(word) - 1:
                if (word[i], word[i + 1]) == best:
                    word[i : i + 2] = [new_id]
                i += 1
    return merges


def check_training(train):
    """`train(text, vocab_size)` gives the learned pairs in order."""
    a, b = text._byte_ids("ab")
    assert train("aaabdaaabac", 259) == [(a, a), (a, b), (256, 257)]  # aa 4 times; then aa+a ties with ab
    space, x, y = text._byte_ids(" xy")
    assert train("xy xy xyz xyz", 257) == [(x, y)]
    assert train("xy. xy.", 258) == [(x, y), (space, 256)]  # never over the border before a full stop
    assert train(PROSE, 356) == train_slow(PROSE, 100)


def learned(train=BPETokenizer.train):
    return lambda corpus, vocab_size: list(train(corpus, vocab_size).merges)


def test_training():
    check_training(learned())


def train_without_split(corpus, vocab_size, pattern=r"(?s).+"):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text, "_PIECE", regex.compile(pattern))
        return list(BPETokenizer.train(corpus, vocab_size).merges)


@pytest.mark.parametrize(
    "wrong",
    [
        train_without_split,
        lambda corpus, vocab_size: learned()(" ".join(dict.fromkeys(corpus.split(" "))), vocab_size),  # counts lost
        lambda corpus, vocab_size: learned()(corpus, vocab_size)[::-1],
        lambda corpus, vocab_size: learned()(corpus, vocab_size + 1),
        lambda corpus, vocab_size: learned()(corpus.lower(), vocab_size),
    ],
)
def test_wrong_training_is_caught(wrong):
    with pytest.raises(AssertionError):
        check_training(wrong)


def test_training_that_forgets_to_update_counts_is_caught(monkeypatch):
    monkeypatch.setattr(text, "_merge_pair", lambda ids, pair, new_id: ids)
    with pytest.raises(AssertionError):
        check_training(lambda corpus, vocab_size: learned()(corpus, min(vocab_size, 300)))


def test_a_trained_tokenizer_encodes_as_tiktoken_does():
    tokenizer = BPETokenizer.train(PROSE, 400)
    assert tokenizer.vocab_size == 400
    judge = encoding_of({token: i for i, token in enumerate(tokenizer._bytes)})
    texts = [PROSE, *random_texts()]
    check_gpt2(tokenizer.encode, judge, texts)
    for sample in texts:
        assert tokenizer.decode(tokenizer.encode(sample)) == sample
    assert len(tokenizer.encode(PROSE)) < 0.8 * len(PROSE.encode())


def test_training_stops_when_the_pairs_run_out():
    tokenizer = BPETokenizer.train("abc", 1000)
    assert tokenizer.vocab_size == 258
    assert tokenizer.tokens("abc") == ["abc"]
    assert BPETokenizer.train("a", 300).vocab_size == 256
    assert BPETokenizer.train("a", 256).decode([*range(256)]).startswith("!")


# --- words and characters --------------------------------------------------------------------

STORIES = ["I just dropped my mechanical pencil, I can't believe my lead broke.", "My dog broke the lead!"]


def check_words(make):
    tokenizer = make(STORIES, ["<start>", "<end>"])
    assert tokenizer.tokens("can't can’t, (lead)!") == ["can't", "can’t", ",", "(", "lead", ")", "!"]
    assert tokenizer.encode("<start> I just dropped my lead.<end>") == [0, 2, 3, 4, 5, 11, 13, 1]
    assert tokenizer.encode("My my") == [14, 5]
    assert tokenizer.vocab_size == len(tokenizer.vocabulary) == 18
    for story in STORIES:
        assert tokenizer.decode(tokenizer.encode(story)) == story


def test_words():
    check_words(WordTokenizer)


def with_pattern(pattern):
    def make(texts, specials):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(text, "_WORD", pattern)
            return WordTokenizer(texts, specials)

    return make


@pytest.mark.parametrize(
    "wrong",
    [
        with_pattern(r"\w+|[^\w\s]"),  # can ' t
        with_pattern(r"\w+(?:'\w+)*|[^\w\s]"),  # the curly apostrophe
        with_pattern(r"\S+"),
        with_pattern(r"\w+(?:['’]\w+)*"),  # marks lost
        lambda texts, specials: WordTokenizer(texts, ()),
        lambda texts, specials: WordTokenizer(texts, specials[::-1]),
        lambda texts, specials: WordTokenizer([story.lower() for story in texts], specials),
    ],
)
def test_wrong_words_are_caught(wrong):
    with pytest.raises((AssertionError, ValueError)):
        check_words(wrong)


def test_words_take_one_text_and_specials_that_begin_alike():
    tokenizer = WordTokenizer("my lead", specials=["<e", "<e>"])
    assert tokenizer.tokens("my<e>lead <e") == ["my", "<e>", "lead", "<e"]
    assert WordTokenizer("lead", specials="<start>").vocabulary == ["<start>", "lead"]
    assert WordTokenizer("[a]", specials=["[a]"]).vocabulary == ["[a]"]  # a special is no regular expression
    assert tokenizer.encode("") == [] and tokenizer.decode([]) == ""
    assert repr(tokenizer) == "WordTokenizer(vocab_size=4)"


@pytest.mark.parametrize("sentence", ["A “good” lead (mine) broke: why?", "Zwei-und-vierzig, it’s 42!", "dogs’ leads"])
def test_decoded_words_read_like_a_sentence(sentence):
    tokenizer = WordTokenizer([sentence])
    assert tokenizer.decode(tokenizer.encode(sentence)) == sentence


def test_white_space_only_parts_words():
    tokenizer = WordTokenizer(STORIES)
    assert tokenizer.decode(tokenizer.encode("  my \n\n lead\tbroke .")) == "my lead broke."


def test_characters():
    tokenizer = CharTokenizer("lead ✏\n")
    assert tokenizer.vocabulary == ["l", "e", "a", "d", " ", "✏", "\n"]
    assert tokenizer.encode("deal✏\n") == [3, 1, 2, 0, 5, 6]
    assert tokenizer.decode(tokenizer.encode("a ✏ led\n")) == "a ✏ led\n"
    assert tokenizer.vocab_size == 7


# --- one-hot ---------------------------------------------------------------------------------


def check_one_hot(one_hot):
    assert one_hot([2, 0], 3).tolist() == [[0, 0, 1], [1, 0, 0]]
    assert one_hot(1, 4).tolist() == [0, 1, 0, 0]
    assert one_hot([[1, 1, 0]], 2).tolist() == [[[0, 1], [0, 1], [1, 0]]]
    assert one_hot([], 3).shape == (0, 3)
    table = seed(3).standard_normal((5, 4))
    np.testing.assert_array_equal(one_hot([3, 1], 5) @ table, table[[3, 1]])


def test_one_hot():
    check_one_hot(one_hot)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda ids, vocab_size: one_hot(ids, vocab_size)[..., ::-1],
        lambda ids, vocab_size: one_hot((np.asarray(ids, dtype=int) + 1) % vocab_size, vocab_size),  # counts from 1
        lambda ids, vocab_size: one_hot(ids, vocab_size).T,
        lambda ids, vocab_size: one_hot(np.ravel(ids), vocab_size),
    ],
)
def test_wrong_one_hot_is_caught(wrong):
    with pytest.raises(AssertionError):
        check_one_hot(wrong)


# --- bad input -------------------------------------------------------------------------------

WORDS = WordTokenizer(STORIES)
ALL = [BPETokenizer.gpt2(), WORDS, CharTokenizer(SENTENCE)]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: WORDS.encode("my cat broke"), ["'cat'", "16", ".vocabulary"]),
        (lambda: CharTokenizer("abc").encode("abé"), ["character 'é'", "3"]),
        (lambda: WordTokenizer([]), ["empty", "word"]),
        (lambda: WordTokenizer([" ", "\n"]), ["empty"]),
        (lambda: WordTokenizer(STORIES, specials=[""]), ["special", "<start>"]),
        (lambda: WordTokenizer([b"bytes"]), ["not a str", "bytes"]),
        (lambda: CharTokenizer(""), ["empty", "character"]),
        (lambda: BPETokenizer.train("", 300), ["empty"]),
        (lambda: BPETokenizer.train("lead", 255), ["255", "256 bytes"]),
        (lambda: BPETokenizer.train("lead", 300.5), ["whole number", "300.5"]),
        (lambda: BPETokenizer.train(None, 300), ["not a str", "NoneType"]),
        (lambda: one_hot([0, 7], 3), ["id 7", "vocabulary of 3", "0 to 2"]),
        (lambda: one_hot([-1], 3), ["id -1"]),
        (lambda: one_hot([0.5], 3), ["whole numbers", "0.5"]),
        (lambda: one_hot([True], 3), ["whole numbers"]),
        (lambda: one_hot([0], 0), ["vocab_size", "here it is 0"]),
    ],
)
def test_bad_input_says_what_is_wrong_and_what_was_given(call, words):
    with pytest.raises(ValueError) as error:
        call()
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize("tokenizer", ALL, ids=repr)
def test_bad_input_is_refused_by_every_tokenizer(tokenizer):
    for method in (tokenizer.encode, tokenizer.tokens):
        with pytest.raises(ValueError, match="not a str.*bytes"):
            method(b"lead")
        with pytest.raises(ValueError, match=r"lone surrogate.*'\\ud83d' at place 5"):
            method("lead \ud83d")
    for wrong, words in (
        ([0, tokenizer.vocab_size], f"id {tokenizer.vocab_size} "),
        ([-1], "id -1"),
        ([0.5], "whole numbers"),
        (["lead"], "whole numbers"),
        (5, "one row"),
        ([[1, 2], [3, 4]], r"one row.*\(2, 2\)"),
    ):
        with pytest.raises(ValueError, match=words):
            tokenizer.decode(wrong)
    assert tokenizer.decode(np.array([1, 2])) == tokenizer.decode([1, 2])
    assert all(type(i) is int for i in tokenizer.encode("my lead"))
