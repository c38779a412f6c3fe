"""The two models made of the parts: GPT, decoder-only, and the paper's Transformer, encoder and decoder (section 3)."""

import contextlib
import math

import torch
from torch import nn

from course_utils.model.config import check_ids, check_length
from course_utils.model.layers import DecoderLayer, Embeddings, EncoderLayer, LayerNorm


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
        seen, start, mask = read_on(ids, self.config, cache)
        x = self.embeddings(ids, start)
        for i, layer in enumerate(self.layers):
            x = layer(x, mask, None if cache is None else cache.layers[i])
        if cache is not None:
            cache.ids = seen
        return self.unembed(self.final_norm(x))  # (B, T_q, d_model) -> (B, T_q, vocab_size)


class Transformer(nn.Module):
    """The paper's encoder-decoder: what the target says so far, given the source, tells its next token (section 3).

    Takes src (B, T_src) and tgt (B, T), ids of one vocabulary, returns logits (B, T, vocab_size). A source token sees
    the whole source, position t of the target sees its positions 0 to t and the whole source; nobody sees padding.
    With tied embeddings one table serves source, target and logits (3.4); else each has its own. ValueError for ids
    outside the vocabulary, for more than max_len tokens and for batches that differ.
    """

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)
        self.target_embeddings = self.embeddings if config.tie_embeddings else Embeddings(config)
        self.encoder_layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.n_layers))
        self.decoder_layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.n_layers))
        norms = [LayerNorm(config.d_model, config.norm_eps, config.bias) for _ in range(2 * config.final_norm)]
        self.encoder_norm, self.decoder_norm = norms or (nn.Identity(), nn.Identity())
        self.unembed = nn.Linear(config.d_model, config.vocab_size, bias=False)
        if config.tie_embeddings:
            self.unembed.weight = self.embeddings.token.weight
        self._initialise()

    def _initialise(self):
        """The paper gives none: Xavier's for matrices, as in nn.Transformer.

        Embeddings are normal with deviation 0.5 / sqrt(d_model): beside sinusoids they are scaled up to 0.5, and tied
        logits begin with a deviation of 0.5, so the first loss is near ln V (half a nat above with 1 / sqrt(d_model)).
        """
        for name, weights in self.named_parameters():
            if "embeddings" in name:
                nn.init.normal_(weights, std=0.5 * self.config.d_model**-0.5)
            elif weights.dim() == 2:
                nn.init.xavier_uniform_(weights)
            elif name.endswith("bias"):
                nn.init.zeros_(weights)

    def forward(self, src, tgt):
        return self.decode(tgt, self.encode(src), src)

    def encode(self, src):
        """What the encoder makes of each source token, the memory: src (B, T_src) -> (B, T_src, d_model)."""
        check_ids(src, self.config.vocab_size)
        check_length(src, self.config.max_len)
        x, mask = self.embeddings(src), self._source_mask(src)
        for layer in self.encoder_layers:
            x = layer(x, mask)
        return self.encoder_norm(x)

    def decode(self, tgt, memory, src, cache=None):
        """Logits (B, T, vocab_size) for tgt (B, T), given memory = encode(src); src says where the padding is.

        With a `cache` (generate.KVCache) tgt continues what the cache has read, as in GPT. The keys and values of the
        memory stand in it from the first call on, so a cache serves one memory.
        """
        check_ids(tgt, self.config.vocab_size)
        if memory.shape[:2] != src.shape or len(src) != len(tgt):
            shapes = f"src {tuple(src.shape)}, memory {tuple(memory.shape)}, tgt {tuple(tgt.shape)}"
            raise ValueError(f"Each target needs its source, and memory = encode(src) of the same src ({shapes}).")
        seen, start, mask = read_on(tgt, self.config, cache)
        x, cross_mask = self.target_embeddings(tgt, start), self._source_mask(src)
        for i, layer in enumerate(self.decoder_layers):
            x = layer(x, memory, mask, cross_mask, None if cache is None else cache.layers[i])
        if cache is not None:
            cache.ids = seen
        return self.unembed(self.decoder_norm(x))  # (B, T, d_model) -> (B, T, vocab_size)

    def _source_mask(self, src):
        return None if self.config.pad_id is None else (src != self.config.pad_id)[:, None, :]  # (B, 1, T_src)


def read_on(ids, config, cache=None):
    """What a decoder that reads ids (B, T) has seen by then, at which position they start, who may attend to whom.

    Returns (seen (B, T_seen), start, mask (T, T_seen) or, with a pad_id, (B, T, T_seen)): a token sees itself and
    those before it, never padding. The mask is None for one new token that may see all. ValueError for more than
    max_len tokens.
    """
    start = 0 if cache is None else len(cache)
    seen = torch.cat([cache.ids, ids], dim=1) if start else ids
    check_length(seen, config.max_len)
    if ids.shape[1] == 1 and config.pad_id is None:
        return seen, start, None  # each step of writing with a cache
    t = torch.arange(seen.shape[1], device=ids.device)
    mask = t <= t[start:, None]
    if config.pad_id is not None:
        mask = mask & (seen != config.pad_id)[:, None, :]
    return seen, start, mask


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
