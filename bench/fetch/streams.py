#!/usr/bin/env python3
"""What fetches cost running streams: time per token of some streams, alone and while prompts are fetched at full rate.

    streams.py KV OUT [--seconds 30] [--streams 4] [--repeats 3]

As link.py: the device is SIMULATED (an L40S with Llama-3-8B), all else is real. Three servers take turns: with the
fetch plane on a core of its own, with it on the serving core, and without fetches. Prompts of 9,300 tokens take turns
on a device that has no room for both, one after the other, as fast as they are fetched; each yields one token. Writes
one JSON object per measurement to OUT: TPOT is the mean gap of a request after its first token.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import threading
import time

import numpy
from link import PORT, REAL, SERVE, Link, Redis, Server, fill_store, prompt, store_flags

TOKENS = 9300
ANSWER = 64

# Runs in the server's namespace: one stream after the other until the time is up; prints a line per request.
STREAM = """
import json, sys, time, urllib.request
which, seconds, answer, port = (int(a) for a in sys.argv[1:])
end = time.monotonic() + seconds
turn = 0
while time.monotonic() < end:
    turn += 1
    tokens = [(which * 31 + turn * 17 + i) % 400 + 50 for i in range(24)]
    body = {"model": "saccade-tiny", "prompt": tokens, "max_tokens": answer, "ignore_eos": True, "stream": True}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/completions", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    times = []
    with urllib.request.urlopen(request, timeout=120) as reply:
        for line in reply:
            if line.startswith(b"data: {"):
                times.append(time.monotonic())
    gaps = [b - a for a, b in zip(times, times[1:])]
    print(json.dumps([(times[-1] - times[0]) / (answer - 1), max(gaps)]), flush=True)
"""


def watch_streams(args, busy):
    """TPOT and longest gap of each request, and how many prompts were fetched meanwhile."""
    command = ["ip", "netns", "exec", SERVE, "taskset", "-c", args.client_cores, sys.executable, "-c", STREAM]
    numbers = [[str(n) for n in (i, args.seconds, ANSWER, PORT)] for i in range(args.streams)]
    streams = [subprocess.Popen(command + of, stdout=subprocess.PIPE, text=True) for of in numbers]
    stop = threading.Event()
    fetched = []

    def fetch():
        while not stop.is_set():
            fetched.append(busy(len(fetched)))

    thread = threading.Thread(target=fetch) if busy else None
    if thread:
        thread.start()
    rows = [json.loads(line) for stream in streams for line in stream.communicate()[0].splitlines()]
    stop.set()
    if thread:
        thread.join()
    return rows, fetched


def quantile(of, q):
    return sorted(of)[int(q * (len(of) - 1))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kv", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--codec", default="bins-rans")
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--streams", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--device-cores", default="0")
    parser.add_argument("--fetch-cores", default="1")
    parser.add_argument("--client-cores", default="1")
    parser.add_argument("--store-cores", default="1")
    parser.add_argument("--frame-mib", type=int, default=512)
    parser.add_argument("--buffer-mib", type=int, default=512)
    args = parser.parse_args()
    args.tokens = [TOKENS]
    real = numpy.fromfile(args.kv, dtype=numpy.uint16).reshape(-1, *REAL)
    link = Link()
    redis = Redis(args.store_cores)
    own = args.fetch_cores
    try:
        fill_store(redis, real, args, args.codec)
        with args.out.open("a") as out:
            for repeat in range(args.repeats):
                for what in ["none", "own core", "serving core"]:
                    args.fetch_cores = args.device_cores if what == "serving core" else own
                    server = Server(store_flags(redis, args, args.codec, "pipelined"))
                    busy = None if what == "none" else lambda turn: server.ask(prompt(TOKENS, turn % 2))[0]
                    rows, fetched = watch_streams(args, busy)
                    server.end()
                    row = {
                        "simulated": "L40S, Llama-3-8B",
                        "fetches": what,
                        "repeat": repeat,
                        "requests": len(rows),
                        "tpot_p50_ms": statistics.median(r[0] for r in rows) * 1e3,
                        "tpot_p99_ms": quantile([r[0] for r in rows], 0.99) * 1e3,
                        "gap_p99_ms": quantile([r[1] for r in rows], 0.99) * 1e3,
                        "prompts_fetched": len(fetched),
                        "fetch_ttft_s": statistics.median(fetched) if fetched else None,
                        "when": time.strftime("%H:%M:%S"),
                    }
                    out.write(json.dumps(row) + "\n")
                    out.flush()
                    print(row, file=sys.stderr)
    finally:
        redis.end()
        link.end()


if __name__ == "__main__":
    main()
