"""introspect.py: the maps against attention computed outside the model, removed heads against zeroed columns of W_O."""

import copy

import pytest
import torch
from torch import nn

import course_utils
from course_utils.introspect import attention_maps, without_heads
from course_utils.model import GPT, GPTConfig, MultiHeadAttention, scaled_dot_product_attention, split_heads


@pytest.fixture(autouse=True)
def seeded():
    course_utils.seed(0)


@pytest.fixture
def net():
    net = GPT(GPTConfig(11, d_model=12, n_heads=3, n_layers=2, d_ff=16, max_len=9, dropout=0.4))
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.4 * torch.randn_like(parameter))
    return net.train()


IDS = torch.tensor([[1, 2, 3, 4, 5], [6, 7, 8, 9, 10]])


def hooks(net):
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in net.modules())


# --- attention_maps ---


def check_maps(maps_of, net):
    maps = maps_of(net, IDS)
    assert [tuple(weights.shape) for weights in maps] == [(2, 3, 5, 5)] * 2
    for weights in maps:
        torch.testing.assert_close(weights.sum(-1), torch.ones(2, 3, 5))
        assert not weights.requires_grad and (weights.triu(1) == 0).all()
    layer = net.layers[0]  # the first map, computed from the embeddings
    x = layer.add_norm_1.norm(net.embeddings.token(IDS) + net.embeddings.position[:5])
    q, k = (split_heads(W(x), 3) for W in (layer.self_attention.W_Q, layer.self_attention.W_K))
    _, expected = scaled_dot_product_attention(q, k, k, torch.ones(5, 5, dtype=torch.bool).tril())
    torch.testing.assert_close(maps[0], expected.detach())
    assert (maps[0] - maps[1]).abs().max() > 0.01


def test_maps(net):
    check_maps(attention_maps, net)
    assert torch.equal(attention_maps(net, IDS)[1], attention_maps(net, IDS)[1])  # dropout is off


@pytest.mark.parametrize(
    "wrong",
    [
        lambda net, ids: attention_maps(net, ids)[::-1],
        lambda net, ids: [weights.transpose(-2, -1) for weights in attention_maps(net, ids)],
        lambda net, ids: [weights.flip(1) for weights in attention_maps(net, ids)],
    ],
    ids=["layers reversed", "queries as columns", "heads reversed"],
)
def test_wrong_maps_are_caught(wrong, net):
    with pytest.raises(AssertionError):
        check_maps(wrong, net)


def test_maps_leave_the_model_as_it_was(net):
    net.layers[1].eval()
    attention_maps(net, IDS)
    with pytest.raises(ValueError, match="id 100"):
        attention_maps(net, IDS + 99)
    assert hooks(net) == 0
    assert net.training and net.layers[0].training and not net.layers[1].training


def test_maps_of_cross_attention_and_several_inputs():
    class Both(nn.Module):
        """Two attention layers that run in another order than they were made; the second crosses."""

        def __init__(self):
            super().__init__()
            self.cross, self.own = MultiHeadAttention(4, 2), MultiHeadAttention(4, 1)

        def forward(self, x, memory):
            return self.cross(self.own(x)[0], memory)[0]

    maps = attention_maps(Both(), torch.randn(2, 3, 4), torch.randn(2, 5, 4))
    assert [tuple(weights.shape) for weights in maps] == [(2, 1, 3, 3), (2, 2, 3, 5)]


def test_maps_of_a_model_that_is_not_ours():
    with pytest.raises(ValueError, match=r"MultiHeadAttention \(this is a Linear\)"):
        attention_maps(nn.Linear(2, 2), torch.ones(1, 2))


# --- without_heads ---


def zeroed(net, heads):
    """The same effect by other means: what W_O reads from a head is multiplied by 0."""
    net = copy.deepcopy(net)
    for layer, chosen in heads.items():
        for head in chosen:
            net.layers[layer].self_attention.W_O.weight.data[:, 4 * head : 4 * head + 4] = (
                0  # d_k = 4; Linear: (out, in)
            )
    return net


def check_without(context, net):
    net.eval()
    for heads in ({0: [1]}, {1: [0, 2]}, {0: [2], 1: [1]}, {0: [0, 1, 2]}, {}):
        with context(net, heads):
            torch.testing.assert_close(net(IDS), zeroed(net, heads)(IDS))


def test_without_heads(net):
    check_without(without_heads, net)
    whole = net(IDS)
    with without_heads(net, {0: [1]}):
        assert (net(IDS) - whole).abs().max() > 0.01
    assert torch.equal(net(IDS), whole) and hooks(net) == 0


@pytest.mark.parametrize(
    "wrong",
    [
        lambda net, heads: without_heads(net, {}),
        lambda net, heads: without_heads(
            net, {layer: [2 - head for head in chosen] for layer, chosen in heads.items()}
        ),
        lambda net, heads: without_heads(net, {1 - layer: chosen for layer, chosen in heads.items()}),
    ],
    ids=["nothing removed", "another head", "another layer"],
)
def test_wrong_removal_is_caught(wrong, net):
    with pytest.raises(AssertionError):
        check_without(wrong, net)


def test_the_picture_of_a_removed_head_stays(net):
    before = attention_maps(net, IDS)
    with without_heads(net, {0: [1], 1: [2]}):
        after = attention_maps(net, IDS)
    assert torch.equal(before[0], after[0])  # all of it: what layer 0 reads has not changed
    assert not torch.allclose(before[1], after[1])


def test_nested_blocks_add_up(net):
    net.eval()
    both, first = zeroed(net, {0: [0, 1]})(IDS), zeroed(net, {0: [0]})(IDS)
    with without_heads(net, {0: [0]}):
        with without_heads(net, {0: [0, 1]}):
            torch.testing.assert_close(net(IDS), both)
        torch.testing.assert_close(net(IDS), first)
        with without_heads(net, {0: [1]}):
            torch.testing.assert_close(net(IDS), both)


def test_heads_come_back_after_an_error(net):
    net.eval()
    whole = net(IDS)
    with pytest.raises(KeyError), without_heads(net, {0: [0]}):
        raise KeyError
    with pytest.raises(ValueError), without_heads(net, {0: [0], 1: [7]}):
        pass
    assert hooks(net) == 0 and torch.equal(net(IDS), whole)


@pytest.mark.parametrize(
    ("heads", "words"),
    [
        ({2: [0]}, "no layer 2.*0 to 1"),
        ({-1: [0]}, "no layer -1"),
        ({"0": [0]}, "no layer '0'"),
        ({0: [3]}, "layer 0 has no head 3.*0 to 2"),
        ({1: [0, -1]}, "layer 1 has no head -1"),
        ({1: [True]}, "no head True"),
        ({1: 0}, r"Write \{1: \[0\]\}"),
    ],
)
def test_bad_heads(heads, words, net):
    with pytest.raises(ValueError, match=words), without_heads(net, heads):
        pass


def test_a_removed_head_does_not_learn(net):
    with without_heads(net, {0: [1]}):
        net(IDS).square().sum().backward()
    gradient = net.layers[0].self_attention.W_V.weight.grad  # rows 4 to 7 make head 1
    assert (gradient[4:8] == 0).all() and gradient[:4].abs().sum() > 0
