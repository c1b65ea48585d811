#!/usr/bin/env python3
"""Log probabilities of a server on one device against Hugging Face's and against those of another device.

    logprobs.py [--device cuda] [--against cpu] [--json FILE]

The small models of tests/reference that a GPU can run (head_dim is a multiple of 16), one of them with a LoRA adapter,
and the bundled one; what is left, biases and Mixtral's experts, model_gpu_test has in random models. The tokens of
each request are given, so that both sides score the same text: first in one piece, as a prompt, then token by token as
the first side draws them. Both sides compute in bfloat16. Bounds:

- against Hugging Face, whose float32 values tests/reference holds: twice what transformers itself deviates by when it
  computes in bfloat16 (low_precision_error); of the models that were stored in bfloat16. Of an adapter they are PEFT's,
  and the deviation is its model's;
- against the other device: twice the largest of those deviations, for every model.

Exit codes: 0 all within the bounds, 1 not, 2 an error, 3 no GPU.
"""
import argparse
import json
import pathlib
import sys
import tempfile

import server

REFERENCE = server.ROOT / "tests/reference"
BUNDLED = server.ROOT / "models/saccade-tiny"
MODELS = ["llama-plain-v4", "mistral-headdim-v5", "phi3-partial-longrope-v5", "qwen3-bf16-v4", "qwen3-layer-types-v5",
          "qwen3moe-bf16-v5", "qwen3moe-dense-layers-v5"]
ADAPTERS = ["lora/qwen3-bf16"]  # of tests/reference
BUNDLED_TEXTS = ["Once upon a time there was a", "def main():\n    return", "What is the capital of France?"]
DRAWN = 24  # tokens that the bundled model adds
# Few rows a step: long prompts are computed in chunks, and few steps are captured.
FLAGS = ("--dtype", "bfloat16", "--max-num-batched-tokens", "64", "--max-num-seqs", "8", "--max-model-len", "256",
         "--log", "warn")


def score(url, prompt, max_tokens):
    """Tokens after the prompt, and the log probability of every token but the first, drawn ones included."""
    got = server.complete(url, model="m", prompt=prompt, max_tokens=max_tokens, temperature=0, echo=True, logprobs=0,
                          ignore_eos=True, return_tokens_as_token_ids=True)["logprobs"]
    ids = [int(token.removeprefix("token_id:")) for token in got["tokens"]]
    return ids, got["token_logprobs"][1:]


def model_of(name):
    """The model's folder in tests/reference: an adapter's file says which."""
    return json.loads((REFERENCE / f"{name}.json").read_text())["model"] if name in ADAPTERS else name


def expected_of(name):
    """What tests/reference has of the model without an adapter."""
    return json.loads((REFERENCE / "expected" / f"{model_of(name)}.json").read_text())


def texts_of(name):
    """What is asked of a model: prompts as ids or text, the tokens after them, and Hugging Face's values if any."""
    if name == "bundled":
        return [(text, None, None) for text in BUNDLED_TEXTS]
    prompts = [r["prompt"] for r in expected_of(name)["results"]]
    path = REFERENCE / (f"{name}.json" if name in ADAPTERS else f"expected/{name}.json")
    results = json.loads(path.read_text())["results"]
    return [(prompt, r["greedy"], r["logprobs"][1:] + r["greedy_logprobs"]) for prompt, r in zip(prompts, results)
            if len(prompt) + len(r["greedy"]) < 256]


def answers(name, device, log):
    """Of each text: what the device scores when it is given whole, and what it draws."""
    folder = BUNDLED if name == "bundled" else REFERENCE / "models" / model_of(name)
    # All are asked as m: the model, or the adapter beside a model that is named by its folder.
    names = ("--lora-modules", f"m={REFERENCE / name}") if name in ADAPTERS else ("--served-model-name", "m")
    with server.serve(str(folder), *FLAGS, *names, *server.device_flags(device), log=log) as url:
        result = []
        for prompt, follow, _ in texts_of(name):
            drawn = score(url, prompt, len(follow) if follow else DRAWN)
            whole = score(url, prompt + follow if follow else drawn[0], 1)
            result.append({"drawn": drawn, "whole": whole})
        return result


def largest(a, b):
    """Largest difference of two lists, as far as both go."""
    return max((abs(x - y) for x, y in zip(a, b)), default=0.0)


def drawn_difference(a, b):
    """Of drawn tokens, up to the first that differs."""
    (ids_a, values_a), (ids_b, values_b) = a, b
    same = next((i for i, (x, y) in enumerate(zip(ids_a, ids_b)) if x != y), len(ids_a))
    # Values begin with the second token.
    return largest(values_a[: max(same - 1, 0)], values_b)


def compare(name, ours, others):
    """One model's line: largest differences, and how many requests drew the same tokens."""
    line = {"model": name, "requests": len(ours), "same_tokens": 0, "whole": 0.0, "drawn": 0.0, "hugging_face": None}
    for (_, _, values), a, b in zip(texts_of(name), ours, others):
        # The bundled model's whole texts are what each side drew: comparable only where that is the same.
        if a["whole"][0][:-1] == b["whole"][0][:-1]:
            line["whole"] = max(line["whole"], largest(a["whole"][1][:-1], b["whole"][1][:-1]))
        line["drawn"] = max(line["drawn"], drawn_difference(a["drawn"], b["drawn"]))
        line["same_tokens"] += a["drawn"][0] == b["drawn"][0]
        if deviation(name):
            line["hugging_face"] = max(line["hugging_face"] or 0.0, largest(a["whole"][1], values))
    return line


def deviation(name):
    """What transformers deviates by in bfloat16; none if the model was not stored in it."""
    if name == "bundled":
        return None
    expected = expected_of(name)
    return expected.get("low_precision_error") if expected["stored_dtype"] == "bfloat16" else None


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--against", default="cpu")
    parser.add_argument("--model", action="append", help=f"of bundled {' '.join(MODELS + ADAPTERS)} [all]")
    parser.add_argument("--json")
    args = parser.parse_args()
    between = 2 * max(d for d in map(deviation, MODELS) if d)
    lines = []
    with tempfile.TemporaryDirectory() as work:
        log = pathlib.Path(work) / "server.log"
        for name in args.model or ["bundled", *MODELS, *ADAPTERS]:
            try:
                ours = answers(name, args.device, log)
            except server.NoGpu as error:
                print(f"no GPU: {error}")
                return server.NO_GPU
            line = compare(name, ours, answers(name, args.against, log))
            line["bound"] = between
            line["hugging_face_bound"] = 2 * deviation(name) if deviation(name) else None
            line["ok"] = line["whole"] <= between and line["drawn"] <= between and (
                line["hugging_face_bound"] is None or line["hugging_face"] <= line["hugging_face_bound"])
            lines.append(line)
            print(json.dumps(line), flush=True)
    if args.json:
        result = {"device": args.device, "against": args.against, "models": lines}
        pathlib.Path(args.json).write_text(json.dumps(result, indent=1) + "\n")
    return 0 if all(line["ok"] for line in lines) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Exception as error:  # exit code 1 is "not within the bounds"
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
