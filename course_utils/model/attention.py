"""Attention in PyTorch: scores, softmax and mixing, its heads, rotary positions (sections 3.2.1 and 3.2.2)."""

import math

import torch
from torch import nn

from course_utils.model.config import check_heads, check_mask


def scaled_dot_product_attention(q, k, v, mask=None, dropout=None):
    """Mix the values by how well each query matches each key: eq. 1, section 3.2.1.

    q (..., T_q, d_k), k (..., T_k, d_k), v (..., T_k, d_v); mask broadcasts to (..., T_q, T_k), True = may attend.
    Returns (output (..., T_q, d_v), weights (..., T_q, T_k)). Each row of weights sums to 1, or to 0 for a query that
    may attend to nothing: its output is zeros too, never NaN. `dropout`, a module, acts on the weights that mix, not
    on those returned. ValueError for shapes that do not fit and for a mask that is not boolean.

    >>> x = torch.ones(2, 1)
    >>> scaled_dot_product_attention(x, x, x, mask=torch.tensor([[True, False], [True, True]]))[1].tolist()
    [[1.0, 0.0], [0.5, 0.5]]
    """
    if q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2]:
        raise ValueError(
            "Queries and keys need equally many numbers, and each key needs one value: q (T_q, d_k), k (T_k, d_k), "
            f"v (T_k, d_v) (here q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)})."
        )
    products, scale = q @ k.transpose(-2, -1), 1 / math.sqrt(q.shape[-1])  # (..., T_q, d_k) @ (..., d_k, T_k)
    if mask is None:
        weights = (products * scale).softmax(-1)
    else:
        check_mask(mask, products.shape)
        nothing = ~mask.any(-1, keepdim=True)  # (..., T_q, 1)
        # -inf, since scores can outgrow any finite filler. But a row of -inf alone has no softmax (NaN, in the
        # gradient too), so the row of a query that may attend to nothing stays unmasked here and is zeroed after.
        hide = torch.zeros_like(mask, dtype=products.dtype).masked_fill(~(mask | nothing), -math.inf)
        weights = hide.add(products, alpha=scale).softmax(-1)  # hide + scale * products, in one pass
        if nothing.any():
            weights = weights.masked_fill(nothing, 0.0)
    mixing = weights if dropout is None else dropout(weights)
    return mixing @ v, weights  # (..., T_q, T_k) @ (..., T_k, d_v)


def split_heads(x, n_heads):
    """Give each head its own numbers of every token: (B, T, d_model) -> (B, n_heads, T, d_k).

    Head j gets the numbers j * d_k to (j + 1) * d_k. ValueError if they do not split evenly.

    >>> split_heads(torch.arange(8).view(1, 2, 4), n_heads=2).tolist()
    [[[[0, 1], [4, 5]], [[2, 3], [6, 7]]]]
    """
    check_heads(x.shape[-1], n_heads)
    x = x.unflatten(-1, (n_heads, -1))  # (B, T, h, d_k)
    return x.transpose(-3, -2)  # (B, h, T, d_k)  each head is a batch of its own


def merge_heads(x):
    """Put the heads of each token side by side again: (B, n_heads, T, d_k) -> (B, T, d_model).

    >>> merge_heads(torch.arange(8).view(1, 2, 2, 2)).tolist()
    [[[0, 1, 4, 5], [2, 3, 6, 7]]]
    """
    x = x.transpose(-3, -2)  # (B, T, h, d_k)  first, or flatten would mix positions
    return x.flatten(-2)  # (B, T, h * d_k)


def rotate(x, start=0):
    """Rotary positions (RoFormer, Su et al. 2021): turn pairs of numbers by angles that grow with the position.

    x is (..., T, d_k), d_k even, its first token at position `start`; returns the same shape. Pair i of the token at
    position p turns by p / 10000**(2i / d_k) radians. The dot product of a turned query and a turned key then depends
    on where they stand by the distance alone.
    """
    T, d_k = x.shape[-2:]
    p = torch.arange(start, start + T, device=x.device, dtype=x.dtype)
    rates = 10000.0 ** (-torch.arange(0, d_k, 2, device=x.device, dtype=x.dtype) / d_k)
    cos, sin = (p[:, None] * rates).cos(), (p[:, None] * rates).sin()  # (T, d_k / 2)
    a, b = x[..., 0::2], x[..., 1::2]  # (..., T, d_k / 2)
    turned = torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1)  # (..., T, d_k / 2, 2)
    return turned.flatten(-2)  # (..., T, d_k)


class MultiHeadAttention(nn.Module):
    """Several attentions side by side, each in its own d_k-dimensional projection: section 3.2.2.

    Takes query (B, T_q, d_model), key and value (B, T_k, d_model): key defaults to query (self-attention), value to
    key. The mask is (T_q, T_k), (B, T_q, T_k) for all heads alike or (B, n_heads, T_q, T_k), any axis possibly 1;
    True = may attend. Returns (output (B, T_q, d_model), weights (B, n_heads, T_q, T_k)).

    `dropout` acts on the mixing weights while training; the weights returned are without it. `rotary` turns queries
    and keys by position. `cache`, a dict, is for queries that come in pieces. In self-attention the keys and values of
    earlier pieces stand in it, "k" and "v", and those of this piece join them; with `key` given they are those of a
    fixed memory, "memory_k" and "memory_v", computed once. ValueError if n_heads does not divide d_model.
    """

    def __init__(self, d_model, n_heads, dropout=0.0, bias=True, rotary=False):
        super().__init__()
        check_heads(d_model, n_heads)
        self.n_heads, self.rotary = n_heads, rotary
        self.W_Q = nn.Linear(d_model, d_model, bias=bias)  # x @ weight.T: its weight is the transpose of the paper's
        self.W_K = nn.Linear(d_model, d_model, bias=bias)  # W^K of all heads side by side; the others alike
        self.W_V = nn.Linear(d_model, d_model, bias=bias)
        self.W_O = nn.Linear(d_model, d_model, bias=bias)
        self.dropout = nn.Dropout(dropout)

    def forward(self, query, key=None, value=None, mask=None, cache=None):
        crosses, cache = key is not None, {} if cache is None else cache
        q = split_heads(self.W_Q(query), self.n_heads)  # (B, h, T_q, d_k)
        if crosses and "memory_k" in cache:
            k, v = cache["memory_k"], cache["memory_v"]
        else:
            key = query if key is None else key
            value = key if value is None else value
            k = split_heads(self.W_K(key), self.n_heads)  # (B, h, T_k, d_k)
            v = split_heads(self.W_V(value), self.n_heads)  # (B, h, T_k, d_k)
        if self.rotary:
            start = cache["k"].shape[-2] if "k" in cache else 0  # a new token stands after what is cached, not at 0
            q, k = rotate(q, start), rotate(k, start)
        if "k" in cache and not crosses:
            k, v = torch.cat([cache["k"], k], dim=-2), torch.cat([cache["v"], v], dim=-2)  # (B, h, T_seen + T, d_k)
        cache.update({"memory_k": k, "memory_v": v} if crosses else {"k": k, "v": v})
        if mask is not None and mask.dim() == 3:
            mask = mask.unsqueeze(1)  # (B, 1, T_q, T_k)  the same for each head
        heads, weights = scaled_dot_product_attention(q, k, v, mask, self.dropout)
        return self.W_O(merge_heads(heads)), weights
