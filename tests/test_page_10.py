"""What page 10 defines, tried on sizes the page does not show; each check is proved able to fail."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import course_utils
from course_utils import data, plots
from course_utils.model import GPT, EncoderLayer, GPTConfig
from page_code import definitions, verdict

torch.set_num_threads(1)
STORIES = data.PencilStories()
ROW = [1.0, 2.0, 3.0, 4.0]
NOTES = np.array([[1.0, 0.0], [0.0, 2.0], [-3.0, 0.5], [0.5, 0.5]])


@pytest.fixture(scope="module")
def page():
    return definitions(
        "10",
        word=np.array([1.0, 1.0]),
        names=["embedding", "a 1", "f 1", "a 2", "f 2"],
        written=NOTES,
        row=ROW,
        things=["pencil", "dog", "band"],
        values=torch.tensor([[1.0, -0.5], [-1.0, -0.5], [0.0, 1.0]]),
        W_1=torch.tensor([[1 / 2, 1 / 2], [-1 / 3, -1.0]]),
        b_1=torch.tensor([1 / 3, 0.0]),
        W_2=torch.tensor([[2.0, 2.0], [-2.0, -2.0]]),
        b_2=torch.zeros(2),
        rows=np.array([[2.0, 1.0], [0.0, 3.0]]),
        stories=STORIES,
        config=GPTConfig(vocab_size=11),
    )


def random(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(course_utils.shifted_seed(seed)))


# -- the stream --


def check_stream(stream):
    states = stream(np.array([2.0, 3.0, 5.0]), [np.array([1.0, 0, 0]), np.array([0, -3.0, 1.0])])
    np.testing.assert_array_equal(states, [[2, 3, 5], [3, 3, 5], [3, 0, 6]])


def test_stream(page):
    check_stream(page["stream"])
    replaced = page["stream"](np.array([2.0]), [np.array([7.0]), np.array([1.0])], add=False)
    np.testing.assert_array_equal(replaced, [[2], [7], [1]])


def test_replacing_is_not_adding(page):
    with pytest.raises(AssertionError):
        check_stream(lambda word, writes: page["stream"](word, writes, add=False))


# -- LayerNorm --


def check_layer_norm(layer_norm):
    torch.testing.assert_close(
        layer_norm(torch.tensor([ROW])), torch.tensor([[-1.3416, -0.4472, 0.4472, 1.3416]]), atol=1e-4, rtol=0
    )
    for x in (random(2, 3, 7) * 4 + 1, random(5, 3) * 1e-3):
        torch.testing.assert_close(layer_norm(x), F.layer_norm(x, x.shape[-1:]), atol=1e-6, rtol=1e-5)
    assert layer_norm(torch.full((2, 3), -4.0)).tolist() == [[0.0] * 3] * 2


def eps_outside(x, eps=1e-5):
    return (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True, correction=0) + eps)


def no_eps(x):
    return (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True, correction=0)


def test_layer_norm(page):
    check_layer_norm(page["layer_norm"])
    x, scale, shift = random(4, 5), random(5, seed=2), random(5, seed=3)
    torch.testing.assert_close(page["layer_norm"](x, scale, shift), F.layer_norm(x, (5,), scale, shift))
    np.testing.assert_allclose(page["norm_row"]([5.0, 1.0]), page["layer_norm"](torch.tensor([5.0, 1.0])), atol=1e-6)


@pytest.mark.parametrize("wrong", ["unbiased", "over_tokens", eps_outside, no_eps])
def test_wrong_norms_are_caught(page, wrong):
    with pytest.raises(AssertionError):
        check_layer_norm(page[wrong] if isinstance(wrong, str) else wrong)


# -- the feed-forward layer --


def check_feed_forward(feed_forward):
    W_1, b_1 = torch.tensor([[1.0, -1.0, 2.0], [0.0, 1.0, 1.0]]), torch.tensor([0.0, 1.0, -10.0])  # (2, 3)
    W_2, b_2 = torch.tensor([[1.0], [10.0], [100.0]]), torch.tensor([0.5])
    x = torch.tensor([[[3.0, 4.0]], [[-1.0, 0.0]]])  # hidden [3, 2, 0] and [0, 2, 0]
    assert feed_forward(x, W_1, b_1, W_2, b_2).tolist() == [[[23.5]], [[20.5]]]


def test_feed_forward(page):
    check_feed_forward(page["feed_forward"])


def without_bend(x, W_1, b_1, W_2, b_2):
    return (x @ W_1 + b_1) @ W_2 + b_2


def bend_too_early(x, W_1, b_1, W_2, b_2):
    return (torch.relu(x @ W_1) + b_1) @ W_2 + b_2


@pytest.mark.parametrize("wrong", [without_bend, bend_too_early])
def test_wrong_feed_forwards_are_caught(wrong):
    with pytest.raises(AssertionError):
        check_feed_forward(wrong)


def test_the_baton_is_the_smaller_of_pencil_and_band(page):
    shares = torch.tensor([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1], [0.0, 1.0, 0.0]])
    wrote = page["feed_forward"](shares @ page["values"], *(page[name] for name in ("W_1", "b_1", "W_2", "b_2")))
    torch.testing.assert_close(wrote, 2 * torch.tensor([[0.2, 0.2], [0.1, 0.1], [0.0, 0.0]]))


def test_write_new_returns_weights_and_two_places(page):
    shown = page["write_new"](pencil=0.0, dog=-50.0, band=0.0)
    torch.testing.assert_close(shown["+ feed-forward"] - shown["mixture"], torch.ones(2))
    assert math.isclose(shown["pencil"], 0.5, abs_tol=1e-6) and shown["dog"] < 1e-6
    bent, straight = (page["write_new"](-50.0, -50.0, 50.0, relu=relu)["+ feed-forward"] for relu in (True, False))
    torch.testing.assert_close(bent, torch.tensor([0.0, 1.0]))
    torch.testing.assert_close(straight, torch.tensor([2.0, 3.0]))


# -- the block --


def check_block(block, norm_first):
    course_utils.seed(1)
    shape = GPTConfig(vocab_size=1, d_model=12, n_heads=3, d_ff=20, activation="relu", norm_first=norm_first)
    layer, x, mask = EncoderLayer(shape), random(2, 5, 12), torch.ones(5, 5).tril().bool()
    for add_norm in (layer.add_norm_1, layer.add_norm_2):
        nn.init.normal_(add_norm.norm.weight)
    judge = nn.TransformerEncoderLayer(12, 3, 20, dropout=0.0, batch_first=True, norm_first=norm_first)
    attend, names = layer.self_attention, ("W_Q", "W_K", "W_V")
    with torch.no_grad():
        judge.self_attn.in_proj_weight.copy_(torch.cat([getattr(attend, m).weight for m in names]))
        judge.self_attn.in_proj_bias.copy_(torch.cat([getattr(attend, m).bias for m in names]))
    judge.self_attn.out_proj.load_state_dict(attend.W_O.state_dict())
    judge.linear1.load_state_dict(layer.feed_forward.W_1.state_dict())
    judge.linear2.load_state_dict(layer.feed_forward.W_2.state_dict())
    judge.norm1.load_state_dict(layer.add_norm_1.norm.state_dict())
    judge.norm2.load_state_dict(layer.add_norm_2.norm.state_dict())
    expected = judge(x, src_mask=~mask)  # PyTorch's True = blocked
    torch.testing.assert_close(block(x, layer, mask, norm_first), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("norm_first", [True, False])
def test_block_equals_pytorch(page, norm_first):
    check_block(page["block"], norm_first)


@pytest.mark.parametrize("norm_first", [True, False])
def test_the_other_order_and_a_forgotten_mask_are_caught(page, norm_first):
    for wrong in (
        lambda x, layer, mask, first: page["block"](x, layer, mask, not first),
        lambda x, layer, mask, first: page["block"](x, layer, None, first),
    ):
        with pytest.raises(AssertionError):
            check_block(wrong, norm_first)


# -- measuring by depth --


def check_measure(measure):
    signal, gradient, alike = measure(depth=5, number=3)
    assert len(signal) == len(gradient) == len(alike) == 6
    assert abs(signal[0] - 1) < 0.2 and abs(alike[0]) < 0.5  # the embedding: random numbers of size 1
    assert signal[-1] > 1.2 * signal[0]  # what is written adds up


def test_measure(page):
    check_measure(page["measure"])
    nothing_written = page["measure"](norm=False, spread=0.0, depth=3)
    np.testing.assert_allclose(nothing_written[0], nothing_written[0][0])
    np.testing.assert_allclose(nothing_written[1], 1, rtol=1e-5)  # the end is the embedding itself
    np.testing.assert_array_equal(page["measure"](depth=2, number=1), page["measure"](depth=2, number=1))


def test_a_stack_without_residual_is_caught(page):
    with pytest.raises(AssertionError):
        check_measure(lambda **given: page["measure"](residual=False, **given))


def test_post_norm_has_size_one_at_every_layer(page):
    signal, *_ = page["measure"](depth=4, norm_first=False)
    np.testing.assert_allclose(signal[1:], 1, atol=1e-3)


def test_random_layers_keep_the_size_of_what_they_read(page):
    course_utils.seed(2)
    for spread in (0.5, 2.0):
        layer = page["random_layers"](1, spread)[0]
        wrote = layer.self_attention.W_V(random(400, 32))
        assert abs(wrote.std().item() / spread - 1) < 0.15


# -- dropout --


def check_drop(drop):
    course_utils.seed(1)
    x = torch.full((40, 500), 2.0)
    dropped = drop(x, 0.2)
    assert {round(n, 4) for n in dropped.unique().tolist()} == {0.0, 2.5}
    assert abs((dropped == 0).float().mean().item() - 0.2) < 0.02
    assert torch.equal(drop(x, 0.2, training=False), x)


def test_drop(page):
    check_drop(page["drop"])


def test_dropout_without_scale_and_with_p_reversed_are_caught(page):
    for wrong in (
        lambda x, p, training=True: page["drop"](x, p, training) * ((1 - p) if training else 1),
        lambda x, p, training=True: page["drop"](x, 1 - p, training),
    ):
        with pytest.raises(AssertionError):
            check_drop(wrong)


# -- the exit, and a whole GPT --


def test_to_logits_are_dot_products_with_the_rows(page):
    np.testing.assert_array_equal(page["to_logits"](np.array([3.0, -1.0])), [5.0, -3.0])


@pytest.mark.parametrize("d_model", [16, 100])
def test_lengths(page, d_model):
    plain, multiplied = (page["lengths"](d_model, multiply) for multiply in (False, True))
    assert abs(plain["word"] - 1) < 0.05 and math.isclose(plain["position"], math.sqrt(d_model / 2), rel_tol=1e-6)
    assert math.isclose(multiplied["word"], plain["word"] * math.sqrt(d_model), rel_tol=1e-5)


def check_gpt(make):
    course_utils.seed(3)
    shape = GPTConfig(vocab_size=13, d_model=12, n_heads=3, n_layers=3, d_ff=20, max_len=9)
    package = GPT(shape)
    for name, weights in package.named_parameters():  # away from the start, where norms do nothing
        nn.init.normal_(weights, mean=float("norm" in name and name.endswith("weight")), std=0.3)
    mine = make(shape)
    mine.load_state_dict({n: w for n, w in package.state_dict().items() if n != "unembed.weight"})
    ids = torch.randint(13, (2, 9), generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(mine(ids), package(ids), atol=1e-5, rtol=1e-5)
    assert sum(p.numel() for p in mine.parameters()) == sum(p.numel() for p in package.parameters())


def test_ten_line_gpt(page):
    check_gpt(page["TenLineGPT"])


def test_a_gpt_without_its_final_norm_and_one_without_a_layer_are_caught(page):
    def no_final_norm(shape):
        model = page["TenLineGPT"](shape)
        model.final_norm.forward = lambda x: x
        return model

    def skips_a_layer(shape):
        model = page["TenLineGPT"](shape)
        model.layers[1].forward = lambda x, mask: x
        return model

    for wrong in (no_final_norm, skips_a_layer):
        with pytest.raises(AssertionError):
            check_gpt(wrong)


def check_count_parts(count_parts):
    for d_model, n_layers, vocab_size, max_len in ((8, 1, 5, 3), (12, 3, 7, 20)):
        shape = GPTConfig(vocab_size=vocab_size, d_model=d_model, n_layers=n_layers, d_ff=4 * d_model, max_len=max_len)
        wanted = sum(p.numel() for p in GPT(shape).parameters())
        assert sum(count_parts(d_model, n_layers, vocab_size, max_len).values()) == wanted


def test_count_parts(page):
    check_count_parts(page["count_parts"])


def test_the_exit_counted_twice_is_caught(page):
    def twice(d_model, n_layers, vocab_size, max_len):
        return page["count_parts"](d_model, n_layers, vocab_size, max_len) | {"exit": vocab_size * d_model}

    with pytest.raises(AssertionError):
        check_count_parts(twice)


# -- the exercises: the loops are right, and a stub, a wrong shape and a wrong number are told apart --


def test_the_loops_of_the_exercises(page):
    x = random(2, 3, 5)
    scale, shift = random(5, seed=2), random(5, seed=3)
    slow = page["layer_norm_slow"](x.double().numpy(), scale.numpy(), shift.numpy())
    np.testing.assert_allclose(slow, F.layer_norm(x, (5,), scale, shift), atol=1e-5)
    parts = random(5, 4, seed=4), random(4, seed=5), random(4, 5, seed=6), random(5, seed=7)
    slow = page["feed_forward_slow"](x.numpy(), *(part.numpy() for part in parts))
    np.testing.assert_allclose(slow, page["feed_forward"](x, *parts), atol=1e-5)
    one = np.array([[3.0, 4.0]])
    double, half = (lambda x: 2 * x), (lambda x: x / 2)
    np.testing.assert_array_equal(page["sublayer_slow"](one, double, half, True), [[6.0, 8.0]])
    np.testing.assert_array_equal(page["sublayer_slow"](one, double, half, False), [[4.5, 6.0]])
    assert page["count_slow"](2, 3) == 4 * (4 + 2) + (6 + 3) + (6 + 2) + 2 * 4


SOLUTIONS = {
    "layer_norm": lambda x, scale, shift, eps=1e-5: (
        (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps) * scale + shift
    ),
    "sublayer": lambda x, sublayer, norm, norm_first: x + sublayer(norm(x)) if norm_first else norm(x + sublayer(x)),
    "feed_forward": lambda x, W_1, b_1, W_2, b_2: np.maximum(0, x @ W_1 + b_1) @ W_2 + b_2,
    "count": lambda d_model, d_ff: 4 * (d_model**2 + d_model) + 2 * d_model * d_ff + d_ff + d_model + 4 * d_model,
}
MISTAKES = {
    "layer_norm": lambda x, scale, shift, eps=1e-5: (
        (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, ddof=1, keepdims=True) + eps) * scale + shift
    ),
    "sublayer": lambda x, sublayer, norm, norm_first: x + sublayer(norm(x)),
    "feed_forward": lambda x, W_1, b_1, W_2, b_2: np.maximum(0, (x @ W_1 + b_1) @ W_2 + b_2),
    "count": lambda d_model, d_ff: 4 * (d_model**2 + d_model) + 2 * d_model * d_ff + d_ff + d_model,
}


@pytest.mark.parametrize("exercise", SOLUTIONS)
def test_exercises(page, exercise):
    x, parts = random(2, 3, 5).numpy(), [random(*shape).numpy() for shape in ((5, 4), (4,), (4, 5), (5,))]
    cases = {
        "layer_norm": [(x, np.arange(5.0), np.ones(5)), (0 * x, np.ones(5), np.ones(5))],
        "sublayer": [(x, np.tanh, lambda x: x / 2, norm_first) for norm_first in (True, False)],
        "feed_forward": [(x, *parts)],
        "count": [(8, 32), (6, 5)],
    }[exercise]
    slow = page[f"{exercise}_slow"]
    assert "equal to" in verdict(SOLUTIONS[exercise], slow, *cases)
    assert "not written yet" in verdict(page[f"my_{exercise}"], slow, *cases)
    assert "other numbers" in verdict(MISTAKES[exercise], slow, *cases)


# -- pictures --


@pytest.mark.parametrize(
    "call, says",
    [
        ("draw_stream()", "tip to tail; the end is (-0.50, 4.00)"),
        ("draw_stream(2.0, 0.0)", "the end is (0.00, 3.50)"),
        ("draw_stream(2.0, 1.0, add=False)", "each from the origin; the end is (0.50, 0.50)"),
        ("show_norm(10.0, 1.0)", "[11.0, 21.0, 31.0, 41.0], after LayerNorm [-1.34, -0.45, 0.45, 1.34]"),
        ("show_norm(0.0, 3.0)", "after LayerNorm [0.0, 0.0, 0.0, 0.0]"),
        ("take_out(norm=False, spread=0.0)", "the signal is"),
        ("show_parts(64, 12, 11)", "feed-forward"),
    ],
)
def test_pictures_say_what_they_show(page, call, says):
    picture = eval(call, page)
    assert isinstance(picture, plots.Picture) and says in picture.alt
