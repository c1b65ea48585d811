#!/usr/bin/env python3
"""A recorded chat workload, scaled to a small machine: prompt tokens computed, and TTFT, with no reuse, with reuse on
the device only, and with a store.

    chats.py TRACE MODEL OUT [--requests 240] [--blocks 320] [--store file:///FOLDER] [--repeats 1]

TRACE: Mooncake's JSON lines, plain or gzipped. Each of its blocks of 512 tokens becomes --block-tokens tokens (32)
that its id decides; requests longer than --longest tokens are left out. Of the first --pool of the rest, those are
taken whose first --shared blocks another one begins with too: most are turns of one conversation. They are sent in the
trace's order by --clients clients, each as soon as it is free, and yield --answer tokens. The device has --blocks
blocks of KV (16 tokens each), so that most prefixes are evicted before they are used again. The server with the store
begins with an empty one. Real inference on CPU threads; MODEL is a folder.

SACCADE_BINARY: the server (target/release/saccade).
"""

import argparse
import collections
import gzip
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("SACCADE_BINARY", str(ROOT / "target/release/saccade"))
PORT = 8150


def requests_of(args):
    opened = gzip.open if args.trace.suffix == ".gz" else open
    with opened(args.trace, "rt") as lines:
        rows = [json.loads(line)["hash_ids"] for line in lines]
    most = (args.longest - 1 - args.answer) // args.block_tokens
    rows = [ids for ids in rows if args.shared <= len(ids) <= most][: args.pool]
    begins = collections.Counter(tuple(ids[: args.shared]) for ids in rows)
    rows = [ids for ids in rows if args.shared == 0 or begins[tuple(ids[: args.shared])] > 1][: args.requests]
    if len(rows) < args.requests:
        raise SystemExit(f"{args.trace} has only {len(rows)} such requests")
    # Of each block the same tokens wherever it is; the last token is the request's own.
    block = lambda i: [(i * 2654435761 + j * 40503 + 7) % 900 + 50 for j in range(args.block_tokens)]
    return [[token for i in ids for token in block(i)] + [n % 900 + 50] for n, ids in enumerate(rows)]


class Server:
    def __init__(self, args, flags):
        self.log = tempfile.NamedTemporaryFile("w+", suffix=".log")
        self.name = "model"
        command = f"serve {args.model} --port {PORT} --served-model-name {self.name} --dtype bfloat16"
        command += f" --max-model-len {args.longest} --block-size 16"
        command += f" --num-gpu-blocks-override {args.blocks} --max-num-seqs 8 {flags}"
        self.process = subprocess.Popen([BINARY, *command.split()], stdout=self.log, stderr=self.log)
        for _ in range(1200):
            try:
                self.get("/ready")
                return
            except OSError:
                time.sleep(0.1)
        raise SystemExit(pathlib.Path(self.log.name).read_text()[-2000:])

    def get(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{PORT}{path}", timeout=10) as reply:
            return reply.read().decode()

    def metric(self, name):
        found = re.search(rf"^{re.escape(name)}(?:{{[^}}]*}})? (\S+)$", self.get("/metrics"), re.M)
        return float(found[1]) if found else 0.0

    def first_token(self, prompt, answer):
        body = {"model": self.name, "prompt": prompt, "max_tokens": answer, "ignore_eos": True, "stream": True}
        request = urllib.request.Request(
            f"http://127.0.0.1:{PORT}/v1/completions", json.dumps(body).encode(), {"content-type": "application/json"}
        )
        began, first = time.monotonic(), None
        with urllib.request.urlopen(request, timeout=600) as reply:
            for line in reply:
                if first is None and line.startswith(b"data: {"):
                    first = time.monotonic() - began
        return first

    def end(self):
        self.process.terminate()
        self.process.wait()


def serve_all(server, prompts, args):
    times = [None] * len(prompts)
    line, lock = iter(range(len(prompts))), threading.Lock()

    def client():
        while True:
            with lock:
                i = next(line, None)
            if i is None:
                return
            times[i] = server.first_token(prompts[i], args.answer)

    began = time.monotonic()
    threads = [threading.Thread(target=client) for _ in range(args.clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if None in times:
        raise SystemExit("a request failed")
    return times, time.monotonic() - began


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=pathlib.Path)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--requests", type=int, default=240)
    parser.add_argument("--blocks", type=int, default=320)
    parser.add_argument("--block-tokens", type=int, default=32)
    parser.add_argument("--pool", type=int, default=3000)
    parser.add_argument("--shared", type=int, default=8, help="0: every request is taken")
    parser.add_argument("--longest", type=int, default=4096)
    parser.add_argument("--answer", type=int, default=4)
    parser.add_argument("--clients", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--store", default="")
    args = parser.parse_args()
    prompts = requests_of(args)
    asked = sum(map(len, prompts))
    folder = None
    with args.out.open("a") as out:
        for repeat in range(args.repeats):
            for what in ["neither", "device", "store"]:
                if what == "store" and not args.store:
                    folder = tempfile.mkdtemp(prefix="saccade-chats-", dir="/var/tmp")
                url = args.store or f"file://{folder}"
                flags = {"neither": "--no-enable-prefix-caching", "device": "", "store": f"--prefix-store {url}"}[what]
                server = Server(args, flags)
                times, took = serve_all(server, prompts, args)
                row = {
                    "reuse": what,
                    "repeat": repeat,
                    "requests": len(prompts),
                    "prompt_tokens": asked,
                    "computed_tokens": server.metric("saccade:device_prefill_tokens_total"),
                    "fetched_tokens": server.metric("vllm:external_prefix_cache_hits_total"),
                    "ttft_p50_s": statistics.median(times),
                    "ttft_p99_s": sorted(times)[int(0.99 * (len(times) - 1))],
                    "took_s": took,
                }
                server.end()
                if folder:
                    shutil.rmtree(folder)
                    folder = None
                out.write(json.dumps(row) + "\n")
                out.flush()
                print(row, file=sys.stderr)


if __name__ == "__main__":
    main()
