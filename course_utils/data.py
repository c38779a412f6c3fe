"""What the course's models read: the pencil stories, numbers to translate, documentation, the reader's own text.

The words of the stories stand in `_stories.py`, the numbers are made in `_numbers.py`. Since every sentence of the
stories and its probability is known, a model's loss can be held against exact floors, in nats a token (notebook 11).
Imports NumPy and `text` alone, so that notebooks 00-06 open without torch.
"""

import functools
import importlib.util
import inspect
import re
from pathlib import Path

import numpy as np

from . import _stories, shifted_seed
from ._numbers import NO_LESSON, EnglishGermanNumbers, in_random_order  # noqa: F401  as data.EnglishGermanNumbers
from .text import WordTokenizer

START_ID, END_ID = 0, 1
SPECIALS = ("<start>", "<end>")  # their words, in the order of their ids
LARGEST_TEXT = 50_000_000  # bytes; more does not fit the 2 GB of a small machine once it is tokenised
DOCUMENTED = ("numpy", "matplotlib", "seaborn")  # packages that every reader of the course has


class SentenceTable:
    """All sentences of a grammar with their probabilities; the exact floors are sums over it.

    `rows` is (N, max_len): the ids of a sentence, then END_ID to the end of the row, at least once. Rows are sorted,
    so sentences that begin alike are neighbours. `probs` and `n_tokens` (words and one end) are (N,).
    """

    def __init__(self, rows, probs):
        self.rows = np.asfortranarray(rows)  # column by column in memory, as it is read
        self.probs = probs / probs.sum()
        self.n_tokens = (rows != END_ID).sum(axis=1) + 1

    @classmethod
    def from_rules(cls, rules, encode):
        """Write out every sentence of `rules` (see `_stories.rules`); `encode` turns a phrase into ids."""
        probability = {}
        total = sum(weight for weight, _ in rules)
        for weight, slots in rules:
            sentences = [((), weight / total)]
            for slot in slots:
                choices = [(tuple(encode(phrase)), w / sum(slot.values())) for phrase, w in slot.items()]
                sentences = [(ids + more, p * q) for ids, p in sentences for more, q in choices]
            for ids, p in sentences:
                probability[ids] = probability.get(ids, 0.0) + p  # two rules may write one sentence
        ordered = sorted(probability)
        max_len = max(map(len, ordered)) + 1
        rows = np.array([ids + (END_ID,) * (max_len - len(ids)) for ids in ordered], dtype=np.int16)
        return cls(rows, np.array([probability[ids] for ids in ordered]))

    def draw(self, n, rng):
        """n rows (n, max_len), drawn by the NumPy Generator `rng`."""
        return self.rows[np.searchsorted(np.cumsum(self.probs)[:-1], rng.random(n), side="right")]

    def _block(self, prefix):
        """The rows that begin with the ids `prefix`, as a slice."""
        first, last = 0, len(self.rows)
        for column, i in enumerate(prefix):
            below = np.array([i, i + 1], dtype=self.rows.dtype)
            first, last = first + np.searchsorted(self.rows[first:last, column], below)
        return slice(first, last)

    def begins(self, prefix):
        """Whether the ids `prefix` begin a sentence, or are one. An id of no word fits nowhere."""
        block = self._block(prefix[: self.rows.shape[1]])
        return bool((self.n_tokens[block] > len(prefix)).any())

    def next_token(self, prefix):
        """(ids, probs) of what can follow the ids `prefix`, most likely first; empty if nothing can."""
        if not self.begins(prefix):
            return [], []
        block = self._block(prefix)
        probs = np.bincount(self.rows[block, len(prefix)], weights=self.probs[block])
        # Rounded, equal weights are equal to the last bit, and come in the order of their ids.
        probs = (probs / probs.sum()).round(14)
        ids = np.argsort(-probs, kind="stable")[: np.count_nonzero(probs)]
        return ids, probs[ids]

    @functools.cached_property
    def surprisals(self):
        """(N, max_len): -ln P(token | all tokens before it) along each row; 0 after the end."""
        surprisals = np.zeros(self.rows.shape)
        differs = np.zeros(len(self.rows), dtype=bool)  # from the row above, in the tokens up to t
        before = np.ones(len(self.rows))  # probability of what the row has before t
        for t in range(self.rows.shape[1]):
            differs[1:] |= self.rows[1:, t] != self.rows[:-1, t]
            up_to = _mass(np.cumsum(differs), self.probs)
            surprisals[:, t] = np.where(t < self.n_tokens, np.log(before / up_to), 0.0)
            before = up_to
        return surprisals

    def __contains__(self, ids):
        """Whether the ids are a whole sentence of the table."""
        block = self._block([*ids, END_ID])
        return block.start < block.stop

    def surprisal(self, ids):
        """The surprisals of one sentence: of its words and its end."""
        return self.surprisals[self._block([*ids, END_ID]).start, : len(ids) + 1]

    def entropy_per_token(self, context=None):
        """Expected nats / expected tokens; see `PencilStories.entropy_per_token`."""
        if context is None:
            nats = -(self.probs * np.log(self.probs)).sum()  # by the chain rule the tokens' nats add up to this
        else:
            nats = sum(self._nats_at(t, context) for t in range(self.rows.shape[1]))
        return float(nats / (self.probs * self.n_tokens).sum())

    def _nats_at(self, t, context):
        """Expected nats of the token at position t, given the `context` tokens before it."""
        here = t < self.n_tokens  # the other sentences are over: no token, no nats
        rows, probs = self.rows[here], self.probs[here]
        seen = np.zeros(len(rows), dtype=int)  # a number for what the model sees at this position
        for column in range(max(t - context, 0), t):  # before the first word every row has the start: no news
            seen = _number(seen, rows[:, column])
        joint = _mass(_number(seen, rows[:, t]), probs)
        return -(probs * np.log(joint / _mass(seen, probs))).sum()


def _number(numbers, ids):
    """For each pair of entries a number from 0, equal where the pairs are equal."""
    return np.unique(numbers * (int(ids.max()) + 1) + ids, return_inverse=True)[1]


def _mass(numbers, probs):
    """For each entry, the probability of all entries that have its number."""
    return np.bincount(numbers, weights=probs)[numbers]


@functools.cache
def _stories_tables():
    """(tokenizer, whole grammar, training sentences, held-out sentences), made once for all seeds."""
    rules = _stories.rules()
    tokenizer = WordTokenizer([phrase for _, slots in rules for slot in slots for phrase in slot], SPECIALS)
    whole = SentenceTable.from_rules(rules, tokenizer.encode)
    held_out = np.zeros(len(whole.rows), dtype=bool)
    for words in _stories.HELD_OUT:
        held_out |= np.all([(whole.rows == i).any(axis=1) for i in tokenizer.encode(words)], axis=0)
    parts = [SentenceTable(whole.rows[keep], whole.probs[keep]) for keep in (~held_out, held_out)]
    return tokenizer, whole, *parts


class PencilStories:
    """Short stories of mishaps, whose last words hang on an object five or more tokens before them.

    "I just dropped my mechanical pencil I can't believe my lead broke" is one. Some combinations, such as
    "mechanical pencil", are held out: `sample` and `batches` never give them. So there are two distributions:
    that of training and that of the whole grammar. `seed` changes the samples alone; ids and words stay.

    >>> following = PencilStories().next_word("I just dropped my mechanical pencil I can't believe my lead")
    >>> {word: round(p, 2) for word, p in following.items()}
    {'broke': 0.6, 'snapped': 0.25, 'crumbled': 0.15}
    """

    start_id, end_id = START_ID, END_ID

    def __init__(self, seed=0):
        self.tokenizer, self._whole, self._training, self._held_out = _stories_tables()
        self._id = {word: i for i, word in enumerate(self.tokenizer.vocabulary)}
        self.max_len = self._whole.rows.shape[1]  # the longest sentence and its end: positions a model needs
        self._rng = np.random.default_rng(shifted_seed(seed))

    def __repr__(self):
        return f"PencilStories({len(self._whole.rows):,} sentences of {self.tokenizer.vocab_size - 2} words)"

    def sample(self, n):
        """n sentences from the training distribution; the next call goes on where this one stopped."""
        if n < 0:
            raise ValueError(f"There is no sample of fewer than 0 sentences. Ask for 0 or more (here n={n}).")
        return self._texts(self._training.draw(n, self._rng))

    def held_out(self):
        """Every sentence of the held-out combinations, once each, always in the same order."""
        return self._texts(self._held_out.rows)

    def next_word(self, prefix, held_out=False):
        """What can follow `prefix` and how likely it is, most likely first; "<end>" stands for the end.

        By the training distribution where the prefix begins a training sentence, else by the whole grammar; with
        `held_out=True` by the whole grammar throughout. ValueError names the first word that no sentence has in its
        place, and what could stand there.
        """
        ids = self._prefix_ids(prefix)
        following, probs = self._training.next_token(ids)
        if held_out or not len(following):
            following, probs = self._whole.next_token(ids)
        return {self.tokenizer.vocabulary[i]: float(p) for i, p in zip(following, probs, strict=True)}

    def surprisal(self, text):
        """-ln P(token | all before it), in nats, for each word of a sentence and for its end.

        By the training distribution, or by the whole grammar if the sentence is held out. ValueError if the text is
        not a whole sentence of the grammar.
        """
        ids = self._prefix_ids(text)
        for table in (self._training, self._whole):
            if ids in table:
                return table.surprisal(ids).tolist()
        could_be = _some(self.next_word(text))
        raise ValueError(f"The story is not finished. Go on with {could_be} (the text is {text[:80]!r}).")

    def entropy_per_token(self, context=None, held_out=False):
        """The floor of the loss, exact: expected nats / expected tokens, counting the end, not the start.

        Of the training distribution; with `held_out=True`, of the whole grammar. `context=None` is the floor for a
        model that sees all tokens before, `context=k` for one that sees the position and the last k tokens
        (before the first word stands the start). On a sample a loss may fall below it by chance.
        """
        if context is not None and context not in range(self.max_len + 1):
            raise ValueError(
                f"context says how many tokens back the model sees. Give a whole number from 0 to {self.max_len}, "
                f"or None for all (here {context!r})."
            )
        return (self._whole if held_out else self._training).entropy_per_token(context)

    def arrays(self, texts):
        """(inputs, targets) for training, int64 (B, max_len): a row for each sentence.

        Inputs are the start and the words, filled up with ends; targets are the words and the end, filled up
        with -100, which is no lesson. ValueError for an unknown word or a text too long for the row.
        """
        return _lessons(self._rows(texts))

    def batches(self, batch_size, texts=None):
        """An endless iterator of (inputs, targets) as from `arrays`, of fresh training sentences.

        Given `texts`, of these alone: all in random order, then all in another. Here the model can learn by heart.
        """
        if batch_size < 1 or (texts is not None and not len(texts)):
            raise ValueError(
                "A batch needs sentences. Give a batch_size of 1 or more and, if you choose the texts, at least one "
                f"(here batch_size={batch_size}, texts={texts!r})."
            )
        return self._fresh(batch_size) if texts is None else self._shuffled(batch_size, self._rows(texts))

    def _fresh(self, batch_size):
        while True:
            yield _lessons(self._training.draw(batch_size, self._rng))

    def _shuffled(self, batch_size, rows):
        for chosen in in_random_order(len(rows), batch_size, self._rng):
            yield _lessons(rows[chosen])

    def _rows(self, texts):
        rows = np.full((len(texts), self.max_len), END_ID)
        for row, text in zip(rows, texts, strict=True):
            ids = self.tokenizer.encode(text.replace("’", "'"))
            if len(ids) >= self.max_len:
                raise ValueError(
                    f"The sentence is too long: a row has room for {self.max_len - 1} words and an end. Shorten it "
                    f"(it has {len(ids)} words: {text[:60]!r} ...)."
                )
            row[: len(ids)] = ids
        return rows

    def _texts(self, rows):
        return [self.tokenizer.decode(row[row != END_ID]) for row in rows]

    def _prefix_ids(self, text):
        """The ids of a text that begins a sentence of the grammar."""
        words = self.tokenizer.tokens(text.replace("’", "'"))
        ids = [self._id.get(word, -1) for word in words]
        if self._whole.begins(ids):
            return ids
        fits = next(n for n in range(len(ids)) if not self._whole.begins(ids[: n + 1]))  # words that fit
        could_be = [self.tokenizer.vocabulary[i] for i in self._whole.next_token(ids[:fits])[0] if i != END_ID]
        place = f"after {' '.join(words[:fits])!r}" if fits else "at the beginning"
        cure = f"Write {_some(could_be)} there" if could_be else "Stop there: the story is over"
        raise ValueError(f"No story has the word {words[fits]!r} {place}. {cure} (the text is {text[:80]!r}).")


def _some(words):
    """A few of the words, for a message."""
    words = list(words)
    more = f" or {len(words) - 5} others" if len(words) > 6 else ""
    return ", ".join(map(repr, words[:5] if more else words)) + more


def _lessons(rows):
    """(inputs, targets) of rows of ids that are filled up with ends; see `PencilStories.arrays`."""
    inputs = np.full(rows.shape, START_ID, dtype=np.int64)
    inputs[:, 1:] = rows[:, :-1]
    over = np.arange(rows.shape[1]) > (rows != END_ID).sum(axis=1, keepdims=True)
    return inputs, np.where(over, NO_LESSON, rows).astype(np.int64)


def windows(ids, T, batch_size, rng):
    """An endless iterator of (inputs, targets), int64 (batch_size, T), cut out of one long text at random.

    `ids` are the tokens of the text, (n,). A target is the token after its input: targets[:, :-1] equals
    inputs[:, 1:]. `rng` is a NumPy Generator. ValueError if the text is shorter than T + 1 tokens.
    """
    ids = np.asarray(ids, dtype=np.int64)
    if T < 1 or batch_size < 1 or len(ids) <= T:
        raise ValueError(
            "A window takes T tokens and the one that follows. Choose a longer text or a smaller T; T and batch_size "
            f"are 1 or more (here the text has {len(ids)} tokens, T={T}, batch_size={batch_size})."
        )
    return _windows(ids, T, batch_size, rng)


def _windows(ids, T, batch_size, rng):
    while True:
        starts = rng.integers(len(ids) - T, size=(batch_size, 1))
        cut = ids[starts + np.arange(T + 1)]  # (batch_size, T + 1)
        yield cut[:, :-1], cut[:, 1:]


def installed_docs():
    """The documentation inside the installed NumPy, matplotlib and seaborn: some 3 MB of English prose.

    One text, docstrings of 200 characters or more, each once, in the order of the files' names. The files are
    read, not imported. The text depends on the installed versions, on nothing else.
    """
    docs = {}
    for package in DOCUMENTED:
        spec = importlib.util.find_spec(package)
        for folder in map(Path, spec.submodule_search_locations if spec else ()):
            for file in sorted(folder.rglob("*.py")):
                if "tests" not in file.parts:
                    docs.update(dict.fromkeys(_docstrings(file.read_text(encoding="utf-8", errors="ignore"))))
    return "\n\n".join(docs)


def _docstrings(source):
    """Long texts in triple quotes that begin a line; parsing instead would miss those of NumPy's C functions."""
    for before, text in re.findall(r'([^\n"]*)"""(.*?)"""', source, re.DOTALL):
        if before.strip() in ("", "r") and len(text) >= 200:
            yield inspect.cleandoc(text)


def read_text(path):
    """The text of the reader's own file. ValueError if there is none, or none that a model can read.

    The file is plain text in UTF-8 of at most 50 MB.
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"There is no such file. Check the name and the folder (here {str(path)!r}).")
    if path.stat().st_size > LARGEST_TEXT:
        raise ValueError(
            f"The file is too large. Cut it to {LARGEST_TEXT:,} bytes or fewer "
            f"({str(path)!r} has {path.stat().st_size:,})."
        )
    try:
        text = path.read_text(encoding="utf-8-sig")  # -sig: without the mark that some editors put first
    except UnicodeDecodeError as error:
        raise ValueError(
            f"The file is not plain text in UTF-8. Save it as a text file, encoding UTF-8 (in {str(path)!r} byte "
            f"{error.start} cannot be read)."
        ) from None
    if "\0" in text or not text.strip():
        what = "is not text: it holds zero bytes" if "\0" in text else "is empty"
        raise ValueError(f"The file {what}. Choose a file with prose in it (here {str(path)!r}).")
    return text
