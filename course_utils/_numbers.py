"""English and German numbers, for notebook 14: `data.EnglishGermanNumbers`.

The words from 0 to 999 are those of the library num2words. Above that two of them are joined as num2words joins them,
which is some hundred times faster than asking it anew. Imports NumPy; num2words when the first object is made.
"""

import difflib
import functools
import numbers
import re
import unicodedata

import numpy as np

from . import shifted_seed

NO_LESSON = -100  # a target that is not scored: the default ignore_index of PyTorch's cross_entropy
HELD_OUT = (1, 9, 90, 300, 600, 1000)  # of the numbers of 1, 2 ... 6 digits: a tenth of those of up to three
LARGEST = 999_999


@functools.cache
def _words():
    """(English of 0 to 999, German of 0 to 999 split at morphemes, the German pieces)."""
    from num2words import num2words  # here, so that pages without numbers open without it

    english, german = ([num2words(n, lang=lang) for n in range(1000)] for lang in ("en", "de"))
    pieces = [*german[:21], *german[30:100:10], "ein", "und", "hundert", "tausend"]
    return english, [" ".join(_split(word, pieces)) for word in german], pieces


def _split(word, pieces):
    """The longest pieces, from left to right, that a word begins with: zweiundvierzig -> zwei, und, vierzig."""
    return re.findall("|".join(sorted(pieces, key=len, reverse=True)), word)


def in_random_order(n, batch_size, rng):
    """An endless iterator of batch_size row numbers: all of 0 to n - 1 in random order, then all in another."""
    order = np.array([], dtype=int)
    while True:
        while len(order) < batch_size:
            order = np.append(order, rng.permutation(n))
        chosen, order = np.split(order, [batch_size])
        yield chosen


class EnglishGermanNumbers:
    """The numbers 0 to 999,999 in English and in German, to translate from one into the other.

    German is split at its morphemes: "zwei und vierzig". Without the spaces it is what num2words writes, faults
    included: 101,000 is "einhunderteinstausend" there, and "einhunderteintausend" to a German.

    2,000 numbers are held out, the same for every `seed`: 1, 9, 90, 300, 600 and 1,000 of those with 1 to 6 digits,
    chosen at random, but never 0, whose "null" stands in no other number. `sample` and `batches` draw from the others.
    Uniform draws would all but miss the short ones, so first the number of digits d is drawn, with probability
    d / 21, then any training number of d digits, all alike.

    Both languages share one vocabulary, as in section 3.4: padding, start, end, then the words in alphabetical order.

    >>> EnglishGermanNumbers().say(42)
    ('forty-two', 'zwei und vierzig')
    """

    pad_id, start_id, end_id = 0, 1, 2
    max_len = 12  # positions a model needs: the longest German number has 11 pieces, and a start or an end

    def __init__(self, seed=0):
        self._english, self._german, self._pieces = _words()
        words = {"and", "thousand", *self._pieces}.union(*(re.split("[ -]", text) for text in self._english))
        self.vocabulary = ["<pad>", "<start>", "<end>", *sorted(words)]
        self._id = {word: i for i, word in enumerate(self.vocabulary) if i > self.end_id}
        self._low = np.array([0, *(10**d for d in range(1, 6))])  # the numbers of d digits: from low to below high
        self._high = 10 ** np.arange(1, 7)
        self._is_held_out = np.zeros(LARGEST + 1, dtype=bool)
        rng = np.random.default_rng(shifted_seed(0))
        for low, high, n in zip(self._low, self._high, HELD_OUT, strict=True):
            self._is_held_out[rng.choice(np.arange(max(1, low), high), n, replace=False)] = True
        self._rng = np.random.default_rng(shifted_seed(seed))

    def __repr__(self):
        return f"EnglishGermanNumbers({LARGEST + 1:,} numbers, {self.vocab_size - 3} words in two languages)"

    @property
    def vocab_size(self):
        """How many ids there are, the three special ones included."""
        return len(self.vocabulary)

    def say(self, n):
        """(English, German) of the number n. ValueError unless n is a whole number from 0 to 999,999."""
        if not isinstance(n, numbers.Integral) or isinstance(n, bool) or not 0 <= n <= LARGEST:
            raise ValueError(f"The numbers go from 0 to {LARGEST:,}. Choose a whole number among them (here {n!r}).")
        thousands, rest = divmod(n, 1000)
        if not thousands:
            return self._english[rest], self._german[rest]
        english = f"{self._english[thousands]} thousand"
        german = f"{'ein' if thousands == 1 else self._german[thousands]} tausend"
        if rest:
            english += (", " if rest >= 100 else " and ") + self._english[rest]
            german += " " + self._german[rest]
        return english, german

    def sample(self, n):
        """n training pairs (English, German), some more than once; the next call goes on where this one stopped."""
        if n < 0:
            raise ValueError(f"There is no sample of fewer than 0 numbers. Ask for 0 or more (here n={n}).")
        digits = self._rng.choice(6, size=n, p=np.arange(1, 7) / 21)  # counted from 0
        drawn = self._rng.integers(self._low[digits], self._high[digits])
        while (again := self._is_held_out[drawn]).any():
            drawn[again] = self._rng.integers(self._low[digits[again]], self._high[digits[again]])
        return [self.say(i) for i in drawn.tolist()]

    def held_out(self):
        """The 2,000 pairs that are never trained on, from the smallest number to the largest."""
        return [self.say(i) for i in np.flatnonzero(self._is_held_out).tolist()]

    def encode(self, text):
        """The ids of a number in English or German words, without start and end.

        Capitals, hyphens, commas and spaces may stand as one likes, the "and" of English may be missing, and German
        may be one word. ValueError names a word that is unknown and the ones nearest to it.
        """
        words = re.sub("[-,]", " ", unicodedata.normalize("NFC", text).lower()).split()
        pieces = " ".join(piece for word in words for piece in self._pieces_of(word))
        pieces = re.sub("hundred (?!and|thousand)", "hundred and ", pieces)
        pieces = re.sub("thousand (?!and|.* hundred)", "thousand and ", pieces)
        return [self._id[piece] for piece in pieces.split()]

    def _pieces_of(self, word):
        if word in self._id:
            return [word]
        pieces = _split(word, self._pieces)
        if "".join(pieces) == word:
            return pieces
        near = difflib.get_close_matches(word, self.vocabulary[3:])
        if any(character.isdigit() for character in word):
            cure = "Write the number in words; say(n) has the words of n"
        elif near:
            cure = f"Did you mean {' or '.join(map(repr, near))}?"
        else:
            cure = "Write a whole number below a million in English or German, such as 'forty-two'"
        raise ValueError(f"No number has the word {word[:40]!r} in it. {cure}")

    def decode(self, ids):
        """The text of some ids, English with its hyphens and commas; start, end and padding are left out."""
        ids = [int(i) for i in ids]
        for i in ids:
            if not 0 <= i < self.vocab_size:
                raise ValueError(f"Ids go from 0 to {self.vocab_size - 1}. Decode those of this vocabulary (here {i}).")
        text = " ".join(self.vocabulary[i] for i in ids if i > self.end_id)
        text = re.sub("ty (?!thousand)", "ty-", text)
        return re.sub("thousand (?!and)", "thousand, ", text)

    def arrays(self, pairs):
        """((src, tgt_in), targets) for training, each int64 (B, max_len): a row for each pair.

        `src` is the English, `tgt_in` the start and the German, both filled up with padding; `targets` are the German
        and the end, filled up with -100, which is no lesson. ValueError for an unknown word or a text too long.
        """
        src = np.full((len(pairs), self.max_len), self.pad_id)
        tgt_in, targets = src.copy(), np.full_like(src, NO_LESSON)
        for row, (english, german) in enumerate(pairs):
            source, target = self.encode(english), self.encode(german)
            if len(source) > self.max_len or len(target) >= self.max_len:
                raise ValueError(
                    f"The number is too long: a row has room for {self.max_len} English words, or for "
                    f"{self.max_len - 1} German ones and an end. Shorten it (here {english[:60]!r}, {german[:60]!r})."
                )
            src[row, : len(source)] = source
            tgt_in[row, : len(target) + 1] = [self.start_id, *target]
            targets[row, : len(target) + 1] = [*target, self.end_id]
        return (src, tgt_in), targets

    def batches(self, batch_size, pairs=None):
        """An endless iterator of ((src, tgt_in), targets) as from `arrays`, of fresh training pairs.

        Given `pairs`, of these alone: all in random order, then all in another.
        """
        if batch_size < 1 or (pairs is not None and not len(pairs)):
            raise ValueError(
                "A batch needs numbers. Give a batch_size of 1 or more and, if you choose the pairs, at least one "
                f"(here batch_size={batch_size}, pairs={pairs!r})."
            )
        return self._fresh(batch_size) if pairs is None else self._chosen(batch_size, *self.arrays(pairs))

    def _fresh(self, batch_size):
        while True:
            yield self.arrays(self.sample(batch_size))

    def _chosen(self, batch_size, inputs, targets):
        for rows in in_random_order(len(targets), batch_size, self._rng):
            yield tuple(array[rows] for array in inputs), targets[rows]
