"""Word vectors in NumPy: a toy plane set by hand, a table of real vectors, cosines and analogies.

A word vector is d numbers that stand for one word; likeness is measured by the cosine. The real
rows come from the token table of all-MiniLM-L6-v2, 384 numbers a word: what that model knows of a
word *before* its first layer (an embedding: section 3.4 of Vaswani et al., 2017). Its
tokenizer has small letters only, so capitals are lowered here. tools/make_word_vectors.py made the
file. Notebook 02 uses this module. Imports NumPy alone.
"""

import difflib
import functools
from pathlib import Path

import numpy as np

_ASSET = Path(__file__).with_name("assets") / "word_vectors.npz"


@functools.cache
def _table():
    with np.load(_ASSET, allow_pickle=False) as file:
        words = file["words"].tolist()
        vectors = file["vectors"].astype(np.float32)  # stored as float16; sums of float16 would lose digits
    vectors.flags.writeable = False  # one copy serves every caller
    return words, vectors, {word: row for row, word in enumerate(words)}


def load():
    """The real table: (words, vectors), where vectors is (n_words, 384) float32 and row i is words[i].

    The words stand in the tokenizer's order, roughly the commonest first, so `words[:n]` is a
    sensible smaller vocabulary. The array is shared, so it is read-only: use `vectors.copy()` to change it.

    >>> words, vectors = load()
    >>> words[:3], vectors.shape == (len(words), 384)
    (['a', 'i', 'the'], True)
    """
    words, vectors, _ = _table()
    return list(words), vectors


def _row(word):
    words, _, row_of = _table()
    if (key := str(word).lower()) in row_of:
        return row_of[key]
    close = difflib.get_close_matches(key, words, n=3)
    advice = f"Did you mean {' or '.join(close)}?" if close else "Choose one of `vectors.load()[0]`."
    raise ValueError(f"The table has no vector for this word. {advice} It holds {len(words)} words; given: {word!r}.")


def vector(word):
    """The real vector of one word, (384,) float32, read-only. ValueError for a word not in the table."""
    return _table()[1][_row(word)]


def cosine(a, b):
    """How alike two directions are, whatever the lengths: a . b / (|a| |b|), from -1 to 1.

    a and b are (..., d) and broadcast. Returns a float for two vectors, else (...). ValueError if the
    sizes differ, or if a vector is all zeros, since it has no direction.

    >>> cosine([1, 0], [[3, 0], [0, 2], [-5, 0]]).tolist()
    [1.0, 0.0, -1.0]
    """
    a, b = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    if a.shape[-1:] != b.shape[-1:]:
        raise ValueError(
            f"These vectors differ in size, so they have no dot product. Take both from one table "
            f"(given: {a.shape} and {b.shape})."
        )
    lengths = np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)
    if np.any(lengths == 0):
        raise ValueError(
            f"A vector of zeros has no direction, so it has no cosine. Leave it out (given: {a.shape} and {b.shape})."
        )
    cosines = (a * b).sum(axis=-1) / lengths
    return float(cosines) if cosines.ndim == 0 else cosines


def nearest(target, k=5, exclude=(), candidates=None):
    """The k words whose real vectors have the highest cosine with `target`, (384,).

    Returns a list of (word, cosine), best first. `exclude` holds words that may not be answers;
    `candidates` holds the only words that may (None: the whole table). The list is shorter than k
    when fewer words are left. ValueError for an unknown word, or k below 1.

    >>> [word for word, _ in nearest(vector("lead"), k=3)]
    ['lead', 'take', 'copper']
    """
    if k < 1:
        raise ValueError(f"At least one neighbour must be asked for. Choose k of 1 or more (given: k={k}).")
    words, vectors, _ = _table()
    left_out = {_row(word) for word in exclude}
    rows = range(len(words)) if candidates is None else dict.fromkeys(_row(word) for word in candidates)
    rows = [row for row in rows if row not in left_out]
    cosines = cosine(target, vectors[rows])  # (len(rows),)
    return [(words[rows[i]], float(cosines[i])) for i in np.argsort(-cosines, kind="stable")[:k]]


def analogy(a, b, c, exclude_inputs=True, k=5, candidates=None):
    """The words nearest to a - b + c: "a is to b as what is to c?".

    Returns the k best as (word, cosine), best first. With exclude_inputs=False the answer is often a
    or c itself, since both are terms of the sum. `candidates` as in `nearest`: among few words a rough
    guess can still find the right one. ValueError for an unknown word.

    >>> analogy("king", "man", "woman")[0][0]
    'queen'
    >>> analogy("king", "man", "woman", exclude_inputs=False)[0][0]
    'king'
    """
    target = vector(a) - vector(b) + vector(c)
    return nearest(target, k, exclude=(a, b, c) if exclude_inputs else (), candidates=candidates)


def toy_plane():
    """The article's toy plane: (words, vectors), where vectors is (10, 2) float64.

    x is gender-ish (-1 he, 0 neither, 1 she), y is how much of an occupation the word names. Hand-set,
    so king - man + woman is queen to the last digit, and doctor and nurse differ in y alone; real
    vectors (`plane`) grant neither.

    >>> words, vectors = toy_plane()
    >>> at = dict(zip(words, vectors, strict=True))
    >>> (at["king"] - at["man"] + at["woman"]).tolist(), at["queen"].tolist()
    ([1.0, 3.0], [1.0, 3.0])
    """
    words = ["man", "waiter", "actor", "king", "woman", "waitress", "actress", "queen", "nurse", "doctor"]
    x = [-1, -1, -1, -1, 1, 1, 1, 1, 0, 0]
    y = [0, 1, 2, 3, 0, 1, 2, 3, 1.5, 2.5]
    return words, np.stack([x, y], axis=-1)  # (10, 2)


def plane(words, x_pair, y_pair):
    """Real vectors seen from two directions, to draw beside the toy plane. Returns (len(words), 2) float64.

    A pair is (start, end): the axis grows from start to end. Each end is a word, or a list of words
    that stands for their mean. A coordinate is the dot product with the direction of length 1.
    ValueError for an unknown word, or if start and end are the same or empty.

    >>> plane(["man", "woman"], ("he", "she"), ("man", "doctor"))[:, 0].round(2).tolist()
    [-0.34, 0.34]
    """
    vectors = _table()[1][[_row(word) for word in words]]  # (n, 384)
    return np.stack([vectors @ _direction(x_pair), vectors @ _direction(y_pair)], axis=-1)  # (n, 2)


def _direction(pair):
    start, end = ([_row(word) for word in ([side] if isinstance(side, str) else side)] for side in pair)
    if not start or not end or set(start) == set(end):
        raise ValueError(f"An axis needs two different ends. Give each end a word of its own (given: {pair!r}).")
    vectors = _table()[1]
    step = vectors[end].mean(axis=0, dtype=float) - vectors[start].mean(axis=0, dtype=float)
    return step / np.linalg.norm(step)  # (384,)
