"""What a model folder of a shape consists of, for those who write one with random weights."""

# Those of models/saccade-tiny; ids above its vocabulary are padding.
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")


def shapes(config):
    """Name and shape of each tensor of a Llama or Qwen3 folder, in the order in which they are drawn."""
    hidden, inner, head = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    q, kv = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    yield "model.embed_tokens.weight", (config["vocab_size"], hidden)
    for layer in range(config["num_hidden_layers"]):
        name = f"model.layers.{layer}"
        yield f"{name}.input_layernorm.weight", (hidden,)
        yield f"{name}.self_attn.q_proj.weight", (q, hidden)
        yield f"{name}.self_attn.k_proj.weight", (kv, hidden)
        yield f"{name}.self_attn.v_proj.weight", (kv, hidden)
        yield f"{name}.self_attn.o_proj.weight", (hidden, q)
        if config["model_type"] == "qwen3":
            yield f"{name}.self_attn.q_norm.weight", (head,)
            yield f"{name}.self_attn.k_norm.weight", (head,)
        yield f"{name}.post_attention_layernorm.weight", (hidden,)
        yield f"{name}.mlp.gate_proj.weight", (inner, hidden)
        yield f"{name}.mlp.up_proj.weight", (inner, hidden)
        yield f"{name}.mlp.down_proj.weight", (hidden, inner)
    yield "model.norm.weight", (hidden,)
    if not config["tie_word_embeddings"]:
        yield "lm_head.weight", (config["vocab_size"], hidden)
