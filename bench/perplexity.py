#!/usr/bin/env python3
"""Perplexity of servers on a text, and how far their log probabilities are from the first one's.

    bench/perplexity.py TEXT_FILE NAME=URL [NAME=URL ...] [--chunk-tokens 400] [--json FILE]

Uses /v1/completions with echo and logprobs, so it runs against any server that has them. The text goes
in chunks of about --chunk-tokens tokens, cut at white space; each chunk's first token is not counted.
"""
import argparse
import json
import math
import statistics
import urllib.request

BYTES_PER_TOKEN = 3  # a guess that only sizes the chunks


def post(url, body):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as answer:
        return json.load(answer)


def chunks(text, size):
    words, chunk = text.split(), []
    for word in words:
        chunk.append(word)
        if sum(map(len, chunk)) + len(chunk) >= size:
            yield " ".join(chunk)
            chunk = []
    if chunk:
        yield " ".join(chunk)


def log_probabilities(url, text, chunk_bytes):
    values = []
    for chunk in chunks(text, chunk_bytes):
        body = {"prompt": chunk, "max_tokens": 0, "echo": True, "logprobs": 1}
        choice = post(f"{url}/v1/completions", body)["choices"][0]
        values += [v for v in choice["logprobs"]["token_logprobs"] if v is not None]
    return values


def summary(name, values, reference):
    gaps = sorted(abs(a - b) for a, b in zip(values, reference))
    return {
        "name": name,
        "tokens": len(values),
        "perplexity": math.exp(-statistics.fmean(values)),
        "mean_gap_nats": statistics.fmean(gaps),
        "p99_gap_nats": gaps[int(0.99 * (len(gaps) - 1))],
        "max_gap_nats": gaps[-1],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text")
    parser.add_argument("server", nargs="+", metavar="NAME=URL")
    parser.add_argument("--chunk-tokens", type=int, default=400)
    parser.add_argument("--json")
    args = parser.parse_args()
    with open(args.text, encoding="utf-8") as file:
        text = file.read()
    rows, reference = [], None
    for server in args.server:
        name, url = server.split("=", 1)
        values = log_probabilities(url.rstrip("/"), text, args.chunk_tokens * BYTES_PER_TOKEN)
        reference = reference or values
        if len(values) != len(reference):
            parser.error(f"{name} has {len(values)} tokens, {args.server[0]} {len(reference)}: one tokenizer is needed")
        rows.append(summary(name, values, reference))
    print(f"{'server':<16}{'tokens':>8}{'perplexity':>12}{'|gap| mean':>12}{'P99':>8}{'max':>8}  nats, to the first")
    for r in rows:
        print(
            f"{r['name']:<16}{r['tokens']:>8}{r['perplexity']:>12.4f}{r['mean_gap_nats']:>12.5f}"
            f"{r['p99_gap_nats']:>8.4f}{r['max_gap_nats']:>8.4f}"
        )
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
