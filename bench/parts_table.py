#!/usr/bin/env python3
"""Tables of a folder that bench/parts.sh filled, as Markdown: bench/parts_table.py FOLDER

A part that has not run has no table.
"""
import json
import pathlib
import re
import sys

from markdown_table import print_table


def number(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def ring(path):
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    named = {"scan": ("changed", "scan of 4,096 doorbells, {} changed"), "tick": ("live", "tick with {} live requests"),
             "latency": ("device", "submit to first token visible, device {}")}
    print("### Ring and tick, null step\n")
    print_table(("µs", "P50", "P99"), [
        (named[line["bench"]][1].format(line[named[line["bench"]][0]]), number(line["p50"]), number(line["p99"]))
        for line in lines if line["bench"] in named])


def streams(folder, name):
    """(streams, run) of each closed loop."""
    paths = sorted(folder.glob(f"{name}-*.json"), key=lambda path: int(path.stem.split("-")[-1]))
    return [(path.stem.split("-")[-1], json.loads(path.read_text())["runs"][0]["summary"]) for path in paths]


def frontend(folder):
    print("### Frontend, device whose steps only write tokens, 32 tokens in, 128 out, load client on the same cores\n")
    print_table(("streams", "requests/s", "streamed tokens/s", "TTFT P50 / P99, ms"), [
        (n, number(s["achieved_rps"]), number(s["achieved_tokens_per_s"]),
         f"{s['from_sent']['ttft_ms']['p50']:.2f} / {s['from_sent']['ttft_ms']['p99']:.2f}")
        for n, s in streams(folder, "frontend")])


def model(folder):
    print("### Qwen3-0.6B shape over HTTP, random bf16 weights, 128 tokens in, 64 out, prompts counted\n")
    print_table(("streams", "tokens/s", "TTFT P50, ms", "TPOT P50, ms"), [
        (n, f"{s['achieved_tokens_per_s']:.1f}", number(s["from_sent"]["ttft_ms"]["p50"]), f"{s['tpot_ms']['p50']:.1f}")
        for n, s in streams(folder, "model")])


PRODUCT = re.compile(r"(\S+)\s+rows\s+(\d+)\s+k\s+(\d+)\s+n\s+(\d+)\s+[\d.]+ us\s+(\d+) GFLOP/s\s+([\d.]+) GB/s")


def products_of(path):
    """(rows, k, n) -> library -> (GFLOP/s, GB/s of weights)."""
    found = {}
    for library, rows, k, n, flops, gbytes in PRODUCT.findall(path.read_text()):
        found.setdefault((int(rows), int(k), int(n)), {})[library] = (float(flops), float(gbytes))
    return found


def products(path):
    found = products_of(path)
    libraries = list(dict.fromkeys(library for cells in found.values() for library in cells))
    print("### Matrix products, one thread, bf16 weights packed once, best of nine\n")
    print_table(("rows", "k × n", *(f"{library}, GFLOP/s (weights, GB/s)" for library in libraries)), [
        (str(rows), f"{k} × {n}", *("{:.0f} ({:.1f})".format(*cells[library]) if library in cells else ""
                                    for library in libraries))
        for (rows, k, n), cells in found.items()])


def perplexity(path):
    print("### Perplexity of the bundled model, and gaps of a token's log probability to f32, nats\n")
    print_table(("weights", "tokens", "perplexity", "mean gap", "P99", "greatest"), [
        (row["name"], f"{row['tokens']:,}", f"{row['perplexity']:.3f}", f"{row['mean_gap_nats']:.3f}",
         f"{row['p99_gap_nats']:.3f}", f"{row['max_gap_nats']:.3f}") for row in json.loads(path.read_text())])


def plans(folder):
    print("### SIMULATED: loads that others have measured\n")
    rows = []
    for path in sorted(folder.glob("plan-*.json")):
        plan = json.loads(path.read_text())
        row = plan["rows"][0]
        rows.append((plan["model"], plan["device"], plan["scheduler"], f"{row['rate_rps']:.0f}",
                     f"{row['tpot']['mean'] * 1e3:.1f}", f"{row['tbt']['mean'] * 1e3:.1f}"))
    print_table(("model", "device", "scheduler", "requests/s", "mean time per token, ms", "mean gap, ms"), rows)


def verbatim(title, path):
    print(f"### {title}\n\n```\n{path.read_text().strip()}\n```\n")


def main(folder):
    for name, show in (("ring.jsonl", ring), ("products.txt", products), ("perplexity.json", perplexity)):
        if (folder / name).exists():
            show(folder / name)
    for name, show in (("frontend", frontend), ("model", model), ("plan", plans)):
        if list(folder.glob(f"{name}-*.json")):
            show(folder)
    for name, title in (("step.txt", "CPU step on the Qwen3-0.6B shape, random bf16 weights"),
                        ("copies.txt", "Copies of KV blocks"), ("faults.txt", "Fault simulation")):
        if (folder / name).exists():
            verbatim(title, folder / name)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1]))
