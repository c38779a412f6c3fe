"""Attention in NumPy: scores, masks, softmax, weighted sums, sinusoidal positions.

Symbols are those of Vaswani et al. (2017), sections 3.2 and 3.5. Rows are queries, columns
are keys. A mask is boolean, True = may attend. Everything is computed in float64. Imports NumPy
alone, so that notebooks 00-06 open without torch.
"""

import operator

import numpy as np


def softmax(scores, axis=-1):
    """Turn scores into weights: each at least 0, and adding up to 1 along `axis` (section 3.2.1).

    scores is any shape, lists and integers included; the result has the same shape. The last axis
    holds the keys, so the default gives each query its own weights. A score of -inf gets weight 0,
    and where all are -inf all weights are 0: there is nothing to attend to. NaN and +inf give NaN.

    >>> softmax(np.log([[1, 3], [1, 1]])).round(2).tolist()
    [[0.25, 0.75], [0.5, 0.5]]
    """
    scores = np.asarray(scores, dtype=np.float64)
    top = scores.max(axis=axis, keepdims=True, initial=-np.inf)
    top = np.where(np.isneginf(top), 0.0, top)  # -inf - -inf would be NaN in a row without an allowed key
    with np.errstate(invalid="ignore"):  # inf - inf: the NaN is shown to the reader, as torch does
        exps = np.exp(scores - top)  # same softmax, but exp(710) overflows float64
    total = exps.sum(axis=axis, keepdims=True)
    return exps / np.where(total == 0, 1.0, total)


def attention_scores(Q, K, scaled=True):
    """How well each query matches each key: the argument of softmax in eq. 1 (section 3.2.1).

    Q is (..., T_q, d_k), K is (..., T_k, d_k). Returns (..., T_q, T_k), a pure number: row i holds
    query i against every key. `scaled` divides by sqrt(d_k), as the paper does. ValueError if Q and
    K differ in d_k.

    >>> attention_scores(np.eye(2), np.array([[3.0, 0.0]]), scaled=False).tolist()
    [[3.0], [0.0]]
    """
    Q, K = _rows(Q, "Q"), _rows(K, "K")
    if Q.shape[-1] != K.shape[-1]:
        raise ValueError(
            f"Q has {Q.shape[-1]} numbers a token and K has {K.shape[-1]}, so they have no dot product. "
            f"Project both to one d_k (here Q is {Q.shape}, K is {K.shape})."
        )
    scores = Q @ np.swapaxes(K, -1, -2)  # (..., T_q, d_k) @ (..., d_k, T_k)
    return scores / np.sqrt(Q.shape[-1]) if scaled else scores


def causal_mask(T):
    """Who may look at whom in a decoder: each token at itself and at earlier ones (section 3.2.3).

    Returns (T, T) boolean, True = may attend: row i (a query) is True up to column i (a key).

    >>> causal_mask(3).astype(int).tolist()
    [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    """
    T = _whole(T, "T, the number of tokens,", least=0)
    return np.tril(np.ones((T, T), dtype=bool))


def attention(Q, K, V, mask=None):
    """Scaled dot-product attention: softmax(Q K^T / sqrt(d_k)) V (eq. 1, section 3.2.1).

    Q is (..., T_q, d_k), K is (..., T_k, d_k), V is (..., T_k, d_v). mask is boolean, True = may
    attend, and broadcasts to (..., T_q, T_k). Returns (output, weights): (..., T_q, d_v) and
    (..., T_q, T_k). A query that may attend to nothing gets zeros in both. ValueError if K and V
    differ in T_k, or if the mask is not boolean or does not fit.

    >>> output, weights = attention(np.zeros((2, 1)), np.zeros((2, 1)), [[4.0], [8.0]], causal_mask(2))
    >>> weights.tolist(), output.tolist()
    ([[1.0, 0.0], [0.5, 0.5]], [[4.0], [6.0]])
    """
    scores = attention_scores(Q, K)
    V = _rows(V, "V")
    T_q, T_k = scores.shape[-2:]
    if V.shape[-2] != T_k:
        raise ValueError(
            f"K has {T_k} tokens and V has {V.shape[-2]}, but each key needs a value of its own. "
            f"Make both from the same tokens (here K is {np.shape(K)}, V is {V.shape})."
        )
    if mask is not None:
        scores = np.where(_fitting_mask(mask, scores.shape), scores, -np.inf)  # -inf: no score can outgrow it
    weights = softmax(scores)  # (..., T_q, T_k)
    return weights @ V, weights  # (..., T_q, T_k) @ (..., T_k, d_v)


def positional_encoding(T, d_model):
    """A vector for each position, made of sines and cosines of many wavelengths (section 3.5).

    Returns (T, d_model). Column 2i is sin(pos / 10000^(2i/d_model)), column 2i+1 the cosine of the
    same angle, so the two stand side by side. An odd d_model ends with a sine.

    >>> positional_encoding(2, 4).round(5).tolist()
    [[0.0, 1.0, 0.0, 1.0], [0.84147, 0.5403, 0.01, 0.99995]]
    """
    T = _whole(T, "T, the number of positions,", least=0)
    d_model = _whole(d_model, "d_model, the numbers a token carries,", least=1)
    column = np.arange(d_model)
    even = column - column % 2  # the paper's 2i: a sine and its cosine share it
    angles = np.arange(T)[:, None] / 10000.0 ** (even / d_model)  # (T, d_model), in radians
    return np.where(column % 2 == 0, np.sin(angles), np.cos(angles))


def _rows(x, name):
    """x as float64 with at least two axes: tokens, then the numbers of each."""
    x = np.asarray(x, dtype=np.float64)
    if x.ndim < 2:
        raise ValueError(
            f"{name} needs two axes: one row a token, one column a number. "
            f"Write {name}[None, :] for a single token (here its shape is {x.shape})."
        )
    return x


def _whole(n, name, least):
    """n as an int that is at least `least`."""
    try:
        whole = operator.index(n)
    except TypeError:
        whole = None
    if whole is None or whole < least:
        raise ValueError(
            f"{name} must be a whole number that is {least} or more. Give such a number (here it is {n!r})."
        )
    return whole


def _fitting_mask(mask, scores_shape):
    """mask as a boolean array that broadcasts to scores without adding queries or keys."""
    mask = np.asarray(mask)
    if mask.dtype != bool:
        raise ValueError(
            f"The mask must be boolean, True = may attend, so that 0, 1 and -inf cannot be misread. "
            f"If 1 means 'may attend' in yours, give mask == 1 (here its dtype is {mask.dtype})."
        )
    try:
        fits = np.broadcast_shapes(mask.shape, scores_shape)[-2:] == scores_shape[-2:]
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(
            f"The mask does not fit the scores: it needs a row for each query and a column for each key. "
            f"Give a mask that broadcasts to {scores_shape} (here its shape is {mask.shape})."
        )
    return mask
