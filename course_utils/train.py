"""Training: one loop with warm-up, decay and clipping, a live loss curve, Stop and going on.

`fit` trains any model that turns ids (B, T), or several of them, into logits (B, T, vocab_size). Losses are
cross-entropy in nats, averaged over lessons; a target of -100 is no lesson. The recipe is that of section 5 of the
paper in today's form: AdamW, a learning rate that rises and falls, gradients clipped; the paper's own form can be
chosen. Imports torch; the display is in _live.py, the file in _checkpoint.py, threads and Stop are in _machine.py.
"""

import dataclasses
import json
import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

import numpy as np
import torch
from torch.nn import functional as F

from course_utils import _checkpoint, shifted_seed
from course_utils._live import Live
from course_utils._machine import Stop, threads
from course_utils.data import NO_LESSON
from course_utils.model import evaluating

CLIP = 1.0  # the longest gradient that is used as it is
SAVE_EVERY = 15.0  # seconds: at most so much training is lost when the kernel dies
EVAL_TOKENS = 2048  # tokens evaluated at once, so that the logits stay small


@dataclass
class History:
    """What a run of `fit` recorded, one entry an evaluation; losses in nats a lesson.

    train_loss is the mean over the steps since the previous evaluation; val_loss is empty without `val`. `probes`
    holds (step, result) pairs, with arrays as lists. The model carries the weights of `best_step`.
    """

    step: list = field(default_factory=list)
    train_loss: list = field(default_factory=list)
    val_loss: list = field(default_factory=list)
    finished: bool = False
    probes: list = field(default_factory=list)
    best_step: int = 0
    seconds: float = 0.0

    def __repr__(self):
        state = "finished" if self.finished else "stopped"
        return f"History({state}, {len(self.step)} evaluations, best: {self.best()})"

    def best(self):
        """The best step and its loss, in words."""
        if not self.step:
            return "step 0 (nothing evaluated yet)"
        kind, scores = ("held-out", self.val_loss) if self.val_loss else ("training", self.train_loss)
        return f"step {self.best_step} ({kind} loss {min(scores):.3f})"


def learning_rate(step, *, steps, lr, warmup):
    """The rate of step 1 ... steps: linear warm-up to `lr` at step `warmup`, then half a cosine towards 0.

    Steps count from 1, since a rate of 0 teaches nothing; 0 would be reached one step after the last.

    >>> [round(learning_rate(step, steps=6, lr=1.0, warmup=2), 3) for step in range(1, 7)]
    [0.5, 1.0, 1.0, 0.854, 0.5, 0.146]
    """
    if not 0 <= warmup <= steps:
        raise ValueError(f"The warm-up is longer than the training. Give warmup from 0 to steps: {warmup=}, {steps=}.")
    if step <= warmup:
        return lr * step / warmup
    return lr * (1 + math.cos(math.pi * (step - 1 - warmup) / (steps - warmup))) / 2


def paper_schedule(step, *, steps, lr, warmup):
    """The rate of section 5.3: linear warm-up to `lr` at step `warmup`, then down as 1 / sqrt(step), for ever.

    With lr = (d_model * warmup) ** -0.5 it is equation 3. How many steps there will be (`steps`) plays no part.
    ValueError for a step or a warmup below 1: equation 3 divides by their roots, so it counts from 1.

    >>> [round(paper_schedule(step, steps=8, lr=1.0, warmup=2), 3) for step in (1, 2, 4, 8)]
    [0.5, 1.0, 0.707, 0.5]
    """
    if step < 1 or warmup < 1:
        raise ValueError(f"Equation 3 divides by step and warmup. Count both from 1: {step=}, {warmup=}.")
    return lr * min(step / warmup, math.sqrt(warmup / step))


def smoothing_floor(vocab_size, epsilon):
    """The loss, in nats a lesson, that label smoothing leaves to a model that knows every answer (section 5.4).

    It is the entropy of the smoothed target: 1 - epsilon on the answer, and epsilon in equal parts on all tokens, the
    answer among them.

    >>> round(smoothing_floor(64, 0.1), 2), round(smoothing_floor(37_000, 0.1), 2)
    (0.73, 1.38)
    """
    part = epsilon / vocab_size
    probs = [(1, 1 - epsilon + part), (vocab_size - 1, part)]  # how many tokens have this probability
    return sum(n * p * math.log(1 / p) for n, p in probs if p > 0)


def cross_entropy(logits, targets, label_smoothing=0.0):
    """Mean loss in nats a lesson: logits (B, T, vocab_size), targets (B, T), -100 where there is no lesson.

    `label_smoothing`, the paper's epsilon (section 5.4), is the part of each target that is spread evenly over all
    tokens, the right one among them, as in PyTorch; others spread it over the wrong ones.

    >>> round(cross_entropy(torch.zeros(1, 2, 8), torch.tensor([[3, -100]])).item(), 4)  # ln 8
    2.0794
    """
    if logits.shape[:-1] != targets.shape:
        raise ValueError(
            f"Each target needs the logits of its position, so both must have the same (B, T). Check what the model "
            f"returns and what the batches yield: logits {tuple(logits.shape)}, targets {tuple(targets.shape)}."
        )
    lessons = targets[targets != NO_LESSON]
    if not len(lessons) or lessons.min() < 0 or lessons.max() >= logits.shape[-1]:
        given = f"from {lessons.min()} to {lessons.max()}" if len(lessons) else "-100 alone"
        raise ValueError(
            f"Targets must be ids of the vocabulary, 0 to {logits.shape[-1] - 1}, or -100 for no lesson, and not -100 "
            f"alone. Check the tokenizer that made them and the model's vocab_size: here they are {given}."
        )
    if not 0 <= label_smoothing < 1:
        raise ValueError(f"label_smoothing is a part of 1. Give 0 or more, and less than 1: {label_smoothing=}.")
    logits, targets = logits.flatten(0, -2), targets.flatten()
    return F.cross_entropy(logits, targets, ignore_index=NO_LESSON, label_smoothing=label_smoothing)


def evaluate(model, inputs, targets, label_smoothing=0.0):
    """Loss in nats a lesson without learning: in eval mode (no dropout), some rows at a time. The mode is restored.

    `inputs` and `targets` are those of `fit`.
    """
    inputs, targets = _tensors(model, inputs, targets)
    lessons = (targets != NO_LESSON).sum(dim=1)
    if not lessons.any():
        raise ValueError(f"There is no lesson to evaluate. Give targets that are ids: all {targets.numel()} are -100.")
    taught = lessons > 0  # rows without a lesson have no mean
    rows = max(1, EVAL_TOKENS // targets.shape[1])
    parts = (tensor[taught].split(rows) for tensor in (*inputs, targets, lessons))
    total = 0.0
    with evaluating(model):
        for *x, y, n in zip(*parts, strict=True):
            total += cross_entropy(model(*x), y, label_smoothing).item() * n.sum().item()
    return total / lessons.sum().item()


def fit(
    model,
    batches,
    *,
    steps,
    lr,
    warmup,
    val=None,
    floors=None,
    checkpoint=None,
    probe=None,
    eval_every=None,
    label_smoothing=0.0,
    schedule=learning_rate,
    optimizer=torch.optim.AdamW,
):
    """Train `model` for `steps` steps and return a History; the model ends in eval mode with its best weights.

    `batches` is an endless iterator of (inputs, targets), ids (B, T); inputs may be a tuple of arrays, of which the
    model takes one after the other: `model(*inputs)`. After step 1, every `eval_every` steps (by default a fiftieth of
    `steps`) and at the end, `val`, one (inputs, targets) pair, is evaluated and `probe(model)` is called, both in eval
    mode. Best means the least validation loss, or training loss without `val`. `floors` maps names to nats, drawn as
    lines. `label_smoothing` is that of `cross_entropy`, in training and validation alike.

    Each step clips the gradients to length 1 and sets the rate to `schedule(step, steps=, lr=, warmup=)`, steps counted
    from 1: `learning_rate`, `paper_schedule` or one of your own. `optimizer` makes one from the model's parameters.

    Stop (an interrupt) ends the run in good order. With a `checkpoint`, a name in `runs_folder()` or a Path, the same
    call then goes on from the last step (the batches from wherever their iterator stands), and a finished run is
    not trained again. The model may have the weights that the run began with, or those that it left. A file that is
    damaged or of another set-up is kept as NAME.old.safetensors, and the run starts at step 0 from the weights the
    model has. ValueError for settings, targets or shapes that cannot be.
    """
    eval_every = max(1, steps // 50) if eval_every is None else eval_every
    _check(steps, lr, eval_every)
    rates = [schedule(step, steps=steps, lr=lr, warmup=warmup) for step in range(1, steps + 1)]
    torch.set_num_threads(threads())
    setup = {"steps": steps, "lr": lr, "warmup": warmup, "label_smoothing": label_smoothing, "schedule": rates}
    run = _Run(model, checkpoint, optimizer(model.parameters()), val, setup)
    batches, live, diverged = iter(batches), Live(run.history, run.step, steps, floors), False
    if run.history.finished:
        live.finish(run.step)
        return run.history
    with Stop() as stop:
        try:
            while not (run.history.finished or stop.asked):
                if run.is_due(eval_every):
                    with stop.may_break():
                        val_loss, seen = _look(model, val, probe, label_smoothing)
                    run.record(val_loss, seen)
                    continue
                with stop.may_break():  # the reader's own code, which may hang
                    inputs, targets = _next(batches, model, run.step, steps)
                    model.train()
                    loss = cross_entropy(model(*inputs), targets, label_smoothing)
                run.optimizer.zero_grad()
                loss.backward()
                length = torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
                if not math.isfinite(loss.item() + length.item()):  # before the weights are spoilt
                    raise _Diverged
                for group in run.optimizer.param_groups:
                    group["lr"] = rates[run.step]
                run.optimizer.step()
                run.step += 1
                run.losses.append(loss.item())
                live.update(run.step)
        except KeyboardInterrupt:  # a second Stop, or one raised by the reader's own code
            pass
        except _Diverged:
            diverged = True
        run.close(diverged)
        live.finish(run.step)
    return run.history


def runs_folder():
    """Where checkpoints lie: the environment variable COURSE_RUNS, else `pencil-and-lead-runs` in your home folder."""
    return Path(os.environ.get("COURSE_RUNS") or Path.home() / "pencil-and-lead-runs")


class _Diverged(Exception):
    """A loss or gradient is not finite."""


class _Run:
    """The state of one run (model, optimizer, step, records, best weights) and its file, see `_checkpoint`.

    The file's tensors are named last.*, best.*, optimizer.* and rng.
    """

    def __init__(self, model, checkpoint, optimizer, val, settings):
        self.model, self.optimizer, self.steps = model, optimizer, settings["steps"]
        self.step, self.losses, self.history, self.best = 0, [], History(), _checkpoint.weights(model)
        self.setup = _setup(model, optimizer, val, settings) | {"initialisation": _checkpoint.fingerprint(self.best)}
        self.path = None
        if checkpoint is not None:
            path = checkpoint if isinstance(checkpoint, Path) else runs_folder() / checkpoint
            self.path = path.with_name(path.name.removesuffix(".safetensors") + ".safetensors")
        self.probes_fit = True  # into JSON
        if self.path and self.path.exists():
            self._load()
        self.started = self.saved = perf_counter()
        self.started -= self.history.seconds

    def is_due(self, eval_every):
        recorded = self.history.step[-1] if self.history.step else 0
        return self.step != recorded and (self.step in (1, self.steps) or self.step % eval_every == 0)

    def record(self, val_loss, seen):
        """Add one evaluation to the history; keep the weights if they are the best so far."""
        history, train_loss = self.history, sum(self.losses) / len(self.losses)
        score = train_loss if val_loss is None else val_loss
        if not math.isfinite(score):
            raise _Diverged
        if not history.step or score < min(history.val_loss or history.train_loss):
            self.best, history.best_step = _checkpoint.weights(self.model), self.step
        history.step.append(self.step)
        history.train_loss.append(train_loss)
        if val_loss is not None:
            history.val_loss.append(val_loss)
        if seen is not None:
            history.probes.append((self.step, self._plain(seen)))
        history.finished = self.step == self.steps
        self.losses = []
        if self.path and not history.finished and perf_counter() - self.saved > SAVE_EVERY:
            self.save()

    def _plain(self, seen):
        """A probe's result as it will be read from the file, so that a resumed run's look like a fresh one's."""
        try:
            return json.loads(json.dumps(seen, default=lambda array: array.tolist()))
        except (TypeError, ValueError, AttributeError):
            if self.path and self.probes_fit:
                print("What probe returns is not made of numbers, text, lists and arrays: it is not saved.")
            self.probes_fit = False
            return seen

    def close(self, diverged):
        """Put the best weights into the model, save, and say what happened unless the run is finished."""
        self.history.seconds = perf_counter() - self.started
        kept = self.path and not diverged and self.save()
        self.model.load_state_dict(self.best, strict=False)  # not strict: tied tensors are there once
        self.model.eval()
        weights = f"The best weights, of {self.history.best()}, are in the model."
        at = f"step {self.step} of {self.steps}"
        if diverged:
            print(f"The loss stopped being a finite number after {at}, so training ends. {weights}")
            was = "lr {lr}, warmup {warmup}".format_map(self.setup)
            print(f"Make a new model and run again with a lower lr or a longer warmup (here {was}).")
        elif not self.history.finished:
            lost = "This state is not saved." if self.path else "Without a checkpoint, the next run starts at step 0."
            print(f"Stopped at {at}. {weights} {'Run the cell again to go on.' if kept else lost}")

    def save(self):
        """Write the file, whole or not at all; True if it was written."""
        tensors = {f"best.{name}": tensor for name, tensor in self.best.items()}
        if not self.history.finished:
            tensors |= {f"last.{name}": tensor for name, tensor in _checkpoint.weights(self.model).items()}
            for i, state in self.optimizer.state_dict()["state"].items():
                tensors |= {f"optimizer.{i}.{name}": tensor for name, tensor in state.items()}
            tensors["rng"] = torch.get_rng_state()
        self.history.seconds = perf_counter() - self.started
        history = dataclasses.asdict(self.history) | ({} if self.probes_fit else {"probes": []})
        about = {"setup": self.setup, "step": self.step, "losses": self.losses, "history": history}
        if not _checkpoint.write(self.path, tensors, about):
            return False
        self.saved = perf_counter()
        return True

    def _load(self):
        """Take up the run in the file, or put the file aside and say why."""
        try:
            tensors, about = _checkpoint.read(self.path)
            setup, history = about["setup"], History(**about["history"])
        except (ValueError, KeyError, TypeError):
            return _checkpoint.put_aside(self.path, "is damaged")
        best, last, moments = (_checkpoint.part(tensors, part) for part in ("best.", "last.", "optimizer."))
        if self.setup["initialisation"] == _checkpoint.fingerprint(best):  # the model has what the run left in it
            self.setup["initialisation"] = setup.get("initialisation")
        differs = [name for name in self.setup if setup.get(name) != self.setup[name]]
        if differs:  # other settings make other rates, another model other weights: no news
            differs = [name for name in differs if name not in ("schedule", "initialisation")] or differs
            return _checkpoint.put_aside(self.path, f"is of a run with another {' and '.join(differs)}")
        self.step, self.losses, self.history, self.best = about["step"], about["losses"], history, best
        history.probes = [tuple(pair) for pair in history.probes]
        self.model.load_state_dict(best if history.finished else last, strict=False)
        if history.finished:
            self.model.eval()
            print(f"This run was finished before. The best weights, of {history.best()}, are in the model.")
            return
        state = {}
        for name, tensor in moments.items():
            i, name = name.split(".")
            state.setdefault(int(i), {})[name] = tensor
        self.optimizer.load_state_dict(self.optimizer.state_dict() | {"state": state})
        torch.set_rng_state(tensors["rng"])
        print(f"Going on after step {self.step}.")


def _setup(model, optimizer, val, settings):
    """What must be equal for a checkpoint to belong to a run; long ones are hashed."""
    config = getattr(model, "config", None)
    shapes = [(name, tuple(tensor.shape), str(tensor.dtype)) for name, tensor in model.state_dict().items()]
    parts = {
        "model": (shapes, model, config if dataclasses.is_dataclass(config) else None),
        "val": () if val is None else _tensors(model, *val),
        "optimizer": optimizer,
        "schedule": settings["schedule"],
    }
    hashes = {name: _checkpoint.fingerprint(part) for name, part in parts.items()}
    return settings | hashes | {"COURSE_SEED_SHIFT": shifted_seed(0)}


def _tensors(model, inputs, targets):
    """([inputs], targets) as tensors of whole numbers, where the model is; inputs may be a tuple or list of arrays."""
    device = next(model.parameters()).device
    several = isinstance(inputs, tuple | list) and getattr(inputs[0], "ndim", 0) == 2  # not the rows of one array
    *inputs, targets = (
        torch.as_tensor(a if torch.is_tensor(a) else np.array(a, np.int64)).to(device, torch.long)
        for a in (*(inputs if several else [inputs]), targets)
    )
    return inputs, targets


def _next(batches, model, step, steps):
    for inputs, targets in batches:
        return _tensors(model, inputs, targets)
    raise ValueError(
        f"The batches ended before the training did. Give an iterator without an end, such as "
        f"itertools.cycle(list_of_batches): step {step} of {steps} was done."
    )


def _look(model, val, probe, label_smoothing):
    """What one evaluation adds: the validation loss and the probe's result, each None if not asked for."""
    val_loss = None if val is None else evaluate(model, *val, label_smoothing)
    with evaluating(model):
        return val_loss, None if probe is None else probe(model)


def _check(steps, lr, eval_every):
    if steps < 1 or eval_every < 1:
        raise ValueError(f"Nothing to do. Give steps and eval_every of 1 or more: {steps=}, {eval_every=}.")
    if not 0 < lr < math.inf:
        raise ValueError(f"The learning rate must be a positive number, such as 3e-3: {lr=}.")
