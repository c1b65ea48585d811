#!/usr/bin/env python3
"""Instructions per byte of text, each tokenizer: a measure that a shared machine's noise does not blur.

    tests/tokenizer/compare/instructions.py FOLDER      FOLDER: vocabularies and texts of ../fetch.py

Runs each under valgrind (a Debian package) for 2 and for 4 passes over the same 10 prompts of 2,048
tokens, cl100k's vocabulary; the difference is two passes with everything warm. valgrind runs AVX2 but
not AVX-512. Needs the program that run.sh builds.
"""

import os
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
PROGRAM = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", HERE / "target")) / "release/saccade-tokenizer-compare"
TOKENIZERS = ["saccade", "hf", "tiktoken-rs", "bpe-openai"]
TEXTS = ["english", "code", "chinese"]


def count(folder, tokenizer, text, passes):
    """Instructions of the whole program, and bytes of a pass."""
    valgrind = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
    command = [*valgrind, PROGRAM, folder, "passes", tokenizer, text, str(passes)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(re.search(r"I\s+refs:\s+([\d,]+)", done.stderr)[1].replace(",", "")), int(done.stdout)


def per_byte(folder, tokenizer, text):
    few, size = count(folder, tokenizer, text, 2)
    many, _ = count(folder, tokenizer, text, 4)
    return (many - few) / 2 / size


def main():
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    print("| instructions per byte | " + " | ".join(TOKENIZERS) + " |")
    print("|---" * (len(TOKENIZERS) + 1) + "|")
    for text in TEXTS:
        counts = [per_byte(sys.argv[1], tokenizer, text) for tokenizer in TOKENIZERS]
        cells = [f"{counts[0]:.1f}"] + [f"{c:.0f} ({c / counts[0]:.0f}x)" for c in counts[1:]]
        print(f"| {text} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
