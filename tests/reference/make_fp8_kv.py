"""Makes what Hugging Face transformers computes for the reference models when K and V are kept in FP8.

    python make_fp8_kv.py            all models
    python make_fp8_kv.py NAME ...   only these

Writes fp8_kv/NAME.json next to this file, for the prompts of expected/NAME.json; README.md describes both.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch
import transformers

from cases import CASES, Case
from make_reference import Runner, load, low_precision_error_of, reference_of_prompt, rounded

HERE = Path(__file__).resolve().parent
KEPT = ("logprobs", "greedy", "greedy_logprobs")


def through_fp8(x: torch.Tensor) -> torch.Tensor:
    """Each value as it is after storage in e4m3 with a scale of 1. PyTorch makes NaN of what is too large."""
    largest = torch.finfo(torch.float8_e4m3fn).max
    return x.clamp(-largest, largest).to(torch.float8_e4m3fn).to(x.dtype)


class Fp8Cache(transformers.DynamicCache):
    """A cache that keeps, and hands to attention, what FP8 leaves of K and V."""

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return super().update(through_fp8(key_states), through_fp8(value_states), *args, **kwargs)


def deviation(result: dict[str, Any], exact: dict[str, Any]) -> float:
    """How far a prompt's log probabilities are from those with K and V as computed."""
    pairs = zip(result["logprobs"][1:], exact["logprobs"][1:])
    return max((abs(a - b) for a, b in pairs), default=0.0)


def make(case: Case) -> None:
    expected = json.loads((HERE / "expected" / f"{case.name}.json").read_text())
    runner = Runner(load(HERE / "models" / case.name, torch.float32), case.token_by_token, Fp8Cache)
    results = [reference_of_prompt(runner, exact["prompt"]) for exact in expected["results"]]
    value = {
        "model": case.name,
        "made_with": {"torch": torch.__version__, "transformers": transformers.__version__},
        "deviation": max(map(deviation, results, expected["results"])),
    }
    if case.dtype != "float32":
        stored = load(HERE / "models" / case.name, getattr(torch, case.dtype))
        value["low_precision_error"] = low_precision_error_of(stored, results, Fp8Cache)
    value["results"] = [{key: result[key] for key in KEPT} for result in results]
    (HERE / "fp8_kv").mkdir(exist_ok=True)
    text = json.dumps(rounded(value), separators=(",", ":"))
    (HERE / "fp8_kv" / f"{case.name}.json").write_text(text + "\n")
    print(f"{case.name}: FP8 KV moves log probabilities by up to {value['deviation']:.3f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help="models to make; default: all")
    args = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    unknown = set(args.names) - {case.name for case in CASES}
    if unknown:
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    for case in CASES:
        if not args.names or case.name in args.names:
            make(case)


if __name__ == "__main__":
    main()
