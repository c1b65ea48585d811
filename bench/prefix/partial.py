#!/usr/bin/env python3
"""What recomputing a partial last block costs: the most that copying it on write could save. Against a running server.

    partial.py --url http://127.0.0.1:8000 --model NAME [--tokens 512] [--block-size 16]

Prompts whose first TOKENS are cached, and of which 1, half a block and a whole block more are computed, in turn, one
at a time. With copies on write, at best one token would be computed in each case. Prints the median times to the first
token in ms, and of a prompt that was never seen.
"""

import argparse
import json
import random
import statistics
import urllib.parse

from users import ask, draw


def main():
    parser = argparse.ArgumentParser(description="The cost of a partial last block.")
    parser.add_argument("--url", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--block-size", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=30)
    args = parser.parse_args()
    url, source = urllib.parse.urlsplit(args.url), random.Random(0)
    rests = [1, args.block_size // 2, args.block_size]
    times = {f"{rest} computed": [] for rest in rests} | {"all computed": []}
    for _ in range(args.repeats):
        prefix = draw(source, args.tokens)
        times["all computed"].append(ask(url, args.model, prefix + draw(source, 1), max_tokens=1)[0])
        for rest in source.sample(rests, len(rests)):
            took, computed, _ = ask(url, args.model, prefix + draw(source, rest), max_tokens=1)
            if computed != rest:
                raise RuntimeError(f"{computed} tokens were computed, not {rest}")
            times[f"{rest} computed"].append(took)
    print(json.dumps({
        "tokens": args.tokens, "block_size": args.block_size, "repeats": args.repeats,
        "ttft_ms_p50": {what: statistics.median(values) for what, values in times.items()},
    }))


if __name__ == "__main__":
    main()
