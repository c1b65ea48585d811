#!/usr/bin/env python3
"""What a codec of prefix KV costs in accuracy: log probabilities of a text's tokens behind a prefix that came from a
store, against those behind the same prefix computed.

    accuracy.py MODEL TEXT OUT [--codecs lossless,bins-rans,cachegen] [--windows 12] [--positions 64]

Each window of TEXT is a prefix of 1,024 tokens (four chunks) and the tokens after it. One server computes the prefixes
and stores them in a folder; another loads them, and is asked for each next token: the text's own, forced by a bias that
its log probability does not include. Real inference on CPU threads, MODEL in bfloat16. Writes one JSON object per codec
to OUT: perplexity, and gaps of log probabilities in nats, of the text's token and of the 20 most probable ones.

SACCADE_BINARY: the server (target/release/saccade).
"""

import argparse
import concurrent.futures
import json
import math
import os
import pathlib
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("SACCADE_BINARY", str(ROOT / "target/release/saccade"))
CHUNK, PREFIX = 256, 1024
TOP = 20


class Server:
    def __init__(self, model, flags):
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.at = f"http://127.0.0.1:{free.getsockname()[1]}"
        self.log = tempfile.NamedTemporaryFile("w+", suffix=".log")
        command = f"serve {model} --port {self.at.rsplit(':', 1)[1]} --served-model-name m --dtype bfloat16"
        command += f" --max-model-len 4096 {flags}"
        self.process = subprocess.Popen([BINARY, *command.split()], stdout=self.log, stderr=self.log)
        for _ in range(1200):
            try:
                self.ask("/ready")
                return
            except OSError:
                time.sleep(0.1)
        raise SystemExit(pathlib.Path(self.log.name).read_text()[-2000:])

    def ask(self, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.at + path, data, {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=300) as reply:
            return reply.read().decode()

    def metric(self, name, labels=""):
        found = re.search(rf"^{name}(?:{{.*{labels}.*}})? (\S+)$", self.ask("/metrics"), re.M)
        return float(found[1]) if found else 0.0

    def next_token(self, prompt, target):
        """Log probability of the target, those of the most probable tokens, and how much of the prompt was found."""
        body = {"model": "m", "prompt": prompt, "max_tokens": 1, "temperature": 0, "logprobs": TOP}
        answer = json.loads(self.ask("/v1/completions", body | {"logit_bias": {str(target): 100}}))
        of = answer["choices"][0]["logprobs"]
        found = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
        return of["token_logprobs"][0], of["top_logprobs"][0], found

    def end(self):
        self.process.terminate()
        self.process.wait()


def until(what, done):
    for _ in range(600):
        if done():
            return
        time.sleep(0.1)
    raise SystemExit(f"not in a minute: {what}")


def with_store(model, flags):
    server = Server(model, flags)
    until("a fetch plane", lambda: server.metric("saccade:fetch_plane_alive") == 1)
    return server


def store(server, windows):
    for i, ids in enumerate(windows):
        server.next_token(ids[: PREFIX + 1], ids[PREFIX + 1])
        chunks = (i + 1) * PREFIX // CHUNK
        count = lambda: server.metric("saccade:fetch_commands_total", 'op="store",result="done"')
        until(f"{chunks} chunks stored", lambda: count() >= chunks)


def read(server, windows, positions, loads):
    """Of each position of each window, what `next_token` says."""
    rows = []
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for ids in windows:
            first = server.next_token(ids[: PREFIX + 1], ids[PREFIX + 1])
            if loads and first[2] != PREFIX:
                raise SystemExit(f"{first[2]} of {PREFIX} tokens were found")
            ask = lambda at: server.next_token(ids[:at], ids[at])[:2]
            rows += [first[:2], *pool.map(ask, range(PREFIX + 2, PREFIX + 1 + positions))]
    return rows


def summary(rows, exact):
    own = [abs(a - b) for (a, _), (b, _) in zip(rows, exact)]
    top = [abs(a[t] - b[t]) for (_, a), (_, b) in zip(rows, exact) for t in a.keys() & b.keys()]
    same = [max(a, key=a.get) == max(b, key=b.get) for (_, a), (_, b) in zip(rows, exact)]
    return {
        "tokens": len(rows),
        "perplexity": math.exp(-statistics.fmean(p for p, _ in rows)),
        "own_gap_mean_nats": statistics.fmean(own),
        "own_gap_max_nats": max(own),
        "top_gap_mean_nats": statistics.fmean(top),
        "top_gap_max_nats": max(top),
        "same_first": statistics.fmean(same),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--codecs", default="lossless,bins-rans,cachegen")
    parser.add_argument("--windows", type=int, default=12)
    parser.add_argument("--positions", type=int, default=64)
    args = parser.parse_args()
    server = Server(args.model, "")
    text = args.text.read_text()
    length = PREFIX + 1 + args.positions
    windows = []
    for i in range(args.windows):
        part = text[i * len(text) // args.windows :][: 12 * length]
        windows.append(json.loads(server.ask("/tokenize", {"prompt": part}))["tokens"][:length])
        if len(windows[-1]) < length:
            raise SystemExit(f"{args.text} is too short")
    exact = read(server, windows, args.positions, False)
    server.end()
    with args.out.open("a") as out:
        for codec in ["computed", *args.codecs.split(",")]:
            rows = exact
            if codec != "computed":
                with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
                    flags = f"--prefix-store file://{folder} --prefix-codec {codec}"
                    flags += " --fetch-always --fetch-late-ms 60000"
                    server = with_store(args.model, flags)
                    store(server, windows)
                    server.end()
                    server = with_store(args.model, flags)
                    rows = read(server, windows, args.positions, True)
                    server.end()
            row = {"codec": codec, "model": args.model.name, **summary(rows, exact)}
            print(json.dumps(row), file=out, flush=True)
            print(row, file=sys.stderr)


if __name__ == "__main__":
    main()
