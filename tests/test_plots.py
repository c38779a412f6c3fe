"""Figures are tested by their artists: nbval cannot compare pixels."""

import re

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

from course_utils import plots

ONE = np.zeros((3, 4))
ONE[0, 2] = 1.0  # query 0 looks at key 2: an asymmetric grid shows swapped axes
QUERIES, KEYS = ["a", "b", "c"], ["w", "x", "y", "z"]


@pytest.fixture(autouse=True)
def no_figure_stays_open():
    yield
    plt.close("all")


def check_layout(heatmap):
    ax = heatmap(ONE, QUERIES, KEYS)
    assert "query" in ax.get_ylabel() and "key" in ax.get_xlabel()
    assert [t.get_text() for t in ax.get_yticklabels()] == QUERIES
    assert [t.get_text() for t in ax.get_xticklabels()] == KEYS
    drawn = ax.collections[0].get_array().reshape(3, 4)
    assert np.argmax(drawn) == 2
    assert ax.get_ylim()[0] > ax.get_ylim()[1]  # row 0 on top
    assert [t.get_text() for t in ax.texts].index("1.00") == 2


def test_heatmap_layout():
    check_layout(plots.heatmap)


def test_swapped_axes_are_caught():
    with pytest.raises((AssertionError, ValueError)):
        check_layout(lambda w, q, k: plots.heatmap(np.asarray(w).T, k, q))


def test_colour_limits_do_not_follow_the_values():
    for scale in (0.1, 0.9):
        assert plots.heatmap(ONE * scale, QUERIES, KEYS).collections[0].get_clim() == (0, 1)
    assert plots.heatmap(ONE * 3, QUERIES, KEYS, kind="scores", limit=5).collections[0].get_clim() == (-5, 5)
    assert plots.heatmap(ONE * -3, QUERIES, KEYS, kind="scores").collections[0].get_clim() == (-3, 3)


def test_masked_scores_are_hatched_and_leave_the_limits_alone():
    scores = np.arange(16.0).reshape(4, 4)
    mask = np.tril(np.ones((4, 4), bool))
    for given in ({"mask": mask}, {}):
        values = scores if given else np.where(mask, scores, -np.inf)
        ax = plots.heatmap(values, KEYS, KEYS, kind="scores", **given)
        assert ax.collections[0].get_clim() == (-15, 15)
        assert len(ax.texts) == 10
        assert sum(p.get_hatch() is not None for p in ax.patches) == 6


def test_repeated_tokens_keep_their_columns():
    words = ["the", "cat", "the"]
    ax = plots.heatmap(np.arange(9).reshape(3, 3) / 10, words, words)
    assert len(ax.texts) == 9
    assert [t.get_text() for t in ax.get_xticklabels()] == words


def test_numbers_of_any_kind():
    for values in (torch.eye(3, requires_grad=True), np.eye(3, dtype=int), np.eye(3).tolist()):
        assert plots.heatmap(values, QUERIES, QUERIES).texts[0].get_text() == "1.00"
    texts = plots.heatmap(np.full((3, 3), -0.001), QUERIES, QUERIES, kind="scores").texts
    assert {t.get_text() for t in texts} == {"0.00"}


def test_large_grids_have_no_numbers():
    ax = plots.heatmap(np.eye(17), ["t"] * 17, ["t"] * 17)
    assert not ax.texts


def test_odd_tokens_draw_without_a_warning():
    odd = ["$_$", "$$", "_", " ", "\n", "\\", "<b>", ""]
    figures = [
        plots.heatmap(np.eye(8), odd, odd).figure,
        plots.blobs(np.eye(8), odd, odd).figure,
        plots.bars(np.ones(8), odd).figure,
        plots.tokens(odd, range(8)).figure,
        plots.plane(np.ones((8, 2)), odd).figure,
    ]
    for figure in figures:
        plots.picture(figure, alt="odd tokens are drawn as they are typed")
    assert plots.label(" ") == "␣" and plots.label("\n") == "⏎" and plots.label(" lead") == "␣lead"


def test_blobs_turn_with_the_layout():
    rows, article = plots.blobs(ONE, QUERIES, KEYS), plots.blobs(ONE, QUERIES, KEYS, layout="article")
    assert max(rows.patches, key=lambda p: p.radius).center == (2.5, 0.5)
    assert max(article.patches, key=lambda p: p.radius).center == (0.5, 2.5)
    assert "query" in rows.get_ylabel() and "query" in article.get_xlabel()


def test_blob_area_is_the_weight():
    big, small = (p.radius for p in plots.blobs([[0.8, 0.2]], ["q"], ["k", "l"]).patches)
    assert (small / big) ** 2 == pytest.approx(0.25)


def test_wrong_shapes_are_explained():
    with pytest.raises(ValueError, match="3 queries and 3 keys"):
        plots.heatmap(ONE, QUERIES, QUERIES)
    with pytest.raises(ValueError, match=r"weights\[0, 0\]"):
        plots.heatmap(np.zeros((1, 2, 3, 4)), QUERIES, KEYS)
    with pytest.raises(ValueError, match="True = may attend"):
        plots.heatmap(ONE, QUERIES, KEYS, mask=np.ones((3, 4)))
    with pytest.raises(ValueError, match="two numbers"):
        plots.plane(np.ones((3, 3)), QUERIES)
    with pytest.raises(ValueError, match="one number for each"):
        plots.bars([1, 2], QUERIES)


def test_picture_carries_its_sentence_and_closes_the_figure():
    figure, ax = plt.subplots()
    shown = plots.picture(figure, alt='the word "lead" & 0.40 of the weight')
    assert 'alt="the word &quot;lead&quot; &amp; 0.40 of the weight"' in shown._repr_html_()
    assert repr(shown) == 'the word "lead" & 0.40 of the weight'
    assert not plt.get_fignums()
    with pytest.raises(ValueError, match="sentence"):
        plots.picture(plt.figure(), alt="figure")


def test_pictures_are_opaque():
    from io import BytesIO

    from PIL import Image

    png = plots.picture(plots.bars([1.0], ["a"]).figure, alt="one bar, from zero to one").png
    pixels = Image.open(BytesIO(png)).convert("RGBA")
    assert pixels.getpixel((0, 0))[3] == 255 and min(pixels.getpixel((0, 0))[:3]) > 230


def test_floors_are_drawn_and_their_names_keep_apart():
    floors = {"one": 1.27, "two": 1.21, "three": 1.14}
    ax = plots.loss_curve([0, 10], [4.0, 1.0], [4.1, 1.1], floors, mark=9)
    assert sorted(round(float(line.get_ydata()[0]), 2) for line in ax.lines if line.get_linestyle() == "--") == [
        1.14,
        1.21,
        1.27,
    ]
    heights = sorted(t.xyann[1] for t in ax.texts)
    assert np.diff(heights).min() > 0.1
    assert re.match(r"1.27\s+one", ax.texts[-1].get_text())
