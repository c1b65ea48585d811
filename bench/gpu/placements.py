#!/usr/bin/env python3
"""The scheduler on the GPU against the same scheduler on a host thread, over HTTP.

    placements.py makespan      [--json FILE]   how long batches of requests take from the first to the last token
    placements.py interference  [--json FILE]   a steady load, alone and with every core of the host taken by hogs:
                                                P99 TTFT, P99 TPOT, throughput, and energy per token by the driver's
                                                counter

    --device   cuda; any other of `saccade serve`, to try the programs without a GPU
    --model    a folder of bench/models [qwen3-32b-shape for makespan, llama3-8b-shape for interference]; the weights
               are random

Exit codes: 0 done, 1 a server or a request failed, 2 an error, 3 no GPU.
"""
import argparse
import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import nvml
import server

PLACEMENTS = ("device", "host")
BATCH = 16  # Blink's, of figure 3
# Requests x tokens in -> tokens out: short and long of both. The text of Blink's figure 3 does not name its four.
WORKLOADS = [(32, 128, 16), (32, 128, 128), (16, 1024, 32), (16, 128, 256)]
# Of every shape in bench/models: ids that a byte-level tokenizer has.
VOCAB = 256
# Always there, and those that need a program of the machine: its name.
NEIGHBOURS = ("cpu",)
NEIGHBOURS_BY_PROGRAM = {"compile": "c++", "pbzip2": "pbzip2"}
SERVER_STARTS_S = 60


def model_folder(name):
    folder = server.ROOT / "bench/models" / name
    if not folder.is_dir():
        raise FileNotFoundError(f"--model {name}: no {folder}")
    return folder


def server_flags(args, placement, *more):
    tokenizer = server.ROOT / "models/saccade-tiny"
    return [str(model_folder(args.model)), "--load-format", "dummy", "--tokenizer", str(tokenizer),
            "--served-model-name", "m", "--dtype", "bfloat16", "--scheduler", placement, "--log", "warn",
            *server.device_flags(args.device), *more]


def run_tool(*flags):
    """`saccade bench` with these flags; its output only if it fails."""
    done = subprocess.run([server.binary(), "bench", *flags], capture_output=True, text=True)
    if done.returncode != 0:
        said = done.stdout[-800:] + done.stderr[-800:]
        raise RuntimeError(f"saccade bench {flags[0]} ended with {done.returncode}: {said}")


def span_of(url, workload, path):
    """Seconds from the first request to the last token, and how many output tokens."""
    requests, prompt, output = workload
    run_tool("serve", "--base-url", url, "--model", "m", "--vocab", str(VOCAB), "--num-prompts", str(requests),
             "--random-input-len", str(prompt), "--random-output-len", str(output), "--num-warmups", "2",
             "--json", str(path))
    summary = json.loads(path.read_text())["runs"][0]["summary"]
    if summary["ok"] != requests:
        raise RuntimeError(f"{requests - summary['ok']} of {requests} requests failed")
    return {"span_s": summary["span_s"], "output_tokens": summary["output_tokens"]}


def makespan(args, work):
    spans = {}
    longest = max(prompt + output for _, prompt, output in WORKLOADS)
    limits = ("--max-num-seqs", str(BATCH), "--max-num-batched-tokens", "1024", "--max-model-len", str(longest + 8))
    for placement in PLACEMENTS:
        flags = server_flags(args, placement, *limits)
        with server.serve(*flags, log=work / "server.log", ready_within_s=SERVER_STARTS_S) as url:
            spans[placement] = [span_of(url, workload, work / "serve.json") for workload in WORKLOADS]
    rows = []
    for workload, device, host in zip(WORKLOADS, spans["device"], spans["host"]):
        rows.append({"requests": workload[0], "input_tokens": workload[1], "output_tokens": workload[2],
                     "device_s": device["span_s"], "host_s": host["span_s"],
                     "device_over_host": device["span_s"] / host["span_s"]})
    return {"device": args.device, "model": args.model, "batch": BATCH, "workloads": rows}


def probe(args, work):
    """Raises what keeps a server from starting: the tool below would only say that it did not."""
    flags = server_flags(args, "device", "--max-num-seqs", "1", "--max-num-batched-tokens", "16")
    with server.serve(*flags, log=work / "server.log", ready_within_s=SERVER_STARTS_S):
        pass


def start_of(args, placement, port):
    flags = server_flags(args, placement, "--port", str(port), "--max-num-seqs", "64",
                         "--max-num-batched-tokens", "1024", "--max-model-len", "1024")
    return " ".join([server.binary(), "serve", *flags])


def neighbours(find=shutil.which):
    """What the machine can do; memory traffic where it has nothing that is in use."""
    found = [name for name, program in NEIGHBOURS_BY_PROGRAM.items() if find(program)]
    return [*NEIGHBOURS, *(found or ["memory-bandwidth"])]


def interference_record(args, work):
    flags = []
    for placement in PLACEMENTS:
        port = server.free_port()
        flags += ["--server", f"{placement}=http://127.0.0.1:{port}",
                  "--start", f"{placement}={start_of(args, placement, port)}"]
    for neighbour in args.neighbour or neighbours():
        flags += ["--neighbour", neighbour]
    record = work / "interference.json"
    run_tool("interference", *flags, "--log-dir", str(work), "--vocab", str(VOCAB), "--repeats", "1",
             "--request-rate", str(args.rate), "--duration", str(args.seconds), "--num-warmups", "0", "--settle", "1",
             "--random-input-len", "512", "--random-output-len", "128", "--json", str(record))
    return json.loads(record.read_text())


def cell_of(cell, sampler):
    """What of a cell goes into the table; joules only where a counter was read."""
    summary = cell["summary"]
    if cell["error"] or summary is None:
        raise RuntimeError(f"{cell['server']}, {cell['condition']}: {cell['error'] or 'no result'}")
    row = {"placement": cell["server"], "condition": cell["condition"], "requests": summary["requests"],
           "failed": summary["requests"] - summary["ok"], "tokens_per_s": summary["output_tokens_per_s"],
           "ttft_p99_ms": summary["from_intended"]["ttft_ms"]["p99"], "tpot_p99_ms": summary["tpot_ms"]["p99"],
           "distrust": cell["distrust"], "joules_per_token": None, "watts": None}
    if sampler is not None:
        begin = cell["started_unix_s"]
        joules = sampler.joules(begin, begin + summary["span_s"])
        row["joules_per_token"] = joules / max(summary["output_tokens"], 1)
        row["watts"] = joules / summary["span_s"]
    return row


def energy_sampler(device):
    """None where nothing counts energy: the rest is measured all the same."""
    if not device.startswith("cuda"):
        return contextlib.nullcontext()
    try:
        return nvml.Sampler(nvml.Counter())
    except nvml.NotCounted as error:
        print(f"energy is not counted: {error}", file=sys.stderr)
        return contextlib.nullcontext()


def interference(args, work):
    probe(args, work)
    with energy_sampler(args.device) as sampler:
        record = interference_record(args, work)
    return {"device": args.device, "model": args.model, "rate_rps": args.rate, "cores": os.cpu_count(),
            "cells": [cell_of(cell, sampler) for cell in record["cells"]]}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["makespan", "interference"])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--model")
    parser.add_argument("--json")
    parser.add_argument("--rate", type=float, default=8, help="interference: requests per second")
    parser.add_argument("--seconds", type=float, default=5, help="interference: of arrivals, a cell")
    parser.add_argument("--neighbour", action="append",
                        help="interference: as of `saccade bench interference` [cpu, and of compile and pbzip2 "
                        "what the machine has, else memory-bandwidth]")
    args = parser.parse_args()
    args.model = args.model or {"makespan": "qwen3-32b-shape", "interference": "llama3-8b-shape"}[args.what]
    with tempfile.TemporaryDirectory() as work:
        try:
            result = {"makespan": makespan, "interference": interference}[args.what](args, pathlib.Path(work))
        except server.NoGpu as error:
            print(f"no GPU: {error}")
            return server.NO_GPU
        except RuntimeError as error:
            print(error)
            return 1
    text = json.dumps(result, indent=1) + "\n"
    print(text, end="")
    if args.json:
        pathlib.Path(args.json).write_text(text)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Exception as error:  # exit code 1 is a server or a request that failed
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
