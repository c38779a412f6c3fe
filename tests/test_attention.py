"""attention.py against hand-computed values and torch; each check catches a known-wrong function."""

import subprocess
import sys

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from course_utils import attention, seed

NEAR = 1e-12  # both sides compute in float64


def mask_of(shape, rng):
    """A random mask in which each query may attend to something."""
    mask = rng.random(shape) < 0.5
    mask[..., 0] = True
    return mask


# --- softmax ---------------------------------------------------------------------------------


def check_softmax(softmax):
    scores = np.log([[1.0, 3.0], [1.0, 1.0]])  # asymmetric: the wrong axis shows
    np.testing.assert_allclose(softmax(scores), [[0.25, 0.75], [0.5, 0.5]], atol=NEAR)
    assert softmax([[1000, 1000], [-1000, -1000]]).tolist() == [[0.5, 0.5], [0.5, 0.5]]  # lists of ints, overflow
    masked = softmax([[-np.inf, -np.inf], [-np.inf, 0.0]])
    assert masked.tolist() == [[0.0, 0.0], [0.0, 1.0]]


def test_softmax():
    check_softmax(attention.softmax)


def softmax_without_maximum(scores):
    with np.errstate(all="ignore"):
        return np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)


def softmax_of_torch(scores):
    return torch.softmax(torch.tensor(scores, dtype=torch.float64), -1).numpy()


def softmax_over_everything(scores):
    return attention.softmax(np.ravel(scores)).reshape(np.shape(scores))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda scores: attention.softmax(scores, axis=-2),
        softmax_without_maximum,
        softmax_of_torch,  # NaN in a row without an allowed key
        softmax_over_everything,
        lambda scores: attention.softmax(2 * np.asarray(scores)),
    ],
)
def test_wrong_softmax_is_caught(wrong):
    with pytest.raises(AssertionError):
        check_softmax(wrong)


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_softmax_agrees_with_torch(axis):
    scores = 10 * seed(1).standard_normal((3, 4, 5))
    expected = torch.softmax(torch.from_numpy(scores), axis).numpy()
    np.testing.assert_allclose(attention.softmax(scores, axis=axis), expected, atol=NEAR)


def test_softmax_shows_nan_and_leaves_its_input_alone():
    scores = np.array([[np.nan, 0.0], [np.inf, 0.0], [1.0, 1.0]])
    before = scores.copy()
    weights = attention.softmax(scores)  # a warning would be an error here
    assert np.isnan(weights[0]).all() and np.isnan(weights[1]).any()
    assert weights[2].tolist() == [0.5, 0.5]
    np.testing.assert_array_equal(scores, before)


def test_softmax_of_no_keys_is_empty():
    assert attention.softmax(np.zeros((2, 0))).shape == (2, 0)


# --- scores ----------------------------------------------------------------------------------


def check_scores(scores):
    Q = [[1.0, 2.0, 0.0, 0.0], [0.0, 0.0, 3.0, 1.0]]
    K = [[1.0, 1.0, 0.0, 0.0], [0.0, 2.0, 0.0, 4.0], [2.0, 0.0, 2.0, 0.0]]
    np.testing.assert_allclose(scores(Q, K, scaled=False), [[3, 4, 2], [0, 4, 6]], atol=NEAR)
    np.testing.assert_allclose(scores(Q, K), [[1.5, 2, 1], [0, 2, 3]], atol=NEAR)  # sqrt(4) = 2


def test_attention_scores():
    check_scores(attention.attention_scores)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda Q, K, scaled=True: attention.attention_scores(Q, K, scaled=False),
        lambda Q, K, scaled=True: attention.attention_scores(K, Q, scaled),
        lambda Q, K, scaled=True: attention.attention_scores(Q, K, False) / (4 if scaled else 1),  # d_k, no root
        lambda Q, K, scaled=True: attention.attention_scores(Q, K, False) / (np.sqrt(3) if scaled else 1),  # T_k
    ],
)
def test_wrong_scores_are_caught(wrong):
    with pytest.raises(AssertionError):
        check_scores(wrong)


# --- masks and attention ---------------------------------------------------------------------


def check_causal_mask(causal_mask):
    mask = causal_mask(3)
    assert mask.dtype == bool
    assert mask.tolist() == [[True, False, False], [True, True, False], [True, True, True]]


def test_causal_mask():
    check_causal_mask(attention.causal_mask)
    assert attention.causal_mask(0).shape == (0, 0)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda T: ~attention.causal_mask(T),
        lambda T: attention.causal_mask(T).T,
        lambda T: np.tril(np.ones((T, T), dtype=bool), k=-1),  # not even itself
        lambda T: np.tril(np.ones((T, T))),  # numbers instead of booleans
    ],
)
def test_wrong_causal_mask_is_caught(wrong):
    with pytest.raises(AssertionError):
        check_causal_mask(wrong)


def check_attention(attend):
    """`attend` is attention.attention or a wrong one."""
    # By hand: equal scores, so each row is the plain mean of what it may see.
    output, weights = attend(
        np.zeros((2, 3)), np.zeros((2, 3)), [[4.0], [8.0]], np.array([[True, False], [True, True]])
    )
    np.testing.assert_allclose(weights, [[1, 0], [0.5, 0.5]], atol=NEAR)
    np.testing.assert_allclose(output, [[4], [6]], atol=NEAR)
    # Scores 0 and ln 3 after the division by sqrt(4).
    output, weights = attend([[2.0, 0, 0, 0]], [[0.0, 0, 0, 0], [np.log(3), 0, 0, 0]], [[0.0, 8.0], [4.0, 0.0]])
    np.testing.assert_allclose(weights, [[0.25, 0.75]], atol=NEAR)
    np.testing.assert_allclose(output, [[3, 2]], atol=NEAR)
    # A query without an allowed key.
    output, weights = attend(
        np.ones((2, 1)), np.ones((2, 1)), [[4.0], [8.0]], np.array([[False, False], [False, True]])
    )
    assert weights.tolist() == [[0, 0], [0, 1]] and output.tolist() == [[0], [8]]
    # Scores of a million million do not outgrow the mask: what comes later changes nothing.
    rng = seed(2)
    Q, K, V = 1e6 * rng.standard_normal((3, 6, 4))
    Q[:, 0] = -np.abs(Q[:, 0]) - 1
    K[:, 0] = np.abs(K[:, 0]) + 1
    K_late, V_late = K.copy(), V.copy()
    K_late[4:, 0], V_late[4:] = -1e9, 7.0  # the last keys now match best of all
    mask = np.tril(np.ones((6, 6), dtype=bool))
    first, changed = attend(Q, K, V, mask)[0], attend(Q, K_late, V_late, mask)[0]
    np.testing.assert_array_equal(first[:4], changed[:4])
    assert np.abs(first[4:] - changed[4:]).max(axis=1).min() > 0.1
    # torch is the judge: heads, other sizes of query and key, masks of several shapes.
    Q, K, V = rng.standard_normal((2, 3, 4, 5)), rng.standard_normal((2, 3, 7, 5)), rng.standard_normal((2, 3, 7, 6))
    for mask in (None, mask_of((4, 7), rng), mask_of((2, 1, 1, 7), rng), mask_of((2, 1, 4, 7), rng)):
        output, weights = attend(Q, K, V, mask)
        expected = F.scaled_dot_product_attention(
            *map(torch.from_numpy, (Q, K, V)), attn_mask=None if mask is None else torch.from_numpy(mask)
        )
        np.testing.assert_allclose(output, expected.numpy(), atol=NEAR)
        np.testing.assert_allclose(weights.sum(-1), 1, atol=NEAR)
        np.testing.assert_allclose(weights @ V, output, atol=NEAR)


def test_attention():
    check_attention(attention.attention)


def attend_with(
    mask_scores=lambda scores, mask: np.where(mask, scores, -np.inf), softmax=attention.softmax, scaled=True
):
    """attention.attention written out, with one part exchanged."""

    def attend(Q, K, V, mask=None):
        scores = attention.attention_scores(Q, K, scaled)
        if mask is not None:
            scores = mask_scores(scores, mask)
        weights = softmax(scores)
        return weights @ np.asarray(V), weights

    return attend


def attend_mask_after_softmax(Q, K, V, mask=None):
    weights = attention.softmax(attention.attention_scores(Q, K))
    weights = weights if mask is None else weights * mask
    return weights @ np.asarray(V), weights


def test_the_frame_of_the_wrong_ones_is_right():
    check_attention(attend_with())


@pytest.mark.parametrize(
    "wrong",
    [
        attend_with(scaled=False),
        attend_with(mask_scores=lambda scores, mask: np.where(mask, -np.inf, scores)),  # inverted
        attend_with(mask_scores=lambda scores, mask: scores * mask),
        attend_with(mask_scores=lambda scores, mask: np.where(mask, scores, -1e4)),  # the scores outgrow it
        attend_with(mask_scores=lambda scores, mask: np.where(mask, scores, -1e9)),
        attend_with(softmax=lambda scores: attention.softmax(scores, axis=-2)),
        attend_with(softmax=softmax_of_torch),  # NaN without an allowed key
        attend_mask_after_softmax,
        lambda Q, K, V, mask=None: attention.attention(Q, K, V),  # mask forgotten
        lambda Q, K, V, mask=None: attention.attention(Q, K, V, mask)[::-1],
    ],
)
def test_wrong_attention_is_caught(wrong):
    with pytest.raises(AssertionError):
        check_attention(wrong)


def test_a_finite_mask_value_fails_only_on_large_scores():
    """The fault that trains well and then leaks: show that the large scores are what catches it."""
    small = attend_with(mask_scores=lambda scores, mask: np.where(mask, scores, -1e4))
    Q, K, V = seed(3).standard_normal((3, 6, 4))
    mask = attention.causal_mask(6)
    np.testing.assert_allclose(small(Q, K, V, mask)[0], attention.attention(Q, K, V, mask)[0], atol=NEAR)


def test_causal_attention_agrees_with_torch():
    Q, K, V = seed(4).standard_normal((3, 2, 5, 3))
    for T in (1, 2, 5):
        q, k, v = Q[:, :T], K[:, :T], V[:, :T]
        expected = F.scaled_dot_product_attention(*map(torch.from_numpy, (q, k, v)), is_causal=True)
        output, _ = attention.attention(q, k, v, attention.causal_mask(T))
        np.testing.assert_allclose(output, expected.numpy(), atol=NEAR)


def test_nan_in_the_input_is_not_hidden():
    Q, K, V = np.ones((3, 2, 2))
    Q[0, 0] = np.nan
    output, weights = attention.attention(Q, K, V)
    assert np.isnan(weights[0]).all() and np.isnan(output[0]).all()
    assert np.isfinite(output[1]).all()


# --- positions -------------------------------------------------------------------------------


def check_positions(positional_encoding):
    np.testing.assert_allclose(positional_encoding(2, 4)[1], [0.8415, 0.5403, 0.0100, 0.99995], atol=5e-5)
    np.testing.assert_allclose(
        positional_encoding(4, 5)[3],
        [np.sin(3), np.cos(3), np.sin(3 / 10000**0.4), np.cos(3 / 10000**0.4), np.sin(3 / 10000**0.8)],
        atol=NEAR,
    )
    for d_model in (1, 2, 3, 5, 8):
        assert positional_encoding(7, d_model).shape == (7, d_model)


def test_positional_encoding():
    check_positions(attention.positional_encoding)


def angles(T, exponents):
    return np.arange(T)[:, None] / 10000.0 ** np.asarray(exponents)


def sines_then_cosines(T, d_model):
    encoding = attention.positional_encoding(T, d_model)
    return np.concatenate([encoding[:, ::2], encoding[:, 1::2]], axis=1)


def cosine_with_its_own_exponent(T, d_model):
    column = np.arange(d_model)
    all_angles = angles(T, column / d_model)  # should be column - column % 2
    return np.where(column % 2 == 0, np.sin(all_angles), np.cos(all_angles))


def exponent_without_its_two(T, d_model):
    column = np.arange(d_model)
    all_angles = angles(T, column // 2 / d_model)
    return np.where(column % 2 == 0, np.sin(all_angles), np.cos(all_angles))


def counted_from_one(T, d_model):
    return attention.positional_encoding(T + 1, d_model)[1:]


@pytest.mark.parametrize(
    "wrong",
    [
        sines_then_cosines,
        cosine_with_its_own_exponent,
        exponent_without_its_two,
        counted_from_one,
        lambda T, d_model: attention.positional_encoding(T, d_model + d_model % 2),  # odd widths made even
    ],
)
def test_wrong_positions_are_caught(wrong):
    with pytest.raises(AssertionError):
        check_positions(wrong)


def test_a_shift_is_a_rotation():
    """Section 3.5: PE(pos + k) is a linear function of PE(pos), the same for every pos."""
    encoding = attention.positional_encoding(50, 8)
    dots = encoding @ encoding.T
    for k in (1, 7):
        np.testing.assert_allclose(np.diag(dots, k), dots[0, k], atol=1e-10)


# --- bad input and imports -------------------------------------------------------------------

I2 = np.eye(2)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: attention.attention_scores(np.ones((2, 3)), np.ones((2, 4))),
            ["3 numbers", "has 4", "(2, 3)", "(2, 4)"],
        ),
        (lambda: attention.attention_scores(np.ones(3), np.ones((2, 3))), ["Q needs two axes", "(3,)"]),
        (lambda: attention.attention(I2, I2, np.ones((3, 2))), ["K has 2 tokens", "V has 3", "(3, 2)"]),
        (lambda: attention.attention(I2, I2, I2, mask=[[1, 0], [1, 1]]), ["boolean", "mask == 1", "int64"]),
        (lambda: attention.attention(I2, I2, I2, mask=np.array([[0, -np.inf], [0, 0]])), ["boolean", "float64"]),
        (lambda: attention.attention(I2, I2, I2, mask=attention.causal_mask(3)), ["does not fit", "(2, 2)", "(3, 3)"]),
        (lambda: attention.attention(I2[:1], I2, I2, mask=attention.causal_mask(2)), ["does not fit", "(1, 2)"]),
        (lambda: attention.causal_mask(-1), ["whole number", "-1"]),
        (lambda: attention.causal_mask(2.5), ["whole number", "2.5"]),
        (lambda: attention.positional_encoding(3, 0), ["d_model", "1 or more", "here it is 0"]),
    ],
)
def test_bad_input_says_what_is_wrong_and_what_was_given(call, words):
    with pytest.raises(ValueError) as error:
        call()
    for word in words:
        assert word in str(error.value)


def loaded_by(statement):
    """Which of the heavy libraries a fresh Python has loaded after the statement."""
    heavy = {"torch", "matplotlib", "seaborn", "ipywidgets"}
    code = f"import sys; {statement}; print(*sorted({heavy} & set(sys.modules)))"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()


def test_numpy_modules_load_neither_torch_nor_matplotlib():
    assert loaded_by("import course_utils.attention, course_utils.text") == []
    assert loaded_by("import matplotlib, course_utils.attention") == ["matplotlib"]  # the probe can see it
