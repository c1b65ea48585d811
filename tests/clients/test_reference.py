"""Logprobs and greedy tokens of small random models, against Hugging Face transformers."""

import json
import pathlib

import pytest
import requests

from conftest import serve

REFERENCE = pathlib.Path(__file__).resolve().parents[1] / "reference"
EXPECTED = sorted((REFERENCE / "expected").glob("*.json"))


def complete(url, **body):
    answer = requests.post(f"{url}/v1/completions", json=body, timeout=120)
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]


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
            got = complete(
                url, model="m", prompt=prompt, max_tokens=len(result["greedy"]), temperature=0,
                echo=True, logprobs=5, ignore_eos=True, return_tokens_as_token_ids=True,
            )
            logprobs = got["logprobs"]["token_logprobs"]
            check_close(result["logprobs"], logprobs[: len(prompt)], tolerance, "prompt")
            check_close(result["greedy_logprobs"], logprobs[len(prompt) :], tolerance, "greedy")
            ids = [int(t.removeprefix("token_id:")) for t in got["logprobs"]["tokens"]]
            assert ids == prompt + result["greedy"]
            check_alternatives(result["top"], got["logprobs"]["top_logprobs"], tolerance)


def check_close(expected, got, tolerance, what):
    assert len(expected) == len(got), what
    for i, (e, g) in enumerate(zip(expected, got)):
        assert (e is None) == (g is None), (what, i)
        assert e is None or abs(e - g) <= tolerance, (what, i, e, g)


def check_alternatives(expected, got, tolerance):
    """Values of the best five at each prompt position (ids may swap where they tie)."""
    for position, alternatives in enumerate(expected):
        if alternatives is None:
            continue
        values = sorted((v for _, v in pairs(alternatives)), reverse=True)
        # The token of the text itself stands beside the five if it is not among them.
        mine = sorted(got[position].values(), reverse=True)[: len(values)]
        check_close(values, mine, tolerance, f"alternatives at {position}")


def pairs(alternatives):
    return alternatives.items() if isinstance(alternatives, dict) else alternatives
