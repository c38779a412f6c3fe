"""From text to ids and back: words, characters, byte-pair encoding (BPE); one-hot vectors.

Every tokenizer has encode(str) -> list of ids, decode(ids) -> str, tokens(str) -> list of str (one
for each id, for showing) and vocab_size. Ids count from 0. What cannot be encoded is a ValueError
that names it. Notebook 01 builds these; data.py uses them. Imports NumPy and `regex`, which knows
the Unicode classes (\\p{L}: letters) that Python's own `re` lacks.
"""

import functools
import gzip
import heapq
import operator
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path

import numpy as np
import regex

# A word keeps its apostrophes, straight or curly ("can't"); any other mark is a token of its own.
_WORD = r"\w+(?:['’]\w+)*|[^\w\s]"
_NO_SPACE_BEFORE = tuple(".,;:!?…%)]}”’-")
_NO_SPACE_AFTER = tuple("([{“‘-")

# GPT-2's split: merges never cross the border of such a piece. White space is spelt out, because
# Python's \s is not Unicode's White_Space: it takes \x1c to \x1f, which GPT-2 treats as marks.
_PIECE = regex.compile(
    r"'(?:[sdmt]|ll|ve|re)"  # the endings of it's, I'd, I'm, can't, we'll, we've, we're
    r"| ?\p{L}+"  # letters, with the one space before them
    r"| ?\p{N}+"  # digits
    r"| ?[^\p{White_Space}\p{L}\p{N}]+"  # marks
    r"|\p{White_Space}+(?!\P{White_Space})"  # a run of spaces, but its last one belongs to the next word
    r"|\p{White_Space}+"
)

# GPT-2's order of the 256 bytes: first those that print, then the rest. Its merges file writes the
# rest as the characters from 256 on, so that a space (byte 32) reads as "Ġ".
_PRINTABLE = [*range(33, 127), *range(161, 173), *range(174, 256)]
_BYTE_ORDER = _PRINTABLE + [byte for byte in range(256) if byte not in _PRINTABLE]
_BYTE_ID = {byte: i for i, byte in enumerate(_BYTE_ORDER)}
_SYMBOLS = [chr(byte) for byte in _PRINTABLE] + [chr(256 + n) for n in range(256 - len(_PRINTABLE))]
_MERGES_FILE = Path(__file__).with_name("assets") / "gpt2_merges.txt.gz"


def one_hot(ids, vocab_size):
    """One vector for each id: all 0, but 1 in the place of the id (notebook 01).

    ids is a whole number or an array of them, shape (...). Returns (..., vocab_size), float64, so
    that one_hot(ids, len(E)) @ E picks the rows E[ids]. ValueError names an id out of range.

    >>> one_hot([2, 0], 3).tolist()
    [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
    """
    ids = _checked_ids(ids, vocab_size)
    vectors = np.zeros((*ids.shape, vocab_size))
    np.put_along_axis(vectors, ids[..., None], 1.0, axis=-1)
    return vectors


class _TableTokenizer:
    """What word and character tokenizers share: a table of pieces; an id is a place in it."""

    _piece = "piece"  # what the reader calls it

    def __init__(self, pieces):
        self.vocabulary = list(dict.fromkeys(pieces))  # each once, in order of first appearance
        self.vocab_size = len(self.vocabulary)
        self._id = {piece: i for i, piece in enumerate(self.vocabulary)}
        if not self.vocabulary:
            raise ValueError(
                f"The text is empty, so it gives no {self._piece} to count. Give a text with at least one."
            )

    def __repr__(self):
        return f"{type(self).__name__}(vocab_size={self.vocab_size})"

    def encode(self, text):
        """The ids of the text's pieces. ValueError names a piece that is not in the vocabulary."""
        pieces = self.tokens(text)
        for piece in pieces:
            if piece not in self._id:
                raise ValueError(
                    f"The {self._piece} {piece!r} is not among the {self.vocab_size} this tokenizer knows. "
                    f"Use one from its .vocabulary, or build the tokenizer from a text that has it."
                )
        return [self._id[piece] for piece in pieces]

    def _pieces_of(self, ids):
        return [self.vocabulary[i] for i in _checked_row(ids, self.vocab_size)]


class WordTokenizer(_TableTokenizer):
    """Words and punctuation marks as tokens; "can't" is one word, also with a curly apostrophe.

    texts is a list of texts (or one). Ids: first `specials` (such as "<start>"; recognised in a text
    where they stand), then words in order of first appearance. Upper and lower case differ.
    White space only parts words: decode puts one space between words and none before a full stop, comma
    or the like, whatever stood there. `vocabulary` lists the words by id.

    >>> words = WordTokenizer(["I can't believe my lead broke."], specials=["<start>"])
    >>> words.encode("<start> my lead broke.")
    [0, 4, 5, 6, 7]
    >>> words.decode([1, 2, 3, 7])
    "I can't believe."
    """

    _piece = "word"

    def __init__(self, texts, specials=()):
        texts = [texts] if isinstance(texts, str) else texts
        specials = [specials] if isinstance(specials, str) else list(specials)
        if "" in specials:
            raise ValueError("A special token is empty, so no text can hold it. Give it a name such as '<start>'.")
        longest_first = sorted(specials, key=len, reverse=True)  # "<end2>" before "<end"
        self._pattern = regex.compile("|".join([*map(regex.escape, longest_first), _WORD]))
        words = (word for text in texts for word in self.tokens(text))
        super().__init__([*specials, *words])

    def tokens(self, text):
        """The words and marks of the text, in order."""
        return self._pattern.findall(_checked_text(text))

    def decode(self, ids):
        """The words of these ids, joined as in a sentence."""
        words = self._pieces_of(ids)
        text = "".join(words[:1])
        for left, right in pairwise(words):
            glued = left in _NO_SPACE_AFTER or right in _NO_SPACE_BEFORE
            text += right if glued else " " + right
        return text


class CharTokenizer(_TableTokenizer):
    """Every character (Unicode code point) that `text` holds is a token, in order of first appearance.

    >>> characters = CharTokenizer("pencil")
    >>> characters.encode("pine"), characters.decode([5, 1, 2])
    ([0, 4, 2, 1], 'len')
    """

    _piece = "character"

    def __init__(self, text):
        super().__init__(self.tokens(text))

    def tokens(self, text):
        """The characters of the text, in order."""
        return list(_checked_text(text))

    def decode(self, ids):
        """The characters of these ids, joined."""
        return "".join(self._pieces_of(ids))


class BPETokenizer:
    """Byte-pair encoding on bytes, as GPT-2 uses it: frequent neighbours become one token.

    The first 256 ids are the bytes, in GPT-2's order; each merge of two tokens adds one id. Any text
    can be encoded, and decode(encode(text)) == text. `merges` maps (left id, right id) to the id of
    the merged token, in the order learned. Make one with `train` or `gpt2`.

    The paper uses byte-pair encoding too (section 5.1).
    """

    def __init__(self, merges):
        self.merges = {pair: 256 + rank for rank, pair in enumerate(merges)}
        self._bytes = [bytes([byte]) for byte in _BYTE_ORDER]  # what each id stands for
        for left, right in merges:
            self._bytes.append(self._bytes[left] + self._bytes[right])

    @property
    def vocab_size(self):
        """The number of ids."""
        return len(self._bytes)

    def __repr__(self):
        return f"BPETokenizer(vocab_size={self.vocab_size})"

    @classmethod
    def train(cls, text, vocab_size):
        """Learn merges from a text: again and again, the most frequent pair of neighbours becomes a token.

        vocab_size is 256 or more: the bytes, then one id a merge. Fewer if the text runs out of pairs.
        Of equally frequent pairs the one with the lowest ids is taken, so a text gives the same
        merges on every machine.

        >>> tokenizer = BPETokenizer.train("low lower lowest", vocab_size=258)
        >>> tokenizer.tokens("slow")
        ['s', 'low']
        """
        if not _checked_text(text):
            raise ValueError("The text is empty, so it has no pairs to merge. Give a text of a few words or more.")
        if _checked_size(vocab_size) < 256:
            raise ValueError(
                f"A vocabulary of {vocab_size} has no room for the 256 bytes every text is made of. "
                f"Ask for 256 plus the number of merges (vocab_size={vocab_size})."
            )
        pieces = Counter(_PIECE.findall(text))  # a piece that occurs often is worked on once
        words = [(_byte_ids(piece), count) for piece, count in pieces.items()]
        counts, where = Counter(), defaultdict(set)  # of each pair: how often, and in which words
        for index, (word, count) in enumerate(words):
            for pair in pairwise(word):
                counts[pair] += count
                where[pair].add(index)
        merges = []
        while counts and 256 + len(merges) < vocab_size:
            best = max(counts, key=lambda pair: (counts[pair], -pair[0], -pair[1]))
            for index in where.pop(best):
                old, count = words[index]
                new = _merge_pair(old, best, 256 + len(merges))
                words[index] = (new, count)
                for pair in pairwise(old):
                    counts[pair] -= count
                for pair in pairwise(new):
                    counts[pair] += count
                    where[pair].add(index)
            counts = +counts  # without the pairs that are gone
            merges.append(best)
        return cls(merges)

    @classmethod
    @functools.cache
    def gpt2(cls):
        """GPT-2's own tokenizer: 50,257 ids (256 bytes, 50,000 merges, end-of-text last).

        "<|endoftext|>" in a text is plain text here, so that no reader's text can end a text by
        itself; the id 50256 is for programs to insert.

        >>> BPETokenizer.gpt2().tokens("I can't believe my lead")
        ['I', ' can', "'t", ' believe', ' my', ' lead']
        """
        symbol_id = {symbol: i for i, symbol in enumerate(_SYMBOLS)}
        merges = []
        with gzip.open(_MERGES_FILE, "rt", encoding="utf-8") as lines:
            next(lines)  # the version
            for line in lines:
                left, right = line.split()
                symbol_id[left + right] = 256 + len(merges)
                merges.append((symbol_id[left], symbol_id[right]))
        tokenizer = cls(merges)
        tokenizer._bytes.append(b"<|endoftext|>")
        return tokenizer

    def pieces(self, text):
        """The text cut where merges may not cross: words with the space before them, digits, marks, spaces."""
        return _PIECE.findall(_checked_text(text))

    def encode(self, text):
        """The ids of the text's tokens. ValueError if the text holds half a character (a lone surrogate)."""
        encode_piece = functools.cache(self._encode_piece)  # most words of a text come again
        return [i for piece in self.pieces(text) for i in encode_piece(piece)]

    def decode(self, ids):
        """The text of these ids. Bytes that are no whole character become "\ufffd"."""
        return b"".join(self._bytes[i] for i in _checked_row(ids, self.vocab_size)).decode("utf-8", errors="replace")

    def tokens(self, text):
        """The text of each token, for showing; a byte that is no whole character as `\\xe2`."""
        return self._shown(self.encode(text))

    def merge_steps(self, piece):
        """How one piece is put together, for showing: its bytes, then the tokens after each merge.

        ValueError if merges may not reach across the whole text: give one of `pieces(text)`.

        >>> BPETokenizer.gpt2().merge_steps("lead")
        [['l', 'e', 'a', 'd'], ['le', 'a', 'd'], ['le', 'ad'], ['lead']]
        """
        pieces = self.pieces(piece)
        if len(pieces) > 1:
            raise ValueError(
                f"This text is {len(pieces)} pieces, and no merge crosses from one to the next. "
                f"Ask for one piece at a time (here they are {pieces})."
            )
        return [self._shown(slots) for slots in self._merging(_byte_ids(piece))]

    def _shown(self, slots):
        return [self._bytes[i].decode("utf-8", errors="backslashreplace") for i in slots if i is not None]

    def _encode_piece(self, piece):
        *_, slots = self._merging(_byte_ids(piece))
        return [i for i in slots if i is not None]

    def _merging(self, ids):
        """Merge neighbours, the earliest learned first, then left to right; yield the slots before and after each.

        It is one list, changed in place: a merged token takes the left slot, and the right one holds
        None from then on. A heap of candidates and links to neighbours keep a word of 10,000 letters
        fast: n log n, not n^2.
        """
        n = len(ids)
        slots = [*ids, None]  # the None at n, which is also at -1, stands beyond both ends and never merges
        before, after = [*range(-1, n)], [*range(1, n + 1), n]
        heap = [(self.merges[pair], i) for i, pair in enumerate(pairwise(ids)) if pair in self.merges]
        heapq.heapify(heap)
        yield slots
        while heap:
            new_id, i = heapq.heappop(heap)  # ids grow in the order learned
            j = after[i]
            if self.merges.get((slots[i], slots[j])) != new_id:
                continue  # an earlier merge took one of the two
            slots[i], slots[j] = new_id, None
            after[i] = after[j]
            before[after[i]] = i
            yield slots
            for left in (before[i], i):
                candidate = self.merges.get((slots[left], slots[after[left]]))
                if candidate is not None:
                    heapq.heappush(heap, (candidate, left))


def _byte_ids(piece):
    return [_BYTE_ID[byte] for byte in piece.encode("utf-8")]


def _merge_pair(ids, pair, new_id):
    """ids with every `pair` of neighbours replaced by new_id, from the left."""
    merged = []
    for i in ids:
        if merged and (merged[-1], i) == pair:
            merged[-1] = new_id
        else:
            merged.append(i)
    return merged


def _checked_text(text):
    """text, if it is a str of whole characters."""
    if not isinstance(text, str):
        raise ValueError(
            f"A tokenizer reads text, and this is not a str. Decode bytes with .decode('utf-8'), or put the text "
            f"in quotes (here it is of type {type(text).__name__})."
        )
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(
            f"The text holds half a character (a lone surrogate), as when an emoji is cut in two. "
            f"Remove it, or read the text again as UTF-8 (here it is {text[error.start]!r} at place {error.start})."
        ) from None
    return text


def _checked_size(vocab_size):
    """vocab_size, if it is a whole number above 0."""
    try:
        size = operator.index(vocab_size)
    except TypeError:
        size = 0
    if size < 1:
        raise ValueError(
            f"vocab_size counts tokens, so it must be a whole number above 0. Give the number of different ids "
            f"(here it is {vocab_size!r})."
        )
    return size


def _checked_ids(ids, vocab_size):
    """ids as an array of whole numbers from 0 to vocab_size - 1."""
    _checked_size(vocab_size)
    array = np.asarray(ids)
    if array.size == 0:
        array = array.astype(int)  # NumPy makes an empty list float
    if array.dtype.kind not in "iu":
        raise ValueError(
            f"Ids must be whole numbers, since each is a place in the vocabulary. Give a list such as [3, 0] "
            f"(here it is {ids!r})."
        )
    for wrong in array[(array < 0) | (array >= vocab_size)].flat:
        raise ValueError(
            f"The id {wrong} is not in a vocabulary of {vocab_size}, whose ids go from 0 to {vocab_size - 1}. "
            f"Use ids of the same tokenizer, or a larger vocab_size."
        )
    return array


def _checked_row(ids, vocab_size):
    """ids as a list, if they are one row."""
    array = _checked_ids(ids, vocab_size)
    if array.ndim != 1:
        raise ValueError(
            f"decode reads one row of ids. Give it a list, or a batch row by row (here the shape is {array.shape})."
        )
    return array.tolist()
