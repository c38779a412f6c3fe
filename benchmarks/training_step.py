"""Time of one training step: our Transformer beside nn.Transformer, our GPT beside the GPT-2 of `transformers`.

    python benchmarks/training_step.py [--json] [--steps 40] [--threads 2]

A step is forward, loss, backward and AdamW (fused: one call for all tensors). The two models have the same sizes,
embeddings, logits, activation and dropout, and take turns step by step in one process, so that a busy machine slows
both. The number is the ratio of the two medians: below 1 ours is faster. `transformers` is not among the course's
packages: without it, the second race is left out. To run it: a second environment with torch==2.13.0 and
transformers==5.24.0, and PYTHONPATH=. before python.
With --json the last line has `transformer_ratio` and `gpt_ratio`, the largest of their rows, and all rows with ms.
"""

import argparse
import importlib.util
import json
import statistics
from time import perf_counter

import torch
from torch import nn
from torch.nn import functional as F

import course_utils
from course_utils.model import GPT, Embeddings, GPTConfig, Transformer, TransformerConfig

SIZES = (  # the course's, and a larger one
    {"d_model": 64, "n_heads": 2, "n_layers": 2, "d_ff": 256, "batch": 128, "T": 16},
    {"d_model": 256, "n_heads": 8, "n_layers": 4, "d_ff": 1024, "batch": 32, "T": 32},
)
VOCAB_SIZE = 150


class TorchTransformer(nn.Module):
    """nn.Transformer as in the paper, with our embeddings, tied logits, and dropout where ours has it."""

    def __init__(self, config):
        super().__init__()
        c = config
        sizes = (c.d_model, c.n_heads, c.n_layers, c.n_layers, c.d_ff, c.dropout)
        self.stacks = nn.Transformer(*sizes, batch_first=True)
        self.stacks.encoder.norm = self.stacks.decoder.norm = None
        for layer in (*self.stacks.encoder.layers, *self.stacks.decoder.layers):
            layer.dropout = nn.Identity()  # within the feed-forward, where the paper has none
        self.embeddings = Embeddings(config)
        self.unembed = nn.Linear(c.d_model, c.vocab_size, bias=False)
        self.unembed.weight = self.embeddings.token.weight

    def forward(self, src, tgt):
        masks = {"src_key_padding_mask": src == 0, "memory_key_padding_mask": src == 0}
        masks["tgt_key_padding_mask"] = tgt == 0
        masks["tgt_mask"] = torch.ones(tgt.shape[1], tgt.shape[1], dtype=torch.bool).triu(1)
        return self.unembed(self.stacks(self.embeddings(src), self.embeddings(tgt), **masks))


def hugging_face_gpt(config):
    """GPT-2 of `transformers` in the sizes of `config`, a function of ids as ours is."""
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"n_embd": config.d_model, "n_head": config.n_heads, "n_layer": config.n_layers, "n_inner": config.d_ff}
    sizes |= {"vocab_size": config.vocab_size, "n_positions": config.max_len}
    dropout = dict.fromkeys(("attn_pdrop", "resid_pdrop", "embd_pdrop"), config.dropout)
    choices = {"activation_function": config.activation, "use_cache": False, "bos_token_id": None, "eos_token_id": None}
    model = GPT2LMHeadModel(GPT2Config(**sizes, **dropout, **choices))

    class Logits(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, ids):
            return self.model(ids).logits

    return Logits()


def padded(batch, T):
    """Ids (batch, T) of random lengths, from half of T on, padded with 0."""
    ids, lengths = torch.randint(1, VOCAB_SIZE, (batch, T)), torch.randint(T // 2, T + 1, (batch, 1))
    return ids * (torch.arange(T) < lengths)


def step_of(model):
    """A function that does one training step of `model` and returns the milliseconds it took."""
    optimizer = torch.optim.AdamW(model.train().parameters(), lr=1e-3, fused=True)

    def step(inputs, targets):
        start = perf_counter()
        loss = F.cross_entropy(model(*inputs).flatten(0, 1), targets.flatten(), ignore_index=0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return 1000 * (perf_counter() - start)

    return step


def race(ours, theirs, batches, steps):
    """Medians (ours, theirs) in ms over `steps` steps of each, taking turns; who begins changes from pair to pair."""
    racers, times = (step_of(ours), step_of(theirs)), ([], [])
    for i in range(-5, steps):  # five pairs to warm up
        batch = batches()
        for who in (0, 1) if i % 2 else (1, 0):
            ms = racers[who](*batch)
            if i >= 0:
                times[who].append(ms)
    return [statistics.median(column) for column in times]


def transformers_race(size, dropout, steps):
    batch, T = size["batch"], size["T"]
    sizes = {name: size[name] for name in ("d_model", "n_heads", "n_layers", "d_ff")}
    config = TransformerConfig(VOCAB_SIZE, **sizes, max_len=T, dropout=dropout)

    def batches():
        tgt = padded(batch, T + 1)
        return (padded(batch, T), tgt[:, :-1]), tgt[:, 1:]

    return race(Transformer(config), TorchTransformer(config), batches, steps)


def gpt_race(size, dropout, steps):
    batch, T = size["batch"], size["T"]
    sizes = {name: size[name] for name in ("d_model", "n_heads", "n_layers", "d_ff")}
    config = GPTConfig(VOCAB_SIZE, **sizes, max_len=T, dropout=dropout)

    def batches():
        ids = padded(batch, T + 1)
        return (ids[:, :-1],), ids[:, 1:]

    return race(GPT(config), hugging_face_gpt(config), batches, steps)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    course_utils.seed(0)
    races = {"transformer": transformers_race, "gpt": gpt_race}
    if importlib.util.find_spec("transformers") is None:
        print("`transformers` is not installed here, so our GPT has nothing to run against.")
        del races["gpt"]
    rows = []
    print(f"{'model':>12}{'d_model':>9}{'layers':>8}{'dropout':>9}{'ours, ms':>11}{'theirs, ms':>12}{'ratio':>8}")
    for name, run in races.items():
        for size in SIZES:
            for dropout in (0.0, 0.1):
                ours, theirs = run(size, dropout, options.steps)
                rows.append({"model": name, **size, "dropout": dropout, "ours_ms": ours, "theirs_ms": theirs})
                rows[-1]["ratio"] = ours / theirs
                about = f"{name:>12}{size['d_model']:9}{size['n_layers']:8}{dropout:9}"
                print(f"{about}{ours:11.2f}{theirs:12.2f}{ours / theirs:8.3f}", flush=True)
    if options.json:
        worst = {f"{name}_ratio": max(r["ratio"] for r in rows if r["model"] == name) for name in races}
        print(json.dumps(worst | {"threads": options.threads, "rows": rows}))


if __name__ == "__main__":
    main()
