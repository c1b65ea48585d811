#!/usr/bin/env python3
"""What the prefix cache costs where nothing is shared: two running servers of ours, one with the cache and one without,
asked in turn.

    beside.py --on http://127.0.0.1:8000 --off http://127.0.0.1:8001 --model NAME [--tokens 512] [--pairs 60]

Each pair of requests has one prompt that neither server has seen; which of the two is asked first is drawn. Prints the
median times to the first token in ms, the median of the pairs' ratios, and its quartiles.
"""

import argparse
import json
import random
import statistics
import urllib.parse

from users import ask, draw


def main():
    parser = argparse.ArgumentParser(description="The cost of a prefix cache that finds nothing.")
    parser.add_argument("--on", required=True)
    parser.add_argument("--off", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--pairs", type=int, default=60)
    args = parser.parse_args()
    urls = {"on": urllib.parse.urlsplit(args.on), "off": urllib.parse.urlsplit(args.off)}
    source = random.Random(0)
    times = {"on": [], "off": []}
    for pair in range(args.pairs + 1):
        prompt = draw(source, args.tokens)
        for which in source.sample(sorted(urls), 2):
            took = ask(urls[which], args.model, prompt, max_tokens=1)[0]
            if pair != 0:  # the first one warms up
                times[which].append(took)
    ratios = [on / off for on, off in zip(times["on"], times["off"])]
    print(json.dumps({
        "tokens": args.tokens, "pairs": args.pairs,
        "ttft_ms_p50": {which: statistics.median(values) for which, values in times.items()},
        "ratio_p50": statistics.median(ratios), "ratio_quartiles": statistics.quantiles(ratios, n=4),
    }))


if __name__ == "__main__":
    main()
