"""The stories' exact numbers against plain dictionary code, their promises to the lessons, and the texts."""

import hashlib
import itertools
import math
import random
import subprocess
import sys
from collections import defaultdict

import numpy as np
import pytest
from num2words import num2words

from course_utils import _stories, data

ARTICLE = "I just dropped my mechanical pencil I can't believe my lead broke"
CONTEXTS = (0, 1, 2, 3, 4, None)

# A grammar small enough to think about: sentences of 1 to 4 words, and "a x" is written by both rules.
TINY = [
    (3, [{"a": 1, "b c": 2}, {"": 1, "x": 1}, {"y": 3, "x": 1}]),
    (1, [{"a": 1}, {"x": 1, "": 2}]),
]
TINY_IDS = {word: i for i, word in enumerate(["<start>", "<end>", "a", "b", "c", "x", "y"])}


def tiny_table():
    return data.SentenceTable.from_rules(TINY, lambda phrase: [TINY_IDS[word] for word in phrase.split()])


def tiny_sentences():
    """The tiny grammar by brute force: a dict from words (with the end) to probability."""
    sentences = defaultdict(float)
    for weight, slots in TINY:
        for phrases in itertools.product(*slots):
            p = weight / 4
            for slot, phrase in zip(slots, phrases, strict=True):
                p *= slot[phrase] / sum(slot.values())
            sentences[(*" ".join(phrases).split(), "<end>")] += p
    return sentences


def brute_entropy(sentences, context):
    """Nats per token from counts: what follows each context, as one would count it in a corpus."""
    follows, expected_tokens = defaultdict(lambda: defaultdict(float)), 0.0
    for words, p in sentences.items():
        expected_tokens += p * len(words)
        for t, word in enumerate(words):
            seen = words[:t] if context is None else (["<start>"] * context + list(words))[t : t + context]
            follows[t, tuple(seen)][word] += p
    nats = 0.0
    for counts in follows.values():
        total = sum(counts.values())
        nats -= sum(p * math.log(p / total) for p in counts.values())
    return nats / expected_tokens


@pytest.fixture(scope="module")
def stories():
    return data.PencilStories()


@pytest.fixture(scope="module")
def held_out(stories):
    return stories.held_out()


def parts_of(sentence):
    """(words, place of the object, place of the outcome) of a story."""
    words = sentence.split()
    thing = next(i for i, word in enumerate(words) if word in _stories.OBJECTS)
    owner = max(i for i, word in enumerate(words) if word in ("my", "our", "your", "its"))
    return words, thing, owner + 2


# --- the table, on the tiny grammar ---


def check_entropy(entropy):
    sentences = tiny_sentences()
    for context in CONTEXTS:
        assert entropy(tiny_table(), context) == pytest.approx(brute_entropy(sentences, context), abs=1e-12)


def test_entropy_equals_brute_force():
    check_entropy(data.SentenceTable.entropy_per_token)


def test_entropy_by_hand():
    table = data.SentenceTable.from_rules(
        [(1, [{"a": 1}, {"": 1, "x": 1}])], lambda p: [TINY_IDS[w] for w in p.split()]
    )
    assert table.entropy_per_token() == pytest.approx(math.log(2) / 2.5)  # one fair choice; 2 or 3 tokens


def per_sentence(table, context):
    return table.entropy_per_token(context) * (table.probs * table.n_tokens).sum()


def mean_of_ratios(table, context):
    if context is not None:
        return table.entropy_per_token(context)
    return (table.probs * table.surprisals.sum(axis=1) / table.n_tokens).sum()


def end_not_counted(table, context):
    return per_sentence(table, context) / (table.probs * (table.n_tokens - 1)).sum()


def in_bits(table, context):
    return table.entropy_per_token(context) / math.log(2)


def one_token_too_many(table, context):
    return table.entropy_per_token(None if context is None else context + 1)


@pytest.mark.parametrize("wrong", [per_sentence, mean_of_ratios, end_not_counted, in_bits, one_token_too_many])
def test_wrong_entropy_is_caught(wrong):
    with pytest.raises(AssertionError):
        check_entropy(wrong)


def test_position_counts():
    # After "x" at the second place comes "y" or "x"; at the third, the end: without the position they would mix.
    sentences = {("x", "y", "<end>"): 0.5, ("y", "x", "<end>"): 0.5}
    rules = [(1, [{"x y": 1, "y x": 1}])]
    table = data.SentenceTable.from_rules(rules, lambda phrase: [TINY_IDS[word] for word in phrase.split()])
    assert table.entropy_per_token(1) == pytest.approx(math.log(2) / 3) == brute_entropy(sentences, 1)


def test_table_lists_each_sentence_once():
    table, words = tiny_table(), list(TINY_IDS)
    got = {
        tuple(words[i] for i in row[:n]): p for row, n, p in zip(table.rows, table.n_tokens, table.probs, strict=True)
    }
    assert got == pytest.approx(tiny_sentences()) and len(got) == len(table.rows) and sum(got.values()) == 1


# --- the stories' numbers ---


def test_probabilities_sum_to_one(stories):
    for table in (stories._whole, stories._training, stories._held_out):
        assert table.probs.sum() == pytest.approx(1, abs=1e-12) and table.probs.min() > 0
        nats = (table.probs[:, None] * table.surprisals).sum()  # token by token, not by the chain rule
        assert nats / (table.probs * table.n_tokens).sum() == pytest.approx(table.entropy_per_token(), abs=1e-12)


@pytest.fixture(scope="module")
def scored():
    """(nats, tokens) of each of 20,000 sampled sentences."""
    stories = data.PencilStories(seed=3)
    surprisals = [stories.surprisal(sentence) for sentence in stories.sample(20_000)]
    return np.array([sum(s) for s in surprisals]), np.array([len(s) for s in surprisals])


def check_floor(floor, scored):
    """The floor is the average surprisal, within 4 standard errors of the ratio."""
    nats, tokens = scored
    error = np.std(nats - floor * tokens) / tokens.mean() / math.sqrt(len(tokens))
    assert abs(nats.sum() / tokens.sum() - floor) < 4 * error


@pytest.mark.slow
def test_floor_is_the_average_surprisal(stories, scored):
    check_floor(stories.entropy_per_token(), scored)


def test_wrong_floor_is_caught(stories, scored):
    for wrong in (stories.entropy_per_token(context=4), end_not_counted(stories._training, None)):
        with pytest.raises(AssertionError):
            check_floor(wrong, scored)


def test_ladder_of_floors(stories):
    for held_out in (False, True):
        ladder = [stories.entropy_per_token(k, held_out) for k in (0, 1, 2, 3, None)]
        assert ladder == sorted(ladder, reverse=True) and min(-np.diff(ladder)) > 0.01
        assert ladder[3] - ladder[4] > 0.15  # what looking back is worth
        assert stories.entropy_per_token(stories.max_len, held_out) == pytest.approx(ladder[4], abs=1e-9)
    assert abs(stories.entropy_per_token() - stories.entropy_per_token(held_out=True)) > 1e-3


def check_chain(stories, next_word, sentences):
    for sentence in sentences:
        words, p = sentence.split(), 1.0
        for t, word in enumerate([*words, "<end>"]):
            following = next_word(" ".join(words[:t]))
            assert sum(following.values()) == pytest.approx(1, abs=1e-9)
            assert list(following.values()) == sorted(following.values(), reverse=True)
            p *= following[word]
        assert p == pytest.approx(math.exp(-sum(stories.surprisal(sentence))), rel=1e-9)


def test_next_words_multiply_to_the_sentence(stories):
    check_chain(stories, stories.next_word, stories.sample(30))


def test_forgetful_next_word_is_caught(stories):
    def last_words_alone(prefix):  # sees neither opener nor object
        words = prefix.split()
        return stories.next_word(" ".join(["I just dropped my pencil", *words[5:]]) if len(words) > 5 else prefix)

    with pytest.raises((AssertionError, KeyError, ValueError)):
        check_chain(stories, last_words_alone, stories.sample(30))


def test_training_distribution_has_no_held_out_words(stories):
    beginning = "I just dropped my mechanical"  # of training sentences and of held-out ones
    assert "pencil" not in stories.next_word(beginning) and "watch" in stories.next_word(beginning)
    assert {"pencil", "watch"} <= stories.next_word(beginning, held_out=True).keys()
    held_out, training = (
        stories.surprisal(ARTICLE),
        stories.surprisal("I just dropped my new pencil I can't believe my lead broke"),
    )
    assert held_out[:4] != training[:4]  # another distribution, so other numbers from the first word
    assert np.isfinite(held_out).all() and len(held_out) == len(ARTICLE.split()) + 1


# --- what the lessons rely on ---


def test_the_article(stories, held_out):
    assert ARTICLE in held_out
    before = ARTICLE.removesuffix(" broke")
    assert stories.next_word(before) == pytest.approx({"broke": 0.6, "snapped": 0.25, "crumbled": 0.15})
    assert next(iter(stories.next_word(before))) == "broke"
    for beginning in ("I just walked my dog", "I just booked my band", "I just ran my race"):
        assert next(iter(stories.next_word(f"{beginning} I can't believe my lead"))) != "broke"
    assert stories.next_word(ARTICLE.replace("'", "’")) == stories.next_word(ARTICLE)  # pasted from the web


def test_size(stories):
    assert stories.tokenizer.vocab_size - 2 >= 150 and len(_stories.OBJECTS) >= 17
    assert 1000 < len(stories._whole.rows) < 200_000
    assert stories.tokenizer.vocabulary[:2] == ["<start>", "<end>"] and (stories.start_id, stories.end_id) == (0, 1)


def test_nouns_with_several_lives(stories, held_out):
    first_choice = defaultdict(dict)  # noun -> object -> most likely next word
    for sentence in stories.sample(3000) + held_out:
        words, thing, outcome = parts_of(sentence)
        assert outcome - thing >= 5, sentence
        noun = words[outcome - 1]
        if words[thing] not in first_choice[noun]:
            first_choice[noun][words[thing]] = next(iter(stories.next_word(" ".join(words[:outcome]))))
    several = {noun for noun, choices in first_choice.items() if len(set(choices.values())) >= 2}
    assert len(several) >= 5 and "lead" in several
    assert len(set(first_choice["lead"].values())) >= 5


def test_held_out_sentences_are_not_sampled(stories, held_out):
    assert len(set(held_out)) == len(held_out) and held_out == data.PencilStories(seed=9).held_out()
    sample = data.PencilStories(seed=1).sample(20_000)
    assert not set(sample) & set(held_out)
    inputs, _ = next(stories.batches(5000))
    assert not set(map(tuple, inputs)) & set(map(tuple, stories.arrays(held_out)[0]))
    share = sum(math.exp(-sum(stories.surprisal(sentence))) for sentence in held_out)  # by the whole grammar
    assert 0.01 < share < 0.04


def test_held_out_words_are_seen_in_training(stories, held_out):
    seen = {word for sentence in stories.sample(20_000) for word in sentence.split()}
    assert {word for sentence in held_out for word in sentence.split()} <= seen
    assert seen == set(stories.tokenizer.vocabulary[2:])


def test_seed(stories, monkeypatch):
    first = data.PencilStories(seed=5)
    sample = first.sample(20)
    assert data.PencilStories(seed=5).sample(20) == sample != first.sample(20)
    assert data.PencilStories(seed=6).sample(20) != sample
    assert data.PencilStories(seed=6).tokenizer.vocabulary == first.tokenizer.vocabulary
    monkeypatch.setenv("COURSE_SEED_SHIFT", "1")
    assert data.PencilStories(seed=4).sample(20) == sample


# --- arrays and batches ---


def check_arrays(stories, arrays):
    texts = ["I just dropped my pencil", "we just"]  # lengths differ, so the padding shows
    inputs, targets = arrays(texts)
    assert inputs.shape == targets.shape == (2, stories.max_len)
    assert inputs.dtype == targets.dtype == np.int64
    for row, text in enumerate(texts):
        ids, n = stories.tokenizer.encode(text), len(text.split())
        assert inputs[row].tolist() == [0, *ids] + [1] * (stories.max_len - n - 1)
        assert targets[row].tolist() == [*ids, 1] + [-100] * (stories.max_len - n - 1)


def test_arrays(stories):
    check_arrays(stories, stories.arrays)


def test_wrong_arrays_are_caught(stories):
    def not_shifted(texts):
        inputs, targets = stories.arrays(texts)
        return inputs, np.where(targets == -100, -100, inputs)

    def end_scored_again(texts):
        inputs, targets = stories.arrays(texts)
        return inputs, np.where(targets == -100, 1, targets)

    for wrong in (not_shifted, end_scored_again):
        with pytest.raises(AssertionError):
            check_arrays(stories, wrong)


def test_arrays_hold_the_longest_story(stories, held_out):
    _, targets = stories.arrays(held_out + stories.sample(5000))
    assert (targets == 1).sum(axis=1).tolist() == [1] * len(targets)
    assert stories._whole.n_tokens.max() == stories.max_len


def test_batches_of_chosen_texts(stories):
    texts = stories.sample(10)
    batches = stories.batches(4, texts)
    rows = np.concatenate([next(batches)[0] for _ in range(5)])  # 20 rows: each text twice
    expected = sorted(map(tuple, stories.arrays(texts)[0]))
    assert sorted(map(tuple, rows[:10])) == sorted(map(tuple, rows[10:])) == expected
    assert rows[:10].tolist() != rows[10:].tolist()
    assert next(stories.batches(64, texts[:3]))[0].shape == (64, stories.max_len)  # fewer texts than a batch


def test_fresh_batches(stories):
    batches = stories.batches(128)
    (first, targets), (second, _) = next(batches), next(batches)
    assert first.shape == targets.shape == (128, stories.max_len) and first.dtype == targets.dtype == np.int64
    assert (first != second).any()
    assert (np.where(targets == -100, 1, targets)[:, :-1] == first[:, 1:]).all()


# --- bad input ---


@pytest.mark.parametrize(
    "prefix, named",
    [
        ("I just dropped my cup", "'cup' after 'I just dropped my'.*'pencil'"),
        ("she dropped", "'she' at the beginning.*'I'"),
        ("I just walked my pencil", "'pencil' after 'I just walked my'.*'dog'"),
        (ARTICLE + " again again", "'again' after .*broke again.*story is over"),
        ("I just <end>", "'<end>' after 'I just'"),
        ("<start> I", "'<start>' at the beginning"),
        ("I just 🙂", "'🙂'"),
        ("word " * 10_000, "'word' at the beginning"),
    ],
)
def test_word_that_does_not_fit(stories, prefix, named):
    for function in (stories.next_word, stories.surprisal):
        with pytest.raises(ValueError, match=named) as error:
            function(prefix)
        assert len(str(error.value)) < 400


def test_empty_and_unfinished(stories):
    assert sum(stories.next_word("").values()) == pytest.approx(1)
    assert stories.next_word(ARTICLE + " again") == {"<end>": 1.0}
    with pytest.raises(ValueError, match="not finished.*'broke'"):
        stories.surprisal(ARTICLE.removesuffix(" broke"))
    with pytest.raises(ValueError, match="not finished"):
        stories.surprisal("")
    assert stories.sample(0) == []


@pytest.mark.parametrize(
    "call, named",
    [
        (lambda s: s.sample(-1), "n=-1"),
        (lambda s: s.entropy_per_token(-1), "here -1"),
        (lambda s: s.entropy_per_token(1.5), "here 1.5"),
        (lambda s: s.arrays(["I just dropped my cup"]), "'cup'"),
        (lambda s: s.arrays(["I " * 30]), "30 words"),
        (lambda s: s.batches(0), "batch_size=0"),
        (lambda s: s.batches(8, []), "texts=.."),
        (lambda s: s.batches(8, ["I just dropped my cup"]), "'cup'"),
    ],
)
def test_bad_arguments(stories, call, named):
    with pytest.raises(ValueError, match=named):
        call(stories)


# --- long texts ---


def check_windows(windows):
    ids = np.arange(50) ** 2
    inputs, targets = next(windows(ids, T=6, batch_size=500, rng=np.random.default_rng(0)))
    assert inputs.shape == targets.shape == (500, 6) and inputs.dtype == targets.dtype == np.int64
    assert (targets[:, :-1] == inputs[:, 1:]).all()
    starts = np.sqrt(inputs[:, 0]).astype(int)
    assert (targets == (starts[:, None] + np.arange(1, 7)) ** 2).all()  # neighbours in the text
    assert set(starts) == set(range(44))  # 43 + 6 = 49: the last token is a target too


def test_windows():
    check_windows(data.windows)
    assert next(data.windows([1, 2, 3], 2, 1, np.random.default_rng(0)))[1].tolist() == [[2, 3]]


def test_wrong_windows_are_caught():
    def not_shifted(ids, T, batch_size, rng):
        return ((inputs, inputs) for inputs, _ in data.windows(ids, T, batch_size, rng))

    def last_token_missed(ids, T, batch_size, rng):
        return data.windows(ids[:-1], T, batch_size, rng)

    for wrong in (not_shifted, last_token_missed):
        with pytest.raises(AssertionError):
            check_windows(wrong)


def test_text_too_short_for_a_window():
    with pytest.raises(ValueError, match="5 tokens, T=5"):
        data.windows(range(5), 5, 1, np.random.default_rng(0))


@pytest.mark.slow
def test_installed_docs():
    code = """
import hashlib, sys
from course_utils import data
docs = data.installed_docs()
assert not {"torch", "matplotlib", "seaborn"} & set(sys.modules)
print(len(docs), hashlib.sha256(docs.encode("utf-8")).hexdigest())
"""
    run = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    docs = data.installed_docs()
    assert run.stderr == "" and int(run.stdout.split()[0]) == len(docs) > 1_000_000
    assert run.stdout.split()[1] == hashlib.sha256(docs.encode("utf-8")).hexdigest()  # the same in each process
    assert docs.count(" the ") > 10_000 and '"""' not in docs


def test_read_text(tmp_path):
    file = tmp_path / "mine.txt"
    file.write_bytes("\ufeffMy lead brokeß\r\n".encode())
    assert data.read_text(file) == data.read_text(str(file)) == "My lead brokeß\n"


@pytest.mark.parametrize(
    "content, named",
    [
        (b"", "empty"),
        (b" \n", "empty"),
        ("lead".encode("utf-16"), "UTF-8"),
        (b"\x89PNG\r\n", "UTF-8"),
        (b"a\0b", "zero"),
    ],
)
def test_files_that_are_not_text(tmp_path, content, named):
    file = tmp_path / "mine.txt"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=f"{named}(.|\n)*mine.txt"):
        data.read_text(file)


def test_no_file_and_too_large_a_file(tmp_path, monkeypatch):
    for path in (tmp_path, tmp_path / "none.txt"):
        with pytest.raises(ValueError, match="no such file"):
            data.read_text(path)
    (tmp_path / "long.txt").write_text("lead " * 10, encoding="utf-8")
    monkeypatch.setattr(data, "LARGEST_TEXT", 20)
    with pytest.raises(ValueError, match="20 bytes(.|\n)*has 50"):
        data.read_text(tmp_path / "long.txt")


# --- numbers in two languages ---


@pytest.fixture(scope="module")
def numbers():
    return data.EnglishGermanNumbers()


def check_words(say, numbers=(*range(1200), 1999, 21_042, 101_101, 999_999, *range(1000, 1_000_000, 49_999))):
    """Against num2words itself."""
    for n in numbers:
        english, german = say(n)
        assert english == num2words(n) and german.replace(" ", "") == num2words(n, lang="de")


def test_numbers_are_those_of_num2words(numbers):
    check_words(numbers.say)
    assert numbers.say(123_456) == (
        "one hundred and twenty-three thousand, four hundred and fifty-six",
        "ein hundert drei und zwanzig tausend vier hundert sechs und fünfzig",
    )
    assert numbers.say(np.int64(1017)) == ("one thousand and seventeen", "ein tausend siebzehn")


@pytest.mark.slow
def test_many_numbers_are_those_of_num2words(numbers):
    check_words(numbers.say, random.Random(0).sample(range(1_000_000), 8000))


def test_wrong_words_are_caught(numbers):
    def always_comma(n):
        english, german = numbers.say(n)
        return english.replace("thousand and", "thousand,"), german

    def eins_tausend(n):
        english, german = numbers.say(n)
        return english, german.replace("ein tausend", "eins tausend")

    for wrong in (always_comma, eins_tausend):
        with pytest.raises(AssertionError):
            check_words(wrong)


def test_german_is_split_into_words_of_numbers(numbers):
    pieces = {piece for n in range(0, 1_000_000, 7) for piece in numbers.say(n)[1].split()}
    alone = {num2words(n, lang="de") for n in (*range(20), *range(20, 100, 10))}
    assert pieces == alone | {"ein", "und", "hundert", "tausend"}


def test_lengths_of_numbers(monkeypatch):
    monkeypatch.setattr(data.EnglishGermanNumbers, "say", lambda self, n: n)  # the number in place of its words
    numbers, n = data.EnglishGermanNumbers(seed=2), 20_000
    held_out, training = (np.array([len(str(i)) for i in some]) for some in (numbers.held_out(), numbers.sample(n)))
    assert np.bincount(held_out).tolist() == [0, 1, 9, 90, 300, 600, 1000]
    p = np.arange(1, 7) / 21
    assert (abs(np.bincount(training)[1:] - n * p) < 5 * np.sqrt(n * p * (1 - p))).all()


def test_held_out_numbers_are_not_sampled(numbers):
    held_out = numbers.held_out()
    assert held_out == data.EnglishGermanNumbers(seed=9).held_out() and len(set(held_out)) == 2000
    assert ("zero", "null") not in held_out
    training = data.EnglishGermanNumbers(seed=1).sample(30_000)
    assert not set(training) & set(held_out)
    assert set(map(numbers.say, range(100))) <= set(training) | set(held_out)  # the short ones are there
    seen = {i for pair in training for text in pair for i in numbers.encode(text)}
    assert seen == set(range(3, numbers.vocab_size))
    (src, _), _ = next(data.EnglishGermanNumbers(seed=3).batches(5000))
    assert not {numbers.decode(row) for row in src} & {english for english, _ in held_out}


def test_seed_of_numbers(monkeypatch):
    first = data.EnglishGermanNumbers(seed=5)
    sample = first.sample(20)
    assert data.EnglishGermanNumbers(seed=5).sample(20) == sample != first.sample(20)
    assert data.EnglishGermanNumbers(seed=6).sample(20) != sample
    held_out = first.held_out()
    monkeypatch.setenv("COURSE_SEED_SHIFT", "1")
    shifted = data.EnglishGermanNumbers(seed=4)
    assert shifted.held_out() != held_out and not set(shifted.sample(5000)) & set(shifted.held_out())


def test_vocabulary_of_numbers(numbers):
    vocabulary = numbers.vocabulary
    assert vocabulary[:3] == ["<pad>", "<start>", "<end>"] and vocabulary[3:] == sorted(set(vocabulary[3:]))
    assert (numbers.pad_id, numbers.start_id, numbers.end_id) == (0, 1, 2)
    assert numbers.vocab_size == len(vocabulary) == 66  # 31 English and 32 German words
    assert repr(numbers) == "EnglishGermanNumbers(1,000,000 numbers, 63 words in two languages)"


def test_numbers_there_and_back(numbers):
    for n in (*range(1000), *range(1000, 1_000_000, 4999)):
        for text in numbers.say(n):
            ids = numbers.encode(text)
            assert numbers.decode(ids) == text
            assert numbers.decode([1, *ids, 2, 0, 0]) == text
    assert [numbers.vocabulary[i] for i in numbers.encode("zwei und vierzig")] == ["zwei", "und", "vierzig"]
    assert numbers.encode("") == [] and numbers.decode([]) == ""


@pytest.mark.parametrize(
    "typed, n",
    [
        ("  Forty TWO ", 42),
        ("one hundred twenty three thousand four hundred fifty six", 123_456),
        ("one hundred and twenty-three thousand four hundred and fifty-six", 123_456),
        ("one thousand forty two", 1042),
        ("two hundred thousand five", 200_005),
        ("two hundred thousand, five hundred", 200_500),
        ("Zweiundvierzig", 42),
        ("einhundertdreiundzwanzig tausend vierhundertsechsundfünfzig", 123_456),
        ("zwo\u0308lf", 12),  # o and two dots, as macOS writes it
    ],
)
def test_what_a_reader_types(numbers, typed, n):
    assert numbers.decode(numbers.encode(typed)) in numbers.say(n)


@pytest.mark.parametrize(
    "text, named",
    [
        ("fourty two", "'fourty'.*Did you mean 'forty'"),
        ("zwei und dreissig", "'dreissig'.*'dreißig'"),
        ("pencil", "'pencil'.*such as 'forty-two'"),
        ("42", r"'42'.*say\(n\)"),
        ("<end>", "'<end>'"),
        ("x" * 10_000, "'xxx"),
    ],
)
def test_words_that_are_no_number(numbers, text, named):
    with pytest.raises(ValueError, match=named) as error:
        numbers.encode(text)
    assert len(str(error.value)) < 200


def check_number_arrays(arrays, numbers):
    (src, tgt_in), targets = arrays([("forty-two", "zwei und vierzig"), ("seven", "sieben")])
    ids = {word: i for i, word in enumerate(numbers.vocabulary)}
    zwei, und, vierzig, sieben = (ids[word] for word in ("zwei", "und", "vierzig", "sieben"))
    assert src.tolist() == [[ids["forty"], ids["two"]] + [0] * 10, [ids["seven"]] + [0] * 11]
    assert tgt_in.tolist() == [[1, zwei, und, vierzig] + [0] * 8, [1, sieben] + [0] * 10]
    assert targets.tolist() == [[zwei, und, vierzig, 2] + [-100] * 8, [sieben, 2] + [-100] * 10]
    assert {array.dtype for array in (src, tgt_in, targets)} == {np.dtype(np.int64)}


def test_arrays_of_numbers(numbers):
    check_number_arrays(numbers.arrays, numbers)
    longest = max((numbers.say(n) for n in range(777_000, 778_000)), key=lambda pair: len(numbers.encode(pair[1])))
    _, targets = numbers.arrays([longest])
    assert targets[0, -1] == 2  # it fills the row


def test_wrong_number_arrays_are_caught(numbers):
    def padding_scored(pairs):
        inputs, targets = numbers.arrays(pairs)
        return inputs, np.where(targets == -100, 0, targets)

    def not_shifted(pairs):
        (src, tgt_in), targets = numbers.arrays(pairs)
        return (src, np.where(targets == -100, 0, targets)), targets

    for wrong in (padding_scored, not_shifted):
        with pytest.raises(AssertionError):
            check_number_arrays(wrong, numbers)


def test_batches_of_numbers(numbers):
    fresh = numbers.batches(64)
    (src, tgt_in), targets = next(fresh)
    assert src.shape == tgt_in.shape == targets.shape == (64, 12)
    assert (next(fresh)[0][0] != src).any()
    pairs = numbers.held_out()[:10]
    batches = numbers.batches(4, pairs)
    some = [next(batches) for _ in range(5)]  # 20 rows: each pair twice
    rows = [tuple(map(tuple, row)) for (src, tgt_in), targets in some for row in zip(src, tgt_in, targets, strict=True)]
    (src, tgt_in), targets = numbers.arrays(pairs)
    expected = sorted(tuple(map(tuple, row)) for row in zip(src, tgt_in, targets, strict=True))
    assert sorted(rows[:10]) == sorted(rows[10:]) == expected and rows[:10] != rows[10:]


@pytest.mark.parametrize(
    "call, named",
    [
        (lambda n: n.say(-1), "from 0 to 999,999.*-1"),
        (lambda n: n.say(1_000_000), "1000000"),
        (lambda n: n.say(1.0), "1.0"),
        (lambda n: n.say(True), "True"),
        (lambda n: n.say("42"), "'42'"),
        (lambda n: n.sample(-1), "n=-1"),
        (lambda n: n.decode([66]), "0 to 65.*66"),
        (lambda n: n.decode([-1]), "-1"),
        (lambda n: n.arrays([("one " * 13, "eins")]), "12 English words"),
        (lambda n: n.arrays([("one", "eins " * 12)]), "11 German"),
        (lambda n: n.batches(0), "batch_size=0"),
        (lambda n: n.batches(8, []), "pairs=.."),
    ],
)
def test_bad_arguments_of_numbers(numbers, call, named):
    with pytest.raises(ValueError, match=named):
        call(numbers)


def test_stories_open_without_num2words():
    code = "import sys; from course_utils import data; data.PencilStories(); assert 'num2words' not in sys.modules"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)
