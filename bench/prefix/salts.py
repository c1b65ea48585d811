#!/usr/bin/env python3
"""Does the time to the first token tell what another salt has cached? Against a running server of ours.

    salts.py --url http://127.0.0.1:8000 --model NAME [--requests 2000] [--tokens 400]

Half of the requests have a prefix that was just cached under another salt, half one that no request had before; in
random order, one at a time, each under a salt of its own. Prints both medians in ms, the p-value of Mann and Whitney's
test (two-sided, normal approximation) and, so that the test is known to see a difference, the same for requests under
the salt that has the prefix.
"""

import argparse
import json
import math
import random
import statistics
import urllib.parse

from users import ask, draw


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

    def first_token_ms(prompt, salt):
        return ask(url, args.model, prompt, max_tokens=1, cache_salt=salt)[0]

    times = {"another_salt_has_it": [], "no_salt_has_it": [], "own_salt_has_it": []}
    kinds = ["another_salt_has_it", "no_salt_has_it"] * (args.requests // 2)
    source.shuffle(kinds)
    for number, kind in enumerate(kinds):
        prompt = draw(source, args.tokens)
        # One prompt is computed before, of either kind: the server is in the same state.
        before = prompt if kind == "another_salt_has_it" else draw(source, args.tokens)
        first_token_ms(before, f"victim {number}")
        times[kind].append(first_token_ms(prompt, f"attacker {number}"))
        if number % 10 == 0:
            times["own_salt_has_it"].append(first_token_ms(prompt, f"attacker {number}"))
    hidden, absent, own = times["another_salt_has_it"], times["no_salt_has_it"], times["own_salt_has_it"]
    print(json.dumps({
        "requests": len(kinds), "tokens": args.tokens, "seed": args.seed,
        "p50_ms": {kind: statistics.median(values) for kind, values in times.items()},
        "p_value": mann_whitney(hidden, absent), "p_value_own_salt": mann_whitney(own, absent),
    }))


if __name__ == "__main__":
    main()
