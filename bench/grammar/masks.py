#!/usr/bin/env python3
"""How long a mask of legal tokens takes: ours as the CPU device computes it, llguidance, XGrammar.

    bench/grammar/masks.py DATA TOKENIZER OUT [--schemas 400] [--seed 1]

DATA is the folder maskbench/data of github.com/guidance-ai/jsonschemabench, TOKENIZER a tokenizer.json of a byte-level
vocabulary. Each engine computes the mask before each token of the first valid instance of a schema, and behind the
last one, on one thread; only schemas count that all three take and whose instance all three accept. Needs Python's
tokenizers, llguidance, xgrammar and numpy, and build/device-plain/mask_bench (ninja -C build/device-plain mask_bench).
"""

import argparse
import json
import pathlib
import random
import statistics
import struct
import subprocess
import time

import llguidance
import llguidance.numpy
import numpy
import tokenizers
import xgrammar

import maskbench

ROOT = pathlib.Path(__file__).resolve().parents[2]


def byte_decoder():
    """Characters of a byte-level vocabulary as bytes."""
    printable = [*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + i): byte for i, byte in enumerate(others)}


class Vocabulary:
    def __init__(self, path):
        self.path = path
        self.tokenizer = tokenizers.Tokenizer.from_file(str(path))
        special = {token["id"] for token in json.loads(path.read_text())["added_tokens"]}
        decoder = byte_decoder()
        self.size = self.tokenizer.get_vocab_size()
        self.pieces = [self.tokenizer.id_to_token(i) or "" for i in range(self.size)]
        self.eos = min(special)
        self.bytes = [b"" if i in special else bytes(decoder[c] for c in piece)
                      for i, piece in enumerate(self.pieces)]

    def words(self):
        """As mask_bench reads it."""
        text = b"".join(self.bytes)
        offsets = numpy.concatenate([[0], numpy.cumsum([len(piece) for piece in self.bytes])])
        padded = text + bytes(-len(text) % 4)
        return struct.pack("<I", self.size) + offsets.astype("<u4").tobytes() + padded


class Llguidance:
    name = "llguidance"

    def __init__(self, vocabulary):
        self.tokenizer = llguidance.LLTokenizer(vocabulary.path.read_text())
        self.mask = llguidance.numpy.allocate_token_bitmask(1, self.tokenizer.vocab_size)

    def matcher(self, schema):
        grammar = llguidance.LLMatcher.grammar_from_json_schema(schema)
        matcher = llguidance.LLMatcher(self.tokenizer, grammar)
        if matcher.is_error():
            raise ValueError(matcher.get_error())
        return matcher

    def fill(self, matcher):
        llguidance.numpy.fill_next_token_bitmask(matcher, self.mask, 0)

    def take(self, matcher, token):
        return matcher.consume_token(token)


class XGrammar:
    name = "XGrammar"

    def __init__(self, vocabulary):
        info = xgrammar.TokenizerInfo(vocabulary.pieces, vocab_type=xgrammar.VocabType.BYTE_LEVEL,
                                      vocab_size=vocabulary.size, stop_token_ids=[vocabulary.eos])
        self.compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
        self.mask = xgrammar.allocate_token_bitmask(1, vocabulary.size)

    def matcher(self, schema):
        return xgrammar.GrammarMatcher(self.compiler.compile_json_schema(schema, strict_mode=False))

    def fill(self, matcher):
        matcher.fill_next_token_bitmask(self.mask, 0)

    def take(self, matcher, token):
        return matcher.accept_token(token)


def times_of(engine, schema, tokens):
    """Nanoseconds per mask; None if the engine does not take the schema or the instance. The first value is what
    compiling took."""
    start = time.perf_counter_ns()
    try:
        matcher = engine.matcher(schema)
    except Exception:  # whatever an engine does not take is left out
        return None
    times = [time.perf_counter_ns() - start]
    for token in [*tokens, None]:
        start = time.perf_counter_ns()
        engine.fill(matcher)
        times.append(time.perf_counter_ns() - start)
        if token is not None and not engine.take(matcher, token):
            return None
    return times


def our_cases(cases):
    """Automata of the cases that our compiler takes and whose instance it accepts, by name."""
    lines = [json.dumps({"name": name, "schema": schema, "texts": [text]}) for name, (schema, text, _) in cases.items()]
    command = ["cargo", "run", "-q", "--release", "-p", "saccade-grammar", "--example", "judge", "--", "--automata"]
    run = subprocess.run(command, cwd=ROOT, input="\n".join(lines), capture_output=True, text=True, check=True)
    rows = map(json.loads, run.stdout.splitlines())
    return {row["name"]: row for row in rows if row.get("accepted") == [True]}


def our_times(vocabulary, automata, cases):
    words = [vocabulary.words()]
    for name, row in automata.items():
        for values in (row["automaton"], cases[name][2]):
            words.append(struct.pack(f"<I{len(values)}I", len(values), *values))
    binary = ROOT / "build/device-plain/mask_bench"
    run = subprocess.run([binary], input=b"".join(words), capture_output=True, check=True)
    rows = map(json.loads, run.stdout.splitlines())
    return {name: [row["compile_us"] * 1000, *times]
            for (name, row), times in zip(automata.items(), rows, strict=True)}


def drawn(data, count, seed, vocabulary):
    """Schemas with their first valid instance, as text and tokens."""
    files = sorted(data.glob("*.json"))
    random.Random(seed).shuffle(files)
    cases = {}
    for file in files:
        found = json.loads(file.read_text())
        valid = next((test["data"] for test in found["tests"] if test["valid"]), None)
        if valid is None:
            continue
        text = json.dumps(valid, ensure_ascii=False)
        tokens = vocabulary.tokenizer.encode(text, add_special_tokens=False).ids
        cases[file.stem] = (json.dumps(found["schema"], ensure_ascii=False), text, tokens)
        if len(cases) == count:
            break
    return cases


def row_of(name, runs):
    masks = sorted(ns / 1000 for times in runs for ns in times[1:])
    compiling = sorted(times[0] / 1e6 for times in runs)
    at = lambda values, share: values[min(len(values) - 1, int(len(values) * share))]  # noqa: E731
    return (f"| {name} | {statistics.mean(masks):.0f} | {at(masks, .5):.1f} | {at(masks, .99):.0f} | {masks[-1]:.0f} "
            f"| {at(compiling, .5):.1f} | {at(compiling, .99):.0f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("tokenizer", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--schemas", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    vocabulary = Vocabulary(args.tokenizer)
    cases = drawn(args.data, args.schemas, args.seed, vocabulary)
    times = {"ours": our_times(vocabulary, our_cases(cases), cases)}
    for engine in (Llguidance(vocabulary), XGrammar(vocabulary)):
        found = {name: times_of(engine, schema, tokens) for name, (schema, _, tokens) in cases.items()}
        times[engine.name] = {name: row for name, row in found.items() if row is not None}
    common = set.intersection(*(set(rows) for rows in times.values()))
    lines = [f"Schemas: {len(cases)} drawn; taken with their instance by "
             + ", ".join(f"{name} {len(rows)}" for name, rows in times.items())
             + f"; by all {len(common)}, with {sum(len(cases[name][2]) + 1 for name in common)} masks.", "",
             "| | mask: mean us | P50 | P99 | longest | compile: P50 ms | P99 |", "|---|---|---|---|---|---|---|"]
    lines += [row_of(name, [rows[case] for case in sorted(common)]) for name, rows in times.items()]
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "masks.md").write_text("\n".join(lines) + "\n")
    raw = {name: {case: rows[case] for case in sorted(common)} for name, rows in times.items()}
    (args.out / "masks.json").write_text(json.dumps(raw) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
