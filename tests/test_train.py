"""train.fit: the recipe, what it records, Stop and going on. Tiny models of our own; files in an empty folder."""

import itertools
import json
import math
import os
import pickle
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional as F

from course_utils import _checkpoint, _live, shifted_seed, train

VOCAB = 11


class Tiny(nn.Module):
    """Reads left to right; the input and the output table are one parameter, as in the course's GPT."""

    def __init__(self, d_model=24, dropout=0.0, seed=0):
        super().__init__()
        torch.manual_seed(shifted_seed(seed))
        self.table = nn.Embedding(VOCAB, d_model)
        self.rnn = nn.GRU(d_model, d_model, batch_first=True)
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(d_model, VOCAB)
        nn.init.normal_(self.table.weight, std=0.3)
        self.out.weight = self.table.weight
        self.modes = []

    def forward(self, ids):
        self.modes.append(self.training)
        return self.out(self.dropout(self.rnn(self.table(ids))[0]))


class Batches:
    """Pairs (inputs, targets): each token is the one before it plus 3. Counts; does `at[n]()` before batch n."""

    def __init__(self, at=None, seed=0, noise_after=math.inf):
        self.rng, self.count = np.random.default_rng(shifted_seed(seed)), 0
        self.at, self.noise_after = at or {}, noise_after

    def __iter__(self):
        return self

    def __next__(self):
        self.count += 1
        self.at.pop(self.count, lambda: None)()
        ids = (self.rng.integers(0, VOCAB, (8, 1)) + 3 * np.arange(7)) % VOCAB
        targets = self.rng.integers(0, VOCAB, (8, 6)) if self.count > self.noise_after else ids[:, 1:]
        return ids[:, :-1], targets


VAL = next(Batches(seed=1))


def stop():
    raise KeyboardInterrupt


def press_stop():
    os.kill(os.getpid(), signal.SIGINT)


def fit(model, batches, **changes):
    settings = {"steps": 40, "lr": 1e-2, "warmup": 4, "val": VAL, "eval_every": 5}
    return train.fit(model, batches, **settings | changes)


@pytest.fixture(autouse=True)
def runs(tmp_path, monkeypatch):
    monkeypatch.setenv("COURSE_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("CPU_LIMIT", "1")
    return tmp_path / "runs"


# The recipe


def check_overfits(model):
    """One batch of 8 is learned by heart, from a first loss near ln(vocab_size): faults 11 and 13."""
    ids = np.random.default_rng(shifted_seed(3)).integers(0, VOCAB, (8, 7))
    history = train.fit(model, itertools.repeat((ids[:, :6], ids[:, 1:])), steps=120, lr=3e-2, warmup=10, eval_every=10)
    assert abs(history.train_loss[0] - math.log(VOCAB)) < 0.4
    assert history.train_loss[-1] < 0.1


def test_learns_one_batch_by_heart():
    class Distinct(Tiny):  # the row's number comes first, so that no two rows share a beginning
        def forward(self, ids):
            state = torch.eye(8, self.rnn.hidden_size)[None, : len(ids)] * 2
            return self.out(self.rnn(self.table(ids), state)[0])

    class SoftmaxTwice(Distinct):
        def forward(self, ids):
            return super().forward(ids).softmax(-1)

    check_overfits(Distinct(d_model=48))
    with pytest.raises(AssertionError):
        check_overfits(SoftmaxTwice(d_model=48))


def check_rates(rate):
    by_hand = [0.5, 1.0, 1.0, (1 + math.sqrt(0.5)) / 2, 0.5, (1 - math.sqrt(0.5)) / 2]
    np.testing.assert_allclose([rate(s, steps=6, lr=1.0, warmup=2) for s in range(1, 7)], by_hand, atol=1e-12)
    assert rate(1, steps=10, lr=3.0, warmup=0) == 3.0  # no warm-up: the peak at once
    assert rate(10, steps=10, lr=3.0, warmup=10) == 3.0  # nothing but warm-up


def test_learning_rate():
    check_rates(train.learning_rate)
    for wrong in (
        lambda step, **settings: train.learning_rate(step + 1, **settings),  # counts from 0
        lambda step, **settings: train.learning_rate(step, **settings | {"warmup": 0}),
        lambda step, *, steps, lr, warmup: lr * min(step / max(1, warmup), 1.0),  # never falls
    ):
        with pytest.raises(AssertionError):
            check_rates(wrong)


def test_each_step_uses_its_rate_and_a_clipped_gradient(monkeypatch):
    class Loud(Tiny):
        def forward(self, ids):
            return 50 * super().forward(ids)

    seen, real_step = [], torch.optim.AdamW.step

    def step(optimizer, *args, **kwargs):
        (group,) = optimizer.param_groups
        gradient = torch.cat([parameter.grad.flatten() for parameter in group["params"]])
        seen.append((group["lr"], gradient.norm().item()))
        return real_step(optimizer, *args, **kwargs)

    monkeypatch.setattr(torch.optim.AdamW, "step", step)
    fit(Loud(), Batches(), steps=6, lr=1e-3, warmup=2)
    rates, lengths = zip(*seen, strict=True)
    np.testing.assert_allclose(rates, [train.learning_rate(s, steps=6, lr=1e-3, warmup=2) for s in range(1, 7)])
    assert max(lengths) < 1.001
    seen.clear()
    monkeypatch.setattr(train, "CLIP", math.inf)
    fit(Loud(), Batches(), steps=6, lr=1e-3, warmup=2)
    assert max(length for _, length in seen) > 10  # so it was the clipping that held them


def check_paper_schedule(rate):
    """Equation 3, spelled as in the paper."""
    d_model, warmup = 512, 4000
    lr = (d_model * warmup) ** -0.5
    for step in (1, 2, 3999, 4000, 4001, 100_000):
        by_hand = d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)
        assert rate(step, steps=7, lr=lr, warmup=warmup) == pytest.approx(by_hand, rel=1e-12)
    assert max(range(1, 30), key=lambda step: rate(step, steps=30, lr=0.5, warmup=11)) == 11
    assert rate(11, steps=30, lr=0.5, warmup=11) == 0.5


def test_paper_schedule():
    check_paper_schedule(train.paper_schedule)
    for wrong in (
        lambda step, **settings: train.paper_schedule(step + 1, **settings),
        lambda step, *, steps, lr, warmup: lr * min(step / warmup, warmup / step),
        lambda step, *, steps, lr, warmup: lr * min(1, math.sqrt(warmup / step)),  # no warm-up
    ):
        with pytest.raises(AssertionError):
            check_paper_schedule(wrong)
    for step, warmup in ((0, 10), (-1, 10), (1, 0)):
        with pytest.raises(ValueError, match=f"Count both from 1: step={step}, warmup={warmup}"):
            train.paper_schedule(step, steps=9, lr=1.0, warmup=warmup)


def seen_by_optimizer(monkeypatch, kind, **changes):
    """The options of the optimizer at each step of a run."""
    seen, real_step = [], kind.step

    def step(optimizer, *args, **kwargs):
        seen.append({name: value for name, value in optimizer.param_groups[0].items() if name != "params"})
        return real_step(optimizer, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(kind, "step", step)
        fit(Tiny(), Batches(), steps=6, lr=1e-3, warmup=50, **changes)  # longer than the run: no matter to the paper's
    return seen


def paper_adam(parameters):
    return torch.optim.Adam(parameters, betas=(0.9, 0.98), eps=1e-9)


def test_the_papers_recipe(monkeypatch):
    seen = seen_by_optimizer(monkeypatch, torch.optim.Adam, schedule=train.paper_schedule, optimizer=paper_adam)
    np.testing.assert_allclose([group["lr"] for group in seen], [1e-3 * step / 50 for step in range(1, 7)])
    assert {(group["betas"], group["eps"], group["weight_decay"]) for group in seen} == {((0.9, 0.98), 1e-9, 0)}


def test_a_schedule_of_ones_own(monkeypatch):
    seen = seen_by_optimizer(monkeypatch, torch.optim.AdamW, schedule=lambda step, *, steps, lr, warmup: lr / step)
    np.testing.assert_allclose([group["lr"] for group in seen], [1e-3 / step for step in range(1, 7)])


def check_cross_entropy(cross_entropy):
    logits = torch.log(torch.tensor([[[1.0, 3.0, 4.0], [2.0, 5.0, 1.0]], [[1.0, 1.0, 6.0], [5.0, 2.0, 1.0]]]))
    targets = torch.tensor([[1, -100], [0, 1]])  # probabilities 3/8, 1/8 and 2/8; one is no lesson
    by_hand = -(math.log(3 / 8) + math.log(1 / 8) + math.log(2 / 8)) / 3
    assert cross_entropy(logits, targets).item() == pytest.approx(by_hand, abs=1e-6)


def test_cross_entropy_skips_what_is_no_lesson():
    check_cross_entropy(train.cross_entropy)
    for wrong in (
        lambda logits, targets: F.cross_entropy(logits.flatten(0, 1), targets.flatten().clamp(min=0)),
        lambda logits, targets: train.cross_entropy(logits.softmax(-1), targets),
        lambda logits, targets: F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum") / 4,
        lambda logits, targets: train.cross_entropy(logits, targets) / math.log(2),  # bits
    ):
        with pytest.raises(AssertionError):
            check_cross_entropy(wrong)


def check_smoothing(cross_entropy):
    """By hand: 1 - epsilon of the target on the right token, epsilon spread over all three."""
    probs = torch.tensor([[[1.0, 3.0, 4.0], [2.0, 5.0, 1.0]]]) / 8
    loss = cross_entropy(probs.log(), torch.tensor([[1, -100]]), 0.3)
    by_hand = -(0.1 * math.log(1 / 8) + 0.8 * math.log(3 / 8) + 0.1 * math.log(4 / 8))
    assert loss.item() == pytest.approx(by_hand, abs=1e-6)


def test_label_smoothing():
    check_smoothing(train.cross_entropy)

    def over_the_wrong_ones(logits, targets, epsilon):
        return train.cross_entropy(logits, targets, epsilon * 3 / 2)

    for wrong in (over_the_wrong_ones, lambda logits, targets, epsilon: train.cross_entropy(logits, targets)):
        with pytest.raises(AssertionError):
            check_smoothing(wrong)
    for epsilon in (-0.1, 1.0, math.nan):
        with pytest.raises(ValueError, match="label_smoothing"):
            train.cross_entropy(torch.zeros(1, 1, 3), torch.tensor([[1]]), epsilon)


def check_floor(floor):
    """The loss of a model that gives exactly the smoothed target; any other model has more."""
    for vocab_size, epsilon in ((64, 0.1), (5, 0.3), (11, 0.0)):
        probs = torch.full((vocab_size,), epsilon / vocab_size, dtype=torch.float64)
        probs[2] += 1 - epsilon
        loss = train.cross_entropy(probs.clamp(min=1e-300).log()[None, None], torch.tensor([[2]]), epsilon).item()
        assert floor(vocab_size, epsilon) == pytest.approx(loss, abs=1e-9)
        sharper = train.cross_entropy(1.2 * probs.clamp(min=1e-300).log()[None, None], torch.tensor([[2]]), epsilon)
        assert sharper.item() >= loss


def test_smoothing_floor():
    check_floor(train.smoothing_floor)
    assert (train.smoothing_floor(64, 0.1), train.smoothing_floor(37_000, 0.1)) == pytest.approx(
        (0.73, 1.38), abs=0.005
    )
    for wrong in (
        lambda vocab_size, epsilon: train.smoothing_floor(vocab_size - 1, epsilon),
        lambda vocab_size, epsilon: train.smoothing_floor(vocab_size, epsilon) / math.log(2),
    ):
        with pytest.raises(AssertionError):
            check_floor(wrong)


def check_evaluate(evaluate):
    """Equal to one pass without dropout, over all lessons at once, whatever the chunks; the mode is as before."""
    model = Tiny(dropout=0.8)
    inputs, targets = (np.concatenate([ids] * 70) for ids in VAL)  # 560 rows of 6: two chunks
    targets = targets.copy()
    targets[:300, 1:] = -100  # chunks with unequal numbers of lessons
    targets[300:310] = -100
    for training in (True, False):
        model.train(training)
        found = evaluate(model, inputs, targets)
        assert model.training is training
        model.eval()
        whole = train.cross_entropy(model(torch.tensor(inputs)), torch.tensor(targets)).item()
        assert found == pytest.approx(whole, abs=1e-5)


def test_evaluate():
    def in_training_mode(model, inputs, targets):
        return train.cross_entropy(model(torch.tensor(inputs)), torch.tensor(targets)).item()

    def leaves_eval_mode(model, inputs, targets):
        model.eval()
        return in_training_mode(model, inputs, targets)

    def mean_of_halves(model, inputs, targets):
        return (
            train.evaluate(model, inputs[:280], targets[:280]) + train.evaluate(model, inputs[280:], targets[280:])
        ) / 2

    check_evaluate(train.evaluate)
    for wrong in (in_training_mode, leaves_eval_mode, mean_of_halves):
        with pytest.raises(AssertionError):
            check_evaluate(wrong)


# What a run records


def test_history_of_a_run(capsys):
    model, modes = Tiny(dropout=0.5), []

    def probe(model):
        modes.append((model.training, torch.is_grad_enabled()))
        return {"row": np.array([[0.25, 0.75]]), "logit": model(torch.tensor([[1]])).max()}

    batches = Batches()
    history = fit(model, batches, steps=12, probe=probe)
    assert history.step == [1, 5, 10, 12] and history.finished and batches.count == 12
    assert len(history.train_loss) == len(history.val_loss) == 4
    assert [step for step, _ in history.probes] == history.step
    assert history.probes[0][1]["row"] == [[0.25, 0.75]] and isinstance(history.probes[0][1]["logit"], float)
    assert set(modes) == {(False, False)}
    assert model.modes[:2] == [True, False] and model.modes.count(True) == 12  # dropout on at each step
    assert not model.training
    assert repr(history).startswith("History(finished, 4 evaluations, best: step ") and len(repr(history)) < 90
    assert fit(Tiny(), Batches(), steps=4, val=None).val_loss == []
    assert capsys.readouterr().out == ""


def test_train_loss_is_the_mean_since_the_evaluation_before():
    losses = []

    class Telling(Tiny):
        def forward(self, ids):
            logits = super().forward(ids)
            losses.append(train.cross_entropy(logits, (ids + 3) % VOCAB).item())
            return logits

    history = fit(Telling(), Batches(), steps=7, val=None, eval_every=3)
    assert history.step == [1, 3, 6, 7]
    means = [losses[0], np.mean(losses[1:3]), np.mean(losses[3:6]), losses[6]]
    np.testing.assert_allclose(history.train_loss, means, rtol=1e-6)


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"steps": 0}, "Nothing to do"),
        ({"lr": 0.0}, "learning rate"),
        ({"lr": math.nan}, "learning rate"),
        ({"warmup": 41}, "longer than the training"),
        ({"val": (VAL[0], np.full_like(VAL[1], -100))}, "no lesson"),
    ],
)
def test_settings_that_cannot_be(changes, words):
    with pytest.raises(ValueError, match=words):
        fit(Tiny(), Batches(), **changes)


def test_batches_that_cannot_be():
    inputs, targets = VAL
    with pytest.raises(ValueError, match="step 1 of 40 was done"):
        fit(Tiny(), [(inputs, targets)])
    for wrong, words in (
        (targets + VOCAB, "0 to 10.* from 11 to"),
        (targets[:, 1:], r"\(8, 6, 11\), targets \(8, 5\)"),
    ):
        with pytest.raises(ValueError, match=words):
            fit(Tiny(), itertools.repeat((inputs, wrong)))


# Several inputs


class Pair(Tiny):
    """Reads ids beside a second row of ids, which says by how much each token is ahead."""

    def forward(self, ids, ahead):
        self.modes.append(self.training)
        return self.out(self.dropout(self.rnn(self.table(ids) + self.table(ahead).roll(1, -1))[0]))


class PairBatches(Batches):
    """((ids, ahead), targets): each target is its id plus `ahead`, which ids alone do not tell."""

    def __next__(self):
        self.count += 1
        self.at.pop(self.count, lambda: None)()
        ids, ahead = self.rng.integers(0, VOCAB, (8, 6)), self.rng.integers(0, 2, (8, 6))
        return (ids, ahead), (ids + ahead) % VOCAB


PAIR_VAL = next(PairBatches(seed=1))


def test_several_inputs():
    inputs, targets = PAIR_VAL
    model = Pair(d_model=32)
    history = fit(model, PairBatches(), steps=150, lr=2e-2, val=PAIR_VAL, eval_every=50)
    assert history.val_loss[-1] < 0.4 < math.log(2)  # less than a coin's toss: both inputs are read
    tensors = [torch.tensor(ids) for ids in inputs]
    whole = train.cross_entropy(model(*tensors), torch.tensor(targets)).item()
    many = [np.concatenate([ids] * 70) for ids in inputs]  # in two chunks
    for several, n in ((inputs, 1), (list(inputs), 1), (tensors, 1), (many, 70)):
        assert train.evaluate(model, several, np.concatenate([targets] * n)) == pytest.approx(whole, abs=1e-5)
        steps = fit(Pair(), itertools.repeat((several, np.concatenate([targets] * n))), steps=2, warmup=0, val=None)
        assert steps.finished


def test_one_input_may_be_a_list_of_rows():
    inputs, targets = VAL
    model = Tiny()
    loss = train.evaluate(model, inputs, targets)
    for rows in (inputs.tolist(), list(inputs), tuple(map(tuple, inputs.tolist()))):
        assert train.evaluate(model, rows, targets.tolist()) == loss


def test_several_inputs_interrupted_and_gone_on():
    def run(batches, **options):
        torch.manual_seed(5)
        model = Pair(dropout=0.3)
        history = fit(
            model,
            batches,
            val=PAIR_VAL,
            label_smoothing=0.1,
            schedule=train.paper_schedule,
            optimizer=paper_adam,
            **options,
        )
        return model, history

    straight, whole = run(PairBatches())
    batches = PairBatches(at={24: stop})
    model, history = run(batches, checkpoint="pairs")
    assert not history.finished and history.step[-1] == 20
    best = train.evaluate(model, *PAIR_VAL, label_smoothing=0.1)
    assert best == pytest.approx(min(history.val_loss), abs=1e-6)
    resumed, parts = run(batches, checkpoint="pairs")
    assert parts.finished and parts.step == whole.step
    np.testing.assert_allclose(parts.val_loss, whole.val_loss, rtol=1e-5)
    torch.testing.assert_close(resumed.state_dict(), straight.state_dict())


# Stop


def check_keeps_best(fit):
    """From batch 21 on the targets are noise, so the best weights are not the last."""
    model = Tiny()
    history = fit(model, Batches(at={36: stop}, noise_after=20))
    assert not history.finished and history.step[-1] == 35
    assert history.best_step == history.step[np.argmin(history.val_loss)] < 30
    assert train.evaluate(model, *VAL) == pytest.approx(min(history.val_loss), abs=1e-6)


def test_stop_keeps_the_best_weights(capsys, monkeypatch):
    check_keeps_best(fit)
    out = capsys.readouterr().out
    assert out.startswith("Stopped at step 35 of 40. The best weights, of step ")
    assert out.endswith("are in the model. Without a checkpoint, the next run starts at step 0.\n")
    monkeypatch.setattr(Tiny, "load_state_dict", lambda *args, **kwargs: None)
    with pytest.raises(AssertionError):
        check_keeps_best(fit)


def test_one_stop_waits_for_the_step_and_a_second_does_not():
    before = signal.getsignal(signal.SIGINT)
    history = fit(Tiny(), Batches(at={7: press_stop}), eval_every=1)
    assert history.step[-1] == 6  # step 7 is done, its evaluation comes when the run goes on
    assert signal.getsignal(signal.SIGINT) is before

    def hang():
        press_stop()
        press_stop()
        raise AssertionError("the second Stop did not break off")

    assert fit(Tiny(), Batches(at={7: hang}), eval_every=1).step[-1] == 6
    assert signal.getsignal(signal.SIGINT) is before


def test_stop_before_anything_is_evaluated(capsys):
    model = Tiny()
    start = train.evaluate(model, *VAL)
    history = fit(model, Batches(at={1: stop}), checkpoint="early")
    assert history.step == [] and train.evaluate(model, *VAL) == start
    assert "of step 0 (nothing evaluated yet), are in the model. Run the cell again" in capsys.readouterr().out
    assert fit(model, Batches(), checkpoint="early").finished


SCRIPT = """
    import json, sys, time
    sys.path.insert(0, {tests!r})
    from test_train import VAL, Batches, Tiny, fit, train

    class Slow(Batches):
        def __next__(self):
            time.sleep(0.004)
            print("batch", self.count, flush=True)
            return super().__next__()

    model, batches = Tiny(dropout=0.1), Slow()
    history = fit(model, batches, steps=150, checkpoint="real")
    print(json.dumps([history.finished, batches.count, min(history.val_loss), train.evaluate(model, *VAL)]))
"""


@pytest.mark.slow
def test_a_real_interrupt_and_going_on_in_another_process(tmp_path, runs, capsys):
    script = tmp_path / "training.py"
    script.write_text(textwrap.dedent(SCRIPT.format(tests=str(Path(__file__).parent))), encoding="utf-8")
    command = [sys.executable, "-W", "error", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        lines = []
        for line in process.stdout:
            lines.append(line)
            if line == "batch 30\n":
                process.send_signal(signal.SIGINT)
    assert process.returncode == 0, "".join(lines)
    said, result = (line for line in lines if not line.startswith("batch"))
    finished, first, best, now = json.loads(result)
    assert not finished and 30 <= first < 150
    assert said.startswith(f"Stopped at step {first} of 150. The best weights, of step ")
    assert said.endswith("are in the model. Run the cell again to go on.\n")
    assert now == pytest.approx(best, abs=1e-6)
    assert [file.name for file in runs.iterdir()] == ["real.safetensors"]

    model, batches = Tiny(dropout=0.1), Batches()
    history = fit(model, batches, steps=150, checkpoint="real")
    assert capsys.readouterr().out == f"Going on after step {first}.\n"
    assert history.finished and first + batches.count == 150  # no step twice
    assert history.step == [1, *range(5, 151, 5)]
    assert train.evaluate(model, *VAL) == pytest.approx(min(history.val_loss), abs=1e-6)


# Going on


def check_goes_on(between=lambda: None):
    """Interrupted and taken up by a new model, a run with dropout ends where it would have ended."""
    straight, stopped = Tiny(dropout=0.3), Tiny(dropout=0.3)
    torch.manual_seed(5)
    whole = fit(straight, Batches())
    torch.manual_seed(5)
    batches = Batches(at={24: stop})
    fit(stopped, batches, checkpoint="parts", probe=lambda model: np.ones(2))
    between()
    torch.manual_seed(99)
    resumed = Tiny(dropout=0.3)
    parts = fit(resumed, batches, checkpoint="parts", probe=lambda model: np.ones(2))
    assert parts.step == whole.step and parts.finished
    np.testing.assert_allclose(parts.train_loss, whole.train_loss, rtol=1e-5)
    np.testing.assert_allclose(parts.val_loss, whole.val_loss, rtol=1e-5)
    assert parts.probes == [(step, [1.0, 1.0]) for step in whole.step]
    assert parts.seconds > 0
    torch.testing.assert_close(resumed.state_dict(), straight.state_dict())


def test_going_on_ends_where_the_whole_run_would():
    check_goes_on()


@pytest.mark.parametrize("lost", ["optimizer.", "last.", "rng"])
def test_going_on_without_a_part_is_caught(lost, monkeypatch):
    real_part = _checkpoint.part

    def forgetful(tensors, prefix):
        return {} if prefix == lost else real_part(tensors, prefix)

    def between():
        monkeypatch.setattr(_checkpoint, "part", forgetful)
        if lost == "rng":
            monkeypatch.setattr(torch, "set_rng_state", lambda state: None)

    with pytest.raises(AssertionError):
        check_goes_on(between)


def test_finished_run_returns_its_best_at_once(capsys):
    model = Tiny()
    first = fit(model, Batches(noise_after=20), checkpoint="done")
    again, batches = Tiny(), Batches()
    second = fit(again, batches, checkpoint="done")
    assert batches.count == 0 and second == first and not again.training
    assert first.best_step < 30  # so the best are not the last
    torch.testing.assert_close(again.state_dict(), model.state_dict())
    assert again.out.weight is again.table.weight
    assert capsys.readouterr().out.startswith("This run was finished before. The best weights, of step ")


@pytest.mark.parametrize(
    "model, changes, words",
    [
        (Tiny, {"lr": 2e-2}, "another lr."),
        (Tiny, {"steps": 41, "warmup": 5}, "another steps and warmup."),
        (lambda: Tiny(d_model=16), {}, "another model."),
        (lambda: Tiny(dropout=0.5), {}, "another model."),
        (Tiny, {"val": next(Batches(seed=2))}, "another val."),
        (Tiny, {"val": None}, "another val."),
        (Tiny, {"label_smoothing": 0.1}, "another label_smoothing."),
        (Tiny, {"schedule": train.paper_schedule}, "another schedule."),
        (Tiny, {"optimizer": torch.optim.Adam}, "another optimizer."),
        (Tiny, {"optimizer": lambda p: torch.optim.AdamW(p, betas=(0.9, 0.98))}, "another optimizer."),
        (lambda: Tiny(seed=4), {}, "another initialisation."),
    ],
)
def test_another_set_up_starts_afresh(model, changes, words, runs, capsys):
    fit(Tiny(), Batches(), checkpoint="mine")
    old = (runs / "mine.safetensors").read_bytes()
    batches = Batches()
    assert fit(model(), batches, checkpoint="mine", **changes).finished
    assert batches.count == changes.get("steps", 40)
    assert words in capsys.readouterr().out
    assert (runs / "mine.old.safetensors").read_bytes() == old


def test_the_model_that_a_run_left_goes_on_too(capsys):
    """The cell that trains is run again, without the one that makes the model."""
    model, batches = Tiny(), Batches(at={24: stop})
    assert fit(model, batches, checkpoint="again").best_step == 20  # while it goes on from step 23
    history = fit(model, batches, checkpoint="again")
    assert history.finished and batches.count == 41  # the 24th was broken off
    assert fit(model, batches, checkpoint="again") == history and batches.count == 41
    out = capsys.readouterr().out
    assert out.count("Going on after step 23.") == out.count("This run was finished before.") == 1
    with torch.no_grad():
        model.out.bias.add_(0.1)  # but trained on by other hands it is another start
    fit(model, Batches(), checkpoint="again")
    assert "is of a run with another initialisation. It is now again.old.safetensors" in capsys.readouterr().out


def test_damaged_file_is_kept_aside(runs, capsys):
    path = runs / "mine.safetensors"
    fit(Tiny(), Batches(at={20: stop}), checkpoint=path)  # a Path serves as well
    whole = path.read_bytes()
    save_file({"best.table.weight": torch.ones(2)}, runs / "other.safetensors")  # no record in it
    for damaged in (whole[:-50], whole[:100], b"", b"not a checkpoint", (runs / "other.safetensors").read_bytes()):
        path.write_bytes(damaged)
        capsys.readouterr()
        batches = Batches()
        assert fit(Tiny(), batches, checkpoint="mine").finished and batches.count == 40
        out = capsys.readouterr().out
        assert "mine.safetensors is damaged. It is now mine.old.safetensors, and this run starts at step 0." in out
        assert (runs / "mine.old.safetensors").read_bytes() == damaged


def test_files_are_safetensors_never_pickle(runs, monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("pickle")

    for module, name in ((pickle, "dump"), (pickle, "dumps"), (pickle, "Pickler"), (torch, "save"), (torch, "load")):
        monkeypatch.setattr(module, name, refuse)
    fit(Tiny(), Batches(at={9: stop}), checkpoint="11_gpt.v2")
    assert [file.name for file in runs.iterdir()] == ["11_gpt.v2.safetensors"]
    tensors = load_file(runs / "11_gpt.v2.safetensors")
    assert "last.table.weight" in tensors and "last.out.weight" not in tensors  # tied: once
    fit(Tiny(), Batches(), checkpoint="11_gpt.v2")
    assert all(name.startswith("best.") for name in load_file(runs / "11_gpt.v2.safetensors"))


def test_second_stop_while_saving_loses_nothing(runs, monkeypatch):
    real_sync, real_replace = os.fsync, os.replace

    def sync(*args):
        press_stop()
        real_sync(*args)
        press_stop()

    def replace(*args):
        press_stop()
        real_replace(*args)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", sync)
        patch.setattr(os, "replace", replace)
        history = fit(Tiny(), Batches(at={12: press_stop}), checkpoint="twice")
    assert history.step[-1] == 10 and [file.name for file in runs.iterdir()] == ["twice.safetensors"]
    batches = Batches()
    assert fit(Tiny(), batches, checkpoint=runs / "twice").finished and batches.count == 40 - 12


def test_full_disk_keeps_the_old_file_and_the_run(runs, monkeypatch, capsys):
    fit(Tiny(), Batches(at={9: stop}), checkpoint="mine")
    old = (runs / "mine.safetensors").read_bytes()

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    model = Tiny()
    history = fit(model, Batches(at={9: stop}), checkpoint="mine")
    out = capsys.readouterr().out
    assert "mine.safetensors could not be written: No space left on device." in out and out.endswith(
        "This state is not saved.\n"
    )
    assert train.evaluate(model, *VAL) == pytest.approx(min(history.val_loss), abs=1e-6)
    assert [file.name for file in runs.iterdir()] == ["mine.safetensors"]
    assert (runs / "mine.safetensors").read_bytes() == old


def test_long_run_is_saved_on_the_way(runs, monkeypatch):
    def die():
        raise RuntimeError("as if the kernel had died")

    monkeypatch.setattr(train, "SAVE_EVERY", 0.0)
    with pytest.raises(RuntimeError):
        fit(Tiny(), Batches(at={18: die}), checkpoint="mine")
    batches = Batches()
    assert fit(Tiny(), batches, checkpoint="mine").finished and batches.count == 40 - 15


def test_probe_that_json_cannot_hold(capsys):
    history = fit(Tiny(), Batches(at={9: stop}), checkpoint="odd", probe=lambda model: model)
    assert isinstance(history.probes[0][1], Tiny)
    assert capsys.readouterr().out.count("What probe returns is not made of numbers") == 1
    history = fit(Tiny(), Batches(), checkpoint="odd")
    assert history.probes == [] and history.finished


# A loss that is no number


class Breaks(Tiny):
    """From training step 12 on the loss, or else its gradient, is not a number."""

    def __init__(self, gradient_only):
        super().__init__()
        self.gradient_only = gradient_only

    def forward(self, ids):
        logits = super().forward(ids)
        if self.modes.count(True) < 12 or not self.training:
            return logits
        zero = self.out.bias.sum() * 0
        return logits + torch.sqrt(zero) * 0 if self.gradient_only else logits + zero * math.inf


@pytest.mark.parametrize("gradient_only", [False, True])
def test_stops_when_the_loss_is_no_number(gradient_only, runs, capsys):
    model, batches = Breaks(gradient_only), Batches()
    history = fit(model, batches, checkpoint="lost")
    assert not history.finished and history.step == [1, 5, 10] and batches.count == 12
    assert train.evaluate(model, *VAL) == pytest.approx(min(history.val_loss), abs=1e-6)
    out = capsys.readouterr().out
    assert out.startswith("The loss stopped being a finite number after step 11 of 40") and "a lower lr" in out
    assert not list(runs.glob("*"))  # a run that ends so is not one to go on with


# Threads


def cgroup(folder, lines, files):
    """A fake /proc/self/cgroup and /sys/fs/cgroup."""
    for name, text in files.items():
        (folder / "root" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "root" / name).write_text(text + "\n", encoding="utf-8")
    (folder / "proc").write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return {"proc": folder / "proc", "root": folder / "root"}


V2 = ["0::/a/b"]
V1 = ["5:memory:/x", "4:cpu,cpuacct:/a/b", "0::/"]


@pytest.mark.parametrize(
    "lines, files, expected",
    [
        (V2, {"a/b/cpu.max": "300000 100000"}, 3),
        (V2, {"a/b/cpu.max": "max 100000", "a/cpu.max": "250000 100000"}, 2),  # the outer group's; half a CPU is none
        (V2, {"a/b/cpu.max": "20000 100000"}, 1),  # never below 1
        (V2, {"cpu.max": "200000 50000"}, 4),  # a container that sees its own group as the root
        (V2, {"a/b/cpu.max": "nonsense"}, 6),
        (V1, {"cpu,cpuacct/a/b/cpu.cfs_quota_us": "500000", "cpu,cpuacct/a/b/cpu.cfs_period_us": "100000"}, 5),
        (V1, {"cpu,cpuacct/a/b/cpu.cfs_quota_us": "-1", "cpu,cpuacct/a/b/cpu.cfs_period_us": "100000"}, 6),
        (V1, {"memory/x/cpu.max": "100000 100000"}, 6),  # not the CPU's group
        ([], {}, 6),
    ],
)
def test_threads_from_cgroups(lines, files, expected, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(6)), raising=False)
    monkeypatch.delenv("CPU_LIMIT")
    assert train.threads(**cgroup(tmp_path, lines, files)) == expected


def test_threads_takes_the_least(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {1, 3, 4, 7}, raising=False)
    fake = cgroup(tmp_path, V2, {"a/b/cpu.max": "300000 100000"})
    for limit, expected in (("2.0", 2), ("1.5", 1), ("0.5", 1), ("16", 3), ("0", 3), ("", 3), ("many", 3)):
        monkeypatch.setenv("CPU_LIMIT", limit)
        assert train.threads(**fake) == expected
    monkeypatch.setenv("CPU_LIMIT", "")
    assert train.threads(proc=tmp_path / "none") == 4
    monkeypatch.delattr(os, "sched_getaffinity")  # macOS, Windows
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert train.threads(proc=tmp_path / "none") == 1


def test_fit_takes_the_threads_it_is_granted(monkeypatch):
    monkeypatch.setattr(train, "threads", lambda: 3)
    before = torch.get_num_threads()
    try:
        fit(Tiny(), Batches(), steps=1, warmup=0)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


# The display


def test_a_plain_line_now_and_then(monkeypatch, capsys):
    monkeypatch.setattr(_live, "LINE_EVERY", 0.0)
    fit(Tiny(), Batches(), steps=4)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert lines[1].startswith("[###############...............] step 2 of 4, about 0 s left; training loss 2.")
    assert ", held-out 2." in lines[1] and lines[1].endswith(" nats")


NOTEBOOK = """
    import sys
    sys.path.insert(0, {tests!r})
    from test_train import Batches, Tiny, fit
    from IPython import get_ipython
    publisher, sent = get_ipython().display_pub, []
    real = publisher.publish
    def publish(*args, **kwargs):
        sent.append(kwargs.get("update", False))
        return real(*args, **kwargs)
    publisher.publish = publish
    history = fit(Tiny(), Batches(), steps=300, eval_every=10, floors={{"a <b> & \\"c\\"": 0.5}})
    publisher.publish = real
    print(sent.count(False), 2 <= len(sent) <= 4 * history.seconds + 8)
"""


@pytest.mark.slow
def test_notebook_shows_one_bar_and_one_picture():
    import nbclient
    import nbformat

    cell = nbformat.v4.new_code_cell(textwrap.dedent(NOTEBOOK.format(tests=str(Path(__file__).parent))))
    notebook = nbformat.v4.new_notebook(cells=[cell])
    nbclient.NotebookClient(notebook, timeout=60, kernel_name="python3").execute()
    bar, picture, said = cell.outputs
    assert said.text == "2 True\n"  # two displays, each updated in place, a few times a second
    assert bar.data["text/plain"].startswith("[##############################] step 300 of 300, ")
    alt = picture.data["text/plain"]
    assert alt.startswith("Loss curve, steps 1 to 300 of 300: training loss from 2.")
    assert alt.endswith('nats. Floors: a <b> & "c" 0.50.')
    html = picture.data["text/html"]
    assert html.count("<img") == 1 and 'src="data:image/png;base64,' in html and "<b>" not in html
