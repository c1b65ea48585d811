#!/usr/bin/env python3
"""Do long prompts of others delay the tokens of running streams?

Starts a server whose device only writes tokens (one step per 10 ms, whatever is in it), so that only
the frontend can delay a token: reading, parsing, tokenizing and submitting prompts.
Streams run all the time; windows in which bursts of 16 prompts of 100,000 tokens keep arriving
alternate with windows in which nothing else arrives. Prints the percentiles of the time
between two tokens in both, and their ratio.

    bench/long_prompts.py [--saccade target/release/saccade] [--endpoint tokenize] [--json FILE]
"""

import argparse
import json
import multiprocessing
import os
import pathlib
import random
import selectors
import shutil
import socket
import statistics
import subprocess
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[1]
MODEL = ROOT / "models/saccade-tiny"
STREAMS = 8
PROMPTS = 16
PROMPT_TOKENS = 100_000
STEP_US = 10_000
SETTLE_S = 1.0
MARK = b"0" * 16
WORDS = (
    "the of and to in is that it was for on are as with his they at be this from have or by one had not but what "
    "all were when we there can an your which their said if do will each about how up out them then she many some "
    "so these would other into has more her two like him see time could no make than first been its who now people"
).split()


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--saccade", default=ROOT / "target/release/saccade", type=pathlib.Path)
    parser.add_argument("--endpoint", default="completions", choices=["completions", "tokenize"])
    parser.add_argument("--rounds", default=5, type=int, help="windows of each kind")
    parser.add_argument("--window", default=8.0, type=float, help="seconds of a window")
    parser.add_argument("--every", default=2.0, type=float, help="seconds between two bursts")
    parser.add_argument("--json", type=pathlib.Path, help="also write the result here")
    parser.add_argument("flags", nargs="*", help="further flags of the server, after --")
    return parser.parse_args()


def model_folder(folder):
    """The bundled model with room for long prompts; its weights are never read."""
    for name in ["tokenizer.json", "tokenizer_config.json", "generation_config.json"]:
        shutil.copy(MODEL / name, folder)
    config = json.loads((MODEL / "config.json").read_text())
    config["max_position_embeddings"] = 1 << 20
    (pathlib.Path(folder) / "config.json").write_text(json.dumps(config))


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def start(saccade, folder, port, flags):
    command = [saccade, "serve", folder, "--port", str(port), "--device", "null"]
    command += ["--null-step-us", str(STEP_US), "--load-format", "dummy", "--served-model-name", "m"]
    server = subprocess.Popen([*command, "--log", "warn", *flags], stderr=subprocess.DEVNULL)
    for _ in range(600):
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=1)
            return server
        except OSError:
            time.sleep(0.1)
    server.kill()
    raise SystemExit("the server is not ready")


def request(path, body):
    body = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body


def ask(port, path, body):
    data = json.dumps(body).encode()
    url = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, {"content-type": "application/json"})
    return json.load(urllib.request.urlopen(url, timeout=60))


def long_text(port, seed):
    """About PROMPT_TOKENS tokens; no two seeds give the same text."""
    words = random.Random(seed).choices(WORDS, k=PROMPT_TOKENS)
    count = ask(port, "/tokenize", {"prompt": " ".join(words)})["count"]
    while count < PROMPT_TOKENS:
        words += random.Random(-seed).choices(WORDS, k=PROMPT_TOKENS - count)
        count = ask(port, "/tokenize", {"prompt": " ".join(words)})["count"]
    return " ".join(words[: len(words) * PROMPT_TOKENS // count])


def go_on(poll, s, state, events):
    """Writes and reads what it can; returns whether there is more to come."""
    try:
        if events & selectors.EVENT_WRITE:
            state[0] = state[0][s.send(state[0]) :]
            if not state[0]:
                poll.modify(s, selectors.EVENT_READ, state)
        if not events & selectors.EVENT_READ:
            return True
        data = s.recv(1 << 20)
        state[1] = state[1] or data[:12]
        return bool(data)
    except OSError:
        return False


def renew(bodies, number):
    """Turns all bodies into texts that the server has not seen, so that no cache holds any of them."""
    for body in bodies:
        at = body.find(MARK) if number == 1 else body.find(b"%016d" % (number - 1))
        body[at : at + len(MARK)] = b"%016d" % number


def burst(port, bodies, answers):
    """Sends all at once; for each, counts whether it was answered with 200."""
    sockets = [socket.create_connection(("127.0.0.1", port)) for _ in bodies]
    poll = selectors.DefaultSelector()
    for s, body in zip(sockets, bodies):
        s.setblocking(False)
        poll.register(s, selectors.EVENT_READ | selectors.EVENT_WRITE, [memoryview(body), b""])
    begun = time.monotonic()
    while poll.get_map():
        for key, events in poll.select():
            if not go_on(poll, key.fileobj, key.data, events):
                answers["ok" if key.data[1].endswith(b"200") else "other"] += 1
                poll.unregister(key.fileobj)
                key.fileobj.close()
    answers["seconds"].append(time.monotonic() - begun)


def attack(port, bodies, every, active, done):
    """Bursts while `active` is set. Yields to all other processes: it is not part of the server."""
    os.nice(19)
    answers, number = {"ok": 0, "other": 0, "seconds": []}, 0
    while active.value >= 0:
        if active.value == 0:
            time.sleep(0.01)
            continue
        begun = time.monotonic()
        number += 1
        renew(bodies, number)
        burst(port, bodies, answers)
        time.sleep(max(0.0, begun + every - time.monotonic()))
    done.send(answers)


def open_stream(port, index):
    s = socket.create_connection(("127.0.0.1", port))
    body = {"prompt": "In the beginning", "max_tokens": 500_000, "stream": True, "ignore_eos": True}
    s.sendall(request("/v1/completions", {**body, "seed": index}))
    s.setblocking(False)
    return s


class Streams:
    """Clients that read as fast as they can, in one thread."""

    def __init__(self, port):
        self.poll = selectors.DefaultSelector()
        for index in range(STREAMS):
            self.poll.register(open_stream(port, index), selectors.EVENT_READ, [None])

    def read(self, seconds):
        """Milliseconds between the tokens of each stream in the next `seconds`."""
        gaps, end = [], time.monotonic() + seconds
        for key in self.poll.get_map().values():
            key.data[0] = None
        while time.monotonic() < end:
            for key, _ in self.poll.select(0.1):
                tokens = key.fileobj.recv(1 << 16).count(b"data: ")
                now = time.monotonic()
                if tokens and key.data[0] is not None:
                    gaps += [(now - key.data[0]) * 1e3] + [0.0] * (tokens - 1)
                key.data[0] = now if tokens else key.data[0]
        return gaps


def percentiles(gaps):
    gaps = sorted(gaps)

    def at(share):
        return gaps[min(len(gaps) - 1, int(len(gaps) * share))]

    return {"p50": at(0.5), "p99": at(0.99), "p99.9": at(0.999), "max": gaps[-1], "count": len(gaps)}


def measure(args, port):
    field = {"model": "m"}
    path = "/tokenize" if args.endpoint == "tokenize" else "/v1/completions"
    if args.endpoint == "completions":
        field["max_tokens"] = 1
    texts = [f"{MARK.decode()} {long_text(port, seed)}" for seed in range(1, PROMPTS + 1)]
    bodies = [bytearray(request(path, {**field, "prompt": text})) for text in texts]
    active = multiprocessing.Value("i", 0)
    result, done = multiprocessing.Pipe(duplex=False)
    attacker = multiprocessing.Process(target=attack, args=(port, bodies, args.every, active, done))
    attacker.start()
    streams, windows = Streams(port), {"alone": [], "beside": []}
    streams.read(SETTLE_S)
    for index in range(2 * args.rounds):
        kind = "beside" if index % 2 else "alone"
        active.value = index % 2
        windows[kind].append(percentiles(streams.read(args.window)))
        active.value = 0
        # The rest of the last burst belongs to neither kind.
        streams.read(SETTLE_S)
    active.value = -1
    answers = result.recv()
    attacker.join()
    return windows, answers


def main():
    args = arguments()
    with tempfile.TemporaryDirectory() as folder:
        model_folder(folder)
        port = free_port()
        server = start(args.saccade, folder, port, args.flags)
        try:
            windows, answers = measure(args, port)
        finally:
            server.terminate()
            try:
                server.wait(10)
            except subprocess.TimeoutExpired:
                server.kill()

    def median(kind, name):
        return statistics.median(window[name] for window in windows[kind])

    print(f"{STREAMS} streams, a step per {STEP_US / 1e3:g} ms; median of {args.rounds} windows of {args.window:g} s")
    print(f"{'':26}" + "".join(f"{name:>10}" for name in ["p50", "p99", "p99.9", "max"]))
    label = f"beside {PROMPTS} x {PROMPT_TOKENS}"
    for kind, name in [("alone", "alone"), ("beside", label)]:
        print(f"{name:26}" + "".join(f"{median(kind, p):8.2f}ms" for p in ["p50", "p99", "p99.9", "max"]))
    ratio = median("beside", "p99") / median("alone", "p99")
    seconds = statistics.median(answers["seconds"] or [0.0])
    print(f"p99 beside / alone: {ratio:.3f}")
    print(f"long prompts ({args.endpoint}): {answers['ok']} answered, {answers['other']} not; {seconds:.2f} s a burst")
    if args.json:
        result = {"windows": windows, "long_prompts": answers, "p99_ratio": ratio, "endpoint": args.endpoint}
        args.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
