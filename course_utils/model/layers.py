"""What stands round attention: LayerNorm, feed-forward, residuals, both kinds of layer, embeddings (3.1, 3.3-3.5)."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from course_utils.attention import positional_encoding
from course_utils.model.attention import MultiHeadAttention
from course_utils.model.config import ACTIVATIONS, check_choice


class LayerNorm(nn.Module):
    """Bring each token's numbers to mean 0 and variance 1, then scale and shift by learned amounts (Ba et al. 2016).

    y = (x - mean) / sqrt(variance + eps) * weight + bias, with the biased variance, divided by d_model. PyTorch's
    function does it in one pass: spelled out, even with its gradient, it made a training step 5 to 10 % longer.
    """

    def __init__(self, d_model, eps=1e-5, bias=True):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model)) if bias else None

    def forward(self, x):
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)


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


class DecoderLayer(nn.Module):
    """Self-attention, attention to the encoder's memory, the feed-forward, each within an AddAndNorm (3.1, 3.2.3).

    Takes x (B, T, d_model) and memory (B, T_src, d_model), returns the shape of x. `self_mask` (T, T) says which tokens
    see which, `cross_mask` (T, T_src) which see what of the memory; any shape that MultiHeadAttention takes. `cache`
    as there. Rotary positions turn the self-attention alone: how far a place in one sentence is from a place in
    another, each counted from its own start, has no fixed meaning.
    """

    def __init__(self, config):
        super().__init__()
        rotary = config.positions == "rotary"
        self.self_attention = MultiHeadAttention(config.d_model, config.n_heads, config.dropout, config.bias, rotary)
        self.add_norm_1 = AddAndNorm(config)
        self.cross_attention = MultiHeadAttention(config.d_model, config.n_heads, config.dropout, config.bias)
        self.add_norm_2 = AddAndNorm(config)
        self.feed_forward = FeedForward(config.d_model, config.d_ff, config.activation, config.bias)
        self.add_norm_3 = AddAndNorm(config)

    def forward(self, x, memory, self_mask=None, cross_mask=None, cache=None):
        x = self.add_norm_1(x, lambda x: self.self_attention(x, mask=self_mask, cache=cache)[0])
        x = self.add_norm_2(x, lambda x: self.cross_attention(x, memory, mask=cross_mask, cache=cache)[0])
        return self.add_norm_3(x, self.feed_forward)


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
        x = self.token(ids) if self.scale == 1 else self.token(ids) * self.scale  # (B, T) -> (B, T, d_model)
        if self.position is not None:
            x = x + self.position[start : start + ids.shape[1]]  # (T, d_model), the same for each sequence
        return self.dropout(x)
