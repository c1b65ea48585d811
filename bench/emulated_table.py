#!/usr/bin/env python3
"""Tables of a folder that bench/emulated.sh filled, as Markdown: bench/emulated_table.py FOLDER"""
import json
import math
import pathlib
import sys

SERVERS = ("host", "device")
# Blink (arXiv 2604.07609), table 7, Llama-3 8B, up to 12 requests/s: interference over isolation, P99 TTFT, P99 TPOT,
# throughput as that paper counts it.
PUBLISHED = (("Blink", 1.00, 1.00, 1.00), ("TensorRT-LLM", 18.84, 11.10, 0.38), ("vLLM", 11.12, 7.35, 0.44),
             ("SGLang", 8.43, 5.77, 0.48))
RANGE_RPS = 12


def figures(cell):
    s = cell["summary"]
    # Of the steady window: a slower answer does not count as lost throughput.
    return {"completed": s["achieved_rps"], "ttft": s["from_intended"]["ttft_ms"]["p99"],
            "tpot": s["tpot_ms"]["p99"], "failed": s["requests"] - s["ok"]}


def load(path):
    record = json.loads(path.read_text())
    cells = {}
    for cell in record["cells"]:
        if cell["error"] or not cell["summary"]:
            print(f"{path.name}: {cell['server']}, {cell['condition']}: {cell['error']}", file=sys.stderr)
            continue
        kind = "alone" if cell["condition"] == "isolation" else "beside"
        cells[cell["server"], kind] = figures(cell)
    return cells


def mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def ladder(server, rates):
    print(f"### --scheduler {server}, EMULATED H100\n")
    print("| requests/s | completed/s alone | beside | kept | TTFT P99 alone, ms | beside | × | TPOT P99 alone, ms | "
          "beside | × | failed |\n" + "|---" * 11 + "|")
    for rate, cells in sorted(rates.items()):
        a, b = cells.get((server, "alone")), cells.get((server, "beside"))
        if not a or not b:
            continue
        print(f"| {rate} | {a['completed']:.2f} | {b['completed']:.2f} | {b['completed'] / a['completed']:.2f} "
              f"| {a['ttft']:,.1f} | {b['ttft']:,.1f} | {b['ttft'] / a['ttft']:.2f} "
              f"| {a['tpot']:.2f} | {b['tpot']:.2f} | {b['tpot'] / a['tpot']:.2f} | {a['failed']} + {b['failed']} |")
    print()


def in_range(server, rates):
    """P99 TTFT and TPOT, geometric means of with hogs over alone, and what is kept at the highest rate of the range."""
    rows = [(c[server, "alone"], c[server, "beside"]) for r, c in sorted(rates.items())
            if r <= RANGE_RPS and (server, "alone") in c and (server, "beside") in c]
    alone, beside = rows[-1]
    return (*(mean([b[k] / a[k] for a, b in rows]) for k in ("ttft", "tpot")),
            beside["completed"] / alone["completed"])


def main():
    folder = pathlib.Path(sys.argv[1])
    rates = {int(p.stem.split("-")[1]): load(p) for p in folder.glob("rate-*.json") if p.stem.count("-") == 1}
    for server in SERVERS:
        ladder(server, rates)
    columns = [(f"ours, `--scheduler {server}`, EMULATED H100", *in_range(server, rates)) for server in SERVERS]
    columns += [(f"{name}, published, real H100", *values) for name, *values in PUBLISHED]
    print(f"### Beside hogs over alone, up to {RANGE_RPS} requests/s\n")
    print("| | " + " | ".join(name for name, *_ in columns) + " |\n" + "|---" * (len(columns) + 1) + "|")
    lines = ("P99 TTFT, ×, geometric mean", "P99 TPOT, ×, geometric mean", "throughput kept at the highest rate")
    for line, *values in zip(lines, *(values for _, *values in columns)):
        print(f"| {line} | " + " | ".join(f"{value:.2f}" for value in values) + " |")


main()
