"""Looking inside a trained model: what its heads attend to, and what it does without some of them.

Both work on any module built with `model.MultiHeadAttention`. Attention layers are counted from 0 in the order they
run, heads from 0 within each. Imports torch.
"""

import contextlib

import torch

from course_utils.model import MultiHeadAttention, evaluating


def attention_maps(model, *inputs):
    """The attention weights of one run of `model(*inputs)`: a list, one tensor for each attention layer as it runs.

    Each is (B, n_heads, T_q, T_k), rows are queries; with dropout off, so rows sum to 1. The model is left in the mode
    it was in, without hooks, after an error too. ValueError for a model without a MultiHeadAttention.

    `attention_maps(transformer, src, tgt)`: first the encoder's layers, then of each decoder layer the self-attention,
    (B, n_heads, T, T), and the cross-attention, (B, n_heads, T, T_src), in the order of `attention_layers`.
    """
    maps = []
    with contextlib.ExitStack() as stack:
        for layer in _attention_layers(model):
            hook = layer.register_forward_hook(lambda layer, args, result: maps.append(result[1].detach()))
            stack.callback(hook.remove)
        with evaluating(model):
            model(*inputs)
    return maps


def attention_layers(model):
    """The names of the attention layers, such as "decoder_layers.0.cross_attention": their numbers are their places.

    The order is the one in which the model holds them; ours hold them in the order they run.
    """
    layers = _attention_layers(model)
    return [name for name, module in model.named_modules() if module in layers]


@contextlib.contextmanager
def without_heads(model, heads):
    """Inside the `with` block, the chosen heads write nothing: their output is zeros where W_O reads it.

    `heads` is {layer: [head, ...]}. The attention weights of a removed head stay as they are (later layers, reading
    something else, may change): what it looks at is unchanged, what it says is gone. Blocks can be nested: then the
    heads of both are silent. ValueError for a layer or a head the model does not have.
    """
    layers = _attention_layers(model)
    with contextlib.ExitStack() as stack:
        for number, chosen in heads.items():
            _check_number("layer", number, len(layers), "model")
            layer = layers[number]
            if not isinstance(chosen, (list, tuple, set, range)):
                raise ValueError(f"Heads come in a list. Write {{{number}: [{chosen}]}} (given: {chosen!r}).")
            for head in chosen:
                _check_number("head", head, layer.n_heads, f"layer {number}")
            hook = layer.W_O.register_forward_pre_hook(_silence(list(chosen), layer.n_heads))
            stack.callback(hook.remove)
        yield


def _silence(chosen, n_heads):
    def hook(module, args):
        merged = args[0].unflatten(-1, (n_heads, -1))  # (B, T, d_model) -> (B, T, h, d_k)
        speaks = torch.ones(n_heads, 1, device=merged.device, dtype=torch.bool)
        speaks[chosen] = False
        return (merged.masked_fill(~speaks, 0.0).flatten(-2),)  # (B, T, d_model)

    return hook


def _attention_layers(model):
    layers = [module for module in model.modules() if isinstance(module, MultiHeadAttention)]
    if not layers:
        raise ValueError(
            "There is no attention of ours to look at. Give a model built with course_utils.model.MultiHeadAttention "
            f"(this is a {type(model).__name__})."
        )
    return layers


def _check_number(what, number, n, where):
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < n:
        raise ValueError(f"The {where} has no {what} {number!r}. Choose one from 0 to {n - 1} (it has {n}).")
