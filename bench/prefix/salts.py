#!/usr/bin/env python3
"""Does the time to the first token tell what another salt has cached? Against a running server of ours.

    salts.py --url http://127.0.0.1:8000 --model NAME [--requests 2000] [--tokens 400]

Half of the requests have a prefix that was just cached under another salt, half one that nobody has sent; in random
order, one at a time, each under a salt of its own. Prints both medians in ms, the p-value of Mann and Whitney's test
(two-sided, normal approximation) and, so that the test is known to see a difference, the same for requests under the
salt that has the prefix.
"""

import argparse
import json
import math
import random
import statistics
import time
import urllib.parse

import http.client


def ask(url, model, prompt, salt):
    """ms to the first token of a completion."""
    connection = http.client.HTTPConnection(url.hostname, url.port, timeout=60)
    connection.connect()
    body = {"model": model, "prompt": prompt, "max_tokens": 1, "temperature": 0, "stream": True, "cache_salt": salt}
    text = json.dumps(body)
    began = time.perf_counter()
    connection.request("POST", "/v1/completions", text, {"Content-Type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        raise RuntimeError(f"{response.status}: {response.read(500)}")
    response.readline()
    took = 1e3 * (time.perf_counter() - began)
    response.read()
    connection.close()
    return took


def mann_whitney(a, b):
    """Two-sided p-value that both were drawn from one distribution; no ties are expected of times."""
    ranked = sorted([(value, 0) for value in a] + [(value, 1) for value in b])
    rank_sum = sum(rank for rank, (_, group) in enumerate(ranked, 1) if group == 0)
    u = rank_sum - len(a) * (len(a) + 1) / 2
    mean = len(a) * len(b) / 2
    deviation = math.sqrt(len(a) * len(b) * (len(a) + len(b) + 1) / 12)
    return math.erfc(abs(u - mean) / deviation / math.sqrt(2))


def main():
    parser = argparse.ArgumentParser(description="Timing across salts.")
    parser.add_argument("--url", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--tokens", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    url, source = urllib.parse.urlsplit(args.url), random.Random(args.seed)
    times = {"another_salt_has_it": [], "nobody_has_it": [], "own_salt_has_it": []}
    kinds = ["another_salt_has_it", "nobody_has_it"] * (args.requests // 2)
    source.shuffle(kinds)
    for number, kind in enumerate(kinds):
        prompt = [source.randrange(3, 250) for _ in range(args.tokens)]
        # Whatever the kind, one prompt is computed before: the server is in the same state.
        before = prompt if kind == "another_salt_has_it" else [source.randrange(3, 250) for _ in range(args.tokens)]
        ask(url, args.model, before, f"victim {number}")
        times[kind].append(ask(url, args.model, prompt, f"attacker {number}"))
        if number % 10 == 0:
            times["own_salt_has_it"].append(ask(url, args.model, prompt, f"attacker {number}"))
    hidden, absent, own = times["another_salt_has_it"], times["nobody_has_it"], times["own_salt_has_it"]
    print(json.dumps({
        "requests": len(kinds), "tokens": args.tokens, "seed": args.seed,
        "p50_ms": {kind: statistics.median(values) for kind, values in times.items()},
        "p_value": mann_whitney(hidden, absent), "p_value_own_salt": mann_whitney(own, absent),
    }))


if __name__ == "__main__":
    main()
