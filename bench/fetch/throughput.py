#!/usr/bin/env python3
"""How much KV a second the fetch plane brings through a link of a given rate, and each of its stages alone.

    throughput.py KV OUT [--rates 10,20,30,40] [--codecs bins-rans,bins-deflate,lossless] [--repeats 3]

Redis and the plane each run in a network namespace of their own, joined by a link that HTB shapes (needs root). There
is no device: fetch_bench plays one. KV: bench/chunks/real_kv.py wrote it, of SmolLM2-135M. One JSON object per row of
fetch_bench to OUT: `stages` has the stages alone, the network's through the same link; `pipeline` all of them together.

FETCH_BENCH: target/release/examples/fetch_bench (cargo build --release -p saccade-fetch --example fetch_bench).
"""

import argparse
import json
import pathlib
import sys
import tempfile
import time

from link import STORE_IP, Link, Redis
from lmcache import FETCH_BENCH, timed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kv", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--rates", type=lambda text: [int(n) for n in text.split(",")], default=[10, 20, 30, 40])
    parser.add_argument("--codecs", default="bins-rans,bins-deflate,lossless")
    parser.add_argument("--modes", default="pipelined")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--chunks", type=int, default=24, help="of a prompt")
    parser.add_argument("--cores", default="0-1")
    parser.add_argument("--store-cores", default="0-1")
    args = parser.parse_args()
    link = Link()
    redis = Redis(args.store_cores)
    command = [FETCH_BENCH, "--shape", "small", "--chunks", str(args.chunks), "--kv", str(args.kv)]
    command += ["--codecs", args.codecs, "--modes", args.modes, "--seconds", str(args.seconds), "--cores", args.cores]
    try:
        with args.out.open("a") as out:
            for repeat in range(args.repeats):
                for gbps in args.rates:
                    link.shape(gbps)
                    with tempfile.NamedTemporaryFile("r") as rows:
                        timed(command + ["--store", f"redis://{STORE_IP}:6379/0", "--json", rows.name])
                        for row in map(json.loads, rows):
                            row |= {"link_gbps": gbps, "repeat": repeat, "when": time.strftime("%H:%M:%S")}
                            print(json.dumps(row), file=out, flush=True)
                            print(row, file=sys.stderr)
    finally:
        redis.end()
        link.end()


if __name__ == "__main__":
    main()
