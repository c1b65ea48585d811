#!/usr/bin/env python3
"""From start to ready: how long a server takes, where the time goes, and the memory of its device plane.

    bench/start.py OUT [--binary target/release/saccade] [--shape qwen3-0.6b] [--repeats 3]

Writes a model folder of the shape with random bf16 weights, once, and then starts a server in turn: packing the
model's files; packing and writing --packed-weights-cache; mapping what was written. Each with 16-bit and 8-bit
weights, with the files in the page cache (warm) and without (cold: needs a writable /proc/sys/vm/drop_caches). After
each start it asks for one answer, for the time per token. OUT gets start.jsonl, machine.txt and tables.md.
Needs nothing but Python.
"""

import argparse
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "bench/peers"))
from model_shapes import TOKENIZER_FILES, shapes  # noqa: E402

DROP_CACHES = pathlib.Path("/proc/sys/vm/drop_caches")
READY_TIMEOUT_S = 300
DECODED_TOKENS = 33
KV_BYTES = 512 << 20
STARTS = ("packed", "written", "mapped")
# High bytes of bf16 numbers of 2^-7 to 2^-5, by a byte that is random.
HIGH_BYTES = bytes(0x3C if byte < 128 else 0xBC for byte in range(256))
CHUNK_ELEMENTS = 1 << 22


def random_elements(count):
    """Bytes of `count` small bf16 numbers."""
    out = bytearray(2 * count)
    out[0::2] = random.randbytes(count)
    out[1::2] = random.randbytes(count).translate(HIGH_BYTES)
    return out


def write_model(folder, shape):
    """A folder that the server opens; its tokens mean nothing."""
    config = json.loads((ROOT / f"bench/models/{shape}-shape/config.json").read_text())
    if config["model_type"] not in ("llama", "qwen3"):
        sys.exit(f"--shape {shape}: not a Llama or Qwen3")
    header, end = {}, 0
    for name, dims in shapes(config):
        elements = dims[0] * (dims[1] if len(dims) > 1 else 1)
        header[name] = {"dtype": "BF16", "shape": dims, "data_offsets": [end, end + 2 * elements]}
        end += 2 * elements
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    random.seed(0)
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / "model.safetensors.part"
    with part.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for start in range(0, end // 2, CHUNK_ELEMENTS):
            file.write(random_elements(min(CHUNK_ELEMENTS, end // 2 - start)))
    for name in TOKENIZER_FILES:
        shutil.copy(ROOT / "models/saccade-tiny" / name, folder / name)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    part.rename(folder / "model.safetensors")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def post(url, body):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=READY_TIMEOUT_S) as answer:
        return json.load(answer)


class Server:
    """A server with all its planes, from the moment it starts."""

    def __init__(self, args, log, flags):
        self.url = f"http://127.0.0.1:{(port := free_port())}"
        self.log = log
        command = [args.binary, "serve", str(args.model), "--port", str(port), "--dtype", "bfloat16", *flags]
        command += ["--max-model-len", "2560", "--max-num-seqs", "16", "--kv-cache-memory-bytes", str(KV_BYTES)]
        self.started = time.monotonic()
        with log.open("wb") as file:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file)

    def until_ready(self):
        """Seconds from the start to the first 200 of /ready."""
        while time.monotonic() - self.started < READY_TIMEOUT_S:
            if self.process.poll() is not None:
                sys.exit(f"the server ended before it was ready:\n{self.log.read_text()[-2000:]}")
            try:
                with urllib.request.urlopen(f"{self.url}/ready", timeout=2) as answer:
                    if answer.status == 200:
                        return time.monotonic() - self.started
            except OSError:
                pass
            time.sleep(0.005)
        sys.exit(f"the server was not ready after {READY_TIMEOUT_S} s")

    def device_memory(self):
        """Peak of the device plane's resident memory, and how much of it is file-backed, bytes."""
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        plane = next(pid for pid in children if b"device" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes())
        status = pathlib.Path(f"/proc/{plane}/status").read_text()
        kib = {name: int(re.search(rf"{name}:\s+(\d+) kB", status)[1]) for name in ("VmHWM", "RssFile")}
        return kib["VmHWM"] << 10, kib["RssFile"] << 10

    def token_ms(self):
        """Mean time per token of one stream, without the first."""
        body = {"prompt": "a b c d", "temperature": 0, "ignore_eos": True}
        times = []
        for tokens in (1, 1, DECODED_TOKENS):
            start = time.monotonic()
            post(f"{self.url}/v1/completions", {**body, "max_tokens": tokens})
            times.append(time.monotonic() - start)
        return (times[2] - times[1]) / (DECODED_TOKENS - 1) * 1e3

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)


def seconds(text):
    """What Rust's Debug prints for a Duration."""
    number, unit = re.fullmatch(r"([0-9.]+)(ms|µs|s)", text).groups()
    return float(number) * {"s": 1, "ms": 1e-3, "µs": 1e-6}[unit]


def measure(args, start, quantization, cache):
    packed = args.scratch / f"packed-{quantization}"
    flags = ["--quantization", quantization]
    if start != "packed":
        flags += ["--packed-weights-cache", str(packed)]
    if start == "written":
        shutil.rmtree(packed, ignore_errors=True)
    if start == "mapped" and not any(packed.glob("*.packed")):
        sys.exit(f"{packed} has no file to map")
    if cache == "cold":
        os.sync()
        DROP_CACHES.write_text("3")
    server = Server(args, args.scratch / "server.log", flags)
    try:
        ready_s = server.until_ready()
        peak, in_files = server.device_memory()
        token_ms = server.token_ms()
    finally:
        server.stop()
    log = server.log.read_text()
    if (start == "mapped") != ("packed weights mapped" in log) or (start == "written") != ("weights written" in log):
        sys.exit(f"the server did not do what was asked ({start}):\n{log[-2000:]}")
    loaded = re.search(r"weights loaded took=(\S+)", log)
    return {"start": start, "quantization": quantization, "cache": cache, "ready_s": ready_s,
            "weights_s": seconds(loaded[1]), "token_ms": token_ms, "peak_bytes": peak, "file_bytes": in_files}


def spread(values, digits):
    """Median, and smallest to largest."""
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f}–{max(values):.{digits}f})"


def tables(records, sizes):
    head = ["weights", "start", "files", "start to ready, s", "weights, s", "one stream, ms a token",
            "peak, MiB", "of weights + KV"]
    yield f"| {' | '.join(head)} |"
    yield "|" + "---|" * len(head)
    for key in dict.fromkeys((r["quantization"], r["start"], r["cache"]) for r in records):
        cell = [r for r in records if (r["quantization"], r["start"], r["cache"]) == key]
        peak = statistics.median(r["peak_bytes"] for r in cell)
        of_need = peak / (sizes[key[0]] + KV_BYTES)
        columns = [spread([r["ready_s"] for r in cell], 2), spread([r["weights_s"] for r in cell], 2),
                   spread([r["token_ms"] for r in cell], 1), f"{peak / (1 << 20):.0f}", f"{of_need:.2f}"]
        yield f"| {'bf16' if key[0] == 'none' else key[0]} | {key[1]} | {key[2]} | " + " | ".join(columns) + " |"


def describe_machine(args):
    script = '. bench/machine.sh; describe_machine "$0"'
    line = f"{args.shape} shape, random bf16 weights, KV pool {KV_BYTES >> 20} MiB, repeats {args.repeats}"
    return subprocess.run(["bash", "-c", script, line], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--binary", default=str(ROOT / "target/release/saccade"))
    parser.add_argument("--shape", default="qwen3-0.6b")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--scratch", type=pathlib.Path, default=pathlib.Path.home() / ".cache/saccade-start",
                        help="the model and its packed weights: some GB, kept for the next run")
    args = parser.parse_args()
    args.scratch.mkdir(parents=True, exist_ok=True)
    args.model = args.scratch / f"{args.shape}-random"
    if not (args.model / "model.safetensors").exists():
        write_model(args.model, args.shape)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "machine.txt").write_text(describe_machine(args))
    caches = ["warm", "cold"] if os.access(DROP_CACHES, os.W_OK) else ["warm"]
    records, sizes = [], {}
    with (args.out / "start.jsonl").open("w") as file:
        for _ in range(args.repeats):
            for quantization in ("none", "int8"):
                for start in STARTS:
                    for cache in caches:
                        records.append(measure(args, start, quantization, cache))
                        print(records[-1], file=sys.stderr, flush=True)
                        file.write(json.dumps(records[-1]) + "\n")
                        file.flush()
                packed = args.scratch / f"packed-{quantization}"
                sizes[quantization] = sum(path.stat().st_size for path in packed.glob("*.packed"))
    text = "\n".join(tables(records, sizes)) + "\n"
    (args.out / "tables.md").write_text(text)
    print(text, end="")


if __name__ == "__main__":
    main()
