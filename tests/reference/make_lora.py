"""Makes random LoRA adapters over the reference models, and what Hugging Face PEFT computes with them.

    python make_lora.py            all adapters
    python make_lora.py NAME ...   only these

Writes lora/NAME/ (the adapter's folder) and lora/NAME.json next to this file, for the prompts of expected/MODEL.json;
README.md describes both.
"""

import argparse
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import peft
import torch
import transformers

from cases import CASES
from make_reference import Runner, load, reference_of_prompt, rounded

HERE = Path(__file__).resolve().parent
KEPT = ("logprobs", "greedy", "greedy_logprobs")
# How much an adapter adds to a matrix, relative to the matrix.
STRENGTH = 0.5


@dataclass(frozen=True)
class Adapter:
    """An adapter, and the thing in which it differs from the others."""

    name: str
    why: str
    model: str
    config: dict[str, Any]
    # Pins of the draw: the first seed whose greedy continuations have clear margins.
    min_margin: float = 0.003
    dtype: str = "float32"  # of the adapter's file


ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
ATTENTION = ["q_proj", "v_proj"]
ADAPTERS = (
    Adapter("llama-all", "every matrix, a rank that is no power of two", "llama-plain-v4",
            {"r": 6, "lora_alpha": 12, "target_modules": ALL}),
    Adapter("llama-attention", "two matrices only, stored in bfloat16", "llama-plain-v4",
            {"r": 16, "lora_alpha": 8, "target_modules": ATTENTION}, dtype="bfloat16"),
    Adapter("llama-rslora-patterns", "ranks and alphas by pattern, divided by roots of ranks", "llama-plain-v4",
            {"r": 4, "lora_alpha": 3, "target_modules": ALL, "use_rslora": True,
             "rank_pattern": {"down_proj": 9, "layers.1.self_attn.q_proj": 2, "^model.layers.0.mlp.up_proj": 33},
             "alpha_pattern": {"k_proj": 5, "layers.0.*": 2}}),
    Adapter("llama-one-layer", "one layer, as an expression", "llama-biases-headdim-v4",
            {"r": 8, "lora_alpha": 16, "target_modules": ["o_proj", "down_proj"], "layers_to_transform": [1]}),
    Adapter("phi3-fused", "fused projections", "phi3-plain-v4",
            {"r": 5, "lora_alpha": 10, "target_modules": ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"]}),
    Adapter("qwen3moe-attention", "attention beside experts", "qwen3moe-v4",
            {"r": 8, "lora_alpha": 8, "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj"]}),
    Adapter("qwen3-bf16", "over a model in bfloat16", "qwen3-bf16-v4",
            {"r": 7, "lora_alpha": 14, "target_modules": ALL}, min_margin=0.02),
    Adapter("qwen3-fp8", "over matrices in e4m3", "qwen3-fp8-bf16-v5",
            {"r": 8, "lora_alpha": 8, "target_modules": ALL}, min_margin=0.02),
)


def draw(model: torch.nn.Module, seed: int, dtype: torch.dtype) -> None:
    """Values for all matrices of the adapter, in the order of their names, exact in `dtype`."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in sorted(model.named_parameters()):
            if "lora_" not in name:
                continue
            noise = torch.randn(tensor.shape, generator=generator) / tensor.shape[1] ** 0.5
            if "lora_B" in name:
                layer = model.get_submodule(name.split(".lora_B")[0])
                noise *= STRENGTH / abs(layer.scaling["default"])
            tensor.copy_(noise.to(dtype))


def make(adapter: Adapter) -> None:
    case = next(case for case in CASES if case.name == adapter.model)
    prompts = [r["prompt"] for r in json.loads((HERE / "expected" / f"{case.name}.json").read_text())["results"]]
    base = load(HERE / "models" / case.name, torch.float32)
    config = peft.LoraConfig(task_type="CAUSAL_LM", init_lora_weights=True, **adapter.config)
    model = peft.get_peft_model(base, config)
    model.eval()
    for seed in range(1, 200):
        draw(model, seed, getattr(torch, adapter.dtype))
        results = [reference_of_prompt(Runner(model, case.token_by_token), prompt) for prompt in prompts]
        margin = min(result["min_margin"] for result in results)
        if margin >= adapter.min_margin:
            break
    else:
        raise SystemExit(f"{adapter.name}: no seed has clear margins")
    folder = HERE / "lora" / adapter.name
    shutil.rmtree(folder, ignore_errors=True)
    save(model, adapter, folder)
    value = {
        "adapter": adapter.name,
        "model": case.name,
        "seed": seed,
        "min_margin": margin,
        "made_with": {m.__name__: m.__version__ for m in (torch, transformers, peft)},
        "results": [{key: result[key] for key in KEPT} for result in results],
    }
    (HERE / "lora" / f"{adapter.name}.json").write_text(json.dumps(rounded(value), separators=(",", ":")) + "\n")
    print(f"{adapter.name}: seed {seed}, least margin {margin:.4f}", flush=True)


def save(model: Any, adapter: Adapter, folder: Path) -> None:
    """What PEFT writes, without its card and without paths of this machine."""
    for parameter_name, parameter in model.named_parameters():
        if "lora_" in parameter_name:
            parameter.data = parameter.data.to(getattr(torch, adapter.dtype))
    model.peft_config["default"].base_model_name_or_path = adapter.model
    model.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    path = folder / "adapter_config.json"
    config = json.loads(path.read_text())
    if isinstance(config["target_modules"], list):
        config["target_modules"].sort()  # PEFT keeps them as a set
    path.write_text(json.dumps(config, indent=2) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help="adapters to make; default: all")
    args = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    unknown = set(args.names) - {adapter.name for adapter in ADAPTERS}
    if unknown:
        parser.error(f"no such adapter: {', '.join(sorted(unknown))}")
    for adapter in ADAPTERS:
        if not args.names or adapter.name in args.names:
            make(adapter)


if __name__ == "__main__":
    main()
