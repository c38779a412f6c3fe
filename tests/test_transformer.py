"""model.Transformer against nn.Transformer, weight for weight: logits, gradients, masks, cache; planted faults show."""

import copy
import dataclasses
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import course_utils
from course_utils import attention, model
from course_utils.generate import KVCache
from course_utils.introspect import attention_layers, attention_maps, without_heads
from course_utils.model import DecoderLayer, MultiHeadAttention, Transformer, TransformerConfig

pytestmark = pytest.mark.filterwarnings("ignore:enable_nested_tensor")  # a notice of nn.Transformer with norm_first


@pytest.fixture(autouse=True)
def seeded():
    course_utils.seed(0)


def close(ours, theirs, atol=1e-5):
    torch.testing.assert_close(ours, theirs, atol=atol, rtol=0)


def transformer(**options):
    """A small one with all parameters far from their start, so that a part left out shows."""
    small = {"vocab_size": 11, "d_model": 12, "n_heads": 3, "n_layers": 2, "d_ff": 20, "max_len": 9, "dropout": 0.0}
    net = Transformer(TransformerConfig(**small | options))
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return net


SRC = torch.tensor([[5, 3, 8, 2, 6, 1, 4], [7, 2, 9, 4, 0, 0, 0], [10, 1, 1, 3, 5, 0, 0]])  # padding is 0
TGT = torch.tensor([[1, 4, 6, 2, 9], [1, 8, 3, 0, 0], [1, 7, 0, 0, 0]])
TARGETS = torch.tensor([[4, 6, 2, 9, 2], [8, 3, 2, -100, -100], [7, 2, -100, -100, -100]])


# --- weight for weight ---


class Theirs(nn.Module):
    """nn.Transformer with our embeddings and our last matrix. Its masks are the other way round: True = blocked."""

    def __init__(self, ours, **options):
        super().__init__()
        c = ours.config
        sizes = (c.d_model, c.n_heads, c.n_layers, c.n_layers, c.d_ff)
        choices = {"dropout": 0.0, "activation": c.activation, "norm_first": c.norm_first, "bias": c.bias}
        self.stacks = nn.Transformer(*sizes, **choices | options, layer_norm_eps=c.norm_eps, batch_first=True)
        if not c.final_norm:  # nn.Transformer has one on each stack, the paper has none
            self.stacks.encoder.norm = self.stacks.decoder.norm = None
        shared = copy.deepcopy(nn.ModuleList([ours.embeddings, ours.target_embeddings, ours.unembed]))
        self.embeddings, self.target_embeddings, self.unembed = shared
        self.to(ours.unembed.weight.dtype)

    def forward(self, src, tgt):
        masks = {"src_key_padding_mask": src == 0, "memory_key_padding_mask": src == 0}
        masks["tgt_key_padding_mask"] = tgt == 0
        masks["tgt_mask"] = torch.ones(tgt.shape[1], tgt.shape[1], dtype=torch.bool).triu(1)
        return self.unembed(self.stacks(self.embeddings(src), self.target_embeddings(tgt), **masks))


def pairs(ours, theirs):
    """Each parameter of ours with the parameter of theirs and the rows that are the same weights."""
    for our_stack, their_stack in (("encoder", theirs.stacks.encoder), ("decoder", theirs.stacks.decoder)):
        for our_layer, their_layer in zip(getattr(ours, f"{our_stack}_layers"), their_stack.layers, strict=True):
            yield from pairs_of_attention(our_layer.self_attention, their_layer.self_attn)
            if our_stack == "decoder":
                yield from pairs_of_attention(our_layer.cross_attention, their_layer.multihead_attn)
                yield from pairs_of_parts(our_layer.add_norm_3.norm, their_layer.norm3)
            yield from pairs_of_parts(our_layer.feed_forward.W_1, their_layer.linear1)
            yield from pairs_of_parts(our_layer.feed_forward.W_2, their_layer.linear2)
            yield from pairs_of_parts(our_layer.add_norm_1.norm, their_layer.norm1)
            yield from pairs_of_parts(our_layer.add_norm_2.norm, their_layer.norm2)
        if ours.config.final_norm:
            yield from pairs_of_parts(getattr(ours, f"{our_stack}_norm"), their_stack.norm)
    for part in ("embeddings", "target_embeddings", "unembed"):
        yield from pairs_of_parts(getattr(ours, part), getattr(theirs, part))


def pairs_of_parts(ours, theirs):
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        yield a, b, slice(None)


def pairs_of_attention(ours, theirs):
    d_model = ours.W_O.in_features
    for i, part in enumerate((ours.W_Q, ours.W_K, ours.W_V)):  # PyTorch stacks the three in one matrix
        for a, b in zip(part.parameters(), (theirs.in_proj_weight, theirs.in_proj_bias), strict=False):
            yield a, b, slice(i * d_model, (i + 1) * d_model)
    yield from pairs_of_parts(ours.W_O, theirs.out_proj)


def copy_weights(ours, theirs, ours_to_theirs=True):
    with torch.no_grad():
        for a, b, rows in pairs(ours, theirs):
            b[rows].copy_(a) if ours_to_theirs else a.copy_(b[rows])


def check_same(ours, theirs, atol=1e-5):
    """The same logits at all positions, padded ones too, and the same gradient of every weight."""
    logits = [net(SRC, TGT) for net in (ours, theirs)]
    close(*logits, atol)
    for net, y in zip((ours, theirs), logits, strict=True):
        net.zero_grad()
        F.cross_entropy(y.flatten(0, 1), TARGETS.flatten(), ignore_index=-100).backward()
    grads = [(a.grad, b.grad[rows]) for a, b, rows in pairs(ours, theirs)]
    largest = max(b.abs().max().item() for _, b in grads)
    assert largest > 0.01
    for a, b in grads:
        close(a, b, atol * largest)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("final_norm", [False, True])
def test_transformer_is_pytorchs(norm_first, final_norm):
    ours = transformer(norm_first=norm_first, final_norm=final_norm)
    theirs = Theirs(ours)
    copy_weights(ours, theirs)
    assert sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in theirs.parameters())
    check_same(ours, theirs)
    check_same(ours.double(), theirs.double(), 1e-12)


@pytest.mark.parametrize(
    "options",
    [
        {"tie_embeddings": False, "activation": "gelu"},
        {"bias": False, "positions": "learned", "norm_eps": 1e-3, "final_norm": True},
        {"n_layers": 1, "n_heads": 1, "d_model": 5},
    ],
    ids=str,
)
def test_transformer_with_other_choices_is_pytorchs(options):
    ours = transformer(**options)
    theirs = Theirs(ours)
    copy_weights(ours, theirs)
    check_same(ours, theirs)


def test_their_weights_in_our_model():
    ours = transformer()
    theirs = Theirs(ours)  # Xavier's, drawn by PyTorch
    with torch.no_grad():
        for name, weights in theirs.named_parameters():
            if name.endswith("bias"):  # PyTorch's biases begin at 0, which would hide one left out
                weights.normal_()
    with pytest.raises(AssertionError):
        check_same(ours, theirs)
    copy_weights(ours, theirs, ours_to_theirs=False)
    check_same(ours, theirs)


# --- the check above finds each of these ---


def names_of(net):
    return [name for name, _ in net.named_parameters()]


@pytest.mark.parametrize("name", names_of(transformer(n_layers=1, final_norm=True, tie_embeddings=False)))
def test_one_wrong_number_is_caught(name):
    ours = transformer(n_layers=1, final_norm=True, tie_embeddings=False)
    theirs = Theirs(ours)
    copy_weights(ours, theirs)
    check_same(ours, theirs)
    rows = 1 if "embeddings" in name else 0  # row 0 of the embeddings is padding, which nobody reads
    with torch.no_grad():
        # A shift of all keys by one vector changes no weights of attention, so W_K's bias alone would not show.
        dict(ours.named_parameters())[name][rows].add_(0.5)
    if name.endswith("W_K.bias"):
        check_same(ours, theirs, 1e-4)
    else:
        with pytest.raises(AssertionError):
            check_same(ours, theirs)


def without_causal(right):
    def wrong(ids, config, cache=None):
        seen, start, mask = right(ids, config, cache)
        return seen, start, torch.ones_like(mask) & (seen != config.pad_id)[:, None, :]

    return wrong


def without_target_padding(right):
    return lambda ids, config, cache=None: right(ids, dataclasses.replace(config, pad_id=None), cache)


def one_position_late(right):
    def wrong(ids, config, cache=None):
        seen, start, mask = right(ids, config, cache)
        return seen, start, mask & ~torch.eye(mask.shape[-1], dtype=torch.bool) | (mask.cumsum(-1) == 1)

    return wrong


FAULTS = {
    "no causal mask": (model.models, "read_on", without_causal),
    "no target padding": (model.models, "read_on", without_target_padding),
    "a token does not see itself": (model.models, "read_on", one_position_late),
    "no source padding": (Transformer, "_source_mask", lambda right: lambda self, src: None),
    "source padding inverted": (Transformer, "_source_mask", lambda right: lambda self, src: ~right(self, src)),
    "source padding masks queries": (
        Transformer,
        "_source_mask",
        lambda right: lambda self, src: right(self, src).transpose(1, 2)[:, : len(src[0])],
    ),
    "heads merged without transpose": (
        model.attention,
        "merge_heads",
        lambda right: lambda x: x.reshape(len(x), x.shape[2], -1),
    ),
    "residual left out": (model.AddAndNorm, "forward", lambda right: lambda self, x, f: self.norm(f(x))),
    "pre-norm": (model.AddAndNorm, "forward", lambda right: lambda self, x, f: x + f(self.norm(x))),
    "embeddings not scaled": (model.Embeddings, "forward", lambda right: lambda self, ids, start=0: self.token(ids)),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_fault_is_caught(fault, monkeypatch):
    ours = transformer()
    theirs = Theirs(ours)
    copy_weights(ours, theirs)
    expected = theirs(SRC[:, :5], TGT)  # T_src = T, so that a mask of the wrong axis still fits
    close(ours(SRC[:, :5], TGT), expected)
    place, name, make = FAULTS[fault]
    monkeypatch.setattr(place, name, make(getattr(place, name)))
    with pytest.raises(AssertionError):
        close(ours(SRC[:, :5], TGT), expected)


@pytest.mark.parametrize(
    "wrong",
    [{"norm_first": True}, {"activation": "gelu"}, {"norm_eps": 1e-2}, {"final_norm": True}, {"n_heads": 2}],
    ids=str,
)
def test_another_choice_is_caught(wrong):
    ours = transformer()
    theirs = Theirs(ours)
    copy_weights(ours, theirs)
    other = transformer(**wrong)
    other.load_state_dict(ours.state_dict(), strict=False)
    with pytest.raises(AssertionError):
        close(other(SRC, TGT), theirs(SRC, TGT))


def test_memory_in_the_wrong_place_is_caught(monkeypatch):
    """Cross-attention that reads the memory as queries, or the target as keys."""
    ours = transformer()
    theirs = Theirs(ours)
    copy_weights(ours, theirs)
    right = MultiHeadAttention.forward
    for wrong in (
        lambda self, query, key=None, mask=None, cache=None: right(self, query, None, None, None, None),
        lambda self, query, key=None, mask=None, cache=None: right(self, *([query] if key is None else [key, query])),
    ):
        with monkeypatch.context() as patch, pytest.raises((AssertionError, RuntimeError)):
            patch.setattr(MultiHeadAttention, "forward", wrong)
            close(ours(SRC, TGT), theirs(SRC, TGT))


# --- the decoder layer alone ---


def test_decoder_layer_without_masks():
    layer = DecoderLayer(transformer().config)
    x, memory = torch.randn(2, 4, 12), torch.randn(2, 6, 12)
    theirs = nn.TransformerDecoderLayer(12, 3, 20, 0.0, batch_first=True)
    with torch.no_grad():
        for part, other in ((layer.self_attention, theirs.self_attn), (layer.cross_attention, theirs.multihead_attn)):
            for a, b, rows in pairs_of_attention(part, other):
                b[rows].copy_(a)
        theirs.linear1.load_state_dict(layer.feed_forward.W_1.state_dict())
        theirs.linear2.load_state_dict(layer.feed_forward.W_2.state_dict())
    close(layer(x, memory), theirs(x, memory))
    alone = torch.eye(4, dtype=torch.bool)
    last = torch.zeros(4, 6, dtype=torch.bool)
    last[:, 5] = True
    close(layer(x, memory, alone, last), theirs(x, memory, tgt_mask=~alone, memory_mask=~last))


# --- masks ---


@pytest.mark.parametrize("positions", model.POSITIONS)
def test_padding_changes_nothing(positions):
    """More padding behind the source, and behind the target, leaves the logits as they are."""
    net = transformer(d_model=12, n_heads=3, positions=positions)
    logits = net(SRC, TGT)
    pad = torch.zeros(3, 2, dtype=torch.long)
    close(net(torch.cat([SRC, pad], 1), torch.cat([TGT, pad], 1))[:, :5], logits)
    close(net(SRC[1:2, :4], TGT[1:2, :3])[0], logits[1, :3])  # and so does less
    other = transformer(positions=positions, pad_id=None)
    assert (other(torch.cat([SRC, pad], 1), TGT) - other(SRC, TGT)).abs().max() > 0.01


@pytest.mark.parametrize("positions", model.POSITIONS)
def test_who_sees_whom(positions):
    net = transformer(positions=positions, n_layers=1)
    logits = net(SRC, TGT)
    changed = TGT.clone()
    changed[0, 3] = 7
    after = net(SRC, changed)
    close(after[0, :3], logits[0, :3])
    assert ((after - logits)[0, 3:].abs().amax(-1) > 1e-3).all()
    close(after[1:], logits[1:])
    for t in (0, 6):  # all of the source, its first and its last token
        source = SRC.clone()
        source[0, t] = 9
        assert ((net(source, TGT) - logits)[0].abs().amax(-1) > 1e-3).all()


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("positions", model.POSITIONS)
def test_padding_alone_is_finite(positions, norm_first):
    net = Transformer(TransformerConfig(11, 8, 2, 2, 16, norm_first=norm_first, positions=positions))
    src, tgt = torch.tensor([[0, 0, 0], [3, 2, 0]]), torch.tensor([[0, 0], [0, 4]])
    logits = net(src, tgt)
    F.cross_entropy(logits.flatten(0, 1), torch.ones(4, dtype=torch.long)).backward()
    assert logits.isfinite().all() and all(p.grad.isfinite().all() for p in net.parameters())


@pytest.mark.parametrize("positions", model.POSITIONS)
def test_cross_attention_has_no_positions_of_its_own(positions):
    """Memory in another order, with its mask, gives the same logits."""
    net = transformer(positions=positions)
    memory, order = net.encode(SRC), torch.tensor([3, 0, 6, 1, 5, 2, 4])
    close(net.decode(TGT, memory[:, order], SRC[:, order]), net(SRC, TGT))
    assert (net(SRC[:, order], TGT) - net(SRC, TGT)).abs().max() > 0.01


def test_each_half_is_rotated_within_itself():
    net = transformer(positions="rotary")
    crosses = [layer.cross_attention.rotary for layer in net.decoder_layers]
    own = [layer.self_attention.rotary for layer in (*net.encoder_layers, *net.decoder_layers)]
    assert not any(crosses) and all(own)


# --- cache ---


def check_cache(net, pieces=(1, 1, 2, 1)):
    cache, memory = KVCache(2), net.encode(SRC)
    logits = torch.cat([net.decode(piece, memory, src=SRC, cache=cache) for piece in TGT.split(pieces, dim=1)], dim=1)
    assert len(cache) == 5
    close(logits, net(SRC, TGT))
    return cache


@pytest.mark.parametrize("positions", model.POSITIONS)
@pytest.mark.parametrize("pad_id", [None, 0])
def test_cache_gives_the_same_logits(positions, pad_id):
    cache = check_cache(transformer(positions=positions, pad_id=pad_id))
    shapes = {name: tuple(tensor.shape) for name, tensor in cache.layers[1].items()}
    assert shapes == {"k": (3, 3, 5, 4), "v": (3, 3, 5, 4), "memory_k": (3, 3, 7, 4), "memory_v": (3, 3, 7, 4)}


@pytest.mark.parametrize("positions", model.POSITIONS)
def test_new_tokens_at_position_0_are_caught(positions, monkeypatch):
    if positions == "rotary":
        right = model.rotate
        monkeypatch.setattr(model.attention, "rotate", lambda x, start: right(x, 0))
    else:
        right = model.Embeddings.forward
        monkeypatch.setattr(model.Embeddings, "forward", lambda self, ids, start=0: right(self, ids, 0))
    with pytest.raises(AssertionError):
        check_cache(transformer(positions=positions))


def test_the_memory_is_projected_once():
    net, calls = transformer(), []
    for layer in net.decoder_layers:
        layer.cross_attention.W_K.register_forward_hook(lambda *_: calls.append("k"))
        layer.cross_attention.W_V.register_forward_hook(lambda *_: calls.append("v"))
    check_cache(net)  # four pieces with a cache, then all at once without
    assert calls == ["k", "v"] * 4


# --- parts and sizes ---


def test_embeddings_are_one_table():
    tied, free = transformer(), transformer(tie_embeddings=False)
    tables = [tied.embeddings.token.weight, tied.target_embeddings.token.weight, tied.unembed.weight]
    assert len({table.data_ptr() for table in tables}) == 1
    tables = [free.embeddings.token.weight, free.target_embeddings.token.weight, free.unembed.weight]
    assert len({table.data_ptr() for table in tables}) == 3
    count = lambda net: sum(p.numel() for p in net.parameters())  # noqa: E731
    assert count(free) - count(tied) == 2 * 11 * 12
    rows = tied.embeddings.token.weight[SRC] * math.sqrt(12)
    close(tied.embeddings(SRC), rows + torch.tensor(attention.positional_encoding(7, 12), dtype=torch.float32))


def test_base_model_is_table_3s():
    with torch.device("meta"):  # shapes without memory
        net = Transformer(TransformerConfig(37_000))
    assert sum(p.numel() for p in net.parameters()) == 63_082_496
    biases = sum(p.numel() for name, p in net.named_parameters() if "attention" in name and name.endswith("bias"))
    assert biases == 18 * 4 * 512  # 18 attentions; without them 63.05 M


def test_config_is_as_its_docstring_says():
    config = TransformerConfig(5)
    assert (config.d_model, config.n_heads, config.n_layers, config.d_ff, config.dropout) == (512, 8, 6, 2048, 0.1)
    assert (config.activation, config.norm_first, config.norm_eps, config.final_norm) == ("relu", False, 1e-5, False)
    assert (config.positions, config.bias, config.tie_embeddings, config.pad_id) == ("sinusoidal", True, True, 0)
    for field in dataclasses.fields(config)[1:]:
        assert field.name in TransformerConfig.__doc__
    with pytest.raises(ValueError, match="d_model=10 cannot be split evenly into 3 heads: change one"):
        TransformerConfig(5, d_model=10, n_heads=3)


@pytest.mark.parametrize("d_model", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_small_and_odd_d_model(d_model, positions):
    assert transformer(d_model=d_model, n_heads=1, positions=positions)(SRC, TGT).isfinite().all()


@pytest.mark.parametrize("positions", model.POSITIONS)
@pytest.mark.parametrize("sizes", [(64, 2, 2, 256), (256, 4, 4, 1024)], ids=str)
def test_first_loss_is_near_ln_vocab_size(positions, sizes):
    net = Transformer(TransformerConfig(65, *sizes, positions=positions)).eval()
    src, tgt = torch.randint(1, 65, (8, 12)), torch.randint(1, 65, (8, 13))
    loss = F.cross_entropy(net(src, tgt[:, :-1]).flatten(0, 1), tgt[:, 1:].flatten())
    assert abs(loss - math.log(65)) < 0.3


def test_one_batch_is_learned_by_heart():
    net = Transformer(TransformerConfig(11, 32, 2, 1, 64, dropout=0.0))
    optimizer = torch.optim.AdamW(net.parameters(), lr=5e-3)
    for _ in range(60):
        loss = F.cross_entropy(net(SRC, TGT).flatten(0, 1), TARGETS.flatten(), ignore_index=-100)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.1


@pytest.mark.parametrize(
    ("src", "tgt", "words"),
    [
        (SRC + 10, TGT, "id 20 is not in the vocabulary.*0 to 10"),
        (SRC, TGT - 1, "id -1 is not in the vocabulary"),
        (torch.ones(3, 10, dtype=torch.long), TGT, "too long.*9 tokens.*has 10"),
        (SRC, torch.ones(3, 10, dtype=torch.long), "too long.*9 tokens.*has 10"),
        (SRC.float(), TGT, "whole numbers.*float32"),
        (SRC, TGT[0], r"\(B, T\).*shape \(5,\)"),
        (SRC[:2], TGT, r"Each target needs its source.*src \(2, 7\), memory \(2, 7, 12\), tgt \(3, 5\)"),
    ],
)
def test_transformer_refuses(src, tgt, words):
    with pytest.raises(ValueError, match=words):
        transformer()(src, tgt)


def test_decode_refuses_the_memory_of_another_source():
    net = transformer()
    with pytest.raises(ValueError, match=r"src \(3, 4\), memory \(3, 7, 12\)"):
        net.decode(TGT, net.encode(SRC), SRC[:, :4])


# --- looking inside ---


def test_maps_come_in_the_order_they_run():
    net = transformer(dropout=0.3)
    maps = attention_maps(net, SRC, TGT)
    assert [tuple(weights.shape[-2:]) for weights in maps] == [(7, 7), (7, 7), (5, 5), (5, 7), (5, 5), (5, 7)]
    assert attention_layers(net) == [
        "encoder_layers.0.self_attention",
        "encoder_layers.1.self_attention",
        "decoder_layers.0.self_attention",
        "decoder_layers.0.cross_attention",
        "decoder_layers.1.self_attention",
        "decoder_layers.1.cross_attention",
    ]
    for name, weights in zip(attention_layers(net), maps, strict=True):
        close(weights.sum(-1), torch.ones(weights.shape[:-1]))
        if name.startswith("encoder") or "cross" in name:
            assert (weights[1, ..., 4:] == 0).all() and (weights[0] > 0).all()
        else:
            assert (weights.triu(1) == 0).all()


def test_a_removed_head_of_the_cross_attention():
    net = transformer()
    layer = attention_layers(net).index("decoder_layers.1.cross_attention")
    zeroed = copy.deepcopy(net)
    zeroed.decoder_layers[1].cross_attention.W_O.weight.data[:, 4:8] = 0  # head 1 of d_k = 4
    with without_heads(net, {layer: [1]}):
        close(net(SRC, TGT), zeroed(SRC, TGT))
    assert (net(SRC, TGT) - zeroed(SRC, TGT)).abs().max() > 0.01
