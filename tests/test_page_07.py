"""What page 07 defines, tried on sizes the page does not show; each check is proved able to fail."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import course_utils
from course_utils import data, plots, train
from page_code import definitions

torch.set_num_threads(1)
STORIES = data.PencilStories()
TRUE_PROBS = np.array([0.6, 0.25, 0.15])
ARTICLE = torch.tensor([0.09, 0.12, 0.29, 0.10, 0.40], dtype=torch.float64)
STORY = "I just dropped my mechanical pencil I can't believe my lead broke".split()


@pytest.fixture(scope="module")
def page():
    lengths = np.full(13, 12)
    return definitions(
        "07",
        outcomes=["broke", "snapped", "crumbled", "sank", "shrank"],
        logits=np.array([2.0, 1.0, 0.5, -1.0, -1.0]),
        true_probs=TRUE_PROBS,
        entropy=-(TRUE_PROBS * np.log(TRUE_PROBS)).sum(),
        stories=STORIES,
        vocab_size=STORIES.tokenizer.vocab_size,
        X=torch.eye(5, dtype=torch.float64),
        article=ARTICLE,
        five=["I", "dropped", "my", "pencil", "lead"],
        learned={1: (np.array([[0.2] * 5, ARTICLE.numpy()]), None)},
        read=["<start>", *STORY],
        say=[*STORY, "<end>"],
        widths=lengths,
        middle=np.cumsum(lengths) - 6,
        supplies={"2": ["a b c", "d e f g h"], "unlimited": None},
        histories={name: (np.linspace(5, 1, 300), np.linspace(5, 2, 15)) for name in ("2", "unlimited")},
        grammar_mark=0.7,
    )


# -- the loss --


def check_mean_loss(mean_loss):
    np.testing.assert_allclose(mean_loss(np.log([[1.0, 3.0], [1.0, 1.0]]), [1, 0]), -np.log([0.75, 0.5]).mean())
    rng = np.random.default_rng(1)
    logits, targets = rng.normal(size=(7, 4)), rng.integers(4, size=7)
    np.testing.assert_allclose(mean_loss(logits, targets), F.cross_entropy(*map(torch.tensor, (logits, targets))))


def test_mean_loss(page):
    check_mean_loss(page["mean_loss"])


def test_wrong_losses_are_caught(page):
    def twice(logits, targets):
        return page["loss_with_softmax_twice"](torch.tensor(logits), torch.tensor(targets)).numpy()

    def over_positions(logits, targets):
        probs = np.exp(logits) / np.exp(logits).sum(axis=0)
        return -np.log(probs[np.arange(len(targets)), targets]).mean()

    def log_of_mean(logits, targets):
        probs = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        return -np.log(probs[np.arange(len(targets)), targets].mean())

    for wrong in (twice, over_positions, log_of_mean):
        with pytest.raises(AssertionError):
            check_mean_loss(wrong)


def test_softmax_twice_has_the_floor_of_the_page(page):
    for size in (3, 27, 65):  # 27: 2.3575, 65: 3.2005
        perfect = 200 * torch.eye(size, dtype=torch.float64)
        loss = page["loss_with_softmax_twice"](perfect, torch.arange(size)).item()
        assert math.isclose(loss, math.log(math.e + size - 1) - 1)


def check_expected_loss(expected_loss):
    true = np.array([0.3, 0.5, 0.2])
    said = np.linspace(0.01, 0.99, 99)
    losses = [expected_loss(s, true) for s in said]
    assert np.isclose(said[np.argmin(losses)], 0.3)
    np.testing.assert_allclose(min(losses), -(true * np.log(true)).sum(), atol=1e-9)


def test_expected_loss_is_lowest_for_the_truth(page):
    check_expected_loss(page["expected_loss"])


def test_a_loss_of_the_first_word_alone_rewards_bluffing_and_is_caught():
    with pytest.raises(AssertionError):
        check_expected_loss(lambda says, true: -true[0] * np.log(says))


def test_grammar_loss_is_a_mean_over_tokens(page):
    one, two = STORIES.sample(2)
    nats = STORIES.surprisal(one) + STORIES.surprisal(two)
    assert math.isclose(page["grammar_loss"]([one, two]), sum(nats) / len(nats))


# -- steps downhill --


def check_descend(descend):
    sigmoid = 1 / (1 + math.exp(-1.5))
    np.testing.assert_allclose(descend(2.0, start=1.5, steps=1), [1.5, 1.5 - 2 * (sigmoid - 0.6)])
    assert abs(descend(3.0, start=2.0, steps=40)[-1] - math.log(1.5)) < 1e-6
    assert len(descend(0.1, steps=7)) == 8


def test_descend(page):
    check_descend(page["descend"])


def test_climbing_and_a_start_left_out_are_caught(page):
    with pytest.raises(AssertionError):
        check_descend(lambda lr, **rest: page["descend"](-lr, **rest))
    with pytest.raises(AssertionError):
        check_descend(lambda lr, **rest: page["descend"](lr, **rest)[1:])


def test_hill_has_its_bottom_where_the_model_says_the_truth(page):
    line = np.linspace(-3, 3, 601)
    heights = [page["hill"](z) for z in line]
    assert abs(line[np.argmin(heights)] - math.log(1.5)) < 0.01
    assert math.isclose(page["hill"](0.0), math.log(2))


# -- W_Q and W_K, learned --


def check_learn_row(learn_row, target, d_k):
    course_utils.seed(1)
    rows, grid = learn_row(target, d_k, steps=400)
    assert rows.shape == (401, 5) and grid.shape == (5, 5)
    np.testing.assert_allclose(rows.sum(axis=1), 1)
    np.testing.assert_allclose(grid.sum(axis=1), 1)
    assert np.abs(rows[-1] - target.numpy()).max() < 0.005 < np.abs(rows[0] - target.numpy()).max()
    np.testing.assert_array_equal(rows[-1], grid[3])


@pytest.mark.parametrize("d_k", [1, 3, 5])
def test_learn_row(page, d_k):
    check_learn_row(page["learn_row"], ARTICLE, d_k)
    check_learn_row(page["learn_row"], torch.tensor([0.3, 0.05, 0.3, 0.3, 0.05], dtype=torch.float64), d_k)


def test_steps_too_small_and_steps_uphill_are_caught(page):
    for lr in (0.001, -0.5):
        with pytest.raises(AssertionError):
            check_learn_row(lambda target, d_k, steps, lr=lr: page["learn_row"](target, d_k, lr, steps), ARTICLE, 2)


def test_grid_of_is_scaled_attention(page):
    course_utils.seed(3)
    W_Q, W_K = page["random_matrix"](3), page["random_matrix"](3)
    expected = F.scaled_dot_product_attention(W_Q[None], W_K[None], torch.eye(5, dtype=torch.float64)[None])[0]
    assert torch.allclose(page["grid_of"](W_Q, W_K), expected)


# -- the tiny model, and the ways to cheat --


def tiny(page, **given):
    course_utils.seed(5)
    return page["TinyModel"](11, 9, d_model=8, **given)


def check_no_look_ahead(model, moves):
    ids = torch.randint(11, (3, 9), generator=torch.Generator().manual_seed(1))
    for place in range(9):
        changed = moves(model, ids, place, (ids[0, place] + 1) % 11)
        assert changed.shape == (9,) and (changed[:place] < 1e-6).all() and changed[place] > 1e-4


def test_tiny_model_does_not_look_ahead(page):
    check_no_look_ahead(tiny(page), page["logit_moves"])


def test_without_a_mask_it_does(page):
    with pytest.raises(AssertionError):
        check_no_look_ahead(tiny(page, causal=False), page["logit_moves"])


@pytest.mark.parametrize("causal", [True, False])
def test_tiny_model_equals_pytorch(page, causal):
    model = tiny(page, causal=causal)
    ids = torch.randint(11, (2, 6), generator=torch.Generator().manual_seed(2))
    x = model.token(ids) + model.place(torch.arange(6))
    mixed = F.scaled_dot_product_attention(model.W_Q(x), model.W_K(x), model.W_V(x), is_causal=causal)
    assert torch.allclose(model(ids), model.to_logits(x + mixed), atol=1e-5)
    assert torch.allclose(model.weights.sum(-1), torch.ones(2, 6))


def random_tokens(rng):
    """Tokens that nobody can predict: an honest model stays at ln 27."""
    while True:
        ids = rng.integers(27, size=(32, 11))
        yield ids[:, :-1], ids[:, 1:]


def check_nothing_leaks(page, batches, causal=True):
    course_utils.seed(6)
    losses, _ = page["learn"](page["TinyModel"](27, 10, causal=causal), batches, steps=300)
    assert np.mean(losses[-20:]) > 3.0  # ln 27 is 3.30


def test_an_honest_model_learns_nothing_from_noise(page):
    check_nothing_leaks(page, random_tokens(course_utils.seed(1)))


def test_a_missing_mask_and_a_missing_shift_are_caught(page):
    with pytest.raises(AssertionError):
        check_nothing_leaks(page, random_tokens(course_utils.seed(1)), causal=False)
    with pytest.raises(AssertionError):
        check_nothing_leaks(page, page["unshifted"](random_tokens(course_utils.seed(1))))


def test_unshifted_leaves_the_places_without_a_lesson(page):
    inputs, targets = STORIES.arrays(STORIES.sample(4))
    same, wrong = next(page["unshifted"](iter([(inputs, targets)])))
    assert (same == inputs).all() and ((wrong == -100) == (targets == -100)).all()
    assert (wrong[wrong != -100] == inputs[wrong != -100]).all()


def test_one_batch_is_learned_by_heart(page):
    batch = STORIES.arrays(STORIES.sample(1))
    losses, exam_losses = page["learn"](page["new_model"](), iter([batch] * 100), steps=100, exam=batch)
    assert losses[-1] < 0.1 and abs(losses[0] - math.log(STORIES.tokenizer.vocab_size)) < 1
    assert len(losses) == 100 and len(exam_losses) == 5 and exam_losses[-1] < 0.1


# -- by heart, and sentence by sentence --


def check_by_heart(by_heart):
    assert math.isclose(by_heart(["a b c", "d e f g h"]), 2 * math.log(2) / (4 + 6))
    assert by_heart(["the only one"]) == 0


def test_by_heart(page):
    check_by_heart(page["by_heart"])


def test_by_heart_without_the_end_is_caught():
    with pytest.raises(AssertionError):
        check_by_heart(lambda texts: math.log(len(texts)) * len(texts) / sum(len(t.split()) for t in texts))


def check_sentence_losses(sentence_losses, page):
    model, (inputs, targets) = page["new_model"](), STORIES.arrays(STORIES.sample(5))
    nats = sentence_losses(model, inputs, targets)
    assert nats.shape == (5,)
    for n in range(5):
        lessons = (targets[n] != -100).sum()
        mean = train.evaluate(model, inputs[n : n + 1], targets[n : n + 1])
        assert math.isclose(nats[n], mean * lessons, rel_tol=1e-4)


def test_sentence_losses(page):
    check_sentence_losses(page["sentence_losses"], page)


def test_means_in_place_of_sums_are_caught(page):
    with pytest.raises(AssertionError):
        check_sentence_losses(lambda *given: page["sentence_losses"](*given) / 20, page)


# -- pictures --


def check_edit(edit):
    bars = edit(place=2)
    assert list(bars)[:4] == ["0 <start>", "1 I", "2 band", "3 dropped"] and len(bars) == 13
    assert [name for name, move in bars.items() if move > 1e-5] == list(bars)[2:]


def test_the_bars_of_an_edit_begin_at_the_edited_place(page):
    ids = torch.from_numpy(STORIES.arrays([" ".join(STORY)])[0])[:, :13]
    page["ids"], page["models"] = ids, {causal: page["new_model"](causal) for causal in (True, False)}
    check_edit(page["edit"])
    with pytest.raises(AssertionError):
        check_edit(lambda place: page["edit"](place, causal_mask=False))


@pytest.mark.parametrize(
    "call, says",
    [
        ("drag_logit(8.0, 'sank')", "loss 9.00 nats"),
        ("drag_logit(2.0, 'broke')", "broke has probability 0.592"),
        ("bluff(0.6)", "Saying 0.60 for broke costs 0.94 nats; the entropy is 0.94"),
        ("roll(4.0)", "lead from -4 to 0.41"),
        ("roll(12.0)", "lead from -4 to 3.17"),
        ("watch_row(1)", "the largest error is 0.000"),
        ("watch_row(0)", "the largest error is 0.200"),
        ("strip(2)", "<start> I -> just"),
        ("strip(13)", "broke -> <end>"),
        ("show_supply('2')", "training ends at 1.13, held-out at 2.00"),
        ("show_supply('unlimited')", "unlimited sentences"),
    ],
)
def test_pictures_say_what_they_show(page, call, says):
    picture = eval(call, page)
    assert isinstance(picture, plots.Picture) and says in picture.alt
