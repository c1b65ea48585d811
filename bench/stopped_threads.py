#!/usr/bin/env python3
"""What does a frontend thread that the host does not run cost the streams of others?

Starts `saccade serve` with several HTTP threads, keeps streams running, and stops one thread of
the frontend plane after the other by ptrace, at random moments, with whatever it holds then, for
--hold-s each. Reads when each stream's tokens come. A stream that waits for the stopped thread has a gap
of the hold; every other stream must not notice. Prints, by kind of thread, how many streams waited and the
longest gap of all others, beside the longest gap with no thread stopped and the longest time that
this client itself was not run.

    bench/stopped_threads.py --json out.json -- target/release/saccade serve MODEL --http-threads 4

Needs the right to trace its own children (Linux, x86-64 or AArch64).
"""

import argparse
import collections
import ctypes
import json
import os
import pathlib
import random
import selectors
import signal
import socket
import subprocess
import sys
import time
import urllib.request

PTRACE_SEIZE, PTRACE_INTERRUPT, PTRACE_DETACH = 0x4206, 0x4207, 17
WALL = 0x40000000  # __WALL: wait for threads as well
READY_TIMEOUT_S = 120
# A gap of this share of the hold is a stream that waited for the thread.
WAITED = 0.8
# One thread per frontend moves every stream's tokens; its stop is every stream's.
SHARED = "token-reader"

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long


def ptrace(request, tid):
    if libc.ptrace(request, tid, None, None) != 0:
        raise OSError(ctypes.get_errno(), f"ptrace {request:#x} of thread {tid}")


class Stopped:
    """A thread that does not run while this is open."""

    def __init__(self, tid):
        self.tid = tid

    def __enter__(self):
        ptrace(PTRACE_SEIZE, self.tid)
        ptrace(PTRACE_INTERRUPT, self.tid)
        os.waitpid(self.tid, WALL)

    def __exit__(self, *_):
        ptrace(PTRACE_DETACH, self.tid)


def threads(pid):
    """Name by thread of a process."""
    tasks = pathlib.Path(f"/proc/{pid}/task")
    return {int(t.name): (t / "comm").read_text().strip() for t in tasks.iterdir()}


def frontend_of(server):
    """The frontend plane below `server`: the process whose second word is `frontend`."""
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        words = path.read_bytes().split(b"\0")
        pid = int(path.parent.name)
        if len(words) > 1 and words[1] == b"frontend" and parent(pid) == server.pid:
            return pid
    raise SystemExit(f"no frontend plane below {server.pid}")


def parent(pid):
    try:
        return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    except OSError:
        return 0


class Stream:
    """One client: asks for a long answer again and again, and notes when bytes come."""

    def __init__(self, address, args):
        self.address, self.args = address, args
        self.ask()

    def ask(self):
        body = json.dumps({"prompt": self.args.prompt, "max_tokens": self.args.output, "stream": True,
                           "ignore_eos": True, "temperature": 0})
        self.socket = socket.create_connection(self.address)
        head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        self.socket.sendall(f"{head}Connection: close\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        self.socket.setblocking(False)
        self.tail = b""
        self.begun = False
        self.last = time.monotonic()

    def read(self, now):
        """Gap before these bytes in seconds, None for the first of an answer; and if it goes on."""
        data = self.socket.recv(1 << 16)
        if not self.begun and data and b" 200 " not in data[:20]:
            raise SystemExit(f"not answered: {data[:300]!r}")
        gap = now - self.last if self.begun else None
        self.begun, self.last = True, now
        self.tail = (self.tail + data)[-64:]
        return gap, bool(data) and b"[DONE]" not in self.tail


class Streams:
    """All of them, read in one loop, and the longest time for which the loop itself did not run."""

    def __init__(self, address, args):
        self.selector = selectors.DefaultSelector()
        self.streams = [Stream(address, args) for _ in range(args.streams)]
        for stream in self.streams:
            self.selector.register(stream.socket, selectors.EVENT_READ, stream)

    def run(self, seconds):
        """Longest gap of each stream in this time, those still open included; longest stall of this loop."""
        gaps, stall = collections.defaultdict(float), 0.0
        end = time.monotonic() + seconds
        while (now := time.monotonic()) < end:
            events = self.selector.select(0.001)
            woken = time.monotonic()
            stall = max(stall, woken - now)
            for key, _ in events:
                self.take(key.data, woken, gaps)
        for stream in self.streams:
            if stream.begun:
                gaps[stream] = max(gaps[stream], end - stream.last)
        return gaps, stall

    def take(self, stream, now, gaps):
        gap, goes_on = stream.read(now)
        if gap is not None:
            gaps[stream] = max(gaps[stream], gap)
        if not goes_on:
            self.selector.unregister(stream.socket)
            stream.socket.close()
            stream.ask()
            self.selector.register(stream.socket, selectors.EVENT_READ, stream)


def kind(name):
    """`http-3` and `http-0` are one kind."""
    return name.rstrip("0123456789").rstrip("-")


def measure(server, port, args, draw):
    pid = frontend_of(server)
    streams = Streams(("127.0.0.1", port), args)
    streams.run(args.settle_s)
    rows = []
    quiet = [streams.run(args.hold_s) for _ in range(args.rounds)]
    rows.append({"thread": "none", "waited": 0, "longest_gap_ms": longest(quiet), "stalls_ms": stalls(quiet)})
    for _ in range(args.rounds):
        order = list(threads(pid).items())
        draw.shuffle(order)
        for tid, name in order:
            streams.run(draw.uniform(0.2, 0.5))
            try:
                with Stopped(tid):
                    gaps, stall = streams.run(args.hold_s)
            except OSError:
                continue  # the thread has ended since
            waited = [s for s, gap in gaps.items() if gap >= WAITED * args.hold_s]
            others = max((gap for s, gap in gaps.items() if s not in waited), default=0.0)
            rows.append({"thread": name, "waited": len(waited), "longest_gap_ms": others * 1e3,
                         "stalls_ms": stall * 1e3})
    return rows


def longest(runs):
    return max(max(gaps.values(), default=0.0) for gaps, _ in runs) * 1e3


def stalls(runs):
    return max(stall for _, stall in runs) * 1e3


def table(rows, streams):
    by_kind = collections.defaultdict(list)
    for row in rows:
        by_kind[kind(row["thread"])].append(row)
    lines = ["| stopped thread | stops | streams that waited, most | others' longest gap, median, ms | most, ms |",
             "|---|---|---|---|---|"]
    for name, some in by_kind.items():
        gaps = sorted(row["longest_gap_ms"] for row in some)
        waited = max(row["waited"] for row in some)
        lines.append(f"| {name} | {len(some)} | {waited} of {streams} | {gaps[len(gaps) // 2]:.1f} | {gaps[-1]:.1f} |")
    return "\n".join(lines)


def wait_until_ready(server, port):
    deadline = time.monotonic() + READY_TIMEOUT_S
    while time.monotonic() < deadline and server.poll() is None:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=2).close()
            return
        except OSError:
            time.sleep(0.2)
    raise SystemExit("the server was not ready")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=18600)
    parser.add_argument("--streams", type=int, default=24)
    parser.add_argument("--output", type=int, default=2000, help="tokens of an answer")
    parser.add_argument("--prompt", default="In the beginning")
    parser.add_argument("--hold-s", type=float, default=1.0, help="how long a thread is stopped")
    parser.add_argument("--settle-s", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=3, help="stops of each thread")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**32)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("server", nargs="+", help="the server's command, without its port, after --")
    args = parser.parse_args()
    print(f"seed {args.seed}", file=sys.stderr)
    server = subprocess.Popen([*args.server, "--port", str(args.port)], start_new_session=True)
    try:
        wait_until_ready(server, args.port)
        rows = measure(server, args.port, args, random.Random(args.seed))
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(60)
    if args.json:
        record = {"command": sys.argv, "seed": args.seed, "hold_s": args.hold_s, "streams": args.streams, "rows": rows}
        args.json.write_text(json.dumps(record, indent=1) + "\n")
    print(table(rows, args.streams))
    hit = [r for r in rows if kind(r["thread"]) not in ("none", "http", SHARED) and r["waited"]]
    if hit:
        raise SystemExit(f"streams waited for threads that are not theirs: {hit}")


if __name__ == "__main__":
    main()
