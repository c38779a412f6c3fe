"""VectorPlane: what is dragged reaches the reader's function, and what it returns is shown."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
import traitlets

from course_utils import plots
from course_utils.widgets.vector_plane import MOST_BARS, VectorPlane
from course_utils.widgets.view import View

FIVE = ["I", "dropped", "my", "pencil", "lead"]
K_FIVE = np.array([[-2.2, 0.0], [-1.4, 2.5], [1.1, 1.0], [-1.9, -2.5], [2.0, -1.0]])


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def score(query):
    return K_FIVE @ query


def plane(function=score, **more):
    return VectorPlane(function, FIVE, K_FIVE, drag={"query": (1.0, 1.5)}, **more)


def sent(view):
    """The numbers of the bars as the browser receives them: a row for each group."""
    return np.frombuffer(view.values, dtype=np.float32).reshape(-1, len(view.row_names))


def drawn(view):
    return dict(zip(view.labels, np.frombuffer(view.points, dtype=np.float32).reshape(-1, 2).tolist(), strict=True))


def check_scores_follow(make):
    """The bars hold the dot products with the query where it stands *now*, and their softmax."""
    view = make()
    view.tips = [[0.5, 0.0]]  # as the browser does
    np.testing.assert_allclose(sent(view)[0], [-1.1, -0.7, 0.55, -0.95, 1.0], atol=1e-6)
    odds = np.exp([-1.1, -0.7, 0.55, -0.95, 1.0])
    np.testing.assert_allclose(sent(view)[1], odds / odds.sum(), atol=1e-6)


def test_scores_and_softmax_follow_the_dragged_query():
    check_scores_follow(plane)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda query: K_FIVE @ np.array([1.0, 1.5]),  # never looks at the hand
        lambda query: K_FIVE @ query[::-1],  # the two numbers exchanged
        lambda query: (K_FIVE @ query, np.full(5, 0.2)),  # weights that are no softmax
    ],
)
def test_a_wrong_score_is_caught(wrong):
    with pytest.raises(AssertionError):
        check_scores_follow(lambda: plane(wrong))


def test_one_move_is_one_call_with_the_last_value():
    calls = []

    def record(query):
        calls.append(query.tolist())
        return score(query)

    view = plane(record)
    assert calls == [[1.0, 1.5]]
    calls.clear()
    for k in range(200):
        view.tips = [[k / 100, -k / 100]]
    assert len(calls) == 200 and calls[-1] == [1.99, -1.99]
    np.testing.assert_allclose(sent(view)[0], K_FIVE @ [1.99, -1.99], atol=1e-5)


def test_the_functions_own_weights_are_shown():
    view = plane(lambda query: (score(query), np.array([0.1, 0.2, 0.3, 0.4, 0.0])))
    np.testing.assert_allclose(sent(view)[1], [0.1, 0.2, 0.3, 0.4, 0.0], atol=1e-7)
    assert [c[0] for c in view.columns] == ["scores", "weights"] and view.columns[1][1:3] == [0.0, 1.0]


def test_the_axis_of_the_bars_is_fixed_or_only_grows():
    view = plane(limit=6)
    view.move("query", (3, 3))
    assert view.columns[0][1:3] == [-6.0, 6.0]
    view = plane()
    small = view.columns[0][2]
    view.move("query", (9, 9))
    grown = view.columns[0][2]
    view.move("query", (0, 0))
    assert small == 10.0 and grown == 50.0 and view.columns[0][2] == 50.0


def test_a_word_is_dragged_and_a_dict_tells_numbers_places_and_sentences():
    words, places = ["man", "king", "queen"], np.array([[-1.0, 0.0], [-1.0, 3.0], [1.0, 3.0]])

    def look(king):
        apart = np.linalg.norm(places - king, axis=1)
        return {"nearest": words[apart.argmin()], "to queen": apart[2], "half": king / 2}

    view = VectorPlane(look, words, places, drag="king", arrows=False, directions={"to woman": (2, 0)})
    assert view.moving == [1] and view.roles == ["other", "query", "other", "added"]
    view.move("king", (0.5, 3.0))
    assert view.detail == "nearest: queen" and view.row_names == ["to queen"]
    np.testing.assert_allclose(sent(view), [[0.5]])
    assert drawn(view)["half"] == [0.25, 1.5]
    assert view.directions == [["to woman", 2.0, 0.0]]


def test_sliders_mix_values_and_place_the_mixture():
    corners = np.array([[1.0, 0.0], [-1.0, 0.5]])

    def mix(pencil=0.75):
        return {"mixture": pencil * corners[0] + (1 - pencil) * corners[1], "pencil": pencil, "dog": 1 - pencil}

    view = VectorPlane(mix, ["pencil", "dog"], corners, colors="value", title="weights", pencil=(0.0, 1.0))
    assert view.roles == ["value", "value", "added"] and drawn(view)["mixture"] == [0.5, 0.125]
    view.controls["pencil"].value = 0.25
    assert drawn(view)["mixture"] == [-0.5, 0.375]
    np.testing.assert_allclose(sent(view), [[0.25, 0.75]])
    assert view.columns == [["weights", 0.0, 1.0, "query"]]


def test_a_function_may_place_the_words():
    def turn(quarter=0):
        return np.array([[2.0, 0.0], [0.0, 1.0]]) @ [[[1, 0], [0, 1]], [[0, 1], [-1, 0]]][quarter]

    view = VectorPlane(turn, ["pencil", "lead"], quarter=(0, 1))
    view.controls["quarter"].value = 1
    assert drawn(view) == {"pencil": [0.0, 2.0], "lead": [-1.0, 0.0]}


def test_drag_and_sliders_reach_the_function_together():
    view = plane(lambda query, beta=1.0: beta * score(query), beta=(0.0, 4.0))
    view.controls["beta"].value = 2.0
    view.move("query", (1, 0))
    np.testing.assert_allclose(sent(view)[0], 2 * K_FIVE[:, 0], atol=1e-6)


def test_several_vectors_arrive_in_the_order_of_drag():
    view = VectorPlane(lambda q, k: {"q·k": q @ k}, ["lead"], [[2.0, 1.0]], drag={"query": (1, 3), "lead": (0, 4)})
    np.testing.assert_allclose(sent(view), [[12.0]])
    view.move("query", (5, 0.5))
    np.testing.assert_allclose(sent(view), [[2.0]])
    assert view.vectors["lead"].tolist() == [0.0, 4.0]


def check_projection(make):
    """The product in numbers: 3·2 + 4·1 = 10 = length 5 times shadow 2."""
    view = make()
    view.tips = [[3.0, 4.0]]
    assert "3.00·2.00 + 4.00·1.00 = 10.00" in view.detail
    assert "length of query 5.00 × shadow of lead on its line 2.00 = 10.00" in view.detail


def test_the_dot_product_is_told_as_a_projection():
    check_projection(lambda: VectorPlane([[2, 1]], ["lead"], drag={"query": (1, 0)}, against="lead"))
    with pytest.raises(AssertionError):  # another key has another shadow
        check_projection(lambda: VectorPlane([[1, 2]], ["lead"], drag={"query": (1, 0)}, against="lead"))


def test_hover_previews_and_the_held_word_stays():
    view = plane()
    assert view.detail == ""
    view.hover = "lead"
    assert "query · lead = 1.00·2.00 + 1.50·(-1.00) = 0.50" in view.detail
    view.against = "my"
    assert "query · my" in view.detail and "lead" not in view.detail
    view.against = view.hover = ""
    assert view.detail == ""
    view.against = "lead"
    view.move("query", (0, 0))
    assert "length 0" in view.detail


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (lambda: 1 / 0, "ZeroDivisionError"),
        (lambda: None, "end it with `return"),
        (lambda: np.array([1.0, np.nan, 0, 0, 0]), "NaN or infinity for dropped"),
        (lambda: np.zeros(4), "each of the 5 words, shape (5,); the function returned shape (4,)"),
        (lambda: np.zeros((4, 2)), "shape (5, 2); this array has shape (4, 2)"),
        (lambda: (np.zeros(5),) * 3, "returned 3 things"),
        (lambda: {"query": np.zeros(2)}, "dragged by hand"),
        (lambda: {"a": np.zeros(3)}, "'a' needs two numbers"),
        (lambda: {"a": np.nan}, "NaN or infinity for a"),
        (lambda: {str(i): i for i in range(MOST_BARS + 1)}, "return fewer"),
        (lambda: object(), "returned object"),
    ],
)
def test_an_error_is_told_in_words_and_the_next_good_value_recovers(bad, words):
    view = plane(lambda query: bad() if query[0] > 2 else score(query))
    before = sent(view)[0].copy()
    view.move("query", (3, 0))
    assert words in view.error and "query at (3.00, 0.00)" in view.error
    assert view.values == b""  # no bar of an older place stays
    assert words in view.alt()
    view.move("query", (1.0, 1.5))
    assert view.error == "" and np.array_equal(sent(view)[0], before)


def test_an_arrow_of_an_older_result_does_not_stay():
    view = plane(lambda query: {"twice": 2 * query} if query[0] < 2 else 1 / 0)
    assert drawn(view)["twice"] == [2.0, 3.0]
    view.move("query", (3, 0))
    assert np.isnan(drawn(view)["twice"]).all()
    assert view.error and "twice" not in [text.get_text() for text in view.figure().axes[0].texts]
    view.move("query", (1, 0))
    assert drawn(view)["twice"] == [2.0, 0.0]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: VectorPlane(K_FIVE, FIVE[:4]), r"each of the 4 words, shape \(4, 2\)"),
        (lambda: VectorPlane(K_FIVE, FIVE, K_FIVE), "given twice"),
        (lambda: VectorPlane(K_FIVE, FIVE, drag="query"), "'query' is to be dragged but is not among the words"),
        (lambda: VectorPlane(K_FIVE, FIVE, drag={"query": (1, 2, 3)}), "'query' needs two numbers"),
        (lambda: VectorPlane(K_FIVE, FIVE, colors=["key"]), "1 colours for 5 words"),
        (lambda: VectorPlane(K_FIVE, FIVE, colors="red"), "named by its role"),
        (lambda: VectorPlane(K_FIVE, FIVE, span=(1, -1)), "low < high"),
        (lambda: VectorPlane(K_FIVE, FIVE, against="lead"), "nothing is dragged"),
        (lambda: VectorPlane(K_FIVE, FIVE, beta=(0, 1)), "need a function"),
        (lambda: plane(beta=(0, 1)), "no argument of that name"),
        (lambda: plane().move("lead", (0, 0)), "'lead' is not dragged"),
    ],
)
def test_a_wrong_call_is_explained(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_scores_for_words_without_places_ask_for_points():
    view = VectorPlane(lambda query: [1.0, 2.0], ["a", "b"], drag={"query": (1, 0)})
    assert "give points" in view.error


def test_the_plane_has_room_and_a_step_that_suits_it():
    assert plane().area == [-3.5, 3.5, -3.5, 3.5] and plane().step == 0.1
    assert plane(span=(-4, 4)).area == [-4.0, 4.0, -4.0, 4.0]
    assert VectorPlane([[0.03, 0.1]], ["a"], arrows=False).step == pytest.approx(0.001)
    points = VectorPlane([[-1.0, 0.0], [1.0, 3.0]], ["man", "queen"], arrows=False).area
    assert points[1] - points[0] == pytest.approx(points[3] - points[2])  # a square: one scale for both
    assert points[0] < -1 and points[3] > 3


def test_picture_alt_and_saving(tmp_path):
    view = plane(against="my")
    assert repr(view) == "VectorPlane(5 words, drag query)"
    assert "query is at (1.00, 1.50)" in view.alt() and "weights: I 0.00, dropped 0.41" in view.alt()
    assert "my 2.60" in view.alt() and "-0.00" not in view.alt()
    assert 'alt="Plane with 5 words' in view.still_html()
    for name in ("view.svg", "view.png"):
        view.save(tmp_path / name)
        assert (tmp_path / name).stat().st_size > 5000
    view.move("query", (0, 0))  # an arrow without length is drawn too
    view.save(tmp_path / "zero.png")
    axes = view.figure().axes
    assert axes[0].get_xlim() == (-3.5, 3.5) and axes[0].get_aspect() == 1.0
    np.testing.assert_allclose([bar.get_width() for bar in axes[2].patches], [0.2] * 5)


@pytest.mark.parametrize("odd", ["<script>", "a$b", "$x$ $", "😀", ""])
def test_odd_words_are_drawn_as_typed(odd):
    view = VectorPlane(lambda q: {odd: 1.0, "said": odd}, [odd], [[1.0, 2.0]], drag={"query": (1, 1)}, against=odd)
    assert view.labels[0] == odd
    assert plots.picture(view.figure(), view.alt()).png


def test_no_trait_hides_one_of_the_widgets_own():
    own = {name for name, trait in vars(VectorPlane).items() if isinstance(trait, traitlets.TraitType)}
    assert {"tips", "values"} <= own and not own - {"_esm"} & set(dir(View))
