#!/usr/bin/env python3
"""KV bytes loaded per second of processor time, and per second: the fetch plane beside LMCache's own benchmark.

    lmcache.py KV OUT [--rates 10,20] [--codecs raw,lossless,bins-rans] [--repeats 3]

Both load the same number of chunks of the same size (256 tokens of SmolLM2-135M, 5.6 MiB) from one Redis behind one
link that HTB shapes (needs root), in turns: LMCache by `lmcache bench l2` with its RESP adapter, eight keys to a round;
the fetch plane by fetch_bench, eight chunks to a prompt. Processor time is that of the whole client, kernel included,
and not Redis's. LMCache's start (Python's imports) is taken off by a second run of fewer rounds; of fetch_bench, the
thread that plays the device is left out. LMCache's values are as long as raw KV; it neither decodes nor checks them.
KV: bench/chunks/real_kv.py wrote it. Writes one JSON object per measurement to OUT.

LMCACHE: the program (`pip install lmcache`). FETCH_BENCH: target/release/examples/fetch_bench
(cargo build --release -p saccade-fetch --example fetch_bench).
"""

import argparse
import json
import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile
import time

from link import ROOT, SERVE, STORE_IP, Link, Redis

LMCACHE = os.environ.get("LMCACHE", "lmcache")
FETCH_BENCH = os.environ.get("FETCH_BENCH", str(ROOT / "target/release/examples/fetch_bench"))
CHUNK_KIB = 5760
KEYS = 8
ROUNDS, FEW_ROUNDS = 60, 5


def timed(command):
    """Output of a program in the server's namespace, and its processor time."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(["ip", "netns", "exec", SERVE, *command], capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{command}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def lmcache(args, only, rounds):
    adapter = {"type": "resp", "host": STORE_IP, "port": 6379, "num_workers": args.workers}
    command = ["taskset", "-c", args.cores, LMCACHE, "bench", "l2", "--l2-adapter", json.dumps(adapter)]
    command += ["--num-keys", str(KEYS), "--data-size-kb", str(CHUNK_KIB), "--warmup-rounds", "0"]
    text, cpu = timed(command + ["--rounds", str(rounds), "--only", only])
    found = dict(re.findall(r"^(Total success|Throughput avg) ?.*?:\s+([\d.]+)$", text, re.M))
    if int(found["Total success"]) != rounds * KEYS:
        raise SystemExit(f"lmcache {only}: {text}")
    return float(found["Throughput avg"]), cpu


def measure_lmcache(args):
    rate, cpu = lmcache(args, "load", ROUNDS)
    _, started = lmcache(args, "load", FEW_ROUNDS)
    loaded = (ROUNDS - FEW_ROUNDS) * KEYS * CHUNK_KIB * 1024
    yield {"engine": "lmcache", "gbps": rate * 2**20 * 8e-9, "kv_bytes": loaded, "cpu_s": cpu - started}


def measure_saccade(args):
    with tempfile.NamedTemporaryFile("r") as rows:
        command = [FETCH_BENCH, "--shape", "small", "--chunks", str(KEYS), "--kv", str(args.kv), "--stages", "false"]
        command += ["--modes", "pipelined", "--codecs", args.codecs, "--seconds", str(args.seconds)]
        timed(command + ["--cores", args.cores, "--store", f"redis://{STORE_IP}:6379/1", "--json", rows.name])
        for row in map(json.loads, rows):
            yield {"engine": "saccade", **{k: row[k] for k in ("codec", "gbps", "kv_bytes", "cpu_s")}}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kv", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--rates", type=lambda text: [int(n) for n in text.split(",")], default=[10, 20])
    parser.add_argument("--codecs", default="raw,lossless,bins-rans")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=8)
    parser.add_argument("--workers", type=int, default=8, help="LMCache's threads; 8 is its default")
    parser.add_argument("--cores", default="1", help="of both clients")
    parser.add_argument("--store-cores", default="0")
    args = parser.parse_args()
    link = Link()
    redis = Redis(args.store_cores)
    try:
        lmcache(args, "store", ROUNDS)
        with args.out.open("a") as out:
            for repeat in range(args.repeats):
                for gbps in args.rates:
                    link.shape(gbps)
                    for measured in (measure_lmcache, measure_saccade):
                        for row in measured(args):
                            row["kv_gb_per_cpu_s"] = row["kv_bytes"] / 1e9 / row["cpu_s"]
                            row |= {"link_gbps": gbps, "repeat": repeat, "when": time.strftime("%H:%M:%S")}
                            print(json.dumps(row), file=out, flush=True)
                            print(row, file=sys.stderr)
    finally:
        redis.end()
        link.end()


if __name__ == "__main__":
    main()
