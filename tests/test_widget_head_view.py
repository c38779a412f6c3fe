"""HeadView: layers and heads as two axes, and one head as lines between two sentences."""

import time

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

from course_utils.widgets.head_view import FAINT, MOST_LINES, HeadView

QUERIES, KEYS = ["zwei", "und", "vierzig"], ["<s>", "forty", "two", "."]


def weights(*shape, seed=0):
    made = np.exp(2 * np.random.default_rng(seed).normal(size=shape))
    return made / made.sum(-1, keepdims=True)


def lines(view):
    return np.frombuffer(view.lines, np.float32).reshape(-1, 3)


@pytest.fixture
def cross():
    return weights(2, 3, 3, 4)


def check_chosen(view, w):
    """The lines of (layer, head) are its weights, queries first; a chosen query or key has its own alone."""
    for layer, head in [(1, 2), (0, 1)]:
        view.layer, view.head, view.held = layer, head, []
        grid = w[layer, head]
        expected = {(i, j) for i, j in np.ndindex(grid.shape) if grid[i, j] >= FAINT}
        assert {(int(i), int(j)) for i, j, _ in lines(view)} == expected
        for i, j, weight in lines(view):
            assert weight == pytest.approx(grid[int(i), int(j)], abs=1e-6)
        view.held = ["query", 2]
        np.testing.assert_allclose(np.frombuffer(view.given, np.float32), grid[2], atol=1e-6)
        assert set(lines(view)[:, 0]) == {2}
        view.held = ["key", 3]
        np.testing.assert_allclose(np.frombuffer(view.given, np.float32), grid[:, 3], atol=1e-6)
        assert set(lines(view)[:, 1]) == {3}


def test_lines_of_the_chosen_head_and_token(cross):
    check_chosen(HeadView(cross, QUERIES, KEYS), cross)


def test_layers_taken_for_heads_are_caught(cross):
    swapped = np.concatenate([cross, cross[:1]]).swapaxes(0, 1)  # (3, 3): heads down, layers across
    with pytest.raises(AssertionError):
        check_chosen(HeadView(swapped, QUERIES, KEYS), cross)


def test_the_detail_names_query_key_and_weight():
    w = np.zeros((1, 1, 3, 4))
    w[0, 0] = [[0.7, 0.3, 0, 0], [0, 0, 0.25, 0.75], [0, 0.9, 0.1, 0]]
    view = HeadView(w, QUERIES, KEYS)
    assert view.detail.startswith("Layer 0, head 0. Largest: vierzig to forty 0.90, und to . 0.75, zwei to <s> 0.70.")
    view.hover = ["query", 1]
    assert view.detail == "Layer 0, head 0: query und gives . 0.75, two 0.25."
    view.held = ["key", 1]
    view.hover = ["query", 0]  # what is held stays
    assert view.detail == "Layer 0, head 0: key forty gets from vierzig 0.90, zwei 0.30."
    view.held, view.hover = [], []
    assert "weights of 0.10 and more" in view.detail and len(lines(view)) == 6


def test_small_grids_keep_one_bright_cell_of_a_long_sentence():
    w = np.zeros((2, 3, 100, 70))
    w[1, 2, 57, 69] = 1.0
    view = HeadView(w, range(100), range(70))
    assert view.small_shape == [2, 3, 24, 24]
    small = np.frombuffer(view.small, np.uint8).reshape(view.small_shape)
    assert np.argwhere(small == 255).tolist() == [[1, 2, 57 * 24 // 100, 23]]


@pytest.mark.parametrize(
    ("given", "shape"),
    [
        (weights(3, 5, 5), [1, 3]),
        (torch.tensor(weights(2, 3, 5, 5), requires_grad=True), [2, 3]),
        ([torch.tensor(weights(1, 3, 5, 5))] * 4, [4, 3]),  # what attention_maps returns for one sentence
        (weights(2, 1, 3, 5, 5), [2, 3]),
    ],
)
def test_accepted_forms(given, shape):
    assert HeadView(given, "abcde").small_shape[:2] == shape


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (weights(5, 5), r"\(n_heads, 5, 5\).*shape is \(5, 5\)"),
        (weights(2, 3, 5, 4), "5 queries and 5 keys"),
        (weights(2, 4, 5), r"shape is \(2, 4, 5\)"),
        (weights(2, 3, 4, 5, 5), "one sentence of a batch"),
        (np.full((1, 5, 5), np.nan), "NaN"),
        (-3 * weights(1, 5, 5), "after softmax"),
        ([weights(2, 5, 5), weights(3, 5, 5)], "layers differ"),
    ],
)
def test_what_does_not_fit_is_told(given, words):
    with pytest.raises(ValueError, match=words):
        HeadView(given, "abcde")


def test_a_head_that_is_not_there():
    with pytest.raises(ValueError, match="no layer 2: there are 2. Give a number from 0 to 1"):
        HeadView(weights(2, 3, 5, 5), "abcde", layer=2)
    view = HeadView(weights(2, 3, 5, 5), "abcde", layer=1)
    with pytest.raises(ValueError, match="no head 3"):
        view.head = 3


def test_a_function_under_a_slider_and_its_errors():
    steps = [weights(2, 2, 5, 5, seed=s) for s in range(3)]
    view = HeadView(lambda step=0: steps[step] if step < 2 else steps[step][0, 0], "abcde", step=(0, 2))
    view.held = ["query", 4]
    view.controls["step"].value = 1
    np.testing.assert_allclose(np.frombuffer(view.given, np.float32), steps[1][0, 0, 4], atol=1e-6)
    view.controls["step"].value = 2
    assert "(5, 5)" in view.error
    view.controls["step"].value = 0
    assert view.error == ""


def test_long_sentences_are_quick_and_their_lines_few():
    w = weights(2, 4, 512, 512).astype(np.float32)
    begin = time.process_time()
    view = HeadView(w, range(512))
    view.head = 3
    view.hover = ["query", 300]
    assert time.process_time() - begin < 1.0
    assert 0 < len(lines(view)) <= MOST_LINES and len(view.given) == 4 * 512
    view.hover = []
    assert len(lines(view)) == MOST_LINES and f"the {MOST_LINES} largest" in view.detail
    shown = lines(view)[:, 2]
    assert shown.min() >= np.sort(w[0, 3], axis=None)[-MOST_LINES]


def test_alt_and_repr(cross):
    view = HeadView(cross, QUERIES, KEYS, layer=1, head=2)
    assert repr(view) == "HeadView(2 x 3 heads, 3 queries x 4 keys, layer=1, head=2)"
    assert view.alt().startswith("Attention weights, 2 layers of 3 heads, 3 queries by 4 keys. In layer 1, head 2: ")
    view.held = ["key", 0]
    assert "key <s> gets from" in view.alt()
    assert "&lt;s&gt;" in view.still_html() and "<s>" not in view.still_html()


def test_the_picture_draws_the_chosen_lines_and_tokens(cross, tmp_path):
    view = HeadView(cross, QUERIES, ["🙂", "$x$", "\ud83d", "two"])
    view.held = ["query", 1]
    figure = view.figure()
    (drawn,) = figure.axes[1].collections
    assert len(drawn.get_segments()) == len(lines(view))
    bold = [text.get_text() for text in figure.axes[1].texts if text.get_fontweight() == "bold"]
    assert bold == ["und"]
    plt.close(figure)
    for ending in ("svg", "png"):
        view.save(tmp_path / f"heads.{ending}")
        assert (tmp_path / f"heads.{ending}").stat().st_size > 3000
