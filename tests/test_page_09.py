"""What page 09 defines, tried on sizes the page does not show; each check is proved able to fail."""

import math

import numpy as np
import pytest
import torch

import course_utils
from course_utils import attention, plots, shifted_seed
from course_utils.model import GPT, GPTConfig, rotate
from page_code import definitions, verdict

torch.set_num_threads(1)
NUMBERS = np.random.default_rng(shifted_seed(9))
X, W_Q, W_K, W_V = (NUMBERS.normal(size=shape) for shape in ((7, 5), (5, 4), (5, 4), (5, 3)))


@pytest.fixture(scope="module")
def page():
    names = dict(
        X=X, W_Q=W_Q, W_K=W_K, W_V=W_V, places=np.zeros((7, 5)), orders={"last first": np.roll(np.arange(11), 1)}
    )
    return definitions("09", **names)


# -- order and masks --


def check_equivariance(head):
    order = np.array([3, 0, 6, 1, 5, 2, 4])
    (output, weights), (new_output, new_weights) = head(X), head(X[order])
    assert output.shape == (7, 3) and weights.shape == (7, 7)
    np.testing.assert_allclose(new_output, output[order])
    np.testing.assert_allclose(new_weights, weights[np.ix_(order, order)])


def test_a_head_without_a_mask_is_equivariant(page):
    check_equivariance(page["head"])


def test_the_causal_head_and_a_head_with_positions_are_not(page):
    with pytest.raises(AssertionError):
        check_equivariance(lambda X: page["head"](X, causal=True))
    with pytest.raises(AssertionError):
        check_equivariance(lambda X: page["head"](X + attention.positional_encoding(7, 5)))


def test_a_causal_head_hears_a_bag_of_earlier_tokens(page):
    shuffled = X[[4, 2, 0, 5, 1, 3, 6]]
    outputs = [page["head"](x, causal=True)[0] for x in (X, shuffled)]
    np.testing.assert_allclose(outputs[0][-1], outputs[1][-1])
    assert not np.allclose(outputs[0][-2], outputs[1][-2])


def test_moves_along_tells_the_two_apart(page):
    order = np.array([1, 0, 2, 3, 4, 5, 6])
    assert page["moves_along"](order, causal=False) and not page["moves_along"](order, causal=True)
    assert page["moves_along"](np.arange(7), causal=True)


def test_shuffled_shows_the_grid_of_the_shuffled_sentence():
    words = NUMBERS.normal(size=(11, 5))
    order = np.roll(np.arange(11), 3)
    page = definitions("09", X=words, W_Q=W_Q, W_K=W_K, W_V=W_V, orders={"as written": np.arange(11), "rolled": order})
    for causal in (False, True):
        grid, mask = page["shuffled"]("rolled", causal)
        expected = attention.attention(words[order] @ W_Q, words[order] @ W_K, words[order] @ W_V, mask)[1]
        np.testing.assert_allclose(grid, expected)
        assert mask.all() != causal


def test_the_names_move_with_the_words():
    words = [f"w{i}" for i in range(11)]
    names = dict(X=NUMBERS.normal(size=(11, 5)), W_Q=W_Q, W_K=W_K, W_V=W_V, words=words)
    page = definitions("09", **names, orders={"as written": np.arange(11), "backwards": np.arange(11)[::-1]})
    view = page["shuffle_view"]()
    view.controls["order"].value = "backwards"
    assert view.query_names == view.key_names == words[::-1] and view.error == ""
    view.controls["order"].value = "as written"
    assert view.query_names == words


# -- the table --


def check_table(encode):
    # by hand: a cosine has the exponent of its own sine, and stands beside it
    np.testing.assert_allclose(encode(2, 4)[1], [0.841471, 0.540302, 0.0099998, 0.99995], atol=1e-6)
    for T, d_model in ((1, 2), (9, 6), (130, 32)):
        np.testing.assert_allclose(encode(T, d_model), attention.positional_encoding(T, d_model))


def test_encode(page):
    check_table(page["encode"])
    check_table(page["encode_odd"])


@pytest.mark.parametrize("wrong", ["slipped", "halves_slow"])
def test_a_wrong_exponent_and_another_order_are_caught(page, wrong):
    with pytest.raises(AssertionError):
        check_table(page[wrong])


@pytest.mark.parametrize("d_model", [1, 3, 7, 33])
def test_an_odd_d_model(page, d_model):
    np.testing.assert_allclose(page["encode_odd"](6, d_model), attention.positional_encoding(6, d_model))
    if d_model > 1:
        assert not np.allclose(page["encode_any"](6, d_model), attention.positional_encoding(6, d_model))
        with pytest.raises(ValueError):
            page["encode"](6, d_model)


def test_hands_are_the_row(page):
    np.testing.assert_allclose(np.ravel(page["hands"](11, 6)), attention.positional_encoding(12, 6)[11])


# -- the shift --


def check_shift(shift_matrix):
    table = attention.positional_encoding(60, 10)
    for k in (1, 4, 17):
        M = shift_matrix(k, 10)
        np.testing.assert_allclose(table[:-k] @ M.T, table[k:], atol=1e-10)
        np.testing.assert_allclose(M @ M.T, np.eye(10), atol=1e-12)
    assert math.isclose(shift_matrix(1, 2)[0, 1], math.sin(1))


def test_shift_matrix(page):
    check_shift(page["shift_matrix"])


def test_a_shift_to_the_other_side_and_one_speed_for_all_are_caught(page):
    def one_speed(k, d_model):
        return np.kron(np.eye(d_model // 2), page["shift_matrix"](k, 2))

    for wrong in (lambda k, d: page["shift_matrix"](-k, d), one_speed, lambda k, d: np.eye(d)):
        with pytest.raises(AssertionError):
            check_shift(wrong)


def test_look_back(page):
    grid, mask = page["look_back"](4, sharpness=8.0, T=90)
    assert (grid.argmax(axis=1)[4:] == np.arange(86)).all() and not grid[~mask].any()
    level = page["look_back"](4, sharpness=0.0, T=5)[0]
    np.testing.assert_allclose(level[3], [0.25, 0.25, 0.25, 0.25, 0])


# -- adding --


def test_score_parts_add_up_and_know_their_names(page):
    x, p, A = X, attention.positional_encoding(7, 5), NUMBERS.normal(size=(5, 5))
    parts = page["score_parts"](x, p, A)
    np.testing.assert_allclose(sum(parts.values()), (x + p) @ A @ (x + p).T)
    assert not page["score_parts"](x, 0 * p, A)["place, word"].any()
    np.testing.assert_allclose(page["score_parts"](x, p, A)["word, place"][2, 3], x[2] @ A @ p[3])


def test_mean_cosine_shrinks_with_d(page):
    for d in (16, 64, 256):
        assert abs(page["mean_cosine"](d, n=2000) * math.sqrt(d) - math.sqrt(2 / math.pi)) < 0.08


def test_with_places_tells_twins_apart():
    words = np.array([[1.0, 0, 0, 0], [0, 1, 0, 0], [1, 0, 0, 0]])
    page = definitions("09", X=words, places=attention.positional_encoding(3, 4))
    np.testing.assert_allclose(*page["with_places"](0.0)[[0, 2]])
    assert not np.allclose(*page["with_places"](1.0)[[0, 2]])


# -- rotary --


def check_turn(turn):
    np.testing.assert_allclose(
        turn(np.array([[1.0, 0, 0, 2]]), start=1)[0], [0.540302, 0.841471, -0.02, 1.9999], atol=1e-4
    )
    for T, d_k, start in ((5, 2, 0), (9, 6, 3)):
        x = NUMBERS.normal(size=(T, d_k))
        np.testing.assert_allclose(turn(x, start), rotate(torch.tensor(x), start).numpy(), atol=1e-12)


def test_turn(page):
    check_turn(page["turn"])


def test_turning_backwards_and_forgetting_the_start_are_caught(page):
    def backwards(x, start=0):
        return page["turn"](x[:, ::-1].copy(), start)[:, ::-1]

    for wrong in (backwards, lambda x, start=0: page["turn"](x), lambda x, start=0: page["turn_halves_slow"](x)):
        with pytest.raises(AssertionError):
            check_turn(wrong)


def check_distance_alone(scores):
    q, k = NUMBERS.normal(size=(2, 8, 6))
    np.testing.assert_allclose(scores(q, k, 0), scores(q, k, 37), atol=1e-9)
    assert not np.allclose(scores(q, k, 0), q @ k.T)


def test_rotary_scores_depend_on_the_distance_alone(page):
    check_distance_alone(page["rotary_scores"])


def test_unturned_keys_and_no_turning_are_caught(page):
    with pytest.raises(AssertionError):
        check_distance_alone(lambda q, k, start: page["rotary_scores"](q, k, start, turn_keys=False))
    with pytest.raises(AssertionError):
        check_distance_alone(lambda q, k, start: q @ k.T)


def test_turned_pair(page):
    q, k = np.array([1.0, 0.5]), np.array([-0.3, 2.0])
    scores = [page["turned_pair"](q, k, query_at, 5)["score"] for query_at in (0, 9, 20)]
    np.testing.assert_allclose(scores, q @ page["spin"](k, -1.5))
    moved = [page["turned_pair"](q, k, query_at, 5, turn_keys=False)["score"] for query_at in (0, 9)]
    assert abs(moved[0] - moved[1]) > 0.1
    np.testing.assert_allclose(page["spin"](q, math.pi / 2), [-0.5, 1.0], atol=1e-12)


# -- beyond the trained length --


def test_recaller_without_positions_cannot_see_the_order(page):
    ids = torch.tensor([[3, 1, 4, 1, 5]])
    for kind in ("none", "learned", "sinusoidal", "rotary"):
        course_utils.seed(2)
        model = page["Recaller"](kind, d_model=8)
        logits = [model(ids[:, order])[0, -1] for order in ([0, 1, 2, 3, 4], [2, 0, 3, 1, 4])]
        assert torch.allclose(*logits, atol=1e-5) == (kind == "none")
        assert torch.allclose(model(ids[:, :3]), model(ids)[:, :3], atol=1e-5)  # the future is masked


def test_the_learned_table_ends(page):
    for kind in ("none", "sinusoidal", "rotary"):
        assert page["Recaller"](kind, d_model=8, max_len=4)(torch.zeros(1, 5, dtype=torch.long)).shape == (1, 5, 8)
    with pytest.raises(ValueError, match="Cut the text to 4 tokens .it has 5."):
        page["Recaller"]("learned", d_model=8, max_len=4)(torch.zeros(1, 5, dtype=torch.long))
    with pytest.raises(ValueError, match="too long"):
        GPT(GPTConfig(vocab_size=5, max_len=4))(torch.zeros(1, 5, dtype=torch.long))


class Oracle(torch.nn.Module):
    """Names the token `back` places back, with certainty."""

    def __init__(self, back):
        super().__init__()
        self.back = back

    def forward(self, ids):
        return torch.nn.functional.one_hot(ids.roll(self.back, dims=1), 8).float()


def test_share_right(page):
    share = page["share_right"](Oracle(3), 20)
    assert share.shape == (17,) and (share == 1).all()
    assert page["share_right"](Oracle(2), 20, n=400).mean() < 0.2  # one back too few: chance


def check_ranking(share_right, recallers):
    outside = {kind: share_right(model, 32)[13:].mean() for kind, model in recallers.items()}
    for kind in ("learned", "sinusoidal", "rotary"):
        assert share_right(recallers[kind], 16).min() > 0.95
    assert share_right(recallers["none"], 16).mean() < 0.5
    assert outside["learned"] < 0.3 and outside["sinusoidal"] < 0.75 < 0.85 < outside["rotary"]


@pytest.mark.slow
@pytest.mark.parametrize("shift", [11, 12])
def test_the_ranking_holds_from_other_random_starts(page, monkeypatch, shift):
    monkeypatch.setenv("COURSE_SEED_SHIFT", str(shifted_seed(shift)))
    recallers = {kind: page["train_recaller"](kind) for kind in ("none", "learned", "sinusoidal", "rotary")}
    check_ranking(page["share_right"], recallers)
    with pytest.raises(AssertionError):
        check_ranking(page["share_right"], recallers | {"rotary": recallers["sinusoidal"]})


# -- counting with the mask --


def check_start_share(start_share):
    np.testing.assert_allclose(start_share(5), [1, 1 / 2, 1 / 3, 1 / 4, 1 / 5])


def test_start_share(page):
    check_start_share(page["start_share"])
    np.testing.assert_allclose(page["start_share"](4, causal=False), [0.25] * 4)
    assert page["count_start"](3) == pytest.approx({"<start>": 1, "1": 1 / 2, "2": 1 / 3})


def test_counting_without_a_mask_is_caught(page):
    with pytest.raises(AssertionError):
        check_start_share(lambda T: page["start_share"](T, causal=False))


# -- exercises: each loop has a solution, and `compare` tells right from wrong --


def halves(T, d_model):
    table = attention.positional_encoding(T, d_model)
    return np.concatenate([table[:, 0::2], table[:, 1::2]], axis=1)


def locate(noisy, table):
    return (noisy @ table.T).argmax(axis=1)


def turn_halves(x):
    T, d_k = x.shape
    angles = np.arange(T)[:, None] * 10000.0 ** (-np.arange(0, d_k, 2) / d_k)
    a, b = np.split(x, 2, axis=1)
    return np.concatenate([a * np.cos(angles) - b * np.sin(angles), a * np.sin(angles) + b * np.cos(angles)], axis=1)


def share_of(word, words):
    mask = attention.causal_mask(len(words))
    return (mask / mask.sum(axis=1, keepdims=True)) @ np.array([w == word for w in words])


def test_exercises_can_be_solved(page):
    table, x = attention.positional_encoding(80, 16), NUMBERS.normal(size=(6, 8))
    assert "equal to" in verdict(halves, page["halves_slow"], (4, 8), (9, 2))
    assert "other numbers" in verdict(attention.positional_encoding, page["halves_slow"], (4, 8))
    assert "equal to" in verdict(locate, page["locate_slow"], (table[[60, 3, 41, 0]] + 0.05, table))
    assert "equal to" in verdict(turn_halves, page["turn_halves_slow"], (x,))
    assert "other numbers" in verdict(page["turn"], page["turn_halves_slow"], (x,))
    assert "equal to" in verdict(share_of, page["share_of_slow"], ("b", ["a", "b", "b", "c"]))
    np.testing.assert_allclose(page["share_of_slow"]("b", ["a", "b", "b", "c"]), [0, 1 / 2, 2 / 3, 1 / 2])
    for stub in ("halves", "locate", "turn_halves", "share_of"):
        nothing = [None] * page[stub].__code__.co_argcount
        assert verdict(page[stub], lambda *_: 0, nothing) == f"{stub}: not written yet\n"


# -- pictures --


@pytest.mark.parametrize(
    "call, says",
    [
        ("clocks(0)", "(0.00, 1.00), (0.00, 1.00)"),
        ("table_at(1, 4)", "position 1 begins 0.84, 0.54, 0.01, 1.00"),
        ("table_at(2, 5)", "100 positions and 5 columns"),
        ("hill(7, 8)", "highest 4.0 at 7"),
    ],
)
def test_pictures_say_what_they_show(page, call, says):
    picture = eval(call, page)
    assert isinstance(picture, plots.Picture) and says in picture.alt


def test_the_picture_of_a_trained_model_says_how_often_it_is_right():
    class Seen(Oracle):
        def forward(self, ids):
            self.weights = torch.eye(ids.shape[1])[None]
            return super().forward(ids)

    page = definitions("09", recallers={"oracle": Seen(3)})
    assert "oracle, texts of 20 tokens: 1.00 right up to place 15, 1.00 beyond" in page["beyond"]("oracle", 20).alt
    assert "beyond" not in page["beyond"]("oracle", 12).alt
