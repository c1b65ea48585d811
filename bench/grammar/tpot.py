#!/usr/bin/env python3
"""Time per output token with a grammar, beside the same load without one, in turn on one server.

    bench/grammar/tpot.py TOKENIZER OUT [--binary target/release/saccade] [--repeats 5] [--tokens 64]

TOKENIZER is the tokenizer.json of a vocabulary as large as Qwen's. The model is Qwen3-0.6B's shape with random
weights, bfloat16. No answer can end early: either its grammar does not allow it, or ignore_eos is set. OUT gets
tpot.json and tpot.md: medians of the repeats' mean TPOT, and of the ratios within a repeat.
"""

import argparse
import contextlib
import json
import pathlib
import shutil
import statistics
import subprocess
import tempfile

from server import Server

ROOT = pathlib.Path(__file__).resolve().parents[2]
FLAGS = ("--dtype", "bfloat16", "--max-model-len", "1024", "--max-num-seqs", "16", "--served-model-name", "shape")
STREAMS = (1, 16)
OBJECTS = {"type": "array", "minItems": 2000, "items": {
    "type": "object", "additionalProperties": False, "required": ["id", "name", "tags", "price"],
    "properties": {"id": {"type": "integer"}, "name": {"type": "string", "maxLength": 40},
                   "tags": {"type": "array", "items": {"enum": ["red", "green", "blue"]}, "maxItems": 3},
                   "price": {"type": "number", "minimum": 0}, "note": {"type": "string"}}}}
CALLS = {"type": "structural_tag", "format": {"type": "triggered_tags", "triggers": ["<function="], "tags": [
    {"type": "tag", "begin": "<function=get_weather>", "end": "</function>",
     "content": {"type": "json_schema", "json_schema": {"type": "object"}}}]}}
GRAMMARS = {
    "none": None,
    "string": {"json": {"type": "string", "minLength": 4000, "maxLength": 9000}},
    "objects": {"json": OBJECTS},
    "letters": {"regex": "[a-z]+"},
    "text around calls": {"structural_tag": json.dumps(CALLS)},
}


def ends_by_itself(grammar):
    return grammar is not None and "json" in grammar


def arguments(description, tokens):
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizer", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--binary", default=str(ROOT / "target/release/saccade"))
    parser.add_argument("--tokens", type=int, default=tokens)
    return parser


@contextlib.contextmanager
def shape_server(args):
    """A server with the shape and the tokenizer."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(ROOT / "bench/models/qwen3-0.6b-shape/config.json", folder)
        shutil.copy(args.tokenizer, pathlib.Path(folder) / "tokenizer.json")
        with Server(args.binary, folder, *FLAGS) as server:
            yield server


def tpot_ms(args, server, grammar, streams, seed):
    """Mean time per token without the first, of as many requests as there are streams."""
    extra = {"temperature": 1.0}
    extra |= {"structured_outputs": grammar} if grammar else {}
    with tempfile.NamedTemporaryFile(suffix=".json") as result:
        subprocess.run([args.binary, "bench", "serve", "--base-url", server.url, "--model", "shape",
                        "--dataset-name", "random", "--random-input-len", "32", "--random-output-len",
                        str(args.tokens), "--random-range-ratio", "0", "--num-prompts", str(streams),
                        "--max-concurrency", str(streams), "--num-warmups", "1", "--seed", str(seed),
                        "--ignore-eos", "false" if ends_by_itself(grammar) else "true", "--extra-body", json.dumps(extra),
                        "--json", result.name], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        found = json.loads(pathlib.Path(result.name).read_text())
    summary = found["runs"][0]["summary"]
    if summary["ok"] != streams or summary["wrong_lengths"]:
        raise SystemExit(f"answers that are not as long as asked: {summary['failures']}")
    return summary["tpot_ms"]["mean"]


def table(runs):
    """Medians over the repeats, and of the ratios within each."""
    lines = ["| streams | grammar | TPOT ms | x without |", "|---|---|---|---|"]
    for streams in STREAMS:
        for name in GRAMMARS:
            own = [run["tpot_ms"][name] for run in runs if run["streams"] == streams]
            ratios = [run["tpot_ms"][name] / run["tpot_ms"]["none"] for run in runs if run["streams"] == streams]
            lines.append(f"| {streams} | {name} | {statistics.median(own):.1f} | {statistics.median(ratios):.3f} "
                         f"({min(ratios):.3f} to {max(ratios):.3f}) |")
    return "\n".join(lines) + "\n"


def main():
    parser = arguments(__doc__, tokens=64)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    runs = []
    with shape_server(args) as server:
        for repeat in range(args.repeats):
            for streams in STREAMS:
                times = {name: tpot_ms(args, server, grammar, streams, repeat) for name, grammar in GRAMMARS.items()}
                runs.append({"streams": streams, "repeat": repeat, "tpot_ms": times})
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "tpot.json").write_text(json.dumps(runs, indent=1) + "\n")
    (args.out / "tpot.md").write_text(table(runs))
    print(table(runs))


if __name__ == "__main__":
    main()
