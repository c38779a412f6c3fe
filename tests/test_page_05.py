"""The functions that page 05 defines, on sizes it does not show; each check is proved able to fail."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from course_utils import shifted_seed
from page_code import definitions

PAGE = definitions("05")


def random_parts(n, *shapes):
    rng = np.random.default_rng(shifted_seed(n))
    return [rng.normal(size=shape) for shape in shapes]


def judge(Q, K, V, mask=None):
    """PyTorch's own attention, in float64."""
    mask = None if mask is None else torch.from_numpy(np.broadcast_to(mask, (*Q.shape[:-1], K.shape[-2])).copy())
    return F.scaled_dot_product_attention(*(torch.from_numpy(x) for x in (Q, K, V)), attn_mask=mask).numpy()


# -- mixing --


def check_mix(mix):
    weights = np.array([[0.25, 0.75, 0.0], [0.5, 0.0, 0.5]])  # (T_q, T_k) = (2, 3)
    np.testing.assert_allclose(mix(weights, np.array([[4.0], [8.0], [2.0]])), [[7.0], [3.0]])


def test_mix():
    check_mix(PAGE["mix"])


def test_mix_with_the_plain_mean_is_caught():
    with pytest.raises(AssertionError):
        check_mix(lambda weights, V: np.repeat(V.mean(axis=0, keepdims=True), len(weights), axis=0))


# -- one head --


def check_single_head(single_head):
    X, W_Q, W_K, W_V = random_parts(1, (7, 6), (6, 4), (6, 4), (6, 3))
    output, weights = single_head(X, W_Q, W_K, W_V)
    assert output.shape == (7, 3) and weights.shape == (7, 7)
    np.testing.assert_allclose(output, judge(X @ W_Q, X @ W_K, X @ W_V), atol=1e-12)
    np.testing.assert_allclose(weights @ X @ W_V, output, atol=1e-12)


def test_single_head_equals_pytorch():
    check_single_head(PAGE["single_head"])


def unscaled(X, W_Q, W_K, W_V):
    return PAGE["single_head"](X, 2 * W_Q, W_K, W_V)  # d_k is 4: as if nobody had divided by sqrt(4)


def query_and_key_swapped(X, W_Q, W_K, W_V):
    return PAGE["single_head"](X, W_K, W_Q, W_V)


@pytest.mark.parametrize("wrong", [unscaled, query_and_key_swapped])
def test_wrong_heads_are_caught(wrong):
    with pytest.raises(AssertionError):
        check_single_head(wrong)


# -- masks on scores --


def check_mask_before_softmax(masked_weights):
    scores = np.log([[0.09, 0.12, 0.29, 0.10, 0.40], [0.5, 0.2, 0.1, 0.1, 0.1]])
    mask = np.array([[True, True, True, True, False], [False, True, False, False, True]])
    expected = [[0.15, 0.20, 0.29 / 0.6, 0.10 / 0.6, 0], [0, 2 / 3, 0, 0, 1 / 3]]
    np.testing.assert_allclose(masked_weights(scores, mask), expected)
    np.testing.assert_array_equal(masked_weights(np.array([[-3e4, -2e4]]), np.array([[True, False]])), [[1, 0]])
    np.testing.assert_array_equal(masked_weights(np.zeros((1, 2)), np.zeros((1, 2), dtype=bool)), [[0, 0]])


def test_masked_weights():
    check_mask_before_softmax(PAGE["masked_weights"])


@pytest.mark.parametrize("wrong", ["zero_after", "finite_before"])
def test_the_two_wrong_masks_of_the_page_are_caught(wrong):
    with pytest.raises(AssertionError):
        check_mask_before_softmax(PAGE[wrong])


def test_the_finite_mask_is_outgrown():
    weights = PAGE["finite_before"](np.array([[-15_000.0, 0.0]]), np.array([[True, False]]))
    np.testing.assert_array_equal(weights, [[0, 1]])


def test_naive_softmax_is_right_until_a_row_is_empty():
    naive = PAGE["naive_softmax"]
    np.testing.assert_allclose(naive(np.log([[1.0, 3.0], [1.0, 1.0]])), [[0.25, 0.75], [0.5, 0.5]])
    with np.errstate(invalid="ignore"):
        assert np.isnan(naive(np.full((2, 2), -np.inf))).all()


# -- padding --


def check_pad_mask(pad_mask):
    real = np.array([[True, True, True], [True, False, False]])
    np.testing.assert_array_equal(pad_mask(real)[1], [[1, 0, 0]] * 3)
    np.testing.assert_array_equal(pad_mask(real, keys=False, queries=True)[1], [[1, 1, 1], [0, 0, 0], [0, 0, 0]])
    np.testing.assert_array_equal(pad_mask(real, queries=True)[1], [[1, 0, 0], [0, 0, 0], [0, 0, 0]])
    assert pad_mask(real)[0].all() and pad_mask(real).shape == (2, 3, 3) and pad_mask(real).dtype == bool


def test_pad_mask():
    check_pad_mask(PAGE["pad_mask"])


def test_rows_and_columns_confused_are_caught():
    with pytest.raises(AssertionError):
        check_pad_mask(lambda real, keys=True, queries=False: PAGE["pad_mask"](real, queries, keys))


# -- the whole function --


def check_attend(attend):
    Q, K, V = random_parts(2, (2, 3, 4), (2, 5, 4), (2, 5, 2))
    mask = np.array([[[True, False, True, True, False]], [[False, True, True, False, False]]])  # (B, 1, T_k)
    for given in (None, mask, mask & np.tri(3, 5, 1, dtype=bool)):
        np.testing.assert_allclose(attend(Q, K, V, given)[0], judge(Q, K, V, given), atol=1e-12)
    output, weights = attend(Q, K, V, np.array([[True] * 5, [False] * 5, [True] * 5]))
    assert not output[:, 1].any() and not weights[:, 1].any() and output[:, 0].all()


def test_masked_attention_equals_pytorch():
    check_attend(PAGE["masked_attention"])


def inverted(Q, K, V, mask=None):
    return PAGE["masked_attention"](Q, K, V, None if mask is None else ~mask)


def after_softmax(Q, K, V, mask=None):
    weights = PAGE["masked_attention"](Q, K, V)[1] * (True if mask is None else mask)
    return weights @ V, weights


@pytest.mark.parametrize("wrong", [inverted, after_softmax])
def test_wrong_masks_are_caught(wrong):
    with pytest.raises(AssertionError):
        check_attend(wrong)


# -- heads made of rules --


def check_rules(rule_mask):
    tokens = ["a", "b", "a", "a"]
    earlier, previous = (rule_mask(PAGE[name], tokens) for name in ("earlier_mention", "previous_token"))
    np.testing.assert_array_equal(earlier, [[0, 0, 0, 0], [0, 0, 0, 0], [1, 0, 0, 0], [1, 0, 1, 0]])
    np.testing.assert_array_equal(previous, [[0, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]])
    assert earlier.dtype == bool and rule_mask(PAGE["earlier_mention"], []).shape == (0, 0)


def test_rules():
    check_rules(PAGE["rule_mask"])


def test_queries_as_columns_are_caught():
    with pytest.raises(AssertionError):
        check_rules(lambda select, tokens: PAGE["rule_mask"](select, tokens).T)


def check_run_rule(run_rule):
    output, weights = run_rule(PAGE["earlier_mention"], ["a", "b", "a", "a"], np.array([[1.0], [2.0], [4.0], [8.0]]))
    np.testing.assert_allclose(output, [[0], [0], [1], [2.5]])  # two earlier mentions: their mean
    np.testing.assert_allclose(weights[3], [0.5, 0, 0.5, 0])


def test_run_rule():
    check_run_rule(PAGE["run_rule"])


def test_a_rule_that_adds_instead_of_sharing_is_caught():
    with pytest.raises(AssertionError):
        check_run_rule(lambda select, tokens, V: ((mask := PAGE["rule_mask"](select, tokens)) @ V, mask * 1.0))


# -- the hand-built head --


MEANING = {  # the plane, then unclear and clue
    "I": [0.1, 0, 0, 0],
    "dropped": [0, 0, 0, 0],
    "my": [0, 0.1, 0, 0],
    "lead": [0, 0, 1, 0],
    "left": [-1, 0, 0, 1],
    "right": [1, 0, 0, 1],
}
W_Q, W_K = np.array([[0], [0], [3.0], [0]]), np.array([[0], [0], [0], [1.0]])
SHARE = np.exp(3) / (np.exp(3) + 4)  # one score of 3 among four of 0


def hand_built(**given):
    return definitions("05", meaning=MEANING, W_Q=W_Q, W_K=W_K, W_V=np.eye(4)[:, :2], **given)


def check_lead_in(lead_in):
    received, looks = lead_in("left")
    np.testing.assert_allclose(received, [(0.1 * (1 - SHARE) / 4) - SHARE, 0.1 * (1 - SHARE) / 4])
    assert list(looks) == ["I", "dropped", "my", "left", "lead"]
    np.testing.assert_allclose(looks["left"], SHARE)
    np.testing.assert_allclose(lead_in("right", question=0.0)[0], [1.1 / 5, 0.1 / 5])


def test_lead_moves_toward_the_word_that_settles_it():
    check_lead_in(hand_built()["lead_in"])


def test_a_lead_that_receives_the_plain_mean_is_caught():
    with pytest.raises(AssertionError):
        check_lead_in(lambda word, question=0.0: hand_built()["lead_in"](word, 0.0))


def test_the_plane_of_lead_adds_what_it_receives():
    shown = hand_built(before=np.array([0.2, 0.5]))["move_lead"]("right", 0.0)
    np.testing.assert_allclose(shown["lead now"], [0.2 + 1.1 / 5, 0.5 + 0.1 / 5])
    assert shown["lead"] == pytest.approx(0.2)


@pytest.mark.parametrize("times", [1.0, 0.0, -1.0])
def test_the_values_turn_what_is_written_and_leave_the_weights(times):
    tokens = ["I", "dropped", "my", "left", "lead"]
    X, W_O = np.array([MEANING[token] for token in tokens]), np.eye(4)[:2]
    shown = hand_built(X=X, W_O=W_O, tokens=tokens, lead=4)["head_effect"](times)
    expected = times * np.array([(0.1 * (1 - SHARE) / 4) - SHARE, 0.1 * (1 - SHARE) / 4])
    np.testing.assert_allclose(shown["written to lead"], expected, atol=1e-12)
    assert shown["left"] == pytest.approx(SHARE)


def test_three_masks_of_one_query():
    given = {"wild": np.array([[-3.0, -2.0, 1.0]]), "allowed_row": np.array([[True, True, False]])}
    small, large = (definitions("05", **given)["three_ways"](power) for power in (0, 4))
    first = 1 / (1 + np.e)
    np.testing.assert_allclose(small[:2], [[first, 1 - first, 0]] * 2)
    assert small[2].sum() < 0.1  # the forbidden key took the rest
    np.testing.assert_array_equal(large, [[0, 1, 0], [0, 0, 1], [0, 0, 0]])
