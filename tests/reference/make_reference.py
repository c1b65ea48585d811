"""Makes the reference models and the values that Hugging Face transformers computes for them.

    python make_reference.py            everything
    python make_reference.py NAME ...   only these cases
    python make_reference.py --rope     only the rotary tables

Writes models/NAME/ and expected/NAME.json next to this file; README.md describes both.
"""

import argparse
import json
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import transformers

import model_folder
from cases import CASES, EOS_ID, GREEDY_TOKENS, SECOND_EOS_ID, Case
from rope_reference import rope_reference

HERE = Path(__file__).resolve().parent
NUM_TOP = 5
MAX_SEEDS = 400
MIN_DISTINCT = 8  # different tokens in a greedy continuation, so that it is not a mere repetition
F32_TOLERANCE = 1e-3
MARGIN_SHARE = 4  # a quarter of the smallest margin, where that is less: then no greedy token may change


def prompts_of(case: Case) -> list[list[int]]:
    """Byte values, the same for every seed of the weights."""
    source = random.Random(case.name)
    return [[source.randrange(256) for _ in range(n)] for n in case.prompt_lengths]


class Runner:
    """One sequence at a time through a model, with a cache."""

    def __init__(
        self,
        model: transformers.PreTrainedModel,
        token_by_token: bool,
        cache_type: type[transformers.DynamicCache] = transformers.DynamicCache,
    ):
        self.model = model
        self.token_by_token = token_by_token
        self.cache_type = cache_type

    @torch.no_grad()
    def prefill(self, prompt: list[int]) -> tuple[torch.Tensor, Any]:
        """Logits [len(prompt), vocab] in f32, and the cache."""
        cache = self.cache_type(config=self.model.config)
        steps = [[token] for token in prompt] if self.token_by_token else [prompt]
        return torch.cat([self.step(tokens, cache) for tokens in steps]), cache

    @torch.no_grad()
    def step(self, tokens: list[int], cache: Any) -> torch.Tensor:
        ids = torch.tensor([tokens])
        return self.model(input_ids=ids, past_key_values=cache, use_cache=True).logits[0].float()


def load(folder: Path, dtype: torch.dtype) -> transformers.PreTrainedModel:
    """Reads a folder as users do, configuration included. Matrices in e4m3 are multiplied by their scales, in
    transformers' own code, and activations keep their type."""
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, attn_implementation="eager", **quantization_of(folder)
    )
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype)  # what had scales has their type
    return model.eval()


def quantization_of(folder: Path) -> dict[str, Any]:
    config = json.loads((folder / "config.json").read_text()).get("quantization_config")
    if config is None:
        return {}
    if config["quant_method"] == "fp8":
        return {"quantization_config": transformers.FineGrainedFP8Config(dequantize=True)}
    return {"quantization_config": transformers.CompressedTensorsConfig(dequantize=True)}


def reference_of_prompt(runner: Runner, prompt: list[int]) -> dict[str, Any]:
    """Log probabilities of the prompt, alternatives, and the greedy continuation."""
    logits, cache = runner.prefill(prompt)
    logprobs = torch.log_softmax(logits, dim=-1)
    top = logprobs.topk(NUM_TOP)
    alternatives = [
        list(zip(ids, values))
        for ids, values in zip(top.indices[:-1].tolist(), top.values[:-1].tolist())
    ]
    result = {
        "prompt": prompt,
        "logprobs": [None] + [logprobs[i, t].item() for i, t in enumerate(prompt[1:])],
        "top": [None] + alternatives,
        "greedy": [],
        "greedy_logprobs": [],
        "min_margin": float("inf"),
    }
    last = logits[-1]
    for _ in range(GREEDY_TOKENS):
        best = last.topk(2)
        token = best.indices[0].item()
        result["min_margin"] = min(result["min_margin"], (best.values[0] - best.values[1]).item())
        result["greedy"].append(token)
        result["greedy_logprobs"].append(torch.log_softmax(last, dim=-1)[token].item())
        last = runner.step([token], cache)[-1]
    return result


def is_good(case: Case, result: dict[str, Any]) -> bool:
    """Greedy choices are clear, varied, and do not end early."""
    return (
        result["min_margin"] >= case.min_margin
        and len(set(result["greedy"])) >= MIN_DISTINCT
        and not {EOS_ID, SECOND_EOS_ID} & set(result["greedy"])
    )


def model_of(case: Case, seed: int) -> transformers.PreTrainedModel:
    """In float32, with the values that are stored."""
    if case.fp8 is not None:
        with tempfile.TemporaryDirectory() as folder:
            model_folder.write(case, seed, Path(folder))
            return load(Path(folder), torch.float32)
    model = model_folder.make_model(case, seed).float().eval()
    model.set_attn_implementation("eager")
    return model


def find_seed(case: Case) -> int:
    """The first seed with which all greedy continuations are good."""
    best = (-1, 0.0)
    for seed in range(MAX_SEEDS):
        model = model_of(case, seed)
        runner = Runner(model, case.token_by_token)
        margin, good = float("inf"), 0
        for prompt in prompts_of(case):
            result = reference_of_prompt(runner, prompt)
            margin = min(margin, result["min_margin"])
            if not is_good(case, result):
                break
            good += 1
        else:
            if margin <= case.most_margin:
                return seed
        best = max(best, (good, margin))
    sys.exit(f"{case.name}: no seed below {MAX_SEEDS} is good; best {best}")


def low_precision_error_of(
    model: transformers.PreTrainedModel,
    results: list[dict[str, Any]],
    cache_type: type[transformers.DynamicCache] = transformers.DynamicCache,
) -> float:
    """How far `model`, which computes in the stored type, is from the f32 values."""
    runner = Runner(model, token_by_token=False, cache_type=cache_type)
    worst = 0.0
    for result in results:
        logits, _ = runner.prefill(result["prompt"])
        logprobs = torch.log_softmax(logits, dim=-1)
        for i, token in enumerate(result["prompt"][1:]):
            worst = max(worst, abs(logprobs[i, token].item() - result["logprobs"][i + 1]))
    return worst


def make(case: Case) -> None:
    folder = HERE / "models" / case.name
    seed = find_seed(case)
    model_folder.write(case, seed, folder)
    runner = Runner(load(folder, torch.float32), case.token_by_token)
    results = [reference_of_prompt(runner, prompt) for prompt in prompts_of(case)]
    min_margin = min(result["min_margin"] for result in results)
    expected = {
        "model": case.name,
        "why": case.why,
        "made_with": {"torch": torch.__version__, "transformers": transformers.__version__},
        "seed": seed,
        "stored_dtype": case.dtype,
        "tolerance": min(F32_TOLERANCE, min_margin / MARGIN_SHARE),
        "min_margin": min_margin,
    }
    if case.dtype != "float32":
        stored = load(folder, getattr(torch, case.dtype))
        expected["low_precision_error"] = low_precision_error_of(stored, results)
    expected["results"] = results
    write_expected(case.name, expected)
    size_kb = sum(path.stat().st_size for path in folder.iterdir()) // 1000
    margin = expected["min_margin"]
    print(f"{case.name}: seed {seed}, margin {margin:.3f}, {size_kb} kB", flush=True)


def write_expected(name: str, value: dict[str, Any]) -> None:
    (HERE / "expected").mkdir(exist_ok=True)
    text = json.dumps(rounded(value), separators=(",", ":"))
    (HERE / "expected" / f"{name}.json").write_text(text + "\n")


def rounded(value: Any) -> Any:
    """Seven significant digits: all that f32 has."""
    if isinstance(value, float):
        return float(f"{value:.7g}")
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(item) for item in value]
    return value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help="cases to make; default: all, and rotary tables")
    parser.add_argument("--rope", action="store_true", help="only the rotary tables")
    args = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    unknown = set(args.names) - {case.name for case in CASES}
    if unknown:
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    if args.rope or not args.names:
        (HERE / "expected").mkdir(exist_ok=True)
        # Nine digits: exact for f32.
        text = json.dumps(rope_reference(), separators=(",", ":"))
        (HERE / "expected" / "rope.json").write_text(text + "\n")
    if not args.rope:
        for case in CASES:
            if not args.names or case.name in args.names:
                make(case)


if __name__ == "__main__":
    main()
