"""Writing with a model: from logits to the next token, again and again. Greedy, temperature, top-k, top-p, KV cache.

`filter_logits` and `next_token_probs` work on any logits (..., vocab_size), the page's own included; `generate`
drives a `model.GPT`. Imports torch.
"""

import math
import numbers

import torch

from course_utils import shifted_seed
from course_utils.model import check_ids, evaluating


def filter_logits(logits, top_k=None, top_p=None):
    """Cut off unlikely tokens: of logits (..., vocab_size) some become -inf, the others stay. Returns the same shape.

    top_k keeps the k likeliest tokens. top_p keeps the fewest likeliest tokens whose probabilities reach top_p, the one
    that crosses it included, so always one at least (Holtzman et al. 2019); given both, it looks at what top_k left.
    Of equal logits the lower id counts as likelier, as in argmax. ValueError for top_k < 1 or top_p outside (0, 1].

    >>> filter_logits(torch.tensor([2.0, 0.0, 1.0]), top_k=2).tolist()
    [2.0, -inf, 1.0]
    """
    _check_filters(top_k, top_p)
    ranked, ids = logits.sort(dim=-1, descending=True, stable=True)
    keep = torch.ones_like(ranked, dtype=torch.bool)
    if top_k is not None:
        keep[..., top_k:] = False
    if top_p is not None and top_p < 1:  # at 1, rounding of the sum would cut off the tail
        probs = ranked.masked_fill(~keep, -math.inf).softmax(-1)
        likelier = probs.cumsum(-1) - probs  # what the tokens before this one have together
        keep &= likelier < top_p
    keep = torch.zeros_like(keep).scatter(-1, ids, keep)  # from ranks back to ids
    return logits.masked_fill(~keep, -math.inf)


def next_token_probs(logits, temperature=1.0, top_k=None, top_p=None):
    """The distribution that the next token is drawn from: logits (..., vocab_size) -> probabilities, the same shape.

    Logits are divided by the temperature, then filtered (`filter_logits`), then softmax. Below 1 the likely becomes
    likelier; 0 is greedy, all on the argmax. ValueError for a temperature below 0 and for bad filters.

    >>> probs = next_token_probs(torch.tensor([3.0, 1.0]).log(), temperature=0.5)
    >>> [round(p, 3) for p in probs.tolist()]
    [0.9, 0.1]
    """
    _check_temperature(temperature)
    _check_filters(top_k, top_p)
    if temperature == 0:
        return torch.zeros_like(logits).scatter(-1, logits.argmax(-1, keepdim=True), 1.0)
    # The maximum taken off first, in float64: a tiny temperature gives 0 and -inf, not inf - inf.
    cooled = (logits - logits.amax(-1, keepdim=True)).double() / temperature
    return filter_logits(cooled, top_k, top_p).softmax(-1).to(logits.dtype)


class KVCache:
    """Keys and values of the tokens a GPT has read, so that a new token costs one row of work instead of all.

    `ids` (B, T_seen) are those tokens. `layers` has a dict for each layer: "k" and "v", (B, n_heads, T_seen, d_k).
    `model(ids, cache)` reads and extends both.
    """

    def __init__(self, n_layers):
        self.ids = None
        self.layers = [{} for _ in range(n_layers)]

    def __len__(self):
        return 0 if self.ids is None else self.ids.shape[1]


def generate(model, ids, n_new, temperature=1.0, top_k=None, top_p=None, use_cache=True, seed=None):
    """Continue each sequence by n_new tokens drawn from the model: ids (B, T) -> (B, T + n_new).

    temperature 0 is greedy; the rest as in `next_token_probs`. The model reads the last max_len tokens. While all fit,
    the cache keeps their keys and values. Once the window is full, each step shifts every token to another position,
    which spoils what is cached: from there the cropped window is computed anew, so results are the same without cache.
    With a seed the draws are repeatable and torch's own random state stays untouched. Dropout is off; the model's mode
    is restored. ValueError for ids that are not in the vocabulary and for bad arguments.
    """
    _check_temperature(temperature)
    _check_filters(top_k, top_p)
    if not _whole(n_new) or n_new < 0:
        raise ValueError(f"n_new counts new tokens. Give a whole number of at least 0 (it is {n_new!r}).")
    check_ids(ids, model.config.vocab_size)
    rng = None if seed is None else torch.Generator(ids.device).manual_seed(shifted_seed(seed))
    max_len = model.config.max_len
    cache = KVCache(model.config.n_layers) if use_cache else None
    with evaluating(model):
        for _ in range(n_new):
            if cache is not None and ids.shape[1] <= max_len:
                logits = model(ids[:, len(cache) :], cache)  # the prompt at first, then one token a step
            else:
                logits = model(ids[:, -max_len:])
            logits = logits[:, -1]  # (B, vocab_size)  only the last position says something new
            if temperature == 0:
                new = logits.argmax(-1, keepdim=True)  # (B, 1)
            else:
                new = next_token_probs(logits, temperature, top_k, top_p).multinomial(1, generator=rng)  # (B, 1)
            ids = torch.cat([ids, new], dim=1)
    return ids


def _check_temperature(temperature):
    if not isinstance(temperature, numbers.Real) or not 0 <= temperature < math.inf:
        raise ValueError(
            "temperature stretches the differences between logits. Give a number of at least 0; 0 is greedy "
            f"(it is {temperature!r})."
        )


def _check_filters(top_k, top_p):
    if top_k is not None and (not _whole(top_k) or top_k < 1):
        raise ValueError(f"top_k counts the tokens to keep. Give a whole number of at least 1 (it is {top_k!r}).")
    if top_p is not None and (not isinstance(top_p, numbers.Real) or not 0 < top_p <= 1):
        raise ValueError(f"top_p is a probability to reach. Give a number above 0 and up to 1 (it is {top_p!r}).")


def _whole(number):
    return isinstance(number, numbers.Integral) and not isinstance(number, bool)
