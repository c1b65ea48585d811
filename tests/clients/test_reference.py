"""Logprobs and greedy tokens of small random models, against Hugging Face transformers."""

import json
import math
import pathlib

import pytest
import requests

from checks import NUM_TOP, alternatives_fault, check_alternatives, check_close, complete, token_ids
from checks import test_alternatives_are_compared_by_token  # noqa: F401
from conftest import serve

REFERENCE = pathlib.Path(__file__).resolve().parents[1] / "reference"
EXPECTED = sorted((REFERENCE / "expected").glob("*.json"))


@pytest.mark.parametrize("path", [p for p in EXPECTED if p.stem != "rope"], ids=lambda p: p.stem)
def test_against_transformers(path):
    """Teacher-forced logprobs within the file's tolerance; greedy continuations equal."""
    expected = json.loads(path.read_text())
    tolerance = expected["tolerance"]
    model = REFERENCE / "models" / path.stem
    # A small budget, so that the longer prompts are computed in chunks.
    flags = ("--dtype", "float32", "--max-num-batched-tokens", "64", "--max-num-seqs", "8")
    with serve(str(model), "--served-model-name", "m", *flags) as url:
        for result in expected["results"]:
            prompt = result["prompt"]
            got = complete(url, model="m", prompt=prompt, max_tokens=len(result["greedy"]), temperature=0)
            logprobs = got["logprobs"]["token_logprobs"]
            assert token_ids(got) == prompt + result["greedy"]
            check_close(result["logprobs"], logprobs[: len(prompt)], tolerance, "prompt")
            check_close(result["greedy_logprobs"], logprobs[len(prompt) :], tolerance, "greedy")
            check_alternatives(result["top"], got["logprobs"]["top_logprobs"], tolerance)
            check_prompt_logprobs(url, result, tolerance)


def check_prompt_logprobs(url, result, tolerance):
    """vLLM's `prompt_logprobs`: each token of the prompt first, then the alternatives with their ranks."""
    prompt = result["prompt"]
    got = complete(url, model="m", prompt=prompt, max_tokens=1, echo=False, logprobs=None, prompt_logprobs=NUM_TOP)
    entries = got["prompt_logprobs"]
    own = [None if entry is None else entry[str(token)] for entry, token in zip(entries, prompt, strict=True)]
    check_close(result["logprobs"], [entry and entry["logprob"] for entry in own], tolerance, "prompt_logprobs")
    for position, (entry, expected) in enumerate(zip(entries, result["top"])):
        if entry is None or expected is None:
            continue
        assert next(iter(entry)) == str(prompt[position])
        ranked = sorted((e["rank"], int(token), e["logprob"]) for token, e in entry.items() if e["rank"] is not None)
        assert [rank for rank, *_ in ranked] == list(range(1, NUM_TOP + 1))
        best = [(token, logprob) for _, token, logprob in ranked][: len(expected)]
        assert alternatives_fault(expected, best, tolerance) is None, position



@pytest.mark.parametrize("path", sorted((REFERENCE / "embeddings").glob("*.json")), ids=lambda p: p.stem)
def test_embeddings_against_transformers(path):
    """Unit vectors, each value close to that of transformers' last hidden state."""
    expected = json.loads(path.read_text())["embeddings"]
    prompts = [r["prompt"] for r in json.loads((REFERENCE / "expected" / path.name).read_text())["results"]]
    flags = ("--dtype", "float32", "--max-num-batched-tokens", "64", "--max-num-seqs", "8")
    with serve(str(REFERENCE / "models" / path.stem), "--served-model-name", "m", *flags) as url:
        asked = {"model": "m", "input": prompts}
        answer = requests.post(f"{url}/v1/embeddings", json=asked, timeout=300)
        assert answer.status_code == 200, answer.text
        for i, (wanted, got) in enumerate(zip(expected, answer.json()["data"], strict=True)):
            length = math.sqrt(sum(value * value for value in wanted))
            unit = [value / length for value in wanted]
            assert got["index"] == i
            assert math.sqrt(sum(value * value for value in got["embedding"])) == pytest.approx(1, abs=1e-6)
            check_close(unit, got["embedding"], 1e-5, f"input {i}")
