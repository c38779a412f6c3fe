"""The comparison that exercises end with."""

import numpy as np
import pytest
import torch

from course_utils.checks import compare


def slow(x):
    out = np.zeros(len(x))
    for i, number in enumerate(x):
        out[i] = 2 * number
    return out


def broken(x):
    return x[7]


def writes_into_its_input(x):
    x *= 2
    return x


@pytest.mark.parametrize(
    ("yours", "verdict"),
    [
        (lambda x: 2 * x, "equal to slow"),
        (lambda x: torch.from_numpy(2 * x).float(), "equal to slow"),
        (lambda x: [2 * number for number in x], "equal to slow"),
        (writes_into_its_input, "equal to slow"),
        (lambda x: None, "not written yet"),
        (lambda x: ..., "not written yet"),
        (lambda x: 2 * x[:1], r"the shape is (1,), and (2,) is wanted"),
        (lambda x: x + 1, "the right shape with other numbers"),  # right for the first case, wrong for the second
        (lambda x: x + np.nan, "the right shape with other numbers"),
        (lambda x: "four", "it returns str"),
        (broken, "stopped with IndexError: index 7 is out of bounds"),
    ],
)
def test_each_answer_gets_its_sentence(yours, verdict, capsys):
    cases = (np.array([1.0, 1.0]),), (np.array([3.0, 4.0]),)
    compare(yours, slow, *cases)
    said = capsys.readouterr().out
    assert said.startswith(f"{yours.__name__}: {verdict}") and said.count("\n") == 1
    assert cases[1][0].tolist() == [3, 4]  # what was given is as it was


def test_tensors_with_a_history_are_copied(capsys):
    weights = torch.nn.Linear(2, 3).weight * 2  # not a leaf: copy.deepcopy refuses it
    compare(lambda w: w.T, lambda w: w.T.clone(), (weights,))
    assert "equal to" in capsys.readouterr().out
