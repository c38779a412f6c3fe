"""What page 03 defines, tried on sizes the page does not show."""

import numpy as np
import pytest

from course_utils import attention
from page_code import definitions


@pytest.fixture(scope="module")
def page():
    return definitions("03")


def check_lookup(soft_lookup):
    keys = np.array([[1.0, 0.0], [0.0, 2.0], [-1.0, 1.0]])
    query = np.array([0.5, 1.0])
    answer, weights = soft_lookup(query, keys, np.array([10.0, 20.0, 40.0]), 2.0)
    scores = 2.0 * np.array([0.5, 2.0, 0.5])  # by hand
    shares = np.exp(scores) / np.exp(scores).sum()
    np.testing.assert_allclose(weights, shares)
    assert answer == pytest.approx(shares @ [10, 20, 40])


def test_soft_lookup(page):
    check_lookup(page["soft_lookup"])


def test_beta_outside_softmax_is_caught(page):
    def wrong(query, keys, values, beta):
        weights = beta * page["softmax"](keys @ query)
        return weights @ values, weights

    with pytest.raises(AssertionError):
        check_lookup(wrong)


def test_softmax_of_the_page_equals_the_packages(page):
    scores = np.random.default_rng(1).normal(size=17)
    np.testing.assert_allclose(page["softmax"](scores), attention.softmax(scores))


def test_kernel_weights_sum_to_one_over_keys():
    places = np.array([0.0, 1.0, 5.0])
    near = definitions("03", places=places)["near"]
    weights = near(np.array([0.2, 4.0]), 3.0)
    np.testing.assert_allclose(weights.sum(axis=-1), 1)
    assert weights.argmax(axis=-1).tolist() == [0, 2]
