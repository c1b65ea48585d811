#!/usr/bin/env python3
"""Holds the schema compiler against MaskBench's schemas and instances.

    bench/grammar/maskbench.py DATA [--out FILE] [--tokenizer FILE] [--steps N] [--kib N]

DATA is the folder maskbench/data of github.com/guidance-ai/jsonschemabench. An instance is written as MaskBench writes
it, and accepted if the automaton takes all of it and may end there. A schema passes if it compiles and each of its
instances is judged as the data say. --out keeps a row for each schema that does not pass. With a tokenizer.json it also
says how many tokens of the accepted instances, each behind the first, a grammar forces, and how many of these are those
that the tokenizer writes. --steps and --kib are what `saccade serve` calls --max-grammar-steps and --max-grammar-kib.
"""

import argparse
import collections
import json
import pathlib
import re
import statistics
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]


def lines(files):
    for file in files:
        data = json.loads(file.read_text())
        texts = [json.dumps(test["data"], ensure_ascii=False) for test in data["tests"]]
        schema = json.dumps(data["schema"], ensure_ascii=False)
        yield json.dumps({"name": file.name, "schema": schema, "texts": texts})


def judged(files, tokenizer, bounds):
    command = ["cargo", "run", "-q", "--release", "-p", "saccade-grammar", "--example", "judge"]
    command += ["--", *bounds, *([tokenizer.resolve()] if tokenizer else [])]
    run = subprocess.run(command, cwd=ROOT, input="\n".join(lines(files)), capture_output=True, text=True, check=True)
    return [json.loads(line) for line in run.stdout.splitlines()]


def failures(row, tests):
    """What is wrong with the compiler's word on a schema: nothing, or one line."""
    if "error" in row:
        return "refused: " + row["error"]
    wrong = [(i, test["valid"]) for i, (test, got) in enumerate(zip(tests, row["accepted"])) if got != test["valid"]]
    if not wrong:
        return ""
    accepted = [i for i, valid in wrong if not valid]
    return f"accepted invalid {accepted}" if accepted else f"rejected valid {[i for i, _ in wrong]}"


def kind(failure):
    """A failure without its place."""
    return re.sub(r" \(at .*\)$|: #.*$| \[.*\]$", "", failure)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--tokenizer", type=pathlib.Path)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--kib", type=int)
    args = parser.parse_args()
    files = sorted(args.data.glob("*.json"))
    bounds = [f"--{name}={value}" for name in ("steps", "kib") if (value := getattr(args, name)) is not None]
    rows = judged(files, args.tokenizer, bounds)
    found = {}
    for file, row in zip(files, rows, strict=True):
        found[row["name"]] = failures(row, json.loads(file.read_text())["tests"])
    kinds = collections.Counter(kind(failure) for failure in found.values() if failure)
    compile_us = sorted(row["compile_us"] for row in rows)
    print(f"schemas {len(rows)}")
    print(f"passing {sum(not failure for failure in found.values())}")
    print(f"accepted an invalid instance {sum(f.startswith('accepted') for f in found.values())}")
    print(f"rejected a valid instance {sum(f.startswith('rejected') for f in found.values())}")
    print(f"refused {sum(f.startswith('refused') for f in found.values())}")
    print(f"compile us: mean {statistics.mean(compile_us):.0f}, P50 {compile_us[len(rows) // 2]}, "
          f"P99 {compile_us[len(rows) * 99 // 100]}, longest {compile_us[-1]}")
    if args.tokenizer:
        tokens, forced, same = (sum(row.get(key, 0) for row in rows) for key in ("tokens", "forced", "same"))
        print(f"tokens {tokens}, forced {forced} ({forced / tokens:.1%}), of these the tokenizer's {same / forced:.2%}")
    for name, count in kinds.most_common():
        print(f"{count:6} {name}")
    if args.out:
        args.out.write_text("".join(f"{name}\t{failure}\n" for name, failure in sorted(found.items()) if failure))


if __name__ == "__main__":
    main()
