"""The functions that page 04 defines, tried on sizes and numbers that the page does not show."""

import numpy as np
import pytest
import torch

from page_code import definitions

PAGE = definitions("04")
rng = np.random.default_rng(4)


def softmax(scores, axis=-1):
    exps = np.exp(scores - scores.max(axis=axis, keepdims=True))
    return exps / exps.sum(axis=axis, keepdims=True)


def check_head_weights(head_weights):
    """PyTorch's own attention is the judge: with the identity as values it returns its weights."""
    for T, d_model, d_k in ((5, 4, 3), (3, 7, 2), (1, 2, 6)):
        X, W_Q, W_K = rng.normal(size=(T, d_model)), rng.normal(size=(d_model, d_k)), rng.normal(size=(d_model, d_k))
        q, k, v = (torch.from_numpy(x)[None, None] for x in (X @ W_Q, X @ W_K, np.eye(T)))
        theirs = torch.nn.functional.scaled_dot_product_attention(q, k, v)[0, 0].numpy()
        np.testing.assert_allclose(head_weights(X, W_Q, W_K), theirs, atol=1e-10)


def test_head_weights():
    check_head_weights(PAGE["head_weights"])


@pytest.mark.parametrize(
    "wrong",
    [
        lambda X, W_Q, W_K: softmax(X @ W_Q @ (X @ W_K).T),
        lambda X, W_Q, W_K: softmax(X @ W_Q @ (X @ W_K).T / np.sqrt(X.shape[1])),
        lambda X, W_Q, W_K: softmax(X @ W_Q @ (X @ W_K).T / np.sqrt(W_Q.shape[1]), axis=0),
        lambda X, W_Q, W_K: softmax(X @ W_K @ (X @ W_Q).T / np.sqrt(W_Q.shape[1])),
        lambda X, W_Q, W_K: softmax(X @ W_Q @ (X @ W_Q).T / np.sqrt(W_Q.shape[1])),
    ],
    ids=["not scaled", "scaled by d_model", "over queries", "query and key swapped", "one matrix"],
)
def test_wrong_head_weights_are_caught(wrong):
    with pytest.raises(AssertionError):
        check_head_weights(wrong)


def check_softmax_slopes(softmax_slopes):
    """Against the change of the weights when one score after another is nudged."""
    for n in (2, 3, 6):
        scores = rng.normal(size=n) * 2
        measured = [(softmax(scores + h) - softmax(scores - h)) / 2e-5 for h in 1e-5 * np.eye(n)]
        np.testing.assert_allclose(softmax_slopes(softmax(scores)), np.array(measured).T, atol=1e-8)


def test_softmax_slopes():
    check_softmax_slopes(PAGE["softmax_slopes"])


@pytest.mark.parametrize(
    "wrong",
    [lambda w: np.diag(w), lambda w: np.diag(w * (1 - w)), lambda w: np.outer(w, w) - np.diag(w)],
    ids=["total forgotten", "diagonal only", "sign"],
)
def test_wrong_slopes_are_caught(wrong):
    with pytest.raises(AssertionError):
        check_softmax_slopes(wrong)


def check_two_thin(two_thin):
    """No table of rank d_k comes nearer than the one whose distance is made of the singular values left out."""
    for n, d_k in ((5, 2), (7, 3), (4, 4)):
        table = rng.normal(size=(n, n))
        W_Q, W_K = two_thin(table, d_k)
        assert W_Q.shape == W_K.shape == (n, d_k)
        left_out = np.linalg.svd(table, compute_uv=False)[d_k:]
        assert np.isclose(np.linalg.norm(table - W_Q @ W_K.T), np.sqrt((left_out**2).sum()), atol=1e-10)


def test_two_thin():
    check_two_thin(PAGE["two_thin"])


def quietest_first(table, d_k):
    U, strengths, Vt = np.linalg.svd(table)
    return U[:, -d_k:] * np.sqrt(strengths[-d_k:]), Vt[-d_k:].T * np.sqrt(strengths[-d_k:])


def strength_twice(table, d_k):
    U, strengths, Vt = np.linalg.svd(table)
    return U[:, :d_k] * strengths[:d_k], Vt[:d_k].T * strengths[:d_k]


@pytest.mark.parametrize("wrong", [quietest_first, strength_twice])
def test_wrong_thin_matrices_are_caught(wrong):
    with pytest.raises(AssertionError):
        check_two_thin(wrong)


def check_taken_apart(taken_apart):
    """Products of two vectors worked out by hand, a negative one among them."""
    alt = taken_apart("ink", "pen").alt
    assert "[2.0, -3.0, 0.0]" in alt and "score of -1" in alt
    assert "[0.0, 8.0, 0.0]" in taken_apart("pen", "ink").alt


GIVEN = {
    "words": ["ink", "pen"],
    "Q": np.array([[1.0, 3.0, 0.0], [0.0, 4.0, -1.0]]),
    "K": np.array([[5.0, 2.0, 0.0], [2.0, -1.0, 7.0]]),
    "questions": ["a?", "b?", "c?"],
}


def test_taken_apart():
    check_taken_apart(definitions("04", **GIVEN)["taken_apart"])


def test_query_and_key_exchanged_is_caught():
    exchanged = definitions("04", **GIVEN | {"Q": GIVEN["K"], "K": GIVEN["Q"]})["taken_apart"]
    with pytest.raises(AssertionError):
        check_taken_apart(exchanged)


def check_score(score):
    np.testing.assert_allclose(score(np.array([1.0, 1.0])), [3 / 2**0.5, 4 / 2**0.5])


def test_score():
    keys = np.array([[1.0, 2.0], [-1.0, 5.0]])
    check_score(definitions("04", K_five=keys)["score"])
    with pytest.raises(AssertionError):  # keys too long by sqrt(2), as without the division
        check_score(definitions("04", K_five=keys * np.sqrt(2))["score"])


def check_keep(keep):
    """Two questions, 5 and 2 loud: the louder one stays first."""
    np.testing.assert_allclose(keep(1), [[0, 5], [0, 0]], atol=1e-8)
    np.testing.assert_allclose(keep(2), [[0, 5], [-2, 0]], atol=1e-8)


def test_keep():
    page = definitions("04", M=np.array([[0.0, 5.0], [-2.0, 0.0]]))
    check_keep(page["keep"])
    page["two_thin"] = quietest_first
    with pytest.raises(AssertionError):
        check_keep(page["keep"])


def check_eight_weights(eight_weights):
    """One query, two keys of four numbers: scores 4 and 2, or 2 and 1 after the division by 2."""
    np.testing.assert_allclose(list(eight_weights(4, scaled=True).values()), softmax(np.array([2.0, 1.0])))
    np.testing.assert_allclose(list(eight_weights(4, scaled=False).values()), softmax(np.array([4.0, 2.0])))
    np.testing.assert_allclose(list(eight_weights(1, scaled=True).values()), softmax(np.array([1.0, -1.0])))


def test_eight_weights():
    keys = np.array([[1.0, 1, 1, 1], [-1.0, 1, 1, 1]])
    page = definitions("04", one_query=np.ones(4), eight_keys=keys)
    check_eight_weights(page["eight_weights"])
    with pytest.raises(AssertionError):
        check_eight_weights(lambda d_k, scaled: page["eight_weights"](d_k, not scaled))
