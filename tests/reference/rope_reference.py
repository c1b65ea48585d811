"""Rows of the rotary tables as transformers computes them, for real models' parameters."""

from typing import Any

import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

POSITIONS = (0, 1, 2, 63, 64, 65, 127, 1000, 8191, 40000)
SHAPE = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 512,
    "intermediate_size": 128,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
}

# Fields of config.json as they appear in files, of both generations.
CONFIGS: dict[str, dict[str, Any]] = {
    "default": {"head_dim": 64, "max_position_embeddings": 131072, "rope_theta": 1000000.0},
    "no theta": {"head_dim": 8, "max_position_embeddings": 131072},
    "linear": {
        "head_dim": 128,
        "max_position_embeddings": 16384,
        "rope_theta": 10000.0,
        "rope_scaling": {"type": "linear", "factor": 8.0},
    },
    "dynamic": {
        "head_dim": 128,
        "max_position_embeddings": 64,
        "rope_theta": 10000.0,
        "rope_scaling": {"rope_type": "dynamic", "factor": 2.5},
    },
    "llama3": {
        "head_dim": 128,
        "max_position_embeddings": 131072,
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 500000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
    },
    "yarn": {
        "head_dim": 128,
        "max_position_embeddings": 131072,
        "rope_theta": 1000000.0,
        "rope_scaling": {
            "type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 32768,
        },
    },
    "yarn, all parameters": {
        "head_dim": 48,
        "max_position_embeddings": 131072,
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 150000.0,
            "factor": 32.0,
            "original_max_position_embeddings": 4096,
            "beta_fast": 24.0,
            "beta_slow": 2.0,
            "mscale": 1.0,
            "mscale_all_dim": 0.8,
            "truncate": False,
        },
    },
    "yarn, attention factor": {
        "head_dim": 64,
        "max_position_embeddings": 131072,
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 10000.0,
            "factor": None,
            "original_max_position_embeddings": 4096,
            "attention_factor": 1.25,
        },
    },
}


def rope_reference() -> list[dict[str, Any]]:
    """For each configuration: config.json, and cosine and sine at POSITIONS."""
    return [_one(name, SHAPE | fields) for name, fields in CONFIGS.items()]


def _one(name: str, fields: dict[str, Any]) -> dict[str, Any]:
    fields = fields | {"hidden_size": fields["head_dim"] * fields["num_attention_heads"]}
    # from_dict may change what it is given.
    rope = LlamaRotaryEmbedding(LlamaConfig.from_dict(_copy(fields)))
    half = fields["head_dim"] // 2
    inverse = rope.original_inv_freq.tolist()
    rows = []
    # In rising order, one position at a time: as decoding does, which dynamic rope depends on.
    for position in POSITIONS:
        cos, sin = rope(torch.zeros(1), torch.tensor([[position]]))
        rows.append({
            "position": position,
            "cos": _exact(cos[0, 0, :half].tolist()),
            "sin": _exact(sin[0, 0, :half].tolist()),
        })
    return {"name": name, "config": fields, "inv_freq": _exact(inverse), "rows": rows}


def _exact(values: list[float]) -> list[float]:
    """Nine significant digits, which is exact for f32."""
    return [float(f"{value:.9g}") for value in values]


def _copy(fields: dict[str, Any]) -> dict[str, Any]:
    return {k: dict(v) if isinstance(v, dict) else v for k, v in fields.items()}
