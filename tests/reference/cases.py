"""The models of the reference set: one small random model for each thing that families and
configuration files can differ in.

Every case states its purpose. Sizes are odd on purpose where nothing forbids it, so that
the remainders of blocked kernels are exercised.
"""

from dataclasses import dataclass, field
from typing import Any

BOS_ID, EOS_ID, PAD_ID, SECOND_EOS_ID = 256, 257, 258, 259
PROMPT_LENGTHS = (1, 2, 7, 33, 200)
GREEDY_TOKENS = 64


@dataclass(frozen=True)
class Case:
    """A model and how its reference values are computed."""

    name: str
    why: str
    family: str  # a key of model_folder.CLASSES
    config: dict[str, Any]  # on top of the defaults of `full_config`
    style: str  # v4 | v5: generation of config.json
    dtype: str = "float32"  # of the stored weights
    max_shard_size: str = "5GB"
    token_by_token: bool = False  # feed prompts one token at a time, with a cache
    prompt_lengths: tuple[int, ...] = PROMPT_LENGTHS
    v4_rope_key: str = "rope_type"  # v4 files name the type "type" or "rope_type"
    template_file: bool = False  # chat_template.jinja instead of the field
    # See weights.py; the low-precision cases need wide greedy margins.
    embed_std: float = 0.6
    logit_std: float = 5.0
    planted: float = 0.2
    # Bounds of the smallest difference of the two best logits in greedy decoding.
    min_margin: float = 0.005
    most_margin: float = float("inf")
    fp8: str | None = None  # form of the scales of matrices in e4m3, see fp8.py
    fp8_scale_dtype: str = "float32"
    drop_keys: tuple[str, ...] = field(default=())  # left out of config.json: defaults must hold


def full_config(case: Case) -> dict[str, Any]:
    """The keyword arguments of the configuration class of `case`."""
    base = {
        "vocab_size": 272,
        "hidden_size": 56,
        "intermediate_size": 44,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False,
        "bos_token_id": BOS_ID,
        "eos_token_id": EOS_ID,
        "pad_token_id": PAD_ID,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    }
    return base | case.config


def long_rope(pairs: int, **more: Any) -> dict[str, Any]:
    """longrope parameters whose two lists differ from each other and from 1."""
    return {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "short_factor": [1.0 + 0.05 * i for i in range(pairs)],
        "long_factor": [1.5 + 0.6 * i for i in range(pairs)],
    } | more


LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}

CASES = (
    Case(
        name="llama-plain-v4",
        why="grouped heads, untied, default rope; the simplest old configuration",
        family="llama",
        style="v4",
        config={"hidden_size": 64},
    ),
    Case(
        name="llama-llama3-tied-v5",
        why="llama3 rope and tied embeddings, as Llama 3.2; several end-of-sequence ids",
        family="llama",
        style="v5",
        config={
            "rope_parameters": LLAMA3_ROPE,
            "tie_word_embeddings": True,
            "eos_token_id": [EOS_ID, SECOND_EOS_ID],
            "num_hidden_layers": 3,
        },
    ),
    Case(
        name="llama-biases-headdim-v4",
        why="biases on every projection, one key/value head, head_dim != hidden / heads",
        family="llama",
        style="v4",
        config={
            "attention_bias": True,
            "mlp_bias": True,
            "head_dim": 20,
            "num_key_value_heads": 1,
        },
    ),
    Case(
        name="llama-linear-sharded-v4",
        why="linear rope under its oldest key, as many kv heads as heads, several weight files",
        family="llama",
        style="v4",
        v4_rope_key="type",
        max_shard_size="120KB",
        config={
            "rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0},
            "num_key_value_heads": 4,
        },
    ),
    Case(
        name="llama-dynamic-v4",
        why="dynamic rope within the original length, where it must change nothing",
        family="llama",
        style="v4",
        config={
            "rope_parameters": {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0},
            "tie_word_embeddings": True,
        },
    ),
    Case(
        name="llama-dynamic-long-v5",
        why="dynamic rope beyond the original length, token by token",
        family="llama",
        style="v5",
        token_by_token=True,
        prompt_lengths=(1, 31, 100),
        config={
            "rope_parameters": {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0},
            "tie_word_embeddings": True,
            "max_position_embeddings": 64,
        },
    ),
    Case(
        name="mistral-window-v4",
        why="sliding window on all layers, shorter than the prompts",
        family="mistral",
        style="v4",
        template_file=True,
        config={"sliding_window": 20},
    ),
    Case(
        name="mistral-headdim-v5",
        why="no window, head_dim larger than hidden / heads, as Mistral Nemo",
        family="mistral",
        style="v5",
        config={
            "sliding_window": None,
            "head_dim": 32,
            "hidden_size": 48,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
        },
    ),
    Case(
        name="qwen2-tied-v4",
        why="biases on q, k and v only; window fields present and not used",
        family="qwen2",
        style="v4",
        config={
            "tie_word_embeddings": True,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
            "vocab_size": 264,
            "sliding_window": 32,
            "use_sliding_window": False,
        },
    ),
    Case(
        name="qwen2-yarn-window-v5",
        why="yarn rope; the upper layers slide (max_window_layers)",
        family="qwen2",
        style="v5",
        config={
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 1000000.0,
                "factor": 4.0,
                "original_max_position_embeddings": 128,
            },
            "use_sliding_window": True,
            "sliding_window": 24,
            "max_window_layers": 1,
            "num_hidden_layers": 3,
            "tie_word_embeddings": True,
        },
    ),
    Case(
        name="qwen3-sharded-v5",
        why="norms on q and k, head_dim 32 with hidden / heads = 8, several weight files",
        family="qwen3",
        style="v5",
        max_shard_size="100KB",
        config={
            "head_dim": 32,
            "num_attention_heads": 8,
            "num_key_value_heads": 2,
            "tie_word_embeddings": True,
            "hidden_size": 40,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
        },
    ),
    Case(
        name="qwen3-biases-yarn-v4",
        why="q/k norms with attention biases; yarn with every optional parameter",
        family="qwen3",
        style="v4",
        config={
            "head_dim": 20,
            "attention_bias": True,
            "hidden_size": 48,
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 10000.0,
                "factor": 8.0,
                "original_max_position_embeddings": 64,
                "beta_fast": 8.0,
                "beta_slow": 2.0,
                "mscale": 0.8,
                "mscale_all_dim": 0.4,
                "truncate": False,
            },
        },
    ),
    Case(
        name="qwen3-layer-types-v5",
        why="sliding and full layers in turn, by layer_types",
        family="qwen3",
        style="v5",
        config={
            "head_dim": 16,
            "use_sliding_window": True,
            "sliding_window": 12,
            "max_window_layers": 0,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
            "num_hidden_layers": 3,
            "tie_word_embeddings": True,
            "rope_parameters": {"rope_type": "default", "rope_theta": 100000.0},
        },
    ),
    Case(
        name="qwen2-defaults-v4",
        why="fields left out of config.json: the defaults of the classes must hold",
        family="qwen2",
        style="v4",
        config={
            "num_key_value_heads": 32,
            "num_attention_heads": 32,
            "hidden_size": 64,
            "intermediate_size": 32,
            "rms_norm_eps": 1e-6,
        },
        drop_keys=(
            "num_key_value_heads",
            "rms_norm_eps",
            "rope_theta",
            "tie_word_embeddings",
            "torch_dtype",
            "hidden_act",
            "use_sliding_window",
            "sliding_window",
            "max_window_layers",
            "layer_types",
        ),
    ),
    Case(
        name="llama-bf16-v5",
        why="bfloat16 weights, llama3 rope",
        family="llama",
        style="v5",
        dtype="bfloat16",
        embed_std=3.0,
        logit_std=3.0,
        planted=0.45,
        min_margin=0.6,
        prompt_lengths=(1, 7, 120),
        config={"rope_parameters": LLAMA3_ROPE},
    ),
    Case(
        name="qwen3-bf16-v4",
        why="bfloat16 weights, q/k norms",
        family="qwen3",
        style="v4",
        dtype="bfloat16",
        embed_std=3.0,
        logit_std=3.0,
        planted=0.45,
        min_margin=0.6,
        prompt_lengths=(1, 7, 120),
        config={"head_dim": 32},
    ),
    Case(
        name="mistral-f16-v5",
        why="float16 weights",
        family="mistral",
        style="v5",
        dtype="float16",
        embed_std=3.0,
        logit_std=3.0,
        planted=0.45,
        min_margin=0.2,
        prompt_lengths=(1, 7, 120),
        config={"sliding_window": None, "vocab_size": 320},
    ),
    Case(
        name="phi3-plain-v4",
        why="fused qkv and gate-up, default rope, a window on all layers, as Phi-3 mini 4k",
        family="phi3",
        style="v4",
        config={"sliding_window": 20, "original_max_position_embeddings": 512},
    ),
    Case(
        name="phi3-longrope-v4",
        why="longrope with its parameters spread as Phi-3.5 has them, prompts below and above the original length",
        family="phi3",
        style="v4",
        v4_rope_key="type",
        config={
            "original_max_position_embeddings": 64,
            "rope_parameters": long_rope(7, partial_rotary_factor=1.0),
        },
    ),
    Case(
        name="phi3-partial-longrope-v5",
        why="three quarters of a head rotate, longrope, tied embeddings, as Phi-4 mini",
        family="phi3",
        style="v5",
        config={
            "hidden_size": 64,
            "num_attention_heads": 4,
            "tie_word_embeddings": True,
            "original_max_position_embeddings": 40,
            "rope_parameters": long_rope(6, partial_rotary_factor=0.75),
        },
    ),
    Case(
        name="llama-longrope-v5",
        why="longrope outside of Phi, with a given factor and a given attention factor",
        family="llama",
        style="v5",
        config={
            "rope_parameters": long_rope(
                7, factor=8.0, attention_factor=1.1, original_max_position_embeddings=64
            ),
        },
    ),
    Case(
        name="mistral-proportional-v5",
        why="proportional rope: the slow half of the pairs does not rotate",
        family="mistral",
        style="v5",
        config={
            "sliding_window": None,
            "rope_parameters": {
                "rope_type": "proportional",
                "rope_theta": 10000.0,
                "partial_rotary_factor": 0.5,
                "factor": 2.0,
            },
        },
    ),
    Case(
        name="mixtral-v4",
        why="experts in every layer, top 2 of 5; the simplest mixture",
        family="mixtral",
        style="v4",
        config={"num_local_experts": 5, "num_experts_per_tok": 2},
    ),
    Case(
        name="mixtral-window-v5",
        why="a window, top 3 of 4, several weight files",
        family="mixtral",
        style="v5",
        max_shard_size="150KB",
        config={
            "sliding_window": 20,
            "num_local_experts": 4,
            "num_experts_per_tok": 3,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
        },
    ),
    Case(
        name="qwen3moe-v4",
        why="experts in every layer, their probabilities normed, narrower than the plain MLP",
        family="qwen3_moe",
        style="v4",
        config={
            "head_dim": 20,
            "num_experts": 9,
            "num_experts_per_tok": 4,
            "moe_intermediate_size": 20,
            "norm_topk_prob": True,
        },
    ),
    Case(
        name="qwen3moe-dense-layers-v5",
        why="every second layer is sparse, one of those is not; probabilities not normed; yarn",
        family="qwen3_moe",
        style="v5",
        config={
            "head_dim": 16,
            "num_hidden_layers": 4,
            "num_experts": 6,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 28,
            "norm_topk_prob": False,
            "decoder_sparse_step": 2,
            "mlp_only_layers": [3],
            "use_sliding_window": True,
            "sliding_window": 30,
            "tie_word_embeddings": True,
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 10000.0,
                "factor": 4.0,
                "original_max_position_embeddings": 128,
            },
        },
    ),
    Case(
        name="qwen3moe-bf16-v5",
        why="bfloat16 experts",
        family="qwen3_moe",
        style="v5",
        dtype="bfloat16",
        embed_std=3.0,
        logit_std=3.0,
        planted=0.45,
        min_margin=0.6,
        prompt_lengths=(1, 7, 120),
        config={
            "head_dim": 32,
            "num_experts": 4,
            "num_experts_per_tok": 4,
            "moe_intermediate_size": 40,
            "norm_topk_prob": True,
        },
    ),
    Case(
        name="qwen3-fp8-bf16-v5",
        why="matrices in e4m3 with scales of 128 x 128 blocks, as Qwen3's FP8 models; several blocks either way",
        family="qwen3",
        style="v5",
        dtype="bfloat16",
        fp8="block",
        embed_std=3.0,
        logit_std=3.0,
        planted=0.1,
        min_margin=0.6,
        prompt_lengths=(1, 7, 120),
        config={"hidden_size": 256, "head_dim": 64, "num_key_value_heads": 1, "intermediate_size": 120},
    ),
    Case(
        name="llama-fp8-bf16-v4",
        why="matrices in e4m3 with a scale for each output, as llm-compressor writes them",
        family="llama",
        style="v4",
        dtype="bfloat16",
        fp8="channel",
        embed_std=3.0,
        logit_std=3.0,
        planted=0.18,
        min_margin=0.6,
        prompt_lengths=(1, 7, 120),
        config={"hidden_size": 144},
    ),
    Case(
        name="qwen3moe-fp8-bf16-v5",
        why="experts in e4m3 with scales of blocks, those in bfloat16",
        family="qwen3_moe",
        style="v5",
        dtype="bfloat16",
        fp8="block",
        fp8_scale_dtype="bfloat16",
        embed_std=3.0,
        logit_std=3.0,
        planted=0.1,
        min_margin=0.6,
        prompt_lengths=(1, 7, 120),
        config={
            "hidden_size": 256,
            "head_dim": 32,
            "num_experts": 4,
            "num_experts_per_tok": 4,
            "moe_intermediate_size": 40,
            "norm_topk_prob": True,
        },
    ),
    Case(
        name="llama-close-v5",
        why="a greedy choice by a margin below 0.002",
        family="llama",
        style="v5",
        min_margin=4e-4,
        most_margin=2e-3,
        config={"hidden_size": 120, "num_attention_heads": 6, "num_hidden_layers": 3},
    ),
    Case(
        name="qwen3moe-close-v5",
        why="experts and a greedy choice by a margin below 0.002",
        family="qwen3_moe",
        style="v5",
        min_margin=4e-4,
        most_margin=2e-3,
        config={
            "head_dim": 24,
            "num_experts": 6,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 28,
            "norm_topk_prob": True,
            "tie_word_embeddings": True,
        },
    ),
)
