#!/usr/bin/env python3
"""Tables of a folder that bench/turns.sh filled, as Markdown: bench/turns_table.py FOLDER"""
import json
import pathlib
import sys

from markdown_table import print_table


# Contexts up to this many tokens are not named.
LONG_CONTEXT = 512


def kind(line):
    streams = f"{line['streams']} streams" if line["streams"] > 1 else "1 stream"
    if line.get("context", 0) > LONG_CONTEXT:
        streams += f" at {line['context']:,} tokens"
    prompt = f"prompt of {line['prompt_rows']:,}"
    if not line["prompt_rows"]:
        return streams
    return f"{streams} and a {prompt}" if line["streams"] else prompt


def main():
    for path in sorted(pathlib.Path(sys.argv[1]).glob("*.jsonl")):
        print(f"### {path.stem}\n")
        lines = map(json.loads, path.read_text().splitlines())
        print_table(("step", "before, ms", "after, ms", "after / before", "quartiles"), [
            (kind(line), f"{line['first_ms']:.1f}", f"{line['second_ms']:.1f}", f"{line['ratio']:.2f}",
             f"{line['low']:.2f} to {line['high']:.2f}") for line in lines])


if __name__ == "__main__":
    main()
