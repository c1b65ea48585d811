#!/usr/bin/env python3
"""Tables of a folder that bench/emulated.sh filled, as Markdown: bench/emulated_table.py FOLDER"""
import json
import math
import pathlib
import sys

SERVERS = ("host", "device")
# Blink (arXiv 2604.07609), table 7, Llama-3 8B, up to 12 requests/s: interference over isolation.
PUBLISHED = (("Blink", 1.00, 1.00, 1.00), ("TensorRT-LLM", 18.84, 11.10, 0.38), ("vLLM", 11.12, 7.35, 0.44),
             ("SGLang", 8.43, 5.77, 0.48))
RANGE_RPS = 12


def figures(cell):
    s = cell["summary"]
    return {"tokens": s["output_tokens_per_s"], "ttft": s["from_intended"]["ttft_ms"]["p99"],
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


def main():
    folder = pathlib.Path(sys.argv[1])
    rates = {int(p.stem.split("-")[1]): load(p) for p in folder.glob("rate-*.json")}
    for server in SERVERS:
        print(f"### --scheduler {server}\n")
        print("| requests/s | tokens/s alone | beside | kept | TTFT P99 alone, ms | beside | × | TPOT P99 alone, ms | beside "
              "| × | failed |\n" + "|---" * 11 + "|")
        for rate, cells in sorted(rates.items()):
            a, b = cells.get((server, "alone")), cells.get((server, "beside"))
            if not a or not b:
                continue
            print(f"| {rate} | {a['tokens']:,.0f} | {b['tokens']:,.0f} | {b['tokens'] / a['tokens']:.2f} "
                  f"| {a['ttft']:,.1f} | {b['ttft']:,.1f} | {b['ttft'] / a['ttft']:.2f} "
                  f"| {a['tpot']:.2f} | {b['tpot']:.2f} | {b['tpot'] / a['tpot']:.2f} | {a['failed']} + {b['failed']} |")
        print()
    print(f"### Beside hogs over alone, geometric means up to {RANGE_RPS} requests/s\n")
    print("| server | P99 TTFT, × | P99 TPOT, × | tokens/s kept at the highest of them |\n|---|---|---|---|")
    for server in SERVERS:
        rows = [(r, c[server, "alone"], c[server, "beside"]) for r, c in sorted(rates.items())
                if r <= RANGE_RPS and (server, "alone") in c and (server, "beside") in c]
        ratio = {k: mean([b[k] / a[k] for _, a, b in rows]) for k in ("ttft", "tpot")}
        _, a, b = rows[-1]
        print(f"| ours, `--scheduler {server}`, EMULATED | {ratio['ttft']:.2f} | {ratio['tpot']:.2f} "
              f"| {b['tokens'] / a['tokens']:.2f} |")
    for name, ttft, tpot, kept in PUBLISHED:
        print(f"| {name}, published, real H100 | {ttft:.2f} | {tpot:.2f} | {kept:.2f} |")


main()
