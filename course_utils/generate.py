"""Writing with a model: from logits to the next token, again and again. Greedy, sampled or by beam; KV cache.

`filter_logits` and `next_token_probs` work on any logits (..., vocab_size), the page's own included; `beam_search`
works on any function that gives logits; `generate` drives a `model.GPT`, `translate` a `model.Transformer`. Imports
torch.
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
    """Keys and values of the tokens a decoder has read, so that a new token costs one row of work instead of all.

    `ids` (B, T_seen) are those tokens. `layers` has a dict for each layer: "k" and "v", (B, n_heads, T_seen, d_k).
    A GPT's `model(ids, cache)` and a Transformer's `model.decode(tgt, memory, src, cache)` read and extend both.
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
    _check_n_new(n_new)
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


def beam_search(model, ids, n_new, beam=4, alpha=0.6, end_id=None):
    """Search for the likeliest continuations of one sequence, several at a time: list[(ids, log_prob)], best first.

    `model` is a GPT, or any function from ids (B, T) to logits (B, T, vocab_size); `ids` is (T,) or (1, T). At each
    step every sequence is continued by every token, and the `beam` likeliest of all these go on. Of them, those that
    end with `end_id` are set aside as finished. After n_new tokens the others are cut off and count as they stand.

    At most `beam` sequences are returned, fewer if no more have a probability above 0: each with the ids (T + length,)
    that it began with and its new ones, the end included, and the log-probability of its new tokens, in nats. Best
    means the greatest log_prob / ((5 + length) / 6) ** alpha, length counting the new tokens with the end: eq. 14 of Wu
    et al. (2016) without its coverage term, as in section 6.1 of the paper, whose beam is 4 and alpha 0.6. At alpha
    0 it is the log-probability itself. The search ends early when no sequence that goes on can become one of the best.

    Beam 1 is greedy. Each step computes all sequences anew, without a cache. ValueError for logits or arguments that
    cannot be.
    """
    ids = ids[None] if isinstance(ids, torch.Tensor) and ids.dim() == 1 else ids
    _check_beam(ids, n_new, beam, alpha)
    config = getattr(model, "config", None)
    window = slice(None if config is None else -config.max_len, None)
    going, log_probs = ids, torch.zeros(1, dtype=torch.float64)  # (n, T), (n,): the sequences that go on
    finished = []  # (score, ids, log_prob), best first

    def score(log_prob, length):
        return log_prob / ((5 + length) / 6) ** alpha

    def finish(sequences, log_probs, length):
        finished.extend((score(p, length), row, p) for row, p in zip(sequences, log_probs.tolist(), strict=True))
        finished.sort(key=lambda entry: -entry[0])
        del finished[beam:]

    with evaluating(model) if isinstance(model, torch.nn.Module) else torch.no_grad():
        for length in range(1, n_new + 1):
            read = going[:, window]
            following = _log_probs(model(read), read)  # (n, vocab_size)
            total = (log_probs[:, None] + following).flatten()  # (n * vocab_size,)
            best = total.sort(descending=True, stable=True).indices[:beam]  # of equals the lower id first, as argmax
            best = best[total[best] > -math.inf]
            log_probs, new = total[best], best % following.shape[1]
            going = torch.cat([going[best // following.shape[1]], new[:, None].to(ids)], dim=1)
            ended = torch.zeros_like(new, dtype=torch.bool) if end_id is None else new == end_id
            finish(going[ended], log_probs[ended], length)
            going, log_probs = going[~ended], log_probs[~ended]
            # A sequence can only lose probability, so at full length its score is at most this:
            if not len(going) or (len(finished) == beam and score(log_probs[0].item(), n_new) <= finished[-1][0]):
                break
        else:
            finish(going, log_probs, n_new)
    return [(row, log_prob) for _, row, log_prob in finished]


def translate(model, src, n_new, start_id, end_id, beam=1, alpha=0.6):
    """What a `model.Transformer` writes for each source: src (B, T_src) -> B lists of ids, at most n_new each.

    Greedy for all at once with a KV cache, until each has ended; with beam > 1 one source after the other by
    `beam_search`. Start, end and padding are left out of the lists. Dropout is off; the model's mode is restored.
    """
    _check_n_new(n_new)
    with evaluating(model):
        memory = model.encode(src)
        start = torch.full((len(src), 1), start_id, device=src.device)
        if beam == 1:
            written = _write_greedily(model, start, memory, src, n_new, end_id)
        else:
            written = []
            for row in range(len(src)):
                one = slice(row, row + 1)

                def decode(ids, memory=memory[one], src=src[one]):
                    return model.decode(ids, memory.expand(len(ids), -1, -1), src.expand(len(ids), -1))

                written.append(beam_search(decode, start[one], n_new, beam, alpha, end_id)[0][0].tolist())
    left_out = {start_id, end_id, model.config.pad_id}
    return [[i for i in _until(end_id, row[1:]) if i not in left_out] for row in written]


def _write_greedily(model, ids, memory, src, n_new, end_id):
    """ids (B, 1) with the likeliest next token added up to n_new times, until each row has an end; as lists."""
    cache = KVCache(model.config.n_layers)
    ended = torch.zeros(len(ids), dtype=torch.bool, device=ids.device)
    for _ in range(n_new):
        new = model.decode(ids[:, len(cache) :], memory, src, cache)[:, -1].argmax(-1)  # (B,)
        ids = torch.cat([ids, new[:, None]], dim=1)
        ended |= new == end_id
        if ended.all():
            break
    return ids.tolist()


def _until(end_id, ids):
    return ids[: ids.index(end_id)] if end_id in ids else ids


def _log_probs(logits, ids):
    """Log-probabilities of the next token, (n, vocab_size), float64; a row of -inf alone allows no token."""
    if logits.dim() != 3 or logits.shape[:2] != ids.shape:
        raise ValueError(
            "The model must give logits (B, T, vocab_size) for ids (B, T). Check what it returns "
            f"(logits {tuple(logits.shape)}, ids {tuple(ids.shape)})."
        )
    logits = logits[:, -1].cpu().double()
    log_probs = logits.log_softmax(-1).masked_fill(logits == -math.inf, -math.inf)
    if log_probs.isnan().any():
        raise ValueError("The logits are not numbers. A logit is a finite number, or -inf for what cannot come next.")
    return log_probs


def _check_beam(ids, n_new, beam, alpha):
    if not isinstance(ids, torch.Tensor) or ids.dim() != 2 or len(ids) != 1 or not ids.numel():
        given = f"shape {tuple(ids.shape)}" if isinstance(ids, torch.Tensor) else type(ids).__name__
        raise ValueError(f"A beam search continues one sequence. Give its ids as a tensor (T,) or (1, T) ({given}).")
    _check_n_new(n_new)
    if not _whole(beam) or beam < 1:
        raise ValueError(f"beam counts the sequences that go on. Give a whole number of at least 1 (it is {beam!r}).")
    if not isinstance(alpha, numbers.Real) or not 0 <= alpha < math.inf:
        raise ValueError(f"alpha says how much length counts. Give a number of at least 0 (it is {alpha!r}).")


def _check_n_new(n_new):
    if not _whole(n_new) or n_new < 0:
        raise ValueError(f"n_new counts new tokens. Give a whole number of at least 0 (it is {n_new!r}).")


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
