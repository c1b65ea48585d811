#!/usr/bin/env python3
"""The scheduler on the GPU against the same scheduler on a host thread, over HTTP.

    placements.py makespan      [--json FILE]   how long batches of requests take from the first to the last token
    placements.py interference  [--json FILE]   steady loads, alone and with hogs on every core of the host, one per
                                                core and four: P99 TTFT, P99 TPOT, throughput, and energy per token by
                                                the driver's counter

    --device   cuda; any other of `saccade serve`, to try the programs without a GPU
    --model    a folder of bench/models, repeatable for makespan; the weights are random
    --within   seconds: what no longer fits is left out, and named in the result

Exit codes: 0 done, 1 a server or a request failed (what did not is in the JSON), 2 an error, 3 no GPU.
"""
import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import nvml
import server

PLACEMENTS = ("device", "host")
# Requests that decode together; 64 contexts of Qwen3-32B and its weights do not fit in 80 GB.
BATCHES = {"llama3-8b-shape": 64, "qwen3-32b-shape": 16}
BATCH = 16  # of other models, and Blink's in figure 3
# Batches x tokens in -> tokens out: short and long of both. The text of Blink's figure 3 does not name its four.
WORKLOADS = [(2, 128, 16), (2, 128, 128), (1, 1024, 32), (1, 128, 256)]
REPEATS = 2
# Requests per second of 512 tokens in, 128 out: first the one that the first run had.
RATES = [8, 24, 16, 2]
HOGS_PER_CORE = (1, 4)
# Of every shape in bench/models: ids that a byte-level tokenizer has.
VOCAB = 256
SERVER_STARTS_S = 60
TOO_LITTLE_S = 5  # nothing starts with less than this
RECORD = "interference.json"


class OutOfTime(Exception):
    """The seconds of --within are over."""


class Clock:
    """What fits in the seconds left; without a limit everything does."""

    def __init__(self, within_s, now=time.monotonic):
        self.now = now
        self.end = None if within_s is None else now() + within_s
        self.longest = {}

    def left(self):
        return None if self.end is None else max(self.end - self.now(), 0.0)

    @contextlib.contextmanager
    def timed(self, kind):
        """Raises OutOfTime for what would not fit, by the longest of its kind so far; the first one is tried."""
        if self.end is not None and self.longest.get(kind, 0) > self.left():
            raise OutOfTime
        began = self.now()
        yield
        self.longest[kind] = max(self.longest.get(kind, 0), self.now() - began)


def model_folder(name):
    folder = server.ROOT / "bench/models" / name
    if not folder.is_dir():
        raise FileNotFoundError(f"--model {name}: no {folder}")
    return folder


def server_flags(args, model, placement, *more):
    tokenizer = server.ROOT / "models/saccade-tiny"
    return [str(model_folder(model)), "--load-format", "dummy", "--tokenizer", str(tokenizer),
            "--served-model-name", "m", "--dtype", "bfloat16", "--scheduler", placement, "--log", "warn",
            "--no-enable-prefix-caching",  # cells of one seed have prompts that begin alike
            *server.device_flags(args.device), *more]


def run_tool(clock, *flags):
    """`saccade bench` with these flags; its output only if it fails. Servers that it started end with it."""
    command = [server.binary(), "bench", *flags]
    if clock.left() is not None and clock.left() < TOO_LITTLE_S:
        raise OutOfTime
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=clock.left())
    except subprocess.TimeoutExpired:
        raise OutOfTime from None
    if done.returncode != 0:
        said = done.stdout[-800:] + done.stderr[-800:]
        raise RuntimeError(f"saccade bench {flags[0]} ended with {done.returncode}: {said}")


def span_of(clock, url, batch, workload, seed, path):
    """Seconds from the first request to the last token. Prompts by `seed`: none of them is in a cache."""
    batches, prompt, output = workload
    run_tool(clock, "serve", "--base-url", url, "--model", "m", "--vocab", str(VOCAB), "--num-prompts",
             str(batches * batch), "--random-input-len", str(prompt), "--random-output-len", str(output),
             "--seed", str(seed), "--json", str(path))
    summary = json.loads(path.read_text())["runs"][0]["summary"]
    if summary["ok"] != batches * batch:
        raise RuntimeError(f"{batches * batch - summary['ok']} of {batches * batch} requests failed")
    return summary["span_s"]


def spans_of(args, model, placement, repeat, work, clock):
    """Of each workload, by one server. What warms it up is over before they begin: it would share their batches."""
    batch = BATCHES.get(model, BATCH)
    longest = max(prompt + output for _, prompt, output in WORKLOADS)
    flags = server_flags(args, model, placement, "--max-num-seqs", str(batch), "--max-num-batched-tokens", "1024",
                         "--max-model-len", str(longest + 8))
    with server.serve(*flags, log=work / "server.log", ready_within_s=SERVER_STARTS_S) as url:
        first_seed = repeat * (1 + len(WORKLOADS))
        span_of(clock, url, batch, (1, 64, 4), first_seed, work / "serve.json")
        return [span_of(clock, url, batch, workload, first_seed + 1 + i, work / "serve.json")
                for i, workload in enumerate(WORKLOADS)]


def makespan(args, work, clock):
    models = args.model or list(BATCHES)
    spans = {model: {placement: [] for placement in PLACEMENTS} for model in models}
    failures, left_out = [], []
    for repeat in range(REPEATS):
        for model in models:
            # Each placement is first as often as it is second.
            order = PLACEMENTS if repeat % 2 == 0 else PLACEMENTS[::-1]
            try:
                with clock.timed(model):
                    pair = {placement: spans_of(args, model, placement, repeat, work, clock) for placement in order}
            except OutOfTime:
                left_out.append(f"{model}, repeat {repeat + 1}")
                continue
            except RuntimeError as error:
                failures.append(f"{model}, repeat {repeat + 1}: {error}")
                continue
            for placement in PLACEMENTS:
                spans[model][placement].append(pair[placement])
    measured = [model for model in models if spans[model]["device"]]
    return {"device": args.device, "models": [makespans_of(model, spans[model]) for model in measured],
            "failures": failures, "left_out": left_out}


def makespans_of(model, spans):
    """Each workload's seconds by repeat, and the median of the quotients within the repeats."""
    batch = BATCHES.get(model, BATCH)
    rows = []
    for i, (batches, prompt, output) in enumerate(WORKLOADS):
        device, host = ([repeat[i] for repeat in spans[placement]] for placement in PLACEMENTS)
        rows.append({"requests": batches * batch, "input_tokens": prompt, "output_tokens": output, "device_s": device,
                     "host_s": host, "device_over_host": statistics.median(map(float.__truediv__, device, host))})
    return {"model": model, "batch": batch, "workloads": rows}


def probe(args, model, work):
    """Raises the reason why a server does not start: the tool below would only say that it did not."""
    flags = server_flags(args, model, "device", "--max-num-seqs", "1", "--max-num-batched-tokens", "16")
    with server.serve(*flags, log=work / "server.log", ready_within_s=SERVER_STARTS_S):
        pass


def start_of(args, model, placement, port):
    flags = server_flags(args, model, placement, "--port", str(port), "--max-num-seqs", "64",
                         "--max-num-batched-tokens", "1024", "--max-model-len", "1024")
    return " ".join([server.binary(), "serve", *flags])


def interference_run(args, model, rate, seed, work, clock):
    """Its record is in `work`; what it has after each cell if the time runs out."""
    flags = []
    for placement in PLACEMENTS:
        port = server.free_port()
        flags += ["--server", f"{placement}=http://127.0.0.1:{port}",
                  "--start", f"{placement}={start_of(args, model, placement, port)}"]
    for neighbour in args.neighbour or ["cpu"]:
        flags += ["--neighbour", neighbour]
    hogs = ",".join(str(times * os.cpu_count()) for times in HOGS_PER_CORE)
    run_tool(clock, "interference", *flags, "--neighbour-threads", hogs, "--log-dir", str(work), "--vocab", str(VOCAB),
             "--repeats", "1", "--seed", str(seed), "--request-rate", str(rate), "--duration", str(args.seconds),
             "--num-warmups", "0", "--settle", "0.5", "--random-input-len", "512", "--random-output-len", "128",
             "--json", str(work / RECORD))


def load_of(args, model, rate, seed, work, clock, sampler):
    """Cells of one load, and whether there was time for all: it is begun in any case, and its cells count."""
    (work / RECORD).unlink(missing_ok=True)
    try:
        interference_run(args, model, rate, seed, work, clock)
    except OutOfTime:
        return cells_of(work, sampler), False
    return cells_of(work, sampler), True


def cells_of(work, sampler):
    """What the run left, of placements whose isolation is there: everything is compared with that."""
    try:
        cells = json.loads((work / RECORD).read_text())["cells"]
    except (FileNotFoundError, ValueError):
        return []
    rows = [cell_of(cell, sampler) for cell in cells]
    alone = {row["placement"] for row in rows if row["condition"] == "isolation"}
    return [row for row in rows if row["placement"] in alone]


def cell_of(cell, sampler):
    """What of a cell goes into the table; joules only where a counter was read."""
    summary = cell["summary"]
    if cell["error"] or summary is None:
        raise RuntimeError(f"{cell['server']}, {cell['condition']}: {cell['error'] or 'no result'}")
    row = {"placement": cell["server"], "condition": cell["condition"], "requests": summary["requests"],
           "failed": summary["requests"] - summary["ok"], "achieved_tokens_per_s": summary["achieved_tokens_per_s"],
           "ttft_p99_ms": summary["from_intended"]["ttft_ms"]["p99"], "tpot_p99_ms": summary["tpot_ms"]["p99"],
           "distrust": cell["distrust"], "joules_per_token": None, "watts": None}
    if sampler is not None:
        begin = cell["started_unix_s"]
        joules = sampler.joules(begin, begin + summary["span_s"])
        row["joules_per_token"] = joules / max(summary["output_tokens"], 1)
        row["watts"] = joules / summary["span_s"]
    return row


def energy_sampler(device):
    """None where there is no energy counter: the rest is still measured."""
    if not device.startswith("cuda"):
        return contextlib.nullcontext()
    try:
        return nvml.Sampler(nvml.Counter())
    except nvml.NotCounted as error:
        print(f"energy is not counted: {error}", file=sys.stderr)
        return contextlib.nullcontext()


def interference(args, work, clock):
    model = args.model[0] if args.model else "llama3-8b-shape"
    probe(args, model, work)
    rates = args.rate or RATES
    loads, failures, left_out = [], [], []
    with energy_sampler(args.device) as sampler:
        for number, rate in enumerate(rates * REPEATS):
            try:
                cells, whole = load_of(args, model, rate, number, work, clock, sampler)
            except RuntimeError as error:
                failures.append(f"{rate:g} requests/s: {error}")
                continue
            if not whole:
                left_out.append(f"{rate:g} requests/s, repeat {number // len(rates) + 1}")
            if cells:
                loads.append({"rate_rps": rate, "cells": cells})
    return {"device": args.device, "model": model, "cores": os.cpu_count(), "seconds": args.seconds, "loads": loads,
            "failures": failures, "left_out": left_out}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["makespan", "interference"])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--model", action="append")
    parser.add_argument("--json")
    parser.add_argument("--within", type=float, help="seconds")
    parser.add_argument("--rate", type=float, action="append",
                        help=f"interference: requests per second, repeatable {RATES}")
    parser.add_argument("--seconds", type=float, default=15, help="interference: of arrivals, a cell")
    parser.add_argument("--neighbour", action="append",
                        help="interference: as of `saccade bench interference`, repeatable [cpu]")
    args = parser.parse_args()
    clock = Clock(args.within)
    with tempfile.TemporaryDirectory() as work:
        try:
            result = {"makespan": makespan, "interference": interference}[args.what](args, pathlib.Path(work), clock)
        except server.NoGpu as error:
            print(f"no GPU: {error}")
            return server.NO_GPU
    text = json.dumps(result, indent=1) + "\n"
    print(text, end="")
    if args.json:
        pathlib.Path(args.json).write_text(text)
    for failure in result["failures"]:
        print(failure)
    nothing = not result.get("models", result.get("loads"))
    if nothing:
        print("nothing was measured within the time")
    return 1 if nothing or result["failures"] else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Exception as error:  # exit code 1 is a server or a request that failed
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
