"""A trained checkpoint (tests/reference/trained) against Hugging Face transformers: 135 million parameters, 30
layers, a hidden size of 576, a vocabulary of 49,152, and the margins that trained weights have."""

import json
import os
import pathlib
import sys

import pytest

from checks import check_alternatives, check_close, complete, token_ids
from conftest import serve

HERE = pathlib.Path(__file__).resolve().parents[1] / "reference" / "trained"
FOLDER = pathlib.Path(os.environ.get("SACCADE_TRAINED", "/nonexistent"))
sys.path.insert(0, str(HERE))


@pytest.fixture(scope="module")
def expected():
    from fetch import weights_sha256

    expected = json.loads((HERE / "expected.json").read_text())
    assert weights_sha256(FOLDER) == expected["weights_sha256"], "not the weights of the expected values"
    return expected


def trained(dtype):
    return serve(str(FOLDER), "--served-model-name", "m", "--dtype", dtype, "--max-model-len", "1024",
                 "--kv-cache-memory-bytes", "200000000", "--max-num-batched-tokens", "64")


def test_in_float32(expected):
    """The text's tokens; logprobs and alternatives of the prompt; the greedy continuation."""
    with trained("float32") as url:
        for result in expected["results"]:
            got = complete(url, model="m", prompt=result["text"], max_tokens=len(result["greedy"]), temperature=0)
            assert token_ids(got) == result["prompt"] + result["greedy"]
            compare(result, got, expected["tolerance"], len(result["prompt"]))


def test_in_the_stored_type(expected):
    """The same tokens given as a prompt: where margins are this small, greedy choices may differ in 16 bits."""
    with trained("auto") as url:
        for result in expected["results"]:
            tokens = result["prompt"] + result["greedy"]
            got = complete(url, model="m", prompt=tokens, max_tokens=1, temperature=0)
            compare(result, got, expected["low_precision_error"], len(result["prompt"]))


def compare(result, got, tolerance, prompt_len):
    logprobs = got["logprobs"]["token_logprobs"]
    check_close(result["logprobs"], logprobs[:prompt_len], tolerance, "prompt")
    greedy = logprobs[prompt_len : prompt_len + len(result["greedy"])]
    check_close(result["greedy_logprobs"], greedy, tolerance, "greedy")
    check_alternatives(result["top"], got["logprobs"]["top_logprobs"], tolerance)
