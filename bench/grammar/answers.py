#!/usr/bin/env python3
"""Random answers under MaskBench's schemas: each that ends by itself must parse and be valid.

    bench/grammar/answers.py DATA OUT [--answers 10000] [--schemas 500] [--seed 1] [--binary target/release/saccade]

DATA is the folder maskbench/data of github.com/guidance-ai/jsonschemabench. Draws schemas that the server takes, and
asks servers with random weights (three seeds) for answers at temperature 1.5, 16 at a time: of different schemas, and
some of them with stops, logprobs, several choices or a client that goes away. The judge is Python's jsonschema with
its format checker. OUT gets answers.json and, for each invalid answer, a line in invalid.jsonl.
"""

import argparse
import collections
import concurrent.futures
import json
import pathlib
import random
import sys
import threading
import urllib.error
import urllib.request

import jsonschema

from server import Server

ROOT = pathlib.Path(__file__).resolve().parents[2]
STREAMS = 16
MAX_TOKENS = 300


def as_ecma(pattern):
    """A pattern of ECMA 262 for Python's re, as far as they differ in what they match."""
    spelled = {"d": "0-9", "w": "A-Za-z0-9_", "s": r"\s\ufeff"}
    out, i, in_class = [], 0, False
    while i < len(pattern):
        c = pattern[i]
        escaped = pattern[i + 1:i + 2] if c == "\\" else ""
        if escaped in spelled:
            out.append(spelled[escaped] if in_class else f"[{spelled[escaped]}]")
        elif escaped and escaped.lower() in spelled:
            if in_class:
                raise ValueError("a negated class in a class")
            out.append(f"[^{spelled[escaped.lower()]}]")
        elif escaped:
            out.append(c + escaped)
        else:
            in_class = c == "[" or in_class and c != "]"
            out.append(r"\Z" if c == "$" and not in_class else c)
        i += 1 + len(escaped)
    return "".join(out)


def with_patterns(value):
    """A schema with its patterns as Python's re reads them."""
    if isinstance(value, list):
        return [with_patterns(item) for item in value]
    if not isinstance(value, dict):
        return value
    changed = {key: with_patterns(item) for key, item in value.items()}
    if isinstance(value.get("pattern"), str):
        changed["pattern"] = as_ecma(value["pattern"])
    if isinstance(value.get("patternProperties"), dict):
        changed["patternProperties"] = {as_ecma(key): item for key, item in changed["patternProperties"].items()}
    return changed


class Judge:
    """A schema as another implementation reads it."""

    def __init__(self, schema):
        schema = with_patterns(schema)
        kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
        kind.check_schema(schema)
        self.validator = kind(schema, format_checker=kind.FORMAT_CHECKER)

    def wrong(self, text):
        """What is wrong with an answer; empty if nothing is."""
        try:
            value = json.loads(text)
        except ValueError as error:
            return f"not JSON: {error}"
        error = next(iter(self.validator.iter_errors(value)), None)
        return "" if error is None else f"{error.json_path}: {error.message}"[:300]


def ask(server, body, timeout=120):
    headers = {"content-type": "application/json", "host": "localhost"}
    request = urllib.request.Request(f"{server.url}/v1/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=timeout) as answer:
        return json.load(answer)


def body_of(schema, index):
    body = {"prompt": "Answer in JSON: ", "temperature": 1.5, "max_tokens": MAX_TOKENS, "seed": index,
            "structured_outputs": {"json": schema}}
    if index % 5 == 1:
        body |= {"logprobs": 3}
    if index % 7 == 2:
        body |= {"n": 3}
    if index % 11 == 3:
        body |= {"top_p": 0.9, "min_p": 0.01, "repetition_penalty": 1.2}
    return body


class Tally:
    """Answers by how they ended."""

    def __init__(self, out):
        self.counts = collections.Counter()
        self.ended_by_schema = collections.Counter()
        self.lock = threading.Lock()
        self.invalid = (out / "invalid.jsonl").open("w")

    def went_away(self):
        with self.lock:
            self.counts["went away"] += 1

    def add(self, name, choice, judge):
        reason = choice["finish_reason"]
        wrong = judge.wrong(choice["text"]) if reason == "stop" else ""
        with self.lock:
            self.counts["answers"] += 1
            self.counts[f"finish_reason {reason}"] += 1
            self.counts["invalid"] += bool(wrong)
            self.ended_by_schema[name] += reason == "stop"
            if wrong:
                row = {"schema": name, "text": choice["text"], "wrong": wrong}
                print(json.dumps(row), file=self.invalid, flush=True)


def run_one(server, name, schema, judge, index, tally):
    """One request; a client that goes away for some."""
    if index % 13 == 4:
        try:
            ask(server, body_of(schema, index), timeout=0.05)
        except OSError:
            tally.went_away()
            return
    for choice in ask(server, body_of(schema, index))["choices"]:
        tally.add(name, choice, judge)


def takes(server, schema):
    try:
        ask(server, {"prompt": "a", "max_tokens": 1, "structured_outputs": {"json": schema}})
        return True
    except urllib.error.HTTPError as error:
        if error.code != 400:
            raise
        return False


def drawn(files, server, count, rng):
    """Schemas that the server takes and the judge can read, by name."""
    rng.shuffle(files)
    schemas = {}
    for file in files:
        if len(schemas) == count:
            break
        schema = json.loads(file.read_text())["schema"]
        try:
            judge = Judge(schema)
        except Exception:  # whatever the judge cannot read is not judged
            continue
        if takes(server, schema):
            schemas[file.stem] = (schema, judge)
    return schemas


def ask_until(server, schemas, count, first_seed, tally):
    """Asks for answers, 16 at a time, until there are `count`."""
    names = sorted(schemas)
    index = 0
    while tally.counts["answers"] < count:
        with concurrent.futures.ThreadPoolExecutor(STREAMS) as pool:
            batch = [names[(index + i) % len(names)] for i in range(STREAMS * 8)]
            jobs = [pool.submit(run_one, server, name, *schemas[name], first_seed + index + i, tally)
                    for i, name in enumerate(batch)]
            for job in jobs:
                job.result()
        index += len(batch)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--answers", type=int, default=10000)
    parser.add_argument("--schemas", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--binary", default=str(ROOT / "target/release/saccade"))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    rng = random.Random(args.seed)
    tally = Tally(args.out)
    schemas = {}
    for model in range(3):
        with Server(args.binary, "--seed", args.seed + model) as server:
            schemas = schemas or drawn(sorted(args.data.glob("*.json")), server, args.schemas, rng)
            ask_until(server, schemas, args.answers * (model + 1) / 3, model * 10**6, tally)
    result = {"seed": args.seed, "schemas": len(schemas), **tally.counts,
              "schemas with an answer that ended": sum(n > 0 for n in tally.ended_by_schema.values())}
    (args.out / "answers.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))
    sys.exit(tally.counts["invalid"] > 0)


if __name__ == "__main__":
    main()
