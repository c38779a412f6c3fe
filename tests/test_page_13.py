"""What page 13 defines, tried on sizes the page does not show; each check is proved able to fail."""

import ast
import copy
import dataclasses

import matplotlib.pyplot as plt
import nbformat
import numpy as np
import pytest
import torch
from torch import nn

import course_utils
from course_utils import attention, cost, data, drawings, plots
from course_utils.model import GPT, DecoderLayer, EncoderLayer, GPTConfig, MultiHeadAttention, Transformer
from course_utils.model import TransformerConfig as Config
from page_code import NOTEBOOKS, definitions, verdict

torch.set_num_threads(1)
NUMBERS = data.EnglishGermanNumbers()
SMALL = Config(13, d_model=12, n_heads=2, n_layers=3, d_ff=20, max_len=9, dropout=0.0)
SRC = torch.tensor([[5, 3, 8, 2], [7, 2, 0, 0], [9, 1, 4, 0]])  # padding is 0
TGT = torch.tensor([[1, 4, 6, 2, 9], [1, 8, 3, 0, 0], [1, 7, 0, 0, 0]])
LESSONS = torch.tensor([[4, 6, 2, 9, 2], [8, 3, 2, -100, -100], [7, 2, -100, -100, -100]])
CAUSAL = torch.ones(5, 5, dtype=torch.bool).tril()
PRESETS = {
    "base": Config(37_000),
    "big": Config(37_000, d_model=1024, n_heads=16, d_ff=4096),
    "GPT-2": GPTConfig(50_257, d_model=768, n_heads=12, n_layers=12, d_ff=3072, max_len=1024),
}


def shaken(net):
    """All parameters far from their start, so that a part left out shows."""
    course_utils.seed(1)
    with torch.no_grad():
        for weights in net.parameters():
            weights.add_(0.2 * torch.randn_like(weights))
    return net


def random(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(course_utils.shifted_seed(seed)))


@pytest.fixture(scope="module")
def page():
    given = dict(
        numbers=NUMBERS, PRESETS=PRESETS, base=PRESETS["base"], causal=CAUSAL, src=SRC, tgt=TGT, lessons=LESSONS
    )
    given |= dict(source=["a", "b"], inputs=["<start>", "x", "y"], targets=["x", "y", "<end>"])
    given |= dict(source_words=[["u", "v", "w"], ["s", "<pad>", "<pad>"]])
    given |= dict(input_words=[["<start>", *"abcd"], ["<start>", "t", "<pad>", "<pad>", "<pad>"]])
    given |= dict(states=np.eye(3), memory=np.eye(3)[:2], meaning=np.ones((2, 1)))
    given |= {name: constant(name) for name in ("RENAMED", "TABLE_3")}
    return definitions("13", **given)


def constant(name):
    """What the page's text gives to `name`, a dict of plain values."""
    (path,) = NOTEBOOKS.glob("13_*.ipynb")
    cells = [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    nodes = [node for source in cells for node in ast.parse(source).body if isinstance(node, ast.Assign)]
    (value,) = [node.value for node in nodes if getattr(node.targets[0], "id", "") == name]
    return ast.literal_eval(value)


# -- the shift --


def test_decoder_at_work(page):
    assert page["decoder_at_work"]("writing", 2).splitlines() == [
        "encoder reads  a b",
        "decoder reads  <start>  x        ",
        "it should say           y        ",
        "runs of the decoder so far: 2",
    ]
    in_training = page["decoder_at_work"]("training", 1).splitlines()
    assert in_training[2].split()[3:] == ["x", "y", "<end>"] and in_training[3].endswith("1")


# -- cross-attention --


def check_cross_attention(cross_attention):
    queries, keys = np.array([[2.0, 0.0]]), np.array([[0.0, 1.0], [np.log(3) / np.sqrt(2), 5.0], [0.0, 0.0]])
    output, weights = cross_attention(queries, keys, np.array([[10.0], [20.0], [30.0]]))
    np.testing.assert_allclose(weights, [[0.2, 0.6, 0.2]])  # scores 0, ln 3, 0
    np.testing.assert_allclose(output, [[20.0]])
    for T_q, T_k in ((4, 2), (1, 5)):
        Q, K, V = (random(n, d, seed=d).double().numpy() for n, d in ((T_q, 3), (T_k, 3), (T_k, 6)))
        for ours, wanted in zip(cross_attention(Q, K, V), attention.attention(Q, K, V), strict=True):
            np.testing.assert_allclose(ours, wanted)


def test_cross_attention(page):
    check_cross_attention(page["cross_attention"])


def over_the_queries(queries, keys, values):
    weights = attention.softmax(queries @ keys.T / np.sqrt(queries.shape[-1]), axis=0)
    return weights @ values, weights


def unscaled(queries, keys, values):
    return attention.attention(queries * np.sqrt(queries.shape[-1]), keys, values)


@pytest.mark.parametrize("wrong", [over_the_queries, unscaled])
def test_wrong_cross_attention_is_caught(wrong):
    with pytest.raises(AssertionError):
        check_cross_attention(wrong)


def check_cross_by_hand(cross_by_hand):
    course_utils.seed(2)
    part, x, memory = MultiHeadAttention(20, 4), random(3, 2, 20), random(3, 7, 20, seed=2)
    for ours, wanted in zip(cross_by_hand(part, x, memory), part(x, memory), strict=True):
        torch.testing.assert_close(ours, wanted)


def test_cross_by_hand(page):
    check_cross_by_hand(page["cross_by_hand"])
    for wrong in (
        lambda part, x, memory: page["cross_by_hand"](part, memory, x),
        lambda part, x, memory: page["cross_by_hand"](part, x, x),
    ):
        with pytest.raises(AssertionError):
            check_cross_by_hand(wrong)


# -- both layers, with their switches --


def check_layers(encoder_layer, decoder_layer):
    course_utils.seed(3)
    first, second = shaken(EncoderLayer(SMALL)), shaken(DecoderLayer(SMALL))
    x, memory = random(3, 5, 12), random(3, 4, 12, seed=2)
    masks = (CAUSAL, (SRC != 0)[:, None, :])
    torch.testing.assert_close(encoder_layer(first, memory, masks[1]), first(memory, masks[1]))
    torch.testing.assert_close(decoder_layer(second, x, memory, *masks), second(x, memory, *masks))


def test_layers(page):
    check_layers(page["encoder_layer"], page["decoder_layer"])


def test_wrong_layers_are_caught(page):
    encoder, decoder = page["encoder_layer"], page["decoder_layer"]

    def swapped(part, x, memory, self_mask, cross_mask):  # cross-attention before self-attention
        x = part.add_norm_2(x, lambda x: part.cross_attention(x, memory, mask=cross_mask)[0])
        x = part.add_norm_1(x, lambda x: part.self_attention(x, mask=self_mask)[0])
        return part.add_norm_3(x, part.feed_forward)

    for pair in (
        (lambda part, x, mask: encoder(part, x), decoder),
        (encoder, swapped),
        (encoder, lambda *given: decoder(*given, attend=False)),
        (encoder, lambda *given: decoder(*given, cross=False)),
        (encoder, lambda part, x, memory, self_mask, cross_mask: decoder(part, x, memory, None, cross_mask)),
    ):
        with pytest.raises(AssertionError):
            check_layers(*pair)


def test_run_is_the_package_and_each_switch_matters(page):
    net = shaken(Transformer(SMALL))
    masks = page["source_mask"](SRC), page["target_mask"](TGT), page["source_mask"](SRC)
    _, x = page["run"](net, SRC, TGT, masks)
    torch.testing.assert_close(net.unembed(x), net(SRC, TGT))
    for missing in ("encoder self-attention", "decoder self-attention", "cross-attention"):
        assert not torch.allclose(page["run"](net, SRC, TGT, masks, missing)[1], x, atol=1e-3)


def test_who_notices_at_other_lengths():
    config = dataclasses.replace(SMALL, vocab_size=NUMBERS.vocab_size)
    shorter = dict(one_src=SRC[:1], one_tgt=TGT[:1, :3], causal=CAUSAL[:3, :3], numbers=NUMBERS)
    who_notices = definitions("13", package_model=shaken(Transformer(config)), **shorter)["who_notices"]
    grid, alone = who_notices("nothing"), who_notices("encoder self-attention")
    assert grid.shape == (7, 7) and grid[:4, :4].all() and grid[4:, :4].all() and not grid[:4, 4:].any()
    assert torch.equal(grid[4:, 4:].bool(), CAUSAL[:3, :3]) and torch.equal(alone[:4, :4], torch.eye(4))


# -- masks --


def check_masks(source_mask, target_mask):
    tgt = torch.tensor([[1, 6, 0], [1, 5, 7]])
    assert source_mask(torch.tensor([[4, 0], [3, 9]])).int().tolist() == [[[1, 0]], [[1, 1]]]
    assert target_mask(tgt).int().tolist() == [[[1, 0, 0], [1, 1, 0], [1, 1, 0]], [[1, 0, 0], [1, 1, 0], [1, 1, 1]]]
    left_padded = torch.tensor([[0, 1, 6]])
    assert target_mask(left_padded).int().tolist() == [[[0, 0, 0], [0, 1, 0], [0, 1, 1]]]


def test_masks(page):
    check_masks(page["source_mask"], page["target_mask"])
    masks = page["source_mask"](SRC), page["target_mask"](TGT), page["source_mask"](SRC)
    for by_loop, mask in zip(page["masks_by_loop"](SRC, TGT), masks, strict=True):
        assert torch.equal(by_loop, mask.expand_as(by_loop))


def test_wrong_masks_are_caught(page):
    source, target = page["source_mask"], page["target_mask"]
    for wrong in (
        (lambda src: ~source(src), target),
        (lambda src: (src != 0)[:, :, None], target),  # rows
        (source, lambda tgt: target(tgt).transpose(1, 2)),  # looks ahead
        (source, lambda tgt: CAUSAL[:3, :3].expand(len(tgt), 3, 3)),  # no padding
        (source, lambda tgt: source(tgt).expand(-1, 3, -1)),  # no staircase
    ):
        with pytest.raises(AssertionError):
            check_masks(*wrong)


# -- three families --


def check_assembled(make, take_over):
    net = shaken(Transformer(SMALL))
    gpt = shaken(GPT(GPTConfig(**dataclasses.asdict(SMALL))))
    wanted = {
        "encoder and decoder": (net, net(SRC, TGT)),
        "encoder-only": (net, net.encode(SRC)),
        "decoder-only": (gpt, gpt(TGT)),
    }
    for family, (package, logits) in wanted.items():
        mine = take_over(make(family, SMALL), package)
        torch.testing.assert_close(mine(SRC, TGT), logits, atol=1e-5, rtol=1e-5)
    assert sum(w.numel() for w in make("encoder and decoder", SMALL).parameters()) == sum(
        w.numel() for w in net.parameters()
    )


def test_assembled(page):
    check_assembled(page["Assembled"], page["take_over"])


def test_an_assembled_model_with_a_fault_is_caught(page):
    def skips_a_layer(family, config):
        model = page["Assembled"](family, config)
        if model.encoder is not None:
            model.encoder.layers[1].forward = lambda x, mask: x
        return model

    def forgets_the_mask(family, config):
        model = page["Assembled"](family, config)
        if model.decoder is not None:
            for part in model.decoder.layers:
                forward = part.forward
                part.forward = lambda x, *masks, forward=forward: forward(
                    x, *[None if m is masks[-1] else m for m in masks]
                )
        return model

    for wrong in (skips_a_layer, forgets_the_mask):
        with pytest.raises(AssertionError):
            check_assembled(wrong, page["take_over"])


def check_count_family(count_family):
    for config in (SMALL, Config(7, d_model=8, n_heads=2, n_layers=1, d_ff=5, dropout=0.0)):
        gpt = GPT(GPTConfig(**dataclasses.asdict(config)))
        whole = Transformer(config)
        sizes = {"encoder and decoder": sum(w.numel() for w in whole.parameters())}
        sizes["decoder-only"] = sizes["encoder-only"] = sum(w.numel() for w in gpt.parameters())
        for family, size in sizes.items():
            assert count_family(family, config) == size


def test_count_family(page):
    check_count_family(page["count_family"])
    with pytest.raises(AssertionError):  # the cross-attention left in the decoder-only
        check_count_family(lambda family, config: page["count_family"]("encoder and decoder", config))


# -- PyTorch's --


@pytest.mark.parametrize("final_norm", [False, True])
def test_compare_finds_equality_and_faults(page, final_norm):
    ours = shaken(Transformer(dataclasses.replace(SMALL, final_norm=final_norm)))
    theirs, blocked = page["pytorchs"](ours), page["pytorchs_masks"](SRC, TGT)
    assert max(page["differences"](ours, theirs, blocked)) < 1e-5
    for spoil in (
        lambda net: net.encoder.layers[1].linear2.bias[3].add_(0.1),
        lambda net: net.decoder.layers[2].multihead_attn.in_proj_weight[2, 5].add_(0.1),
        lambda net: net.decoder.layers[0].norm3.bias[1].add_(0.1),
    ):
        spoiled = copy.deepcopy(theirs)
        with torch.no_grad():
            spoil(spoiled)
        assert min(page["differences"](ours, spoiled, blocked)) > 1e-4
    for mask in ("src_key_padding_mask", "memory_key_padding_mask", "tgt_mask"):
        assert page["differences"](ours, theirs, blocked | {mask: None})[0] > 1e-4


def test_a_state_with_a_name_too_many_is_refused(page):
    ours = shaken(Transformer(SMALL))
    names = page["in_pytorchs_names"](ours.named_parameters())
    assert names["decoder.layers.0.self_attn.in_proj_weight"].shape == (36, 12)
    W_K = ours.decoder_layers[0].self_attention.W_K.weight
    torch.testing.assert_close(names["decoder.layers.0.self_attn.in_proj_weight"][12:24], W_K)
    with pytest.raises(RuntimeError, match="Missing key"):
        nn.Transformer(12, 2, 3, 3, 20, batch_first=True).load_state_dict(names)  # it has final norms


# -- cost --


def check_count(count):
    for config in (SMALL, dataclasses.replace(SMALL, d_model=8, n_heads=2, d_ff=3, n_layers=1)):
        sizes = (config.vocab_size, config.n_layers, config.d_model, config.d_ff, config.n_heads)
        assert count(*sizes, biases=True) == sum(w.numel() for w in Transformer(config).parameters())
        assert count(*sizes, biases=True) - count(*sizes) == cost.parameters(config)["attention biases"]
    assert count(100) - count(100, d_k=63) == 6 * 3 * 2 * 512 * 8  # 18 attentions, W_Q and W_K, a column less a head


def test_count(page):
    check_count(page["count"])
    with pytest.raises(AssertionError):
        check_count(lambda *sizes, **options: page["count"](*sizes, **options) + 12)
    with pytest.raises(AssertionError):
        check_count(lambda *sizes, d_k=None, **options: page["count"](*sizes, **options))


def test_fit_counts_the_rows_that_round_to_the_papers(page):
    assert "41,100: 10 of 11 rows" in page["fit"](41_100).alt and "big" not in page["fit"](41_100).alt
    assert page["fit"](36_000).alt.endswith("1 of 11 rows of Table 3 fit: big.")
    assert "fit: none" in page["fit"](37_000).alt
    assert page["fitting"](["base"])[0] == 39_841 and page["fitting"](["base", "big"]) == []


def test_prices_and_shares(page):
    before = page["prices"](SMALL, 7)
    assert before["bytes of the weights"] == 4 * 3 * 2 * (49 * 3)  # float32, layers, heads, three attentions
    assert before["FLOPs of scores and mixing"] == 3 * 3 * 2 * 2 * 49 * 12
    assert before["FLOPs of projections"] == 3 * 3 * 4 * 2 * 7 * 12 * 12
    shares = page["shares"](100, 64)
    assert sum(shares.values()) == pytest.approx(1) and min(shares.values()) > 0


def test_the_calculator_sets_its_sliders(page):
    view = page["calculator"]()
    assert not view.error and "base: 63.1 million" in view._last.alt
    view.controls["preset"].value = "GPT-2"
    assert view.controls["n_layers"].value == 12 and "GPT-2: 124.4 million" in view._last.alt
    view.controls["d_model"].value = 512
    assert "nobody can build it: 512 numbers do not split into 12 heads" in view._last.alt
    view.controls["preset"].value = "big"
    assert "big: 214.2 million" in view._last.alt and not view.error
    plt.close("all")


# -- exercises --


def test_the_loops_of_the_exercises(page):
    src, tgt = SRC.numpy(), TGT.numpy()
    for kind, by_loop in zip(("encoder", "decoder", "cross"), page["masks_by_loop"](SRC, TGT), strict=True):
        np.testing.assert_array_equal(page["mask_slow"](src, tgt, kind), by_loop)
    Q, K, V = (random(3, n, d, seed=n).numpy() for n, d in ((5, 4), (4, 4), (4, 2)))
    mask = page["mask_slow"](src, tgt, "cross")
    np.testing.assert_allclose(page["cross_slow"](Q, K, V, mask), attention.attention(Q, K, V, mask)[0], atol=1e-6)
    (_, inputs), targets = NUMBERS.arrays([NUMBERS.say(n) for n in (7, 42, 999_999)])
    np.testing.assert_array_equal(page["shift_slow"](targets), inputs)
    assert page["count_slow"](2, 3) == 2 * 4 * (4 + 2) + (6 + 3) + (6 + 2) + 3 * 4


SOLUTIONS = {
    "mask": lambda src, tgt, kind: {
        "encoder": np.broadcast_to((src != 0)[:, None, :], (*src.shape, src.shape[1])),
        "decoder": np.tri(tgt.shape[1], dtype=bool) & (tgt != 0)[:, None, :],
        "cross": np.broadcast_to((src != 0)[:, None, :], (*tgt.shape, src.shape[1])),
    }[kind],
    "cross": lambda Q, K, V, mask: attention.attention(Q, K, V, mask)[0],
    "shift": lambda targets, start=1, end=2, pad=0: np.concatenate(
        [np.full((len(targets), 1), start), np.where(np.isin(targets, (end, -100)), pad, targets)[:, :-1]], axis=1
    ),
    "count": lambda d_model, d_ff: 8 * (d_model**2 + d_model) + 2 * d_model * d_ff + d_ff + d_model + 6 * d_model,
}
MISTAKES = {
    "mask": lambda src, tgt, kind: SOLUTIONS["mask"](src, tgt, kind) | (kind == "cross"),  # all padding read
    "cross": lambda Q, K, V, mask: attention.attention(Q, K, V)[0],
    "shift": lambda targets, start=1, end=2, pad=0: np.concatenate(  # <end> is read as a word
        [np.full((len(targets), 1), start), np.where(targets == -100, pad, targets)[:, :-1]], axis=1
    ),
    "count": lambda d_model, d_ff: 8 * (d_model**2 + d_model) + 2 * d_model * d_ff + d_ff + d_model + 4 * d_model,
}


@pytest.mark.parametrize("exercise", SOLUTIONS)
def test_exercises(page, exercise):
    src, tgt = SRC.numpy(), TGT.numpy()
    mask = page["mask_slow"](src, tgt, "cross")
    Q, K, V = (random(3, n, d, seed=n).numpy() for n, d in ((5, 3), (4, 3), (4, 2)))
    cases = {
        "mask": [(src, tgt, kind) for kind in ("encoder", "decoder", "cross")],
        "cross": [(Q, K, V, mask)],
        "shift": [(LESSONS.numpy(),), (np.array([[5, 2, -100], [4, 4, 2]]),)],
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
        ("show_masks('7')", "6 of 9 cells masked in the encoder, 16 of 25 in the decoder, 10 of 15 in cross"),
        ("show_masks('42,000')", "0 of 9 cells masked in the encoder, 10 of 25 in the decoder, 0 of 15 in cross"),
        ("show_masks('7', causal=False)", "15 of 25 in the decoder"),
        ("show_masks('7', target_padding=False)", "10 of 25 in the decoder"),
        ("show_masks('7', source_padding=False)", "0 of 9 cells masked in the encoder, 16 of 25"),
        ("show_family('encoder and decoder', 4, 2, 9, 64)", "weights of cross-attention (4, 8, 9, 2)"),
        ("show_family('decoder-only', 4, 2, 9, 64)", "stream (4, 9, 64)."),
        ("show_cost()", "74.2 billion FLOPs"),
    ],
)
def test_pictures_say_what_they_show(page, call, says):
    picture = eval(call, page)
    assert isinstance(picture, plots.Picture) and says in picture.alt


def words(ax):
    found = [t.get_text() for t in ax.texts]
    plt.close(ax.figure)
    return found


def test_shapes_in_the_drawing():
    found = words(drawings.shapes(2, 3, 5, 8, 4, 16, 99))
    assert found.count("(2, 3, 8)") == 5 + 1 and found.count("(2, 5, 8)") == 8  # arrows, and the memory
    assert found.count("(2, 3)") == found.count("(2, 5)") == found.count("(2, 5, 99)") == 1
    assert {"(2, 4, 3, 3)", "(2, 4, 5, 5)", "(2, 4, 5, 3)", "(2, 3, 16)", "(2, 5, 16)"} <= set(found)


def test_a_family_has_no_shapes_of_what_it_lacks():
    encoder, decoder = (
        words(drawings.shapes(2, 3, 5, 8, 4, 16, 99, name)) for name in ("encoder-only", "decoder-only")
    )
    assert not any(shape.startswith("(2, 5") for shape in encoder) and "(2, 4, 3, 3)" in encoder
    assert not any(shape.startswith("(2, 3") for shape in decoder) and "(2, 4, 5, 5)" in decoder
    assert "(2, 4, 5, 3)" not in decoder and decoder.count("(2, 5, 8)") == 6
    with pytest.raises(ValueError, match="three families"):
        drawings.shapes(2, 3, 5, 8, 4, 16, 99, "both")


def test_another_size_shows_in_the_pixels():
    drawn = [drawings.shapes(2, 3, T, 8, 4, 16, 99) for T in (5, 6, 5)]  # one Axes, three times
    assert drawn[0] is drawn[2] and "(2, 6)" not in words(drawn[2])
    five, six, again = (
        plots.picture(drawings.shapes(2, 3, T, 8, 4, 16, 99).figure, alt="A drawing of the architecture", dpi=100).png
        for T in (5, 6, 5)
    )
    assert five == again != six
