"""The parts of a Transformer in PyTorch, by hand, and two models of them: the paper's Transformer, and GPT.

Symbols are those of Vaswani et al. (2017): B sequences of T tokens, d_model numbers a token, h = n_heads heads of
d_k = d_model / n_heads numbers. Rows of scores and weights are queries, columns are keys. A mask is boolean, True =
may attend (as in torch.nn.functional.scaled_dot_product_attention, the reverse of nn.MultiheadAttention). torch
supplies Linear, Embedding, Dropout, activations, softmax and LayerNorm's arithmetic; the rest is spelled out. Where
model families part, the config decides: the paper's layer (post-norm, ReLU) and GPT-2's (pre-norm, GELU) are one
EncoderLayer. config <- attention <- layers <- models; everything is reached as model.NAME.
"""

from course_utils.model.attention import (
    MultiHeadAttention,
    merge_heads,
    rotate,
    scaled_dot_product_attention,
    split_heads,
)
from course_utils.model.config import (
    ACTIVATIONS,
    POSITIONS,
    GPTConfig,
    TransformerConfig,
    check_choice,
    check_heads,
    check_ids,
    check_length,
    check_mask,
)
from course_utils.model.layers import AddAndNorm, DecoderLayer, Embeddings, EncoderLayer, FeedForward, LayerNorm
from course_utils.model.models import GPT, Transformer, evaluating, read_on

__all__ = [
    "ACTIVATIONS",
    "GPT",
    "POSITIONS",
    "AddAndNorm",
    "DecoderLayer",
    "Embeddings",
    "EncoderLayer",
    "FeedForward",
    "GPTConfig",
    "LayerNorm",
    "MultiHeadAttention",
    "Transformer",
    "TransformerConfig",
    "check_choice",
    "check_heads",
    "check_ids",
    "check_length",
    "check_mask",
    "evaluating",
    "merge_heads",
    "read_on",
    "rotate",
    "scaled_dot_product_attention",
    "split_heads",
]
