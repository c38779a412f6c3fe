"""Pencil & Lead: the parts that the notebooks build and share.

`import course_utils` is cheap: a module such as `course_utils.model` (which needs torch) is
imported when it is first named. NumPy pages use attention, text, vectors and data; PyTorch pages
add model, train, generate and introspect; plots and widgets draw arrays.
"""

import importlib
import os
import random
import sys

_MODULES = (
    "attention",
    "text",
    "vectors",
    "data",
    "model",
    "train",
    "generate",
    "introspect",
    "cost",
    "plots",
    "drawings",
    "widgets",
    "checks",
)
__all__ = [*_MODULES, "seed", "shifted_seed"]


def __getattr__(name):
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"course_utils has no {name!r}; it has {', '.join(__all__)}")


def __dir__():
    return sorted(__all__)


def shifted_seed(n):
    """n plus the environment variable COURSE_SEED_SHIFT (0 unless set), an int.

    Every source of randomness in the course starts from such a number, so that one variable tries
    the whole course with other random numbers (`make test-seeds`).
    """
    shift = os.environ.get("COURSE_SEED_SHIFT", "0")
    try:
        return int(n) + int(shift)
    except ValueError:
        raise ValueError(f"COURSE_SEED_SHIFT must be a whole number such as 1; it is {shift!r}.") from None


def seed(n):
    """Seed Python, NumPy and, if it is imported, torch with `shifted_seed(n)`.

    Returns a NumPy Generator seeded with the same number, for code that prefers its own.
    """
    import numpy as np

    n = shifted_seed(n)
    random.seed(n)
    np.random.seed(n)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(n)
    return np.random.default_rng(n)
