"""Brings a model folder's matrices into e4m3 with scales, as published checkpoints have them."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

BLOCK = 128
TOP = 448.0


def is_converted(name: str) -> bool:
    """Projections of the layers, but not a router."""
    return name.endswith("_proj.weight")


def convert(folder: Path, form: str, scale_dtype: torch.dtype) -> None:
    """Rewrites the folder's one weight file and its configuration. form: "block" or "channel"."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    for name in [name for name in tensors if is_converted(name)]:
        suffix = "_scale_inv" if form == "block" else "_scale"
        tensors[name], tensors[name + suffix] = quantized(tensors[name].float(), form, scale_dtype)
    save_file(tensors, path, metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = quantization_config(form)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def quantized(
    weight: torch.Tensor, form: str, scale_dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """The greatest magnitude that shares a scale becomes e4m3's greatest, up to the scale's rounding."""
    rows, cols = weight.shape
    height, width = (min(BLOCK, rows), min(BLOCK, cols)) if form == "block" else (1, cols)
    # transformers takes the size of a block from the number of scales.
    assert rows % height == 0 and cols % width == 0, weight.shape
    blocks = weight.reshape(rows // height, height, cols // width, width)
    scales = (blocks.abs().amax(dim=(1, 3)) / TOP).to(scale_dtype)
    narrow = (blocks / scales.float()[:, None, :, None]).clamp(-TOP, TOP).to(torch.float8_e4m3fn)
    return narrow.reshape(rows, cols).contiguous(), scales


def quantization_config(form: str) -> dict[str, Any]:
    if form == "block":
        return {
            "activation_scheme": "dynamic",
            "fmt": "e4m3",
            "modules_to_not_convert": ["lm_head"],
            "quant_method": "fp8",
            "weight_block_size": [BLOCK, BLOCK],
        }
    shared = {"num_bits": 8, "type": "float", "symmetric": True, "group_size": None}
    weights = shared | {"strategy": "channel", "dynamic": False, "observer": "minmax"}
    activations = shared | {"strategy": "token", "dynamic": True, "observer": None}
    return {
        "config_groups": {
            "group_0": {"input_activations": activations, "targets": ["Linear"], "weights": weights}
        },
        "format": "float-quantized",
        "ignore": ["lm_head"],
        "kv_cache_scheme": None,
        "quant_method": "compressed-tensors",
        "quantization_status": "compressed",
    }
