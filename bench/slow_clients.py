#!/usr/bin/env python3
"""Do clients that misbehave affect the latency of well-behaved ones?

Runs the load generator against a running server: alone, next to clients that never read their
streams, next to clients that send their request one byte a second, alone again, and, for scale,
next to as many that do read. Prints the TTFT and TPOT percentiles side by side.

    bench/slow_clients.py 127.0.0.1:8000
"""

import json
import pathlib
import socket
import subprocess
import sys
import threading
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[1]
SACCADE = ROOT / "target/release/saccade"
SLOW_CLIENTS = 64
TRICKLE_S = 1.0
SETTLE_S = 5.0
HELD_TIMEOUT_S = 25.0


def load(server):
    command = [SACCADE, "bench", "serve", "--base-url", f"http://{server}", "--vocab", "256"]
    command += ["--max-concurrency", "4", "--num-prompts", "64", "--num-warmups", "4"]
    command += ["--random-input-len", "64", "--random-output-len", "64", "--json", "-"]
    result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    summary = result["runs"][0]["summary"]
    return {"ttft_ms": summary["from_intended"]["ttft_ms"], "tpot_ms": summary["tpot_ms"],
            "ok": summary["ok"], "requests": summary["requests"]}


def request(body):
    head = "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n{body}".encode()


def connect(server):
    host, port = server.rsplit(":", 1)
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    s.connect((host, int(port)))
    return s


def never_read(server, stop):
    """Asks for a long stream and reads none of it."""
    body = {"prompt": "In the beginning", "max_tokens": 1500, "stream": True, "ignore_eos": True}
    s = connect(server)
    s.sendall(request(json.dumps(body)))
    stop.wait()
    s.close()


def read_all(server, stop):
    """Asks for long streams and takes them as they come."""
    body = {"prompt": "In the beginning", "max_tokens": 1500, "stream": True, "ignore_eos": True}
    while not stop.is_set():
        s = connect(server)
        s.sendall(request(json.dumps(body)))
        while not stop.is_set() and b"[DONE]" not in s.recv(65536):
            pass
        s.close()


def trickle(server, stop):
    """Sends its body a byte at a time."""
    s = connect(server)
    data = request(json.dumps({"prompt": "x" * 500, "max_tokens": 1}))
    try:
        for byte in data:
            if stop.wait(TRICKLE_S):
                break
            s.sendall(bytes([byte]))
    except OSError:
        pass  # cut by the server's deadline, as it should be
    s.close()


def settle(server, until_held):
    """Waits some seconds; for slow readers, until every buffer on the way is full and the device has
    put all of their requests aside."""
    deadline = time.monotonic() + (HELD_TIMEOUT_S if until_held else SETTLE_S)
    before = held(server)
    while time.monotonic() < deadline:
        if until_held and held(server) - before >= SLOW_CLIENTS:
            return
        time.sleep(0.2)


def held(server):
    """Requests that the device has ever put aside for a slow reader."""
    with urllib.request.urlopen(f"http://{server}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    name = "saccade:device_reader_stalls_total{"
    return sum(float(line.split()[-1]) for line in lines if line.startswith(name))


def beside(client, server):
    stop = threading.Event()
    threads = [threading.Thread(target=client, args=(server, stop)) for _ in range(SLOW_CLIENTS)]
    for t in threads:
        t.start()
    settle(server, client is never_read)
    try:
        return load(server)
    finally:
        stop.set()
        for t in threads:
            t.join()


def main():
    server = sys.argv[1]
    runs = {
        "alone": load(server),
        f"beside {SLOW_CLIENTS} that never read": beside(never_read, server),
        f"beside {SLOW_CLIENTS} that send a byte a second": beside(trickle, server),
        "alone again": load(server),
        f"beside {SLOW_CLIENTS} that read": beside(read_all, server),
    }
    print(json.dumps(runs, indent=1))
    for name, run in runs.items():
        keys = ("ttft_ms", "tpot_ms")
        cells = [f"{k[:4]} p50 {run[k]['p50']:.2f} p99 {run[k]['p99']:.2f} ms" for k in keys]
        print(f"{name:<40} {' | '.join(cells)}", file=sys.stderr)


if __name__ == "__main__":
    main()
