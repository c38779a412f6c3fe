"""Exercises: whether what the reader wrote gives what the exercise's slow loop gives."""

import copy

import numpy as np

from course_utils.plots import to_numpy

CLOSE = 1e-5  # float32 and another order of adding differ by less; what is wrong differs by more


def compare(yours, slow, *cases):
    """Print one sentence: whether `yours` gives what `slow` gives for each case, a tuple of arguments.

    `slow` is the exercise as a loop. Results may be numbers, lists, NumPy arrays or tensors; they must have one shape
    and agree to 1e-5. An empty stub, an error, another shape and other numbers are told apart. Nothing is raised.

    >>> compare(lambda x: None, lambda x: 2 * x, (3,))
    <lambda>: not written yet
    """
    print(f"{yours.__name__}: {_verdict(yours, slow, cases)}")


def _verdict(yours, slow, cases):
    for case in cases:
        wanted = to_numpy(slow(*_copies(case)))
        try:
            result = yours(*_copies(case))
        except Exception as error:
            return f"stopped with {type(error).__name__}: {error}"
        if result is None or result is ...:
            return "not written yet"
        try:
            got = to_numpy(result).astype(float)
        except (TypeError, ValueError):
            return f"it returns {type(result).__name__}, and an array of shape {wanted.shape} is wanted"
        if got.shape != wanted.shape:
            return f"the shape is {got.shape}, and {wanted.shape} is wanted"
        if not np.allclose(got, wanted, rtol=CLOSE, atol=CLOSE):
            return "the right shape with other numbers: follow one number on its way"
    return f"equal to {slow.__name__}"


def _copies(case):
    """The arguments anew, since the reader's code may write into what it is given."""
    return [value.detach().clone() if hasattr(value, "detach") else copy.deepcopy(value) for value in case]
