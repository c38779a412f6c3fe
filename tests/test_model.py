"""The model's parts against hand-computed values and PyTorch's modules; each key check catches a planted fault."""

import dataclasses
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import course_utils
from course_utils import attention, model
from course_utils.generate import KVCache
from course_utils.model import GPT, EncoderLayer, FeedForward, GPTConfig, LayerNorm, MultiHeadAttention


@pytest.fixture(autouse=True)
def seeded():
    course_utils.seed(0)


def close(ours, theirs, atol=1e-5):
    torch.testing.assert_close(ours, theirs, atol=atol, rtol=0)


def spread(module):
    """The module with all parameters far from their start, so that a part left out shows."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return module.eval()


def causal(T):
    return torch.ones(T, T, dtype=torch.bool).tril()


def gpt(**options):
    return GPT(GPTConfig(**{"vocab_size": 11, "d_model": 8, "n_layers": 2, "d_ff": 16, "max_len": 12} | options))


# --- scaled_dot_product_attention ---


def check_attention(f):
    q, k, v = torch.randn(2, 3, 4, 6), torch.randn(2, 3, 5, 6), torch.randn(2, 3, 5, 7)
    output, weights = f(q, k, v)
    close(output, F.scaled_dot_product_attention(q, k, v))
    close(weights.sum(-1), torch.ones(2, 3, 4))
    mask = torch.rand(2, 1, 4, 5) < 0.6
    mask[..., 0] = True
    close(f(q, k, v, mask)[0], F.scaled_dot_product_attention(q, k, v, attn_mask=mask))
    for T in (1, 2, 4):
        x, y = q[..., :T, :], k[..., :T, :]
        ours = f(x, y, v[..., :T, :], causal(T))[0]
        close(ours, F.scaled_dot_product_attention(x, y, v[..., :T, :], is_causal=True))


def check_two_by_two(f):
    """Uniform scores under a causal mask, and the scores of faults 6: which axis, which polarity."""
    x = torch.ones(2, 1)
    close(f(x, x, x, causal(2))[1], torch.tensor([[1.0, 0.0], [0.5, 0.5]]))
    q, k = torch.tensor([[1.0], [0.0]]), torch.tensor([[0.0], [math.log(3)]])
    close(f(q, k, x)[1], torch.tensor([[0.25, 0.75], [0.5, 0.5]]))


def wrong_attention(axis=-1, scale=None, filler=-math.inf, invert=False, after=False):
    def f(q, k, v, mask=None):
        scores = q @ k.transpose(-2, -1) / (scale or math.sqrt(q.shape[-1]))
        mask = torch.ones(scores.shape, dtype=torch.bool) if mask is None else mask ^ invert
        if after:
            weights = scores.softmax(axis) * mask
        else:
            weights = scores.masked_fill(~mask, filler).softmax(axis)
        return weights @ v, weights

    return f


def test_attention_is_pytorchs():
    check_attention(wrong_attention())  # the yardstick itself is right when nothing is planted
    check_attention(model.scaled_dot_product_attention)
    check_two_by_two(model.scaled_dot_product_attention)


@pytest.mark.parametrize("fault", [{"axis": -2}, {"scale": 1.0}, {"invert": True}, {"after": True}], ids=str)
def test_wrong_attention_is_caught(fault):
    with pytest.raises(AssertionError):
        check_attention(wrong_attention(**fault))


@pytest.mark.parametrize("fault", [{"axis": -2}, {"invert": True}], ids=str)
def test_two_by_two_shows_axis_and_polarity(fault):
    with pytest.raises(AssertionError):
        check_two_by_two(wrong_attention(**fault))


def test_attention_is_the_numpy_pages():
    q, k, v = (torch.randn(3, 4) for _ in range(3))
    for mask in (None, causal(3), torch.tensor([[True, False, True], [False] * 3, [False, True, False]])):
        ours = model.scaled_dot_product_attention(q, k, v, mask)
        pages = attention.attention(q.numpy(), k.numpy(), v.numpy(), None if mask is None else mask.numpy())
        for a, b in zip(ours, pages, strict=True):
            np.testing.assert_allclose(a.numpy(), b, atol=1e-6)


def check_rows_without_keys(f):
    q, k, v = (torch.randn(2, 4, 3, requires_grad=True) for _ in range(3))
    mask = causal(4).tril(-1)[None] & torch.tensor([True, False])[:, None, None]  # row 0, and all of sequence 1
    output, weights = f(q, k, v, mask)
    assert torch.equal(output[0, 0], torch.zeros(3)) and torch.equal(output[1], torch.zeros(4, 3))
    assert torch.equal(weights[1], torch.zeros(4, 4))
    close(weights[0, 1:].sum(-1), torch.ones(3))
    output.square().sum().backward()
    assert all(x.grad.isfinite().all() for x in (q, k, v))
    assert q.grad[0].abs().sum() > 0 and q.grad[1].abs().sum() == 0


def test_rows_without_keys_are_zero_and_so_are_their_gradients():
    check_rows_without_keys(model.scaled_dot_product_attention)


def nan_to_num(q, k, v, mask):
    output, weights = wrong_attention()(q, k, v, mask)  # right going forward, NaN going back
    return output.nan_to_num(0.0), weights.nan_to_num(0.0)


@pytest.mark.parametrize("wrong", [wrong_attention(), wrong_attention(filler=-1e9), nan_to_num])
def test_nan_in_rows_without_keys_is_caught(wrong):
    with pytest.raises(AssertionError):
        check_rows_without_keys(wrong)


def check_no_finite_filler(f):
    q, k = torch.tensor([[1e3], [1.0]]), torch.tensor([[-1e8], [1.0]])  # query 0 may see key 0 alone
    close(f(q, k, torch.tensor([[5.0], [7.0]]), causal(2))[0][0], torch.tensor([5.0]))


def test_mask_holds_whatever_the_scores():
    check_no_finite_filler(model.scaled_dot_product_attention)
    with pytest.raises(AssertionError):
        check_no_finite_filler(wrong_attention(filler=-1e9))


@pytest.mark.parametrize(
    ("q", "k", "v", "mask", "words"),
    [
        ((3, 4), (3, 5), (3, 4), None, "equally many numbers"),
        ((3, 4), (2, 4), (3, 4), None, "one value"),
        ((3, 4), (3, 4), (3, 4), torch.ones(3, 3), "boolean"),
        ((3, 4), (2, 4), (2, 4), torch.ones(2, 3, dtype=torch.bool), r"scores \(3, 2\), mask \(2, 3\)"),
        ((3, 4), (3, 4), (3, 4), torch.ones(2, 3, 3, dtype=torch.bool), "does not fit"),
    ],
)
def test_attention_refuses(q, k, v, mask, words):
    with pytest.raises(ValueError, match=words):
        model.scaled_dot_product_attention(torch.ones(q), torch.ones(k), torch.ones(v), mask)


# --- heads ---


def check_merge(merge):
    assert merge(torch.arange(8).view(1, 2, 2, 2)).tolist() == [[[0, 1, 4, 5], [2, 3, 6, 7]]]


def check_split(split):
    B, T, n_heads, d_k = 2, 5, 3, 4
    x = torch.arange(B * T * n_heads * d_k).view(B, T, n_heads * d_k)
    heads = split(x, n_heads)
    assert heads.shape == (B, n_heads, T, d_k)
    for h in range(n_heads):
        for t in range(T):
            assert torch.equal(heads[1, h, t], x[1, t, h * d_k : (h + 1) * d_k])


def test_split_and_merge():
    check_split(model.split_heads)
    check_merge(model.merge_heads)
    x = torch.randn(2, 5, 12)
    assert torch.equal(model.merge_heads(model.split_heads(x, 3)), x)
    assert torch.equal(model.merge_heads(model.split_heads(x[0], 3)), x[0])  # one sequence without the batch axis


def test_heads_without_transpose_are_caught():
    with pytest.raises(AssertionError):
        check_split(lambda x, h: x.reshape(x.shape[0], h, x.shape[1], -1))
    with pytest.raises(AssertionError):
        check_merge(lambda x: x.reshape(x.shape[0], x.shape[2], -1))


def theirs_from(ours, bias=True):
    """PyTorch's multi-head attention with our weights. It stacks W_Q, W_K, W_V in one matrix."""
    d_model = ours.W_O.out_features
    theirs = nn.MultiheadAttention(d_model, ours.n_heads, bias=bias, batch_first=True)
    copy_attention(ours, theirs)
    return theirs.eval()


def copy_attention(ours, theirs):
    parts = (ours.W_Q, ours.W_K, ours.W_V)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([p.weight for p in parts]))
        theirs.out_proj.weight.copy_(ours.W_O.weight)
        if ours.W_O.bias is not None:
            theirs.in_proj_bias.copy_(torch.cat([p.bias for p in parts]))
            theirs.out_proj.bias.copy_(ours.W_O.bias)


def check_multi_head(ours):
    theirs = theirs_from(ours, ours.W_O.bias is not None)
    x, memory, other = torch.randn(2, 4, 12), torch.randn(2, 5, 12), torch.randn(2, 5, 12)

    def same(inputs, mask=None, **blocked):
        full = inputs + (inputs[-1],) * (3 - len(inputs))
        for a, b in zip(ours(*inputs, mask=mask), theirs(*full, average_attn_weights=False, **blocked), strict=True):
            close(a, b)

    same((x,))
    same((x, memory))
    same((x, memory, other))
    padding = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], dtype=torch.bool)
    same((x, memory, other), padding[:, None, :], key_padding_mask=~padding)  # (B, 1, T_k): for all heads
    same((x,), causal(4), attn_mask=~causal(4))
    same((x,), causal(4) & padding[:, None, :4], attn_mask=~causal(4), key_padding_mask=~padding[:, :4])
    per_head = torch.rand(2, 3, 4, 5) < 0.7
    per_head[..., 2] = True
    same((x, memory), per_head, attn_mask=~per_head.flatten(0, 1))


@pytest.mark.parametrize("bias", [True, False])
def test_multi_head_is_pytorchs(bias):
    check_multi_head(spread(MultiHeadAttention(12, 3, bias=bias)))


def test_wrong_multi_head_is_caught(monkeypatch):
    wrong = {
        "merge_heads": lambda x: x.reshape(x.shape[0], x.shape[2], -1),
        "scaled_dot_product_attention": lambda q, k, v, mask, dropout: wrong_attention(axis=-2)(q, k, v, mask),
    }
    for name, function in wrong.items():
        with monkeypatch.context() as patch:
            patch.setattr(model.attention, name, function)
            with pytest.raises(AssertionError):
                check_multi_head(spread(MultiHeadAttention(12, 3)))


def test_linear_stores_the_transpose():
    mha = MultiHeadAttention(6, 2)
    assert nn.Linear(2, 3).weight.shape == (3, 2)
    x = torch.randn(1, 4, 6)
    q, k, v = (x[0].double() @ W.weight.T.double() + W.bias.double() for W in (mha.W_Q, mha.W_K, mha.W_V))
    heads = [attention.attention(*(y[:, j : j + 3].detach().numpy() for y in (q, k, v)))[0] for j in (0, 3)]
    by_hand = torch.tensor(np.concatenate(heads, axis=-1)) @ mha.W_O.weight.T.double() + mha.W_O.bias.double()
    close(mha(x)[0][0].double(), by_hand)


def test_shown_weights_are_without_dropout():
    mha = MultiHeadAttention(8, 2, dropout=0.5).train()
    x = torch.randn(2, 6, 8)
    (first, weights), (second, _) = mha(x), mha(x)
    assert not torch.allclose(first, second)  # dropout acts on what is mixed
    close(weights.sum(-1), torch.ones(2, 2, 6))


# --- LayerNorm, feed-forward, layer ---


def check_layer_norm(norm):
    close(norm(torch.tensor([1.0, 2.0, 3.0, 4.0])), torch.tensor([-1.34164, -0.44721, 0.44721, 1.34164]), 1e-4)
    x = 0.01 * torch.randn(2, 3, 4)  # small spread: where eps stands shows
    close(norm(x), F.layer_norm(x, (4,)), 2e-5)
    assert torch.equal(norm(torch.full((4,), 7.0)), torch.zeros(4))


def wrong_norm(correction=0, inside=True, eps=1e-5):
    def f(x):
        centred = x - x.mean(-1, keepdim=True)
        variance = x.var(-1, correction=correction, keepdim=True)
        return centred / ((variance + eps).sqrt() if inside else variance.sqrt() + eps)

    return f


def test_layer_norm():
    check_layer_norm(wrong_norm())
    check_layer_norm(LayerNorm(4))


@pytest.mark.parametrize("fault", [{"correction": 1}, {"inside": False}], ids=str)
def test_wrong_layer_norm_is_caught(fault):
    with pytest.raises(AssertionError):
        check_layer_norm(wrong_norm(**fault))


def test_layer_norm_is_pytorchs_with_its_weights():
    for bias in (True, False):
        theirs = spread(nn.LayerNorm(5, eps=1e-3, bias=bias))
        ours = LayerNorm(5, eps=1e-3, bias=bias)
        ours.load_state_dict(theirs.state_dict())
        close(ours(x := torch.randn(2, 3, 5)), theirs(x), 1e-6)
    constant = torch.full((1, 5), 3.0, requires_grad=True)
    LayerNorm(5)(constant).square().sum().backward()
    assert constant.grad.isfinite().all()


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(5,), (3, 5), (2, 3, 5)])
def test_layer_norm_is_its_formula_and_so_is_its_gradient(bias, shape):
    norm = spread(LayerNorm(5, eps=1e-3, bias=bias)).double()
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    by_hand = wrong_norm(eps=1e-3)(x) * norm.weight + (norm.bias if bias else 0)  # wrong_norm with no fault is right
    close(norm(x), by_hand, 1e-12)
    towards = torch.randn(shape, dtype=torch.float64)
    numbers = (x, *norm.parameters())
    grads = [torch.autograd.grad((y * towards).sum(), numbers) for y in (norm(x), by_hand)]
    for a, b in zip(*grads, strict=True):
        close(a, b, 1e-12)


def test_feed_forward_activations():
    x = torch.tensor([[-1.0]])
    for name, value in {"relu": 0.0, "gelu": -0.158655, "gelu_tanh": -0.158808}.items():
        part = FeedForward(1, 1, name)
        with torch.no_grad():
            part.W_1.weight.fill_(1), part.W_1.bias.zero_(), part.W_2.weight.fill_(1), part.W_2.bias.zero_()
        close(part(x), torch.tensor([[value]]), 2e-6)
    with pytest.raises(ValueError, match="relu, gelu, gelu_tanh"):
        FeedForward(2, 4, "tanh")


def check_layer(ours, norm_first, activation, bias=True):
    theirs = nn.TransformerEncoderLayer(
        12, 3, 20, 0.0, activation, batch_first=True, norm_first=norm_first, bias=bias, layer_norm_eps=1e-5
    )
    copy_attention(ours.self_attention, theirs.self_attn)
    pairs = {
        theirs.linear1: ours.feed_forward.W_1,
        theirs.linear2: ours.feed_forward.W_2,
        theirs.norm1: ours.add_norm_1.norm,
        theirs.norm2: ours.add_norm_2.norm,
    }
    for their_part, our_part in pairs.items():
        their_part.load_state_dict(our_part.state_dict())
    theirs.eval()
    x = torch.randn(2, 5, 12)
    close(ours(x), theirs(x))
    close(ours(x, causal(5)), theirs(x, src_mask=~causal(5)))
    padding = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], dtype=torch.bool)
    mine, expected = ours(x, padding[:, None, :]), theirs(x, src_key_padding_mask=~padding)
    close(mine[padding], expected[padding])  # PyTorch's fast path writes zeros at padded queries


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_encoder_layer_is_pytorchs(norm_first, activation):
    config = GPTConfig(5, d_model=12, n_heads=3, d_ff=20, norm_first=norm_first, activation=activation)
    ours = spread(EncoderLayer(config))
    check_layer(ours, norm_first, activation)
    for wrong in ((not norm_first, activation), (norm_first, {"relu": "gelu", "gelu": "relu"}[activation])):
        with pytest.raises(AssertionError):
            check_layer(ours, *wrong)


def test_encoder_layer_without_bias_is_pytorchs():
    config = GPTConfig(5, d_model=12, n_heads=3, d_ff=20, bias=False)
    ours = spread(EncoderLayer(config))
    assert not any("bias" in name for name, _ in ours.named_parameters())
    check_layer(ours, True, "gelu", bias=False)


# --- rotary positions ---


def check_relative(rotate):
    q, k = torch.randn(1, 6), torch.randn(1, 6)

    def score(i, j):
        return (rotate(q, i) * rotate(k, j)).sum()

    for shift in (1, 5, 40):
        close(score(3 + shift, 1 + shift), score(3, 1))
    assert (score(3, 1) - score(3, 2)).abs() > 1e-3
    assert torch.equal(rotate(q, 0), q)
    x = torch.randn(2, 7, 6)  # row t of a sequence stands at start + t
    close(rotate(x, 4)[:, 3:4], rotate(x[:, 3:4], 7))


def test_rotary_scores_depend_on_the_distance():
    check_relative(model.rotate)
    turned = model.rotate(torch.tensor([[1.0, 0.0, 1.0, 0.0]]), 2)  # angles 2 and 2 / 10000 ** (2 / 4)
    close(turned, torch.tensor([[math.cos(2), math.sin(2), math.cos(0.02), math.sin(0.02)]]), 1e-6)


def test_sinusoids_that_are_added_are_no_rotation():
    added = lambda x, start=0: x + torch.tensor(attention.positional_encoding(60, 6))[start : start + x.shape[-2]]  # noqa: E731
    with pytest.raises(AssertionError):
        check_relative(added)


# --- the model ---


def check_no_leak(positions="learned"):
    ids = torch.tensor([[1, 2, 3, 4, 5, 6]])
    changed = torch.tensor([[1, 2, 3, 4, 9, 6]])
    for _ in range(8):  # a finite filler leaks only where some scores happen to be below it
        net = spread(gpt(positions=positions))
        for layer in net.layers:
            layer.self_attention.W_Q.weight.data *= 100
            layer.self_attention.W_K.weight.data *= 100
        before, after = net(ids), net(changed)
        close(after[:, :4], before[:, :4])
        assert (after - before)[:, 4].abs().max() > 1e-4


@pytest.mark.parametrize("positions", model.POSITIONS)
def test_future_tokens_do_not_leak(positions):
    check_no_leak(positions)


@pytest.mark.parametrize("fault", [{"filler": -1e4}, {"invert": True}], ids=str)
def test_a_leak_is_caught(fault, monkeypatch):
    wrong = wrong_attention(**fault)
    monkeypatch.setattr(
        model.attention, "scaled_dot_product_attention", lambda q, k, v, mask, dropout: wrong(q, k, v, mask)
    )
    with pytest.raises(AssertionError):
        check_no_leak()


@pytest.mark.parametrize("positions", model.POSITIONS)
def test_order_matters(positions):
    net = spread(gpt(positions=positions, n_layers=1))
    assert not torch.allclose(net(torch.tensor([[1, 2, 3]]))[0, -1], net(torch.tensor([[2, 1, 3]]))[0, -1], atol=1e-3)


def check_cache(net, pieces=(3, 1, 1, 4, 2)):
    ids = torch.randint(1, 11, (2, sum(pieces)))
    cache = KVCache(2)
    logits = torch.cat([net(piece, cache) for piece in ids.split(pieces, dim=1)], dim=1)
    assert len(cache) == sum(pieces)
    close(logits, net(ids))


@pytest.mark.parametrize("positions", model.POSITIONS)
@pytest.mark.parametrize("pad_id", [None, 3])
def test_cache_gives_the_same_logits(positions, pad_id):
    check_cache(spread(gpt(positions=positions, pad_id=pad_id)))


@pytest.mark.parametrize("positions", model.POSITIONS)
def test_new_tokens_at_position_0_are_caught(positions, monkeypatch):
    if positions == "rotary":
        right = model.rotate
        monkeypatch.setattr(model.attention, "rotate", lambda x, start: right(x, 0))
    else:
        right = model.Embeddings.forward
        monkeypatch.setattr(model.Embeddings, "forward", lambda self, ids, start: right(self, ids, 0))
    with pytest.raises(AssertionError):
        check_cache(spread(gpt(positions=positions)))


def test_sinusoidal_gpt_is_the_papers_sum():
    net = gpt(positions="sinusoidal", d_model=9, n_heads=3)
    ids = torch.tensor([[4, 0, 4]])
    rows = net.embeddings.token.weight[ids] * 3  # sqrt(9)
    close(net.embeddings(ids), rows + torch.tensor(attention.positional_encoding(3, 9), dtype=torch.float32))
    assert "embeddings.position" not in net.state_dict()  # computed, not learned


@pytest.mark.parametrize("d_model", [1, 2, 3, 5, 8])
def test_small_and_odd_d_model(d_model):
    for positions in ("sinusoidal", "learned"):
        assert gpt(d_model=d_model, n_heads=1, positions=positions)(torch.tensor([[1, 2]])).shape == (1, 2, 11)


def test_tied_embeddings_are_the_same_memory():
    tied, free = gpt(), gpt(tie_embeddings=False)
    assert tied.unembed.weight is tied.embeddings.token.weight
    assert tied.unembed.weight.data_ptr() == tied.embeddings.token.weight.data_ptr()
    assert free.unembed.weight.data_ptr() != free.embeddings.token.weight.data_ptr()
    count = lambda net: sum(p.numel() for p in net.parameters())  # noqa: E731
    assert count(free) - count(tied) == 11 * 8
    attention_part, ff, norms = 4 * (8 * 8 + 8), 8 * 16 + 16 + 16 * 8 + 8, 2 * 2 * 8
    assert count(tied) == 11 * 8 + 12 * 8 + 2 * (attention_part + ff + norms) + 2 * 8


def test_final_norm_and_its_absence():
    assert isinstance(gpt().final_norm, LayerNorm)
    assert "final_norm.weight" not in gpt(final_norm=False).state_dict()


def test_padding_is_never_attended_to():
    net = spread(gpt(pad_id=0, n_layers=1))
    ids, moved = torch.tensor([[5, 0, 0, 6], [0, 0, 0, 0]]), torch.randn(8)
    logits = net(ids)
    net.embeddings.token.weight.data[0] += moved
    assert torch.allclose(net(ids)[0, [0, 3], 1:], logits[0, [0, 3], 1:], atol=1e-6)  # logit 0 is that row's own
    assert logits.isfinite().all()
    other = spread(gpt(pad_id=None, n_layers=1))
    logits = other(ids)
    other.embeddings.token.weight.data[0] += moved
    assert not torch.allclose(other(ids)[0, 3, 1:], logits[0, 3, 1:], atol=1e-3)


@pytest.mark.parametrize("norm_first", [True, False])
def test_a_training_step_on_padding_alone_is_finite(norm_first):
    net = gpt(pad_id=0, norm_first=norm_first)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    loss = F.cross_entropy(net(torch.tensor([[0, 0, 0], [0, 2, 3]])).flatten(0, 1), torch.ones(6, dtype=torch.long))
    loss.backward()
    assert loss.isfinite() and all(p.grad.isfinite().all() for p in net.parameters())
    optimizer.step()
    assert net(torch.tensor([[0, 0, 0]])).isfinite().all()


def test_first_loss_is_near_ln_vocab_size():
    ids = torch.randint(65, (8, 13))
    for positions in model.POSITIONS:
        net = gpt(vocab_size=65, d_model=64, n_heads=2, n_layers=3, d_ff=256, positions=positions)
        assert abs(F.cross_entropy(net(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten()) - math.log(65)) < 0.3
    assert all(p.dtype == torch.float32 for p in net.parameters())


def fit(net, batches, lr=3e-3):
    optimizer = torch.optim.AdamW(net.parameters(), lr=lr)
    for ids in batches:
        loss = F.cross_entropy(net(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def fresh(n):
    return (torch.randint(27, (32, 9)) for _ in range(n))


def tiny():
    return gpt(vocab_size=27, d_model=32, n_layers=1, d_ff=64)


def check_random_tokens_stay_unpredictable(net):
    assert 3.2 < fit(net, fresh(300)) < 3.6  # ln 27 = 3.296


def test_targets_do_not_leak_in_training():
    check_random_tokens_stay_unpredictable(tiny())


def test_training_without_the_mask_is_caught(monkeypatch):
    right = model.scaled_dot_product_attention
    leak = lambda q, k, v, mask, dropout: right(q, k, v, None, dropout)  # noqa: E731
    monkeypatch.setattr(model.attention, "scaled_dot_product_attention", leak)
    with pytest.raises(AssertionError):
        check_random_tokens_stay_unpredictable(tiny())


def test_one_batch_is_learned_by_heart():
    ids = next(fresh(1))[:8]
    ids[:, 0] = torch.arange(8)  # else two rows with one beginning and two ends could not both be learned
    assert fit(tiny(), [ids] * 150) < 0.1  # also the check that softmax is not applied twice: its floor is 2.36


# --- what is refused ---


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        (torch.tensor([[1, 11]]), "id 11 is not in the vocabulary.*0 to 10"),
        (torch.tensor([[1, -1]]), "id -1 is not in the vocabulary"),
        (torch.ones(1, 13, dtype=torch.long), "too long.*12 tokens.*has 13"),
        (torch.tensor([[1.0, 2.0]]), "whole numbers.*float32"),
        (torch.tensor([[True]]), "whole numbers"),
        (torch.tensor([1, 2]), r"\(B, T\).*shape \(2,\)"),
        (torch.ones(1, 0, dtype=torch.long), "at least one token"),
        ([[1, 2]], "list"),
    ],
)
def test_gpt_refuses(ids, words):
    with pytest.raises(ValueError, match=words):
        gpt()(ids)


def test_gpt_refuses_more_than_fits_after_the_cache():
    net = gpt()
    cache = KVCache(2)
    net(torch.ones(1, 12, dtype=torch.long), cache)
    with pytest.raises(ValueError, match="has 13"):
        net(torch.ones(1, 1, dtype=torch.long), cache)
    assert len(cache) == 12


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"d_model": 10, "n_heads": 3}, "d_model=10 cannot be split evenly into 3 heads: change one"),
        ({"n_heads": 0}, "n_heads is a size"),
        ({"n_layers": 1.5}, "n_layers is a size"),
        ({"vocab_size": 0}, "vocab_size is a size"),
        ({"activation": "swish"}, "relu, gelu, gelu_tanh.*'swish'"),
        ({"positions": "none"}, "sinusoidal, learned, rotary"),
        ({"dropout": 1.0}, "dropout is a share"),
        ({"positions": "rotary", "d_model": 6, "n_heads": 2}, "even.*6 / 2"),
    ],
)
def test_config_refuses(options, words):
    with pytest.raises(ValueError, match=words):
        GPTConfig(**{"vocab_size": 5} | options)


def test_heads_that_do_not_divide_are_refused_everywhere():
    for make in (lambda: MultiHeadAttention(10, 3), lambda: model.split_heads(torch.ones(1, 2, 10), 3)):
        with pytest.raises(ValueError, match="d_model=10 cannot be split evenly into 3 heads: change one"):
            make()


def test_config_is_as_its_docstring_says():
    config = GPTConfig(np.int64(5))  # a size counted by NumPy is a size
    assert (config.activation, config.norm_first, config.norm_eps, config.final_norm) == ("gelu", True, 1e-5, True)
    assert (config.positions, config.bias, config.tie_embeddings, config.pad_id) == ("learned", True, True, None)
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.d_model = 3
    for field in dataclasses.fields(config)[1:]:
        assert field.name in GPTConfig.__doc__


# --- evaluating ---


def test_evaluating_restores_each_part_even_after_an_error():
    net = gpt(dropout=0.5).train()
    net.layers[0].eval()
    ids = torch.tensor([[1, 2, 3]])
    with pytest.raises(KeyError), model.evaluating(net):
        assert torch.equal(net(ids), net(ids)) and not net(ids).requires_grad
        raise KeyError
    assert net.training and not net.layers[0].self_attention.training and net.layers[1].self_attention.training
    assert not torch.equal(net(ids), net(ids)) and net(ids).requires_grad
