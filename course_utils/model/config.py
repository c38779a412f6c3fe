"""What the models can be told, and checks of what they are given."""

import functools
import numbers
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F

ACTIVATIONS = {"relu": F.relu, "gelu": F.gelu, "gelu_tanh": functools.partial(F.gelu, approximate="tanh")}
POSITIONS = ("sinusoidal", "learned", "rotary")


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
    is_encoder_decoder: ClassVar[bool] = False  # which model it is for; cost.py asks

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


@dataclass(frozen=True)
class TransformerConfig(ModelConfig):
    """Sizes and choices of the paper's encoder-decoder; the encoder and the decoder have n_layers layers each.

    The default sizes are those of the base model, Table 3: d_model 512, n_heads 8, n_layers 6, d_ff 2048, dropout 0.1
    (the paper gives no max_len; here 512). The default choices are the paper's: activation "relu", norm_first False,
    norm_eps 1e-5 (PyTorch's), final_norm False (nn.Transformer has one on each stack, the paper none), positions
    "sinusoidal", bias True (the paper writes none in attention's projections), tie_embeddings True, pad_id 0.
    """

    d_model: int = 512
    n_heads: int = 8
    n_layers: int = 6
    d_ff: int = 2048
    max_len: int = 512
    dropout: float = 0.1
    is_encoder_decoder: ClassVar[bool] = True


def check_heads(d_model, n_heads):
    """ValueError unless d_model numbers split evenly into n_heads heads."""
    if n_heads < 1 or d_model % n_heads:
        raise ValueError(f"d_model={d_model} cannot be split evenly into {n_heads} heads: change one.")


def check_choice(name, value, choices):
    """ValueError unless `value` is one of `choices`."""
    if value not in choices:
        raise ValueError(f"{name} is not one we have. Choose {', '.join(choices)} (it is {value!r}).")


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


def check_length(ids, max_len):
    """ValueError if the sequences `ids` (B, T) are longer than the `max_len` tokens a model has positions for."""
    if ids.shape[1] > max_len:
        cure = f"Cut it to {max_len} tokens, or build the model with a larger max_len"
        raise ValueError(f"The sequence is too long for this model. {cure} (it has {ids.shape[1]}).")
