"""cost.py: parameters against the models, FLOPs against PyTorch's counter, bytes against real weights and caches."""

import dataclasses
import subprocess
import sys

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from course_utils import cost
from course_utils.generate import KVCache
from course_utils.introspect import attention_maps
from course_utils.model import GPT, GPTConfig, Transformer, TransformerConfig

SIZES = {"d_model": 12, "n_heads": 3, "n_layers": 2, "d_ff": 20, "max_len": 9, "dropout": 0.0}
CONFIGS = [
    kind(11, **SIZES | options)
    for kind in (GPTConfig, TransformerConfig)
    for options in (
        {},
        {"bias": False},
        {"tie_embeddings": False},
        {"final_norm": True},
        {"final_norm": False, "norm_first": True},
        {"positions": "learned"},
        {"positions": "learned", "tie_embeddings": False, "bias": False, "final_norm": True},
        {"positions": "rotary", "pad_id": None},
        {"n_layers": 3, "n_heads": 1, "d_ff": 7, "d_model": 5, "positions": "sinusoidal"},
    )
]


def name(config):
    plain = type(config)(11, **SIZES)
    changes = {f: v for f, v in dataclasses.asdict(config).items() if v != getattr(plain, f)}
    return f"{type(config).__name__} {changes}"


def model_of(config):
    return Transformer(config) if config.is_encoder_decoder else GPT(config)


def inputs(config, T, T_src, batch):
    tgt = torch.randint(1, 11, (batch, T))
    return (torch.randint(1, 11, (batch, T_src)), tgt) if config.is_encoder_decoder else (tgt,)


def check_parameters(parameters, config):
    net, parts = model_of(config), parameters(config)
    assert sum(parts.values()) == sum(p.numel() for p in net.parameters())  # which counts tied ones once
    sizes = {n: p.numel() for n, p in net.named_parameters()}
    assert parts["attention biases"] == sum(s for n, s in sizes.items() if "attention" in n and n.endswith("bias"))
    decoder = "decoder_layers" if config.is_encoder_decoder else "layers"
    for stack, layers in (("decoder", decoder), ("encoder", "encoder_layers")):
        own = {n: s for n, s in sizes.items() if n.startswith(layers)}
        expected = {
            f"{stack} attention": sum(s for n, s in own.items() if "attention" in n and n.endswith("weight")),
            f"{stack} feed-forward": sum(s for n, s in own.items() if "feed_forward" in n),
        }
        for part, count in expected.items():
            assert parts.get(part, 0) == count


@pytest.mark.parametrize("config", CONFIGS, ids=name)
def test_parameters_are_the_models(config):
    check_parameters(cost.parameters, config)


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ({}, lambda c: {part: n for part, n in cost.parameters(c).items() if part != "attention biases"}),
        ({}, lambda c: cost.parameters(dataclasses.replace(c, tie_embeddings=False))),
        ({}, lambda c: cost.parameters(c) | {"decoder attention": cost.parameters(c)["encoder attention"]}),
        ({"final_norm": True}, lambda c: cost.parameters(dataclasses.replace(c, final_norm=False))),
    ],
    ids=["no biases", "ties counted twice", "no cross-attention", "no final norm"],
)
def test_wrong_parameters_are_caught(options, wrong):
    with pytest.raises((AssertionError, KeyError)):
        check_parameters(wrong, TransformerConfig(11, **SIZES | options))


def test_base_model_has_63_million():
    parts = cost.parameters(TransformerConfig(37_000))
    assert parts["embeddings and logits"] == 18_944_000
    assert sum(parts.values()) == 63_082_496
    assert sum(parts.values()) - parts["attention biases"] == 63_045_632  # as the paper writes it: 44.10 M + 18.94 M
    assert sum(parts.values()) - parts["attention biases"] - parts["embeddings and logits"] == 44_101_632


def test_gpt_2_small_has_124_million():
    gpt2 = GPTConfig(50_257, d_model=768, n_heads=12, n_layers=12, d_ff=3072, max_len=1024)
    assert sum(cost.parameters(gpt2).values()) == 124_439_808  # Hugging Face's count of `gpt2`


def counted(config, T, T_src, batch):
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model_of(config)(*inputs(config, T, T_src, batch))
    return counter.get_total_flops()


@pytest.mark.parametrize("config", CONFIGS, ids=name)
@pytest.mark.parametrize(("T", "T_src", "batch"), [(1, 1, 1), (5, 8, 3), (9, 2, 2)])
def test_flops_are_pytorchs(config, T, T_src, batch):
    parts = cost.flops(config, T, T_src, batch)
    assert sum(parts.values()) == counted(config, T, T_src, batch)


def test_flops_by_hand():
    parts = cost.flops(TransformerConfig(10, 4, 2, 3, 7), T=2, T_src=5)  # 3 layers
    assert parts["encoder projections"] == 3 * 4 * 2 * 5 * 4 * 4
    assert parts["encoder scores and mixing"] == 3 * (2 * 5 * 5 * 4 + 2 * 5 * 5 * 4)
    assert parts["cross projections"] == 3 * 2 * 2 * (2 + 5) * 4 * 4
    assert parts["cross scores and mixing"] == 3 * 2 * 2 * 2 * 5 * 4
    assert parts["decoder feed-forward"] == 3 * 2 * (2 * 2 * 4 * 7)
    assert parts["logits"] == 2 * 2 * 4 * 10
    assert cost.flops(TransformerConfig(10, 4, 2), T=3) == cost.flops(TransformerConfig(10, 4, 2), T=3, T_src=3)


@pytest.mark.parametrize("config", CONFIGS, ids=name)
def test_bytes_are_the_tensors(config):
    T, T_src, batch = 5, 8, 3
    net, given = model_of(config), inputs(config, T, T_src, batch)
    maps = attention_maps(net, *given)
    assert cost.weights_bytes(config, T, T_src, batch) == sum(w.numel() * w.element_size() for w in maps)
    cache = KVCache(config.n_layers)
    if config.is_encoder_decoder:
        net.decode(given[1], net.encode(given[0]), src=given[0], cache=cache)
    else:
        net(*given, cache)
    tensors = [tensor for layer in cache.layers for tensor in layer.values()]
    assert cost.cache_bytes(config, T, T_src, batch) == sum(t.numel() * t.element_size() for t in tensors)


def test_growth_with_length():
    config = GPTConfig(11, **SIZES)
    assert cost.weights_bytes(config, 200) == 4 * cost.weights_bytes(config, 100)
    assert cost.cache_bytes(config, 200) == 2 * cost.cache_bytes(config, 100)
    assert cost.cache_bytes(config, 1) == 2 * 2 * 12 * 4  # 2 layers, a key and a value of 12 numbers, 4 bytes each


@pytest.mark.parametrize("function", [cost.flops, cost.weights_bytes, cost.cache_bytes])
def test_sizes_that_cannot_be(function):
    for sizes in ({"T": 0}, {"T": 2, "T_src": -1}, {"T": 2, "batch": 0}):
        with pytest.raises(ValueError, match="Give at least 1"):
            function(GPTConfig(11), **sizes)


def test_no_torch_is_needed():
    code = "import sys; from course_utils import cost; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
