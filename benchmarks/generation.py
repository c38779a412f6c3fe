"""Time of writing with a KV cache and without, one sequence, greedy, untrained GPTs: what notebook 12 quotes.

    python benchmarks/generation.py [--threads 1] [--repeats 3] [--json]

"anew" is `generate(..., use_cache=False)`. "nanoGPT's loop" is how nanoGPT's `generate` goes about it, written around
the same model: crop to the context, compute the whole prefix, keep the last position, draw. Both do the same
computation, so a difference between these two columns is noise and the cost of our checks. The ways take turns within
one process, and the least of `--repeats` processor times counts (with more threads than one, of wall times), since
other programs disturb the wall clock. Last, from how many new tokens on the cache pays. `--json` prints the results
once more, as one line at the end.
"""

import argparse
import json
import sys
from pathlib import Path
from time import perf_counter, process_time

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from course_utils.generate import generate
from course_utils.model import GPT, GPTConfig

PROMPT = 8  # tokens
SIZES = ({"d_model": 64, "n_layers": 2}, {"d_model": 128, "n_layers": 4}, {"d_model": 256, "n_layers": 6})


def nanogpt_loop(model, ids, n_new):
    """nanoGPT's way, at top_k=1: the whole window anew for each token."""
    model.eval()
    with torch.no_grad():
        for _ in range(n_new):
            logits = model(ids[:, -model.config.max_len :])[:, -1]
            logits[logits < logits.topk(1).values] = -float("inf")
            ids = torch.cat([ids, logits.softmax(-1).multinomial(1)], dim=1)
    return ids


WAYS = {
    "cache": lambda model, ids, n_new: generate(model, ids, n_new, temperature=0),
    "anew": lambda model, ids, n_new: generate(model, ids, n_new, temperature=0, use_cache=False),
    "nanoGPT's loop": nanogpt_loop,
}


def race(model, n_new, repeats, clock):
    """Milliseconds a new token of each way, the least of `repeats` turns."""
    ids = torch.randint(model.config.vocab_size, (1, PROMPT))
    least = dict.fromkeys(WAYS, float("inf"))
    for _ in range(repeats):
        for name, way in WAYS.items():
            started = clock()
            way(model, ids, n_new)
            least[name] = min(least[name], (clock() - started) / n_new * 1e3)
    return least


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    clock = process_time if options.threads == 1 else perf_counter  # processor time adds up over threads
    print(f"ms a new token, {options.threads} thread(s), torch {torch.__version__}")
    print(
        f"{'d_model':>7}{'layers':>7}{'n_new':>6}" + "".join(f"{name:>16}" for name in WAYS) + f"{'anew / cache':>14}"
    )
    results = []
    for sizes in SIZES:
        config = GPTConfig(160, n_heads=4, d_ff=4 * sizes["d_model"], max_len=PROMPT + 256, **sizes)
        model = GPT(config)
        for n_new in (4, 8, 16, 32, 64, 128, 256):
            times = race(model, n_new, options.repeats, clock)
            results.append(sizes | {"n_new": n_new, "times_ms": times, "ratio": times["anew"] / times["cache"]})
            row = f"{config.d_model:7}{config.n_layers:7}{n_new:6}" + "".join(f"{ms:16.2f}" for ms in times.values())
            print(row + f"{results[-1]['ratio']:14.2f}", flush=True)
        here = [r for r in results if r["d_model"] == config.d_model]
        pays = next((r["n_new"] for i, r in enumerate(here) if all(s["ratio"] > 1.1 for s in here[i:])), None)
        print(f"the cache saves a tenth or more from n_new = {pays} on")
    if options.json:
        print(json.dumps({"threads": options.threads, "torch": torch.__version__, "results": results}))


if __name__ == "__main__":
    main()
