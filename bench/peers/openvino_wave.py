#!/usr/bin/env python3
"""One wave of requests through OpenVINO GenAI in this process, without HTTP: what its engine alone can do.

    openvino_wave.py IR_FOLDER --streams 16 --input-len 128 --output-len 128 [--threads 2] [--repeats 3]

All prompts (random ids) are there at once; each answer has exactly the asked length, greedy. Prints one JSON object a
repeat: output tokens/s from the start to the last token, TTFT (of the last and the median request) and the median
TPOT in ms. One unmeasured wave of the same shape comes first. `openvino.sh wave` runs it on chosen cores.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import time

import front
import openvino_engine


def wave(batch, args, seed):
    """Runs one wave; its figures."""
    draw = random.Random(seed)
    first, last = {}, {}
    start = time.monotonic()
    for number in range(args.streams):
        ids = [draw.randrange(3, args.vocab) for _ in range(args.input_len)]
        batch.add(number, front.Request(ids, args.output_len, ignore_eos=True))
    counts = [0] * args.streams
    while batch.is_busy():
        events, now = batch.step(), time.monotonic()
        for number, ids, reason in events:
            if reason == "error":
                raise SystemExit(f"--cache-gib {args.cache_gib}: too small for {args.streams} streams")
            counts[number] += len(ids)
            first.setdefault(number, now)
            last[number] = now
    assert counts == [args.output_len] * args.streams, counts
    ttft = sorted((first[i] - start) * 1e3 for i in first)
    tpot = [(last[i] - first[i]) * 1e3 / max(args.output_len - 1, 1) for i in first]
    seconds = max(last.values()) - start
    return {
        "streams": args.streams, "input_len": args.input_len, "output_len": args.output_len,
        "tokens_per_s": sum(counts) / seconds,
        "prefill_tokens_per_s": args.streams * args.input_len / (max(first.values()) - start),
        "ttft_ms_median": statistics.median(ttft), "ttft_ms_max": ttft[-1],
        "tpot_ms_median": statistics.median(tpot),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--streams", type=int, default=1)
    parser.add_argument("--input-len", type=int, default=128)
    parser.add_argument("--output-len", type=int, default=128)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--cache-gib", type=int, default=2)
    parser.add_argument("--max-num-batched-tokens", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    args.vocab = json.loads((args.model / "config.json").read_text())["vocab_size"]
    batch = openvino_engine.Batch(openvino_engine.Settings(
        args.model, args.streams, args.threads, args.cache_gib, args.max_num_batched_tokens))
    for repeat in range(args.repeats + 1):
        figures = wave(batch, args, args.seed + repeat)
        if repeat > 0:
            print(json.dumps({key: round(value, 3) for key, value in figures.items()}), flush=True)


if __name__ == "__main__":
    main()
