"""Notebook 06: its functions on sizes the page does not show, each against an independent answer or a planted fault."""

import subprocess
import sys

import numpy as np
import pytest

from course_utils import attention
from page_code import NOTEBOOKS, definitions


@pytest.fixture(scope="module")
def page():
    return definitions("06")


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


# The recurrent network: by hand with one number a token, where every step can be written out.


def check_rnn(rnn):
    X, W, U = np.array([[1.0], [0.0], [2.0]]), np.array([[0.5]]), np.array([[-2.0]])
    first = np.tanh(0.5 + 0.3 * -2.0)
    second = np.tanh(first * -2.0)
    third = np.tanh(1.0 + second * -2.0)
    np.testing.assert_allclose(np.ravel(rnn(X, W, U, np.array([0.3]))), [first, second, third])


def test_rnn(page):
    check_rnn(page["rnn"])


def test_rnn_agrees_with_torch(page):
    torch = pytest.importorskip("torch")
    X, W, U, h = numbers(7, 5), numbers(5, 3, seed=1), numbers(3, 3, seed=2), numbers(3, seed=3)
    layer = torch.nn.RNN(5, 3, bias=False).double()
    with torch.no_grad():
        layer.weight_ih_l0.copy_(torch.from_numpy(W.T))
        layer.weight_hh_l0.copy_(torch.from_numpy(U.T))
        theirs = layer(torch.from_numpy(X), torch.from_numpy(h[None]))[0].numpy()
    np.testing.assert_allclose(np.array(page["rnn"](X, W, U, h)), theirs)


def test_rnn_that_never_uses_the_old_state_is_caught():
    with pytest.raises(AssertionError):
        check_rnn(lambda X, W, U, h: [np.tanh(x + h @ U) for x in X @ W])


def test_rnn_reads_a_batch_as_it_reads_each_sequence(page):
    X, W, U = numbers(6, 4, 5), numbers(5, 3, seed=1), numbers(3, 3, seed=2)
    batch = np.array(page["rnn"](X, W, U, np.zeros(3)))
    np.testing.assert_allclose(batch[:, 2], page["rnn"](X[:, 2], W, U, np.zeros(3)))


def test_leaky_rnn_keeps_the_named_share(page):
    X, W, U = np.ones((2, 1)), np.array([[0.5]]), np.array([[2.0]])
    first = 0.75 * 0.0 + 0.25 * np.tanh(0.5)
    second = 0.75 * first + 0.25 * np.tanh(0.5 + 2 * first)
    np.testing.assert_allclose(page["leaky_rnn"](X, W, U, np.zeros(1), keep=0.75), [second])


def check_lstm(lstm_step):
    torch = pytest.importorskip("torch")
    d = 3
    cell = torch.nn.LSTMCell(4, d).double()
    x, h, c = numbers(4), numbers(d, seed=1), numbers(d, seed=2)
    with torch.no_grad():
        theirs = [state[0].numpy() for state in cell(*as_batch(torch, x), as_batch(torch, h, c))]

    def ours(weight):  # torch's order of gates is write, forget, new, read, and its matrices are transposed
        write, forget, new, read = np.split(weight.detach().numpy(), 4)
        return np.concatenate([forget, write, read, new]).T

    W, U, b = ours(cell.weight_ih), ours(cell.weight_hh), ours(cell.bias_ih) + ours(cell.bias_hh)
    np.testing.assert_allclose(lstm_step(x, h, c, W, U, b), theirs)


def as_batch(torch, *arrays):
    return tuple(torch.from_numpy(array[None]) for array in arrays)


def test_lstm_step_agrees_with_torch(page):
    check_lstm(page["lstm_step"])


def test_lstm_whose_forget_gate_forgets_is_caught(page):
    sigmoid = page["sigmoid"]

    def wrong(x, h, c, W, U, b):
        forget, write, read, new = np.split(x @ W + h @ U + b, 4)
        c = (1 - sigmoid(forget)) * c + sigmoid(write) * np.tanh(new)
        return sigmoid(read) * np.tanh(c), c

    with pytest.raises(AssertionError):
        check_lstm(wrong)


# Recall: a state that holds some tokens outright must be read back at exactly those distances.


def check_recalled(recalled):
    ids = np.random.default_rng(0).integers(0, 5, size=(9, 600))
    states = np.hstack([np.eye(5)[ids[-1]], np.eye(5)[ids[-4]]])  # knows distances 0 and 3
    shares = recalled(states, ids, kinds=5)
    assert shares.shape == (9,) and shares[0] == shares[3] == 1
    assert np.delete(shares, [0, 3]).max() < 0.35  # chance is 0.2


def test_recalled(page):
    check_recalled(page["recalled"])


def test_recall_counted_from_the_wrong_end_is_caught(page):
    with pytest.raises(AssertionError):
        check_recalled(lambda *args, **kwargs: page["recalled"](*args, **kwargs)[::-1])


def test_the_read_out_is_tested_on_other_sequences_than_it_was_fitted_on(page):
    ids = np.random.default_rng(1).integers(0, 4, size=(3, 120))
    assert page["recalled"](numbers(120, 70), ids, kinds=4).mean() < 0.5  # noise as states: fitting it would give 1


# Additive attention.


def check_additive(additive_scores):
    Q, K, W, U, v = (
        numbers(2, 3),
        numbers(4, 5, seed=1),
        numbers(3, 6, seed=2),
        numbers(5, 6, seed=3),
        numbers(6, seed=4),
    )
    slow = [[sum(v[m] * np.tanh(q @ W[:, m] + k @ U[:, m]) for m in range(6)) for k in K] for q in Q]
    np.testing.assert_allclose(additive_scores(Q, K, W, U, v), slow)


def test_additive_scores(page):
    check_additive(page["additive_scores"])


def test_additive_scores_without_tanh_are_caught():
    with pytest.raises(AssertionError):
        check_additive(lambda Q, K, W, U, v: ((Q @ W)[:, None] + (K @ U)[None]) @ v)


# Rounds and multiplications.


def test_attention_by_hand(page):
    Q, K, V = numbers(3, 4), numbers(5, 4, seed=1), numbers(5, 2, seed=2)
    np.testing.assert_allclose(page["attention_by_hand"](Q, K, V), attention.attention(Q, K, V)[0])


def test_tracked_gives_the_same_numbers(page):
    X, W, U, h = numbers(4, 3), numbers(3, 2, seed=1), numbers(2, 2, seed=2), np.zeros(2)
    tracked = page["rnn"](*map(page["Tracked"], (X, W, U, h)))
    np.testing.assert_allclose([state.array for state in tracked], page["rnn"](X, W, U, h))


@pytest.mark.parametrize(("n", "d"), [(1, 3), (5, 2), (7, 7), (40, 3)])
def test_counts(page, n, d):
    X, A = np.ones((n, d)) / d, np.eye(d)
    assert page["count"](page["rnn"], X, A, A, np.zeros(d)) == (n, 2 * n * d * d)
    assert page["count"](page["attention_by_hand"], X, X, X) == (2, 2 * n * n * d)


def test_products_side_by_side_share_a_round(page):
    def two_then_one(A, B):
        return (A @ B) @ (B @ A)

    assert page["count"](two_then_one, np.ones((3, 3)), np.ones((3, 3))) == (2, 3 * 27)


# Path lengths against a search through the graph, place by place.


def slow_rounds(n, reach):
    heard, rounds = {0}, 0
    while n - 1 not in heard:
        heard |= {i for i in range(n) for back in reach(rounds) if i - back in heard}
        rounds += 1
    return rounds


def check_rounds(rounds_until_heard):
    for n in (1, 2, 9, 30):
        for reach in (lambda _: [0, 1], lambda _: [0, 3, 1], lambda layer: [0, 2**layer], lambda _: range(40)):
            assert rounds_until_heard(n, reach) == slow_rounds(n, reach)


def test_rounds_until_heard(page):
    check_rounds(page["rounds_until_heard"])


def test_news_that_travels_twice_in_one_round_is_caught():
    def wrong(n, reach):
        heard, rounds = np.arange(n) == 0, 0
        while not heard[-1]:
            for back in reach(rounds):
                for i in range(back, n):
                    heard[i] |= heard[i - back]  # reads what this very round has written
            rounds += 1
        return rounds

    with pytest.raises(AssertionError):
        check_rounds(wrong)


def test_table_1(page):
    lines = {
        line.split()[0]: line.replace(",", "").split() for line in page["table_1"](n=100, d=10, k=4, r=6).split("\n")
    }
    tail = {layer: [int(x) for x in words[-3:]] for layer, words in lines.items() if layer != "layer"}
    assert tail == {
        "self-attention": [100_000, 1, 1],
        "recurrent": [10_000, 100, 99],
        "convolution": [40_000, 1, 4],
        "restricted": [6_000, 1, 33],
    }


@pytest.mark.slow
def test_benchmark_prints_its_table():
    script = NOTEBOOKS.parent / "benchmarks" / "rnn_vs_attention.py"
    small = f"import runpy; runpy.run_path({str(script)!r})['main'](lengths=(4, 8), sizes=(2,))"
    done = subprocess.run([sys.executable, "-c", small], capture_output=True, text=True, check=True, timeout=120)
    rows = [line.split() for line in done.stdout.splitlines()]
    assert [row[:2] for row in rows[1:]] == [["2", "4"], ["2", "8"]]
    assert [float(row[-1]) for row in rows[1:]] == [2.0, 4.0]
