"""Training: one loop with warm-up, decay and clipping, a live loss curve, Stop and going on.

`fit` trains any model that turns ids (B, T) into logits (B, T, vocab_size). Losses are cross-entropy in nats,
averaged over lessons; a target of -100 is no lesson. The recipe is that of section 5 of the paper in today's form:
AdamW, a learning rate that rises and falls, gradients clipped. Imports torch; the display is in _live.py, threads
and Stop are in _machine.py.
"""

import dataclasses
import hashlib
import json
import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

import numpy as np
import safetensors.torch
import torch
from safetensors import SafetensorError
from torch.nn import functional as F

from course_utils import shifted_seed
from course_utils._live import Live
from course_utils._machine import Stop, threads
from course_utils.model import evaluating

NO_LESSON = -100  # a target that is not scored
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
    if step <= warmup:
        return lr * step / warmup
    return lr * (1 + math.cos(math.pi * (step - 1 - warmup) / (steps - warmup))) / 2


def cross_entropy(logits, targets):
    """Mean loss in nats a lesson: logits (B, T, vocab_size), targets (B, T), -100 where there is no lesson.

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
    return F.cross_entropy(logits.flatten(0, -2), targets.flatten(), ignore_index=NO_LESSON)


def evaluate(model, inputs, targets):
    """Loss in nats a lesson without learning: in eval mode (no dropout), some rows at a time. The mode is restored."""
    inputs, targets = _tensors(model, inputs, targets)
    lessons = (targets != NO_LESSON).sum(dim=1)
    if not lessons.any():
        raise ValueError(f"There is no lesson to evaluate. Give targets that are ids: all {targets.numel()} are -100.")
    taught = lessons > 0  # rows without a lesson have no mean
    rows = max(1, EVAL_TOKENS // targets.shape[1])
    parts = (tensor[taught].split(rows) for tensor in (inputs, targets, lessons))
    with evaluating(model):
        total = sum(cross_entropy(model(x), y).item() * n.sum().item() for x, y, n in zip(*parts, strict=True))
    return total / lessons.sum().item()


def fit(model, batches, *, steps, lr, warmup, val=None, floors=None, checkpoint=None, probe=None, eval_every=None):
    """Train `model` for `steps` steps and return a History; the model ends in eval mode with its best weights.

    `batches` is an endless iterator of (inputs, targets), ids (B, T). Each step uses AdamW with `learning_rate` and
    gradients clipped to length 1. After step 1, every `eval_every` steps (by default a fiftieth of `steps`) and at
    the end, `val`, one (inputs, targets) pair, is evaluated and `probe(model)` is called, both in eval mode. Best
    means the least validation loss, or training loss without `val`. `floors` maps names to nats, drawn as lines.

    Stop (an interrupt) ends the run in good order. With a `checkpoint`, a name in `runs_folder()` or a Path, the same
    call then goes on from the last step (the batches from wherever their iterator stands), and a finished run is
    not trained again. A file that is damaged or of another set-up is kept as NAME.old.safetensors, and the run
    starts at step 0 from the weights the model has. ValueError for settings, targets or shapes that cannot be.
    """
    eval_every = max(1, steps // 50) if eval_every is None else eval_every
    _check(steps, lr, warmup, eval_every)
    torch.set_num_threads(threads())
    run = _Run(model, checkpoint, _setup(model, steps, lr, warmup, val))
    batches, live, diverged = iter(batches), Live(run.history, run.step, steps, floors), False
    if run.history.finished:
        live.finish(run.step)
        return run.history
    with Stop() as stop:
        try:
            while not (run.history.finished or stop.asked):
                if run.is_due(eval_every):
                    with stop.may_break():
                        val_loss, seen = _look(model, val, probe)
                    run.record(val_loss, seen)
                    continue
                with stop.may_break():  # the reader's own code, which may hang
                    inputs, targets = _next(batches, model, run.step, steps)
                    model.train()
                    loss = cross_entropy(model(inputs), targets)
                run.optimizer.zero_grad()
                loss.backward()
                length = torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
                if not math.isfinite(loss.item() + length.item()):  # before the weights are spoilt
                    raise _Diverged
                for group in run.optimizer.param_groups:
                    group["lr"] = learning_rate(run.step + 1, steps=steps, lr=lr, warmup=warmup)
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
    """The state of one run (model, optimizer, step, records, best weights) and its file.

    The file is one safetensors: tensors named last.*, best.*, optimizer.* and rng, and the rest as JSON in its
    metadata. One file is replaced in one go, so weights and history always belong together.
    """

    def __init__(self, model, checkpoint, setup):
        self.model, self.setup, self.steps = model, setup, setup["steps"]
        self.optimizer = torch.optim.AdamW(model.parameters())
        self.path = None
        if checkpoint is not None:
            path = checkpoint if isinstance(checkpoint, Path) else runs_folder() / checkpoint
            self.path = path.with_name(path.name.removesuffix(".safetensors") + ".safetensors")
        self.step, self.losses, self.history, self.best = 0, [], History(), _weights(model)
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
            self.best, history.best_step = _weights(self.model), self.step
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
            tensors |= {f"last.{name}": tensor for name, tensor in _weights(self.model).items()}
            for i, state in self.optimizer.state_dict()["state"].items():
                tensors |= {f"optimizer.{i}.{name}": tensor for name, tensor in state.items()}
            tensors["rng"] = torch.get_rng_state()
        self.history.seconds = perf_counter() - self.started
        history = dataclasses.asdict(self.history) | ({} if self.probes_fit else {"probes": []})
        about = {"setup": self.setup, "step": self.step, "losses": self.losses, "history": history}
        temporary = self.path.with_name(self.path.name + ".tmp")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with open(temporary, "wb") as file:
                file.write(safetensors.torch.save(tensors, metadata={"run": json.dumps(about)}))
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self.path)
        except OSError as error:  # a full disk, a folder that is read-only
            temporary.unlink(missing_ok=True)
            print(f"{self.path} could not be written: {error.strerror}. Free some space, or set COURSE_RUNS.")
            return False
        self.saved = perf_counter()
        return True

    def _load(self):
        """Take up the run in the file, or put the file aside and say why."""
        try:
            data = self.path.read_bytes()
            tensors = safetensors.torch.load(data)
            # safetensors: 8 bytes that hold the header's length, then the header, which is JSON
            header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
            about = json.loads(header["__metadata__"]["run"])
            setup, history = about["setup"], History(**about["history"])
        except (SafetensorError, ValueError, KeyError, TypeError):
            return self._put_aside("is damaged")
        differs = [name for name in self.setup if setup.get(name) != self.setup[name]]
        if differs:
            return self._put_aside(f"is of a run with another {' and '.join(differs)}")
        best, last, moments = (_part(tensors, part) for part in ("best.", "last.", "optimizer."))
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

    def _put_aside(self, why):
        old = self.path.with_name(self.path.name.replace(".safetensors", ".old.safetensors"))
        os.replace(self.path, old)
        print(f"The checkpoint {self.path} {why}. It is now {old.name}, and this run starts at step 0.")


def _part(tensors, prefix):
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _weights(model):
    """A copy of each tensor of the model; tied ones, which share memory, once."""
    once = {}
    for name, tensor in model.state_dict().items():
        once.setdefault((tensor.data_ptr(), tensor.shape), (name, tensor))
    return {name: tensor.clone(memory_format=torch.contiguous_format) for name, tensor in once.values()}


def _setup(model, steps, lr, warmup, val):
    """What must be equal for a checkpoint to belong to a run; long ones are hashed."""
    config = getattr(model, "config", None)
    shapes = [(name, tuple(tensor.shape), str(tensor.dtype)) for name, tensor in model.state_dict().items()]
    model_text = f"{shapes} {model!r} {config if dataclasses.is_dataclass(config) else ''}"
    val_bytes = b"".join(ids.cpu().numpy().tobytes() for ids in _tensors(model, *val)) if val is not None else b""
    hashes = {"model": model_text.encode(), "val": val_bytes}
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in hashes.items()}
    return hashes | {"steps": steps, "lr": lr, "warmup": warmup, "COURSE_SEED_SHIFT": shifted_seed(0)}


def _tensors(model, *arrays):
    """Arrays or tensors of ids as tensors of whole numbers, where the model is."""
    device = next(model.parameters()).device
    return [torch.as_tensor(a if torch.is_tensor(a) else np.array(a, np.int64)).to(device, torch.long) for a in arrays]


def _next(batches, model, step, steps):
    for inputs, targets in batches:
        return _tensors(model, inputs, targets)
    raise ValueError(
        f"The batches ended before the training did. Give an iterator without an end, such as "
        f"itertools.cycle(list_of_batches): step {step} of {steps} was done."
    )


def _look(model, val, probe):
    """What one evaluation adds: the validation loss and the probe's result, each None if not asked for."""
    val_loss = None if val is None else evaluate(model, *val)
    with evaluating(model):
        return val_loss, None if probe is None else probe(model)


def _check(steps, lr, warmup, eval_every):
    if steps < 1 or eval_every < 1:
        raise ValueError(f"Nothing to do. Give steps and eval_every of 1 or more: {steps=}, {eval_every=}.")
    if not 0 < lr < math.inf:
        raise ValueError(f"The learning rate must be a positive number, such as 3e-3: {lr=}.")
    if not 0 <= warmup <= steps:
        raise ValueError(f"The warm-up is longer than the training. Give warmup from 0 to steps: {warmup=}, {steps=}.")
