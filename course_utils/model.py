"""The parts of a Transformer in PyTorch, by hand, and the decoder-only model made of them: GPT.

Symbols are those of Vaswani et al. (2017): B sequences of T tokens, d_model numbers a token, h = n_heads heads of
d_k = d_model / n_heads numbers. Rows of scores and weights are queries, columns are keys. A mask is boolean, True =
may attend (as in torch.nn.functional.scaled_dot_product_attention, the reverse of nn.MultiheadAttention). torch
supplies Linear, Embedding, Dropout, activations and softmax; the rest is spelled out. Where model families part, the
config decides: the paper's layer (post-norm, ReLU) and GPT-2's (pre-norm, GELU) are one EncoderLayer.
"""

import contextlib
import functools
import math
import numbers
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from course_utils.attention import positional_encoding

ACTIVATIONS = {"relu": F.relu, "gelu": F.gelu, "gelu_tanh": functools.partial(F.gelu, approximate="tanh")}
POSITIONS = ("sinusoidal", "learned", "rotary")


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
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # (..., T_q, d_k) @ (..., d_k, T_k)
    if mask is None:
        weights = scores.softmax(-1)
    else:
        check_mask(mask, scores.shape)
        nothing = ~mask.any(-1, keepdim=True)  # (..., T_q, 1)
        # -inf, since scores can outgrow any finite filler. But a row of -inf alone has no softmax (NaN, in the
        # gradient too), so the row of a query that may attend to nothing stays unmasked here and is zeroed after.
        hide = torch.zeros_like(mask, dtype=scores.dtype).masked_fill(~(mask | nothing), -math.inf)
        weights = (scores + hide).softmax(-1)
        if nothing.any():
            weights = weights.masked_fill(nothing, 0.0)
    mixing = weights if dropout is None else dropout(weights)
    return mixing @ v, weights  # (..., T_q, T_k) @ (..., T_k, d_v)


def check_mask(mask, shape):
    """ValueError unless `mask` is boolean and broadcasts to scores of `shape`, (..., T_q, T_k)."""
    if mask.dtype != torch.bool:
        raise ValueError(
            f"A mask is boolean, True = may attend. If 1 means that, use mask.bool() (it is {mask.dtype})."
        )
    pairs = zip(reversed(mask.shape), reversed(shape), strict=False)
    if mask.dim() > len(shape) or any(m not in (1, s) for m, s in pairs):
        raise ValueError(
            "The mask does not fit the scores. Give it a row for each query and a column for each key "
            f"(scores {tuple(shape)}, mask {tuple(mask.shape)})."
        )


def check_heads(d_model, n_heads):
    """ValueError unless d_model numbers split evenly into n_heads heads."""
    if n_heads < 1 or d_model % n_heads:
        raise ValueError(f"d_model={d_model} cannot be split evenly into {n_heads} heads: change one.")


def check_choice(name, value, choices):
    """ValueError unless `value` is one of `choices`."""
    if value not in choices:
        raise ValueError(f"{name} is not one we have. Choose {', '.join(choices)} (it is {value!r}).")


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
    and keys by position. `cache`, a dict, is for self-attention over a sequence that comes in pieces: keys and values
    of earlier pieces stand in it and those of this piece join them. ValueError if n_heads does not divide d_model.
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
        key = query if key is None else key
        value = key if value is None else value
        q = split_heads(self.W_Q(query), self.n_heads)  # (B, h, T_q, d_k)
        k = split_heads(self.W_K(key), self.n_heads)  # (B, h, T_k, d_k)
        v = split_heads(self.W_V(value), self.n_heads)  # (B, h, T_k, d_k)
        if self.rotary:
            start = cache["k"].shape[-2] if cache else 0  # a new token stands after what is cached, not at 0
            q, k = rotate(q, start), rotate(k, start)
        if cache:
            k, v = torch.cat([cache["k"], k], dim=-2), torch.cat([cache["v"], v], dim=-2)  # (B, h, T_seen + T, d_k)
        if cache is not None:
            cache["k"], cache["v"] = k, v
        if mask is not None and mask.dim() == 3:
            mask = mask.unsqueeze(1)  # (B, 1, T_q, T_k)  the same for each head
        heads, weights = scaled_dot_product_attention(q, k, v, mask, self.dropout)
        return self.W_O(merge_heads(heads)), weights


class LayerNorm(nn.Module):
    """Bring each token's numbers to mean 0 and variance 1, then scale and shift by learned amounts (Ba et al. 2016).

    The variance is the biased one, divided by d_model, and eps stands inside the root, as in nn.LayerNorm.
    """

    def __init__(self, d_model, eps=1e-5, bias=True):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model)) if bias else None

    def forward(self, x):
        x = x - x.mean(-1, keepdim=True)
        variance = x.square().mean(-1, keepdim=True)  # (..., 1); x.var gives the same, slower on a CPU
        x = x * torch.rsqrt(variance + self.eps) * self.weight
        return x if self.bias is None else x + self.bias


class FeedForward(nn.Module):
    """Two linear maps with a bend between them, each token by itself: eq. 2, section 3.3.

    `activation` is "relu" (the paper), "gelu" (BERT) or "gelu_tanh" (GPT-2).
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
    """The residual connection round a sub-layer and its LayerNorm: "Add & Norm" in the paper's Figure 1.

    Post-norm (section 3.1) normalises the sum. Pre-norm (GPT-2) normalises what the sub-layer reads and leaves the
    sum alone, so that gradients reach the first layer unscaled. Dropout acts before the sum (5.4).
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
    """Self-attention, then the feed-forward, each within an AddAndNorm: (B, T, d_model) -> the same shape (3.1).

    With a causal mask it is the layer of a GPT. `mask` and `cache` are those of MultiHeadAttention.
    """

    def __init__(self, config):
        super().__init__()
        rotary = config.positions == "rotary"
        self.self_attention = MultiHeadAttention(config.d_model, config.n_heads, config.dropout, config.bias, rotary)
        self.add_norm_1 = AddAndNorm(config)
        self.feed_forward = FeedForward(config.d_model, config.d_ff, config.activation, config.bias)
        self.add_norm_2 = AddAndNorm(config)

    def forward(self, x, mask=None, cache=None):
        x = self.add_norm_1(x, lambda x: self.self_attention(x, mask=mask, cache=cache)[0])
        return self.add_norm_2(x, self.feed_forward)


@dataclass(frozen=True)
class ModelConfig:
    """What every model here can be told. Sizes default to a laptop's, choices to the paper's. ValueError if unfit."""

    vocab_size: int
    d_model: int = 64  # numbers a token carries between layers
    n_heads: int = 2  # the paper's h
    n_layers: int = 1  # the paper's N
    d_ff: int = 256  # width inside the feed-forward; the paper has 4 * d_model
    max_len: int = 64  # longest sequence, in tokens
    dropout: float = 0.0  # of attention weights, sub-layer outputs, and embeddings + positions
    activation: str = "relu"  # or "gelu", "gelu_tanh"
    norm_first: bool = False  # pre-norm, not post-norm
    norm_eps: float = 1e-5  # the paper gives none; this is PyTorch's
    final_norm: bool = False  # one more LayerNorm after the last layer
    positions: str = "sinusoidal"  # section 3.5; or "learned", "rotary"
    bias: bool = True  # in linear maps and LayerNorms
    tie_embeddings: bool = True  # logits come from the embedding's own matrix (section 3.4)
    pad_id: int | None = 0  # tokens with this id are never attended to

    def __post_init__(self):
        for name in ("vocab_size", "d_model", "n_heads", "n_layers", "d_ff", "max_len"):
            size = getattr(self, name)
            if not isinstance(size, numbers.Integral) or size < 1:
                raise ValueError(f"{name} is a size. Give a whole number of at least 1 (it is {size!r}).")
        check_heads(self.d_model, self.n_heads)
        check_choice("activation", self.activation, ACTIVATIONS)
        check_choice("positions", self.positions, POSITIONS)
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout is a share. Give a number from 0 to below 1 (it is {self.dropout!r}).")
        if self.positions == "rotary" and self.d_model // self.n_heads % 2:
            sizes = f"{self.d_model} / {self.n_heads}"
            raise ValueError(f"Rotary positions turn pairs of numbers. Make d_model / n_heads even (it is {sizes}).")


@dataclass(frozen=True)
class GPTConfig(ModelConfig):
    """Sizes and choices of a GPT.

    The default sizes learn the pencil stories on a laptop: d_model 64, n_heads 2, n_layers 1, d_ff 256, max_len 64,
    dropout 0. The default choices are GPT-2's: activation "gelu" (GPT-2 itself "gelu_tanh", nearly the same),
    norm_first True, norm_eps 1e-5, final_norm True, positions "learned", bias True, tie_embeddings True, pad_id None
    (GPT-2's id 0 is "!").
    """

    activation: str = "gelu"
    norm_first: bool = True
    final_norm: bool = True
    positions: str = "learned"
    pad_id: int | None = None


class Embeddings(nn.Module):
    """What the first layer reads: each token's row with its position added, ids (B, T) -> (B, T, d_model) (3.4, 3.5).

    The first id stands at position `start`. Sinusoids have a fixed size, so beside them the rows are multiplied by
    sqrt(d_model), as in 3.4. Rotary positions are not added here: attention turns queries and keys.
    """

    def __init__(self, config):
        super().__init__()
        self.token = nn.Embedding(config.vocab_size, config.d_model)
        self.scale = 1.0
        if config.positions == "learned":
            self.position = nn.Parameter(torch.zeros(config.max_len, config.d_model))
        elif config.positions == "sinusoidal":
            self.scale = math.sqrt(config.d_model)
            table = torch.tensor(positional_encoding(config.max_len, config.d_model), dtype=torch.float32)
            self.register_buffer("position", table, persistent=False)
        else:
            self.position = None
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, ids, start=0):
        x = self.token(ids) * self.scale  # (B, T) -> (B, T, d_model)
        if self.position is not None:
            x = x + self.position[start : start + ids.shape[1]]  # (T, d_model), the same for each sequence
        return self.dropout(x)


class GPT(nn.Module):
    """A decoder-only Transformer: the logits at each position say which token follows it.

    Takes ids (B, T), returns logits (B, T, vocab_size); position t sees positions 0 to t. With a `cache`
    (generate.KVCache) the ids continue those it has read: they take the next positions, and their logits are those of
    one call on the whole. ValueError for ids outside the vocabulary and for more than max_len tokens.
    """

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.n_layers))
        norm = LayerNorm(config.d_model, config.norm_eps, config.bias)
        self.final_norm = norm if config.final_norm else nn.Identity()
        self.unembed = nn.Linear(config.d_model, config.vocab_size, bias=False)
        if config.tie_embeddings:
            self.unembed.weight = self.embeddings.token.weight  # the same Parameter, not a copy
        self._initialise()

    def _initialise(self):
        """GPT-2's: matrices normal with deviation 0.02, so first logits are near 0 and the first loss near ln V.

        What a layer writes is smaller by sqrt(2 n_layers), so the stream of sums starts at one size at any depth.
        """
        for name, weights in self.named_parameters():
            if name.endswith(("W_O.weight", "W_2.weight")):
                nn.init.normal_(weights, std=0.02 / math.sqrt(2 * self.config.n_layers))
            elif weights.dim() == 2:
                nn.init.normal_(weights, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(weights)

    def forward(self, ids, cache=None):
        check_ids(ids, self.config.vocab_size)
        start = 0 if cache is None else len(cache)
        seen = torch.cat([cache.ids, ids], dim=1) if start else ids  # (B, T)
        T = seen.shape[1]
        if T > self.config.max_len:
            cure = f"Cut it to {self.config.max_len} tokens, or build the model with a larger max_len"
            raise ValueError(f"The sequence is too long for this model. {cure} (it has {T}).")
        t = torch.arange(T, device=ids.device)
        mask = t <= t[start:, None]  # (T_q, T)  a token sees itself and those before it
        if self.config.pad_id is not None:
            mask = mask & (seen != self.config.pad_id)[:, None, :]  # (B, T_q, T)
        x = self.embeddings(ids, start)
        for i, layer in enumerate(self.layers):
            x = layer(x, mask, None if cache is None else cache.layers[i])
        if cache is not None:
            cache.ids = seen
        return self.unembed(self.final_norm(x))  # (B, T_q, d_model) -> (B, T_q, vocab_size)


def check_ids(ids, vocab_size):
    """ValueError unless `ids` is a tensor (B, T) of at least one token, whole numbers from 0 to vocab_size - 1."""
    if not isinstance(ids, torch.Tensor) or ids.dim() != 2 or not ids.numel():
        given = f"shape {tuple(ids.shape)}" if isinstance(ids, torch.Tensor) else type(ids).__name__
        raise ValueError(f"ids are a tensor (B, T), at least one token. For one text: torch.tensor([ids]) ({given}).")
    if ids.dtype not in (torch.int64, torch.int32):
        raise ValueError(f"ids are whole numbers. Convert them with ids.long() (they are {ids.dtype}).")
    for id in (ids.min().item(), ids.max().item()):
        if not 0 <= id < vocab_size:
            cure = "Use the tokenizer that the model was made for"
            raise ValueError(f"The id {id} is not in the vocabulary. {cure} (ids go from 0 to {vocab_size - 1}).")


@contextlib.contextmanager
def evaluating(model):
    """Inside: no dropout, no gradients. Afterwards each part is in the mode it was in, after an error too."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, mode in modes:
            module.training = mode
