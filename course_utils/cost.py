"""What a model costs, by arithmetic alone: parameters, operations, bytes. Pure Python; notebook 13 moves the sizes.

Each function takes a GPTConfig or a TransformerConfig, or anything with their fields (n_heads, positions, ...; with
`is_encoder_decoder` True it is the paper's model, else decoder-only). Symbols are the paper's. A FLOP is one
multiplication or one addition, so a product of (n, m) and (m, p) costs 2 n m p. Numbers are float32: 4 bytes.
"""

BYTES = 4  # of a float32


def parameters(config):
    """How many numbers the model learns, by part: {part: count}, tied tables once; the sum is the model's total.

    The biases of the attention projections are a part of their own, "attention biases": the paper writes none
    (3.2.2), so without this part the total is the paper's, with it that of the usual code. A part may be 0.
    """
    c = config
    d, biased = c.d_model, int(c.bias)
    tables = 1 if c.tie_embeddings else 3 if c.is_encoder_decoder else 2  # source, target, logits
    position_tables = 1 if c.tie_embeddings or not c.is_encoder_decoder else 2
    attention = 4 * d * d  # W_Q, W_K, W_V, W_O of all heads together: the number of heads does not matter
    feed_forward = 2 * d * c.d_ff + biased * (c.d_ff + d)
    norm = d + biased * d
    parts = {
        "embeddings and logits": tables * c.vocab_size * d,
        "learned positions": position_tables * c.max_len * d if c.positions == "learned" else 0,
    }
    n_attentions = 0
    for stack, (n_attention, n_norm) in _stacks(c).items():
        parts[f"{stack} attention"] = c.n_layers * n_attention * attention
        parts[f"{stack} feed-forward"] = c.n_layers * feed_forward
        parts[f"{stack} norms"] = (c.n_layers * n_norm + int(c.final_norm)) * norm
        n_attentions += c.n_layers * n_attention
    parts["attention biases"] = n_attentions * 4 * d * biased
    return parts


def flops(config, T, T_src=None, batch=1):
    """FLOPs of one forward pass over `batch` sequences of T tokens, by part: {part: count}; matrix products alone.

    T_src is the length of the source, T unless given. Additions of biases, norms, softmax and activations are left
    out, as is usual: they grow with the tokens, not with their product with d_model. A training step takes about three
    times as much. ValueError for sizes below 1.
    """
    c, T_src = config, T if T_src is None else T_src
    _check_sizes(T=T, T_src=T_src, batch=batch)
    d, per_layer = c.d_model, batch * c.n_layers
    feed_forward = 2 * 2 * d * c.d_ff  # of a token
    projection = 2 * d * d  # of a token
    parts = {}
    for stack in _stacks(c):
        length = T_src if stack == "encoder" else T
        parts[f"{stack} projections"] = per_layer * 4 * length * projection
        parts[f"{stack} scores and mixing"] = per_layer * 2 * 2 * length * length * d
        if c.is_encoder_decoder and stack == "decoder":  # W_Q and W_O for its tokens, W_K and W_V for the memory's
            parts["cross projections"] = per_layer * (2 * T + 2 * T_src) * projection
            parts["cross scores and mixing"] = per_layer * 2 * 2 * T * T_src * d
        parts[f"{stack} feed-forward"] = per_layer * length * feed_forward
    parts["logits"] = batch * T * 2 * d * c.vocab_size
    return parts


def weights_bytes(config, T, T_src=None, batch=1):
    """Bytes of all attention weights of one forward pass, (B, n_heads, T_q, T_k) in each attention: they grow as T^2.

    Training keeps them for the backward pass; a model that only runs needs those of one layer at a time.
    """
    T_src = T if T_src is None else T_src
    _check_sizes(T=T, T_src=T_src, batch=batch)
    cells = T * T + (T_src * T_src + T * T_src if config.is_encoder_decoder else 0)
    return BYTES * batch * config.n_layers * config.n_heads * cells


def cache_bytes(config, T, T_src=None, batch=1):
    """Bytes of the KV cache after T tokens: a key and a value of d_model numbers for each token and layer.

    An encoder-decoder caches the keys and values of the T_src source tokens too, once for each decoder layer.
    """
    T_src = T if T_src is None else T_src
    _check_sizes(T=T, T_src=T_src, batch=batch)
    tokens = T + (T_src if config.is_encoder_decoder else 0)
    return BYTES * batch * config.n_layers * 2 * config.d_model * tokens


def _stacks(config):
    """{stack: (attentions a layer, norms a layer)}."""
    return {"encoder": (1, 2), "decoder": (2, 3)} if config.is_encoder_decoder else {"decoder": (1, 2)}


def _check_sizes(**sizes):
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} counts tokens or sequences. Give at least 1 (it is {size}).")
