"""The parts of a Transformer in PyTorch, by hand, and the decoder-only model made of them: GPT.

Symbols are those of Vaswani et al. (2017): B sequences of T tokens, d_model numbers a token, h = n_heads
heads of d_k = d_model / n_heads numbers. Rows of scores and weights are queries, columns are keys. A mask
is boolean, True = may attend (as in torch.nn.functional.scaled_dot_product_attention, the reverse of
nn.MultiheadAttention). torch supplies Linear, Embedding, Dropout and softmax; the rest is spelled out.

Where the three model families part, the config decides: the paper's layer (post-norm, ReLU) and GPT-2's
(pre-norm, GELU) are one EncoderLayer. A GPT is such layers with a causal mask.
"""

import contextlib
import functools
import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from course_utils.attention import positional_encoding

ACTIVATIONS = {"relu": F.relu, "gelu": F.gelu, "gelu_tanh": functools.partial(F.gelu, approximate="tanh")}
POSITIONS = ("sinusoidal", "learned", "rotary")


# --- attention (section 3.2) -------------------------------------------------------------------------------


def scaled_dot_product_attention(q, k, v, mask=None, dropout=None):
    """Mix the values by how well each query matches each key: eq. 1, section 3.2.1.

    q (..., T_q, d_k), k (..., T_k, d_k), v (..., T_k, d_v); mask broadcasts to (..., T_q, T_k), True = may
    attend. Returns (output (..., T_q, d_v), weights (..., T_q, T_k)); each row of weights sums to 1, or to
    0 for a query that may attend to nothing (its output is zeros too, never NaN). `dropout`, a module, is
    applied to the weights that mix, not to those returned. ValueError for a mask that is not boolean or
    does not fit.

    >>> x = torch.ones(2, 1)
    >>> scaled_dot_product_attention(x, x, x, mask=torch.tensor([[True, False], [True, True]]))[1].tolist()
    [[1.0, 0.0], [0.5, 0.5]]
    """
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # (..., T_q, d_k) @ (..., d_k, T_k)
    if mask is None:
        weights = scores.softmax(-1)
    else:
        check_mask(mask, scores.shape)
        nothing = ~mask.any(-1, keepdim=True)  # (..., T_q, 1)
        # -inf, since any finite filler can be outgrown by real scores. But a row of nothing else has no
        # softmax (NaN, in the gradient too), so such a row keeps its scores here and is zeroed after.
        scores = scores + torch.zeros_like(mask, dtype=scores.dtype).masked_fill(~(mask | nothing), -math.inf)
        weights = scores.softmax(-1)
        if nothing.any():
            weights = weights.masked_fill(nothing, 0.0)
    mixing = weights if dropout is None else dropout(weights)
    return mixing @ v, weights  # (..., T_q, T_k) @ (..., T_k, d_v)


def check_mask(mask, shape):
    """ValueError unless `mask` is boolean and broadcasts to scores of `shape`, (..., T_q, T_k)."""
    if mask.dtype != torch.bool:
        raise ValueError(
            f"A mask must be boolean, True where a query may attend: use `mask.bool()` if 1 means yes in "
            f"yours (it holds {mask.dtype})."
        )
    aligned = zip(reversed(mask.shape), reversed(shape), strict=False)
    if mask.dim() > len(shape) or any(m not in (1, s) for m, s in aligned):
        raise ValueError(
            f"The mask does not fit the scores: give it a row for each query and a column for each key, "
            f"{tuple(shape)} or a shape that broadcasts to it (the mask is {tuple(mask.shape)})."
        )


def check_heads(d_model, n_heads):
    """ValueError unless d_model numbers split evenly into n_heads heads."""
    if n_heads < 1 or d_model % n_heads:
        raise ValueError(f"d_model={d_model} cannot be split evenly into {n_heads} heads: change one.")


def split_heads(x, n_heads):
    """Give each head its own d_k numbers of every token: (B, T, d_model) -> (B, n_heads, T, d_k).

    Head j gets the numbers j*d_k to (j+1)*d_k. ValueError if they do not split evenly.

    >>> split_heads(torch.arange(8).view(1, 2, 4), 2).tolist()
    [[[[0, 1], [4, 5]], [[2, 3], [6, 7]]]]
    """
    check_heads(x.shape[-1], n_heads)
    x = x.unflatten(-1, (n_heads, -1))  # (B, T, h, d_k)
    return x.transpose(1, 2)  # (B, h, T, d_k)  each head is a batch of its own


def merge_heads(x):
    """Put the heads of each token side by side again, the inverse of `split_heads`.

    (B, n_heads, T, d_k) -> (B, T, d_model).

    >>> merge_heads(split_heads(torch.arange(8).view(1, 2, 4), 2)).tolist()
    [[[0, 1, 2, 3], [4, 5, 6, 7]]]
    """
    x = x.transpose(1, 2)  # (B, T, h, d_k)  without this, flatten would mix positions
    return x.flatten(-2)  # (B, T, h * d_k)


def rotate(x, start=0):
    """Rotary positions (RoFormer, Su et al. 2021): turn each pair of numbers by an angle that grows with position.

    x is (..., T, d_k) with even d_k, its first token at position `start`. Pair i of the token at position p
    turns by p / 10000**(2i / d_k) radians. A dot product of two turned vectors then depends on the distance
    of their positions alone. Returns the shape of x.
    """
    T, d_k = x.shape[-2:]
    positions = torch.arange(start, start + T, device=x.device, dtype=x.dtype)
    rates = 10000.0 ** (-torch.arange(0, d_k, 2, device=x.device, dtype=x.dtype) / d_k)
    angles = positions[:, None] * rates  # (T, d_k / 2)
    a, b = x[..., 0::2], x[..., 1::2]  # (..., T, d_k / 2) each
    turned = torch.stack([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], dim=-1)
    return turned.flatten(-2)  # (..., T, d_k)  pairs side by side again


class MultiHeadAttention(nn.Module):
    """Several attentions side by side, each in its own d_k-dimensional projection: section 3.2.2.

    Called with query (B, T_q, d_model), key and value (B, T_k, d_model); key defaults to query
    (self-attention), value to key. The mask is (T_q, T_k), (B, T_q, T_k) for all heads alike, or
    (B, n_heads, T_q, T_k), each axis possibly 1; True = may attend. Returns (output (B, T_q, d_model),
    weights (B, n_heads, T_q, T_k)).

    `dropout` acts on the weights while training; the weights returned are without it, rows sum to 1.
    `rotary` turns queries and keys by their positions. `cache`, a dict, is for self-attention on a sequence
    that arrives in pieces: keys and values of earlier pieces are read from it, those of this one added.
    ValueError if d_model does not split into n_heads.
    """

    def __init__(self, d_model, n_heads, dropout=0.0, bias=True, rotary=False):
        super().__init__()
        check_heads(d_model, n_heads)
        self.n_heads = n_heads
        self.rotary = rotary
        self.W_Q = nn.Linear(d_model, d_model, bias=bias)  # computes x @ weight.T: the paper's W^Q, all heads
        self.W_K = nn.Linear(d_model, d_model, bias=bias)
        self.W_V = nn.Linear(d_model, d_model, bias=bias)
        self.W_O = nn.Linear(d_model, d_model, bias=bias)
        self.dropout = nn.Dropout(dropout)

    def forward(self, query, key=None, value=None, mask=None, cache=None):
        key = query if key is None else key
        value = key if value is None else value
        q = split_heads(self.W_Q(query), self.n_heads)  # (B, h, T_q, d_k)
        k = split_heads(self.W_K(key), self.n_heads)  # (B, h, T_k, d_k)
        v = split_heads(self.W_V(value), self.n_heads)  # (B, h, T_k, d_k)
        if self.rotary:
            start = cache["k"].shape[2] if cache else 0  # after what is cached, not 0 again
            q, k = rotate(q, start), rotate(k, start)
        if cache is not None:
            if cache:
                k = torch.cat([cache["k"], k], dim=2)  # (B, h, T_seen + T, d_k)
                v = torch.cat([cache["v"], v], dim=2)
            cache["k"], cache["v"] = k, v
        if mask is not None and mask.dim() == 3:
            mask = mask.unsqueeze(1)  # (B, 1, T_q, T_k)  the same for each head
        heads, weights = scaled_dot_product_attention(q, k, v, mask, self.dropout)
        return self.W_O(merge_heads(heads)), weights


# --- the other parts of a layer (sections 3.1, 3.3) ---------------------------------------------------------


def check_choice(name, value, choices):
    """ValueError unless `value` is one of `choices`."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)} (it is {value!r}).")


class LayerNorm(nn.Module):
    """Shift and scale each token's numbers to mean 0 and variance 1, then by learned amounts (Ba et al. 2016).

    Works on the last axis, of size d_model. The variance is the biased one (divided by d_model) and eps
    stands inside the root, as in nn.LayerNorm.
    """

    def __init__(self, d_model, eps=1e-5, bias=True):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model)) if bias else None

    def forward(self, x):
        x = x - x.mean(-1, keepdim=True)
        variance = x.square().mean(-1, keepdim=True)  # (..., 1)
        x = x * torch.rsqrt(variance + self.eps) * self.weight
        return x if self.bias is None else x + self.bias


class FeedForward(nn.Module):
    """Two linear maps with a bend between them, for each token by itself: eq. 2, section 3.3.

    d_model -> d_ff -> d_model. `activation` is "relu" (the paper), "gelu" (BERT) or "gelu_tanh" (GPT-2).
    """

    def __init__(self, d_model, d_ff, activation="relu", bias=True):
        super().__init__()
        check_choice("activation", activation, ACTIVATIONS)
        self.W_1 = nn.Linear(d_model, d_ff, bias=bias)
        self.activation = ACTIVATIONS[activation]
        self.W_2 = nn.Linear(d_ff, d_model, bias=bias)

    def forward(self, x):
        return self.W_2(self.activation(self.W_1(x)))  # (..., d_model) -> (..., d_ff) -> (..., d_model)


class AddAndNorm(nn.Module):
    """The residual connection round a sub-layer, and its LayerNorm: "Add & Norm" of the paper's Figure 1.

    Post-norm (the paper, 3.1) normalises the sum, so each layer's output has one scale; pre-norm (GPT-2)
    normalises what the sub-layer reads and leaves the sum alone, so gradients reach the first layer unscaled.
    Dropout acts on the sub-layer's output before the sum (5.4).
    """

    def __init__(self, config):
        super().__init__()
        self.norm = LayerNorm(config.d_model, config.norm_eps, config.bias)
        self.dropout = nn.Dropout(config.dropout)
        self.norm_first = config.norm_first

    def forward(self, x, sublayer):
        if self.norm_first:
            return x + self.dropout(sublayer(self.norm(x)))
        return self.norm(x + self.dropout(sublayer(x)))


class EncoderLayer(nn.Module):
    """Self-attention, then the feed-forward, each inside an AddAndNorm: section 3.1.

    (B, T, d_model) -> (B, T, d_model). With a causal mask it is the layer of a GPT; without, of an encoder.
    `mask` and `cache` are those of MultiHeadAttention.
    """

    def __init__(self, config):
        super().__init__()
        self.self_attention = MultiHeadAttention(
            config.d_model, config.n_heads, config.dropout, config.bias, rotary=config.positions == "rotary"
        )
        self.add_norm_1 = AddAndNorm(config)
        self.feed_forward = FeedForward(config.d_model, config.d_ff, config.activation, config.bias)
        self.add_norm_2 = AddAndNorm(config)

    def forward(self, x, mask=None, cache=None):
        x = self.add_norm_1(x, lambda x: self.self_attention(x, mask=mask, cache=cache)[0])
        return self.add_norm_2(x, self.feed_forward)


# --- the model -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ModelConfig:
    """What every model of the course can be told; each model's own config gives the defaults."""

    vocab_size: int
    d_model: int  # numbers a token carries between layers
    n_heads: int  # the paper's h; d_k = d_model / n_heads
    n_layers: int  # the paper's N
    d_ff: int  # width inside the feed-forward
    max_len: int  # longest sequence, in tokens
    dropout: float  # on attention weights, sub-layer outputs, and embeddings + positions
    activation: str  # "relu", "gelu" or "gelu_tanh"
    norm_first: bool  # pre-norm instead of post-norm
    norm_eps: float
    final_norm: bool  # one more LayerNorm after the last layer
    positions: str  # "sinusoidal" (3.5), "learned" or "rotary"
    bias: bool  # in linear maps and LayerNorms
    tie_embeddings: bool  # logits from the embedding's own matrix (3.4)
    pad_id: int | None  # tokens with this id are never attended to

    def __post_init__(self):
        for name in ("vocab_size", "d_model", "n_heads", "n_layers", "d_ff", "max_len"):
            if not isinstance(getattr(self, name), int) or getattr(self, name) < 1:
                raise ValueError(f"{name} must be a whole number of at least 1 (it is {getattr(self, name)!r}).")
        check_heads(self.d_model, self.n_heads)
        check_choice("activation", self.activation, ACTIVATIONS)
        check_choice("positions", self.positions, POSITIONS)
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be at least 0 and below 1 (it is {self.dropout!r}).")
        if self.positions == "rotary" and self.d_model // self.n_heads % 2:
            raise ValueError(
                f"Rotary positions turn pairs of numbers, so d_model / n_heads must be even: change one "
                f"(d_model={self.d_model}, n_heads={self.n_heads})."
            )


@dataclass(frozen=True)
class GPTConfig(ModelConfig):
    """Sizes and choices of a GPT. Only `vocab_size` must be given.

    The default sizes are those of a model that learns the pencil stories on a laptop: d_model 64, n_heads 2,
    n_layers 1, d_ff 256 (4 x d_model, as in the paper), max_len 64, dropout 0. The default choices are
    GPT-2's: activation "gelu" (GPT-2 itself: "gelu_tanh"), norm_first True, norm_eps 1e-5, final_norm True,
    positions "learned", bias True, tie_embeddings True, pad_id None (GPT-2's id 0 is "!"). ValueError for
    a value that cannot be.
    """

    d_model: int = 64
    n_heads: int = 2
    n_layers: int = 1
    d_ff: int = 256
    max_len: int = 64
    dropout: float = 0.0
    activation: str = "gelu"
    norm_first: bool = True
    norm_eps: float = 1e-5
    final_norm: bool = True
    positions: str = "learned"
    bias: bool = True
    tie_embeddings: bool = True
    pad_id: int | None = None


class Embeddings(nn.Module):
    """From ids to what the first layer reads: the token's row, and its position added (3.4, 3.5).

    ids (B, T), the first of them at position `start` -> (B, T, d_model). With sinusoids, whose size is
    fixed, rows are multiplied by sqrt(d_model), as in 3.4; learned positions grow with the rows and need no
    factor; rotary positions are added nowhere (attention turns q and k).
    """

    def __init__(self, config):
        super().__init__()
        self.token = nn.Embedding(config.vocab_size, config.d_model)
        nn.init.normal_(self.token.weight, std=0.02)
        self.scale = 1.0
        self.position = None
        if config.positions == "learned":
            self.position = nn.Parameter(0.02 * torch.randn(config.max_len, config.d_model))
        elif config.positions == "sinusoidal":
            # Rows of about unit size after the factor, like the sinusoids beside them.
            nn.init.normal_(self.token.weight, std=config.d_model**-0.5)
            self.scale = math.sqrt(config.d_model)
            table = torch.tensor(positional_encoding(config.max_len, config.d_model), dtype=torch.float32)
            self.register_buffer("position", table, persistent=False)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, ids, start=0):
        x = self.token(ids)  # (B, T) -> (B, T, d_model)
        if self.position is not None:
            x = x + self.position[start : start + ids.shape[1]]  # (T, d_model), the same for each sequence
        return self.dropout(x)


class KVCache:
    """Keys and values of the tokens a GPT has read, so that a new token costs one row of work, not all.

    `ids` (B, T_seen) are those tokens; `layers` has for each layer its {"k", "v"}, (B, n_heads, T_seen, d_k).
    """

    def __init__(self, n_layers):
        self.ids = None
        self.layers = [{} for _ in range(n_layers)]

    def __len__(self):
        return 0 if self.ids is None else self.ids.shape[1]


class GPT(nn.Module):
    """A decoder-only Transformer: each position's logits say which token comes next, from those before it.

    Called with ids (B, T), whole numbers; returns logits (B, T, vocab_size). With a `cache` (`new_cache()`,
    empty at first) the ids continue those already read: they take the next positions and see all earlier
    ones, and the logits are the same as without. ValueError for ids outside the vocabulary or more than
    max_len tokens.
    """

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.n_layers))
        self.final_norm = LayerNorm(config.d_model, config.norm_eps, config.bias) if config.final_norm else nn.Identity()
        self.unembed = nn.Linear(config.d_model, config.vocab_size, bias=False)
        nn.init.normal_(self.unembed.weight, std=0.02)
        if config.tie_embeddings:
            self.unembed.weight = self.embeddings.token.weight  # the same Parameter, not a copy

    def new_cache(self):
        return KVCache(self.config.n_layers)

    def forward(self, ids, cache=None):
        start = 0 if cache is None else len(cache)
        check_ids(ids, self.config.vocab_size)
        T = start + ids.shape[1]
        if T > self.config.max_len:
            raise ValueError(
                f"The sequence has {T} tokens and this model reads at most {self.config.max_len}: cut it to its "
                f"last {self.config.max_len}, or build the model with a larger max_len."
            )
        seen = ids if start == 0 else torch.cat([cache.ids, ids], dim=1)  # (B, start + T)
        here, there = torch.arange(start, T, device=ids.device), torch.arange(T, device=ids.device)
        mask = there <= here[:, None]  # (T_q, T_k)  a token sees itself and what came before
        if self.config.pad_id is not None:
            mask = mask & (seen != self.config.pad_id)[:, None, None, :]  # (B, 1, T_q, T_k)
        x = self.embeddings(ids, start)
        for i, layer in enumerate(self.layers):
            x = layer(x, mask, None if cache is None else cache.layers[i])
        if cache is not None:
            cache.ids = seen
        return self.unembed(self.final_norm(x))


def check_ids(ids, vocab_size):
    """ValueError unless `ids` is a (B, T) tensor of whole numbers from 0 to vocab_size - 1, with T >= 1."""
    if not isinstance(ids, torch.Tensor) or ids.dim() != 2 or ids.numel() == 0:
        given = tuple(ids.shape) if isinstance(ids, torch.Tensor) else type(ids).__name__
        raise ValueError(f"ids must be a tensor of shape (B, T) with at least one token: for one sequence, "
                         f"`torch.tensor([ids])` (given: {given}).")
    if ids.dtype not in (torch.int64, torch.int32):
        raise ValueError(f"ids must be whole numbers: convert with `ids.long()` (they are {ids.dtype}).")
    low, high = ids.min().item(), ids.max().item()
    if low < 0 or high >= vocab_size:
        raise ValueError(f"The id {low if low < 0 else high} is not in the vocabulary: ids go from 0 to "
                         f"{vocab_size - 1}. Use the tokenizer the model was built with.")


@contextlib.contextmanager
def evaluating(model):
    """Dropout off and no gradients inside; afterwards each part is in the mode it was in, also after an error."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with torch.no_grad():
            yield model
    finally:
        for module, mode in modes.items():
            module.training = mode
