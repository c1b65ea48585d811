#!/usr/bin/env python3
"""Time to the first token of prompts whose KV is in a store behind a link of a given rate, beside computing it.

    link.py KV OUT [--rates 10,20,30,40] [--tokens 9300,14000] [--codecs bins-rans,bins-deflate] [--modes pipelined,...]

Redis and the server each run in a network namespace of their own, joined by a link that HTB shapes (needs root). The
device is SIMULATED (an L40S with Llama-3-8B): what it computes takes the time of a cost model, and its KV is what KV
holds, real KV of another model arranged in Llama's shape (bench/chunks/real_kv.py made it). All else is real: Redis,
the link, the fetch plane and its codecs, the tick, HTTP. Three prompts take turns on a device that has room for one, so
that none is found on the device. Writes one JSON object per measurement to OUT.

Python with numpy. SACCADE_BINARY: the server (target/release/saccade).
"""

import argparse
import json
import mmap
import os
import pathlib
import re
import statistics
import struct
import subprocess
import sys
import tempfile
import time

import numpy

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("SACCADE_BINARY", str(ROOT / "target/release/saccade"))
STORE, SERVE = "saccade-store", "saccade-serve"
STORE_IP, SERVE_IP = "10.77.0.1", "10.77.0.2"
PORT = 8100
CHUNK = 256
BLOCK = 16
PROMPTS = 3
REAL = (30, 2, CHUNK, 3, 64)  # layers, k and v, tokens, heads, elements of SmolLM2-135M
HEADER = struct.Struct("<QIIQQQIIIIQQIIIIIIII32sQQQQQQQ")  # sac_fetch_header, abi/fetch.h


def run(command, **options):
    shell = isinstance(command, str)
    return subprocess.run(command, shell=shell, check=True, capture_output=True, text=True, **options)


class Link:
    """Two namespaces and a link between them."""

    def __init__(self):
        self.end()
        for command in [
            f"ip netns add {STORE}",
            f"ip netns add {SERVE}",
            f"ip link add saccade0 netns {STORE} type veth peer name saccade1 netns {SERVE}",
            f"ip -n {STORE} addr add {STORE_IP}/24 dev saccade0",
            f"ip -n {SERVE} addr add {SERVE_IP}/24 dev saccade1",
        ]:
            run(command)
        for space, device in [(STORE, "saccade0"), (SERVE, "saccade1")]:
            run(f"ip -n {space} link set {device} mtu 65000 up")
            run(f"ip -n {space} link set lo up")

    def shape(self, gbps):
        """0: as fast as it goes."""
        for space, device in [(STORE, "saccade0"), (SERVE, "saccade1")]:
            tc = f"ip netns exec {space} tc"
            subprocess.run(f"{tc} qdisc del dev {device} root", shell=True, capture_output=True)
            if gbps:
                run(f"{tc} qdisc add dev {device} root handle 1: htb default 1")
                run(f"{tc} class add dev {device} parent 1: classid 1:1 htb rate {gbps}gbit burst 2mb cburst 2mb")

    def end(self):
        for space in (STORE, SERVE):
            subprocess.run(["ip", "netns", "del", space], capture_output=True)


class Redis:
    def __init__(self, cores):
        command = f"ip netns exec {STORE} taskset -c {cores} redis-server --bind {STORE_IP} --port 6379"
        self.process = subprocess.Popen(
            f"exec {command} --save '' --appendonly no --protected-mode no --io-threads 1",
            shell=True,
            stdout=subprocess.DEVNULL,
        )
        time.sleep(1)

    def url(self):
        return f"redis://{STORE_IP}:6379/0"

    def memory(self):
        text = run(f"ip netns exec {STORE} redis-cli -h {STORE_IP} info memory").stdout
        return int(re.search(r"used_memory:(\d+)", text)[1])

    def flush(self):
        run(f"ip netns exec {STORE} redis-cli -h {STORE_IP} flushall")

    def end(self):
        self.process.kill()
        self.process.wait()


class Server:
    """saccade serve, simulated device, in its namespace."""

    def __init__(self, flags):
        self.log = tempfile.NamedTemporaryFile("w+", suffix=".log")
        flags = (
            f"serve --port {PORT} --device sim:L40S --sim-model Llama-3-8B --max-model-len 15000 --block-size {BLOCK} "
            f"--num-gpu-blocks-override 960 --max-num-seqs 8 --max-num-batched-tokens 2048 {flags}"
        )
        command = ["ip", "netns", "exec", SERVE, BINARY, *flags.split()]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)
        for _ in range(600):
            if self.http("/ready") is not None:
                return
            time.sleep(0.1)
        raise SystemExit(f"not ready: {pathlib.Path(self.log.name).read_text()[-2000:]}")

    def http(self, path, body=None):
        command = ["ip", "netns", "exec", SERVE, "curl", "-sf", "-m", "120", f"http://127.0.0.1:{PORT}{path}"]
        if body is not None:
            command += ["-H", "content-type: application/json", "-d", "@-"]
        done = subprocess.run(command, capture_output=True, text=True, input=None if body is None else json.dumps(body))
        return done.stdout if done.returncode == 0 else None

    def metric(self, name, labels=""):
        for line in (self.http("/metrics") or "").splitlines():
            if re.match(rf"{re.escape(name)}[{{ ]", line) and labels in line:
                return float(line.rsplit(" ", 1)[1])
        return 0.0

    def ring(self):
        """The region that the device shares with the fetch plane."""
        text = pathlib.Path(self.log.name).read_text()
        return pathlib.Path(re.search(r"ring +(\S+)\.ring", text)[1] + ".fetch")

    def ask(self, tokens):
        """Seconds to the answer of one token, and prompt tokens that came from elsewhere."""
        body = {"model": "saccade-tiny", "prompt": tokens, "max_tokens": 1, "ignore_eos": True}
        began = time.monotonic()
        answer = self.http("/v1/completions", body)
        took = time.monotonic() - began
        if answer is None:
            raise SystemExit("a request failed")
        return took, json.loads(answer)["usage"]["prompt_tokens_details"]["cached_tokens"]

    def end(self):
        self.process.terminate()
        self.process.wait()


def llama_chunk(real, seed):
    """A chunk in the shape of Llama-3-8B, [block][layer][k, v][token][head][element]: planes of several real chunks,
    beside each other."""
    layers, width = 32, 8 * 128
    planes = []
    for layer in range(layers):
        for kv in range(2):
            columns = [real[(seed + i) % len(real), layer % REAL[0], kv].reshape(CHUNK, -1) for i in range(6)]
            planes.append(numpy.concatenate(columns, axis=1)[:, :width])
    chunk = numpy.stack(planes).reshape(layers, 2, CHUNK // BLOCK, BLOCK, width)
    return numpy.ascontiguousarray(chunk.transpose(2, 0, 1, 3, 4)).tobytes()


def fill_frames(server, real):
    """A simulated device writes no KV: its frames are given some, which is then stored."""
    with server.ring().open("r+b") as file, mmap.mmap(file.fileno(), 0) as region:
        header = HEADER.unpack_from(region, 0)
        num_frames, frame_bytes, frames_at = header[9], header[10], header[26]
        for frame in range(num_frames):
            chunk = llama_chunk(real, frame)
            if len(chunk) != frame_bytes:
                raise SystemExit(f"a frame has {frame_bytes} bytes, a chunk of Llama-3-8B {len(chunk)}")
            at = frames_at + frame * frame_bytes
            region[at : at + frame_bytes] = chunk


def prompt(tokens, which):
    """Unlike any other from the first token on."""
    return [(i * 7919 + (which + 1) * (i // 16 + 104729)) % 500 + 10 for i in range(tokens)]


def wait_for_stores(server, chunks):
    for _ in range(1200):
        done = server.metric("saccade:fetch_commands_total", 'op="store",result="done"')
        if done >= chunks:
            return
        time.sleep(0.5)
    raise SystemExit("chunks were not stored")


def store_flags(redis, args, codec, mode):
    order = "synchronous" if mode == "synchronous" else "shortest"
    mode = "pipelined" if mode == "synchronous" else mode
    return (
        f"--prefix-store {redis.url()} --prefix-codec {codec} --fetch-mode {mode} --fetch-order {order} "
        f"--fetch-frame-bytes {args.frame_mib << 20} --fetch-buffer-bytes {args.buffer_mib << 20} "
        f"--device-cores {args.device_cores} --frontend-cores {args.device_cores} --fetch-cores {args.fetch_cores} "
        "--fetch-always --fetch-late-ms 60000"
    )


def fill_store(redis, real, args, codec):
    redis.flush()
    server = Server(store_flags(redis, args, codec, "pipelined"))
    fill_frames(server, real)
    before = redis.memory()
    chunks = 0
    for which in range(PROMPTS):
        # Shorter prompts are its beginnings.
        tokens = max(args.tokens)
        server.ask(prompt(tokens, which))
        chunks += (tokens - 1) // CHUNK
        wait_for_stores(server, chunks)
    stored = redis.memory() - before
    server.end()
    return chunks, stored


def measure(server, tokens, repeats):
    """Times of prompts in turns; the first round warms up."""
    times, cached = [], []
    for i in range(PROMPTS + PROMPTS * repeats):
        took, found = server.ask(prompt(tokens, i % PROMPTS))
        if i >= PROMPTS:
            times.append(took)
            cached.append(found)
    return times, cached


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    numbers = lambda text: [int(n) for n in text.split(",")]
    parser.add_argument("kv", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--rates", type=numbers, default=[10, 20, 30, 40])
    parser.add_argument("--tokens", type=numbers, default=[9300, 14000])
    parser.add_argument("--codecs", default="bins-rans,bins-deflate,lossless")
    parser.add_argument("--modes", default="pipelined,no-pipeline,no-memory-management,synchronous")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--device-cores", default="0")
    parser.add_argument("--fetch-cores", default="1")
    parser.add_argument("--store-cores", default="0")
    parser.add_argument("--frame-mib", type=int, default=512)
    parser.add_argument("--buffer-mib", type=int, default=512)
    args = parser.parse_args()
    real = numpy.fromfile(args.kv, dtype=numpy.uint16).reshape(-1, *REAL)
    link = Link()
    redis = Redis(args.store_cores)
    out = args.out.open("a")

    def write(**row):
        out.write(json.dumps({"simulated": "L40S, Llama-3-8B", **row}) + "\n")
        out.flush()
        print(row, file=sys.stderr)

    try:
        computing = Server(f"--device-cores {args.device_cores} --frontend-cores {args.device_cores}")
        for tokens in args.tokens:
            times, cached = measure(computing, tokens, args.repeats)
            write(what="computed", tokens=tokens, ttft_s=statistics.median(times), cached=max(cached))
        computing.end()
        for codec in args.codecs.split(","):
            link.shape(0)
            chunks, stored = fill_store(redis, real, args, codec)
            write(what="stored", codec=codec, chunks=chunks, bytes=stored, ratio=chunks * CHUNK * 131072 / stored)
            for mode in args.modes.split(","):
                server = Server(store_flags(redis, args, codec, mode))
                for gbps in args.rates:
                    link.shape(gbps)
                    for tokens in args.tokens:
                        times, cached = measure(server, tokens, args.repeats)
                        kv_gbps = max(cached) * 131072 * 8 / statistics.median(times) / 1e9
                        write(
                            what="loaded",
                            codec=codec,
                            mode=mode,
                            gbps=gbps,
                            tokens=tokens,
                            ttft_s=statistics.median(times),
                            ttft_all_s=times,
                            cached=min(cached),
                            kv_gbps=kv_gbps,
                        )
                server.end()
    finally:
        redis.end()
        link.end()


if __name__ == "__main__":
    main()
