#!/usr/bin/env python3
"""Tables of a folder that bench/rotation.sh filled, as Markdown: bench/rotation_table.py FOLDER"""
import collections
import json
import pathlib
import statistics
import sys

COLUMNS = ("goodput, %", "TTFT in time, %", "mean TBT in time, %", "TTFT P50 / P99, ms", "TPOT P50 / P99, ms",
           "tokens/s", "rotations")


def share(summary, target):
    """Percent of the requests that met a target; `all` is every target at once."""
    found = [a for a in summary["attainment"] if a["target"] == target]
    return found[0]["share"] * 100 if found else float("nan")


def rotations(folder, times, policy, repeat):
    path = folder / f"metrics-{times}-{policy}-{repeat}.txt"
    lines = path.read_text().splitlines() if path.exists() else []
    return sum(float(line.split()[-1]) for line in lines if line.startswith("saccade:device_rotations"))


def row(folder, path):
    _, times, policy, repeat = path.stem.split("-")
    run = json.loads(path.read_text())["runs"][0]
    s = run["summary"]
    ttft, tpot = s["from_intended"]["ttft_ms"], s["tpot_ms"]
    values = (share(s, "all"), share(s, "ttft"), share(s, "tpot"), (ttft["p50"], ttft["p99"]),
              (tpot["p50"], tpot["p99"]), s["output_tokens_per_s"], rotations(folder, times, policy, repeat))
    return (float(times), run["rate_rps"]), policy, values


def text(values):
    """The median over repeats; of pairs, of each half."""
    if isinstance(values[0], tuple):
        return " / ".join(f"{statistics.median(v):,.0f}" for v in zip(*values))
    middle = statistics.median(values)
    return f"{middle:,.0f}" if middle >= 1000 or middle == int(middle) else f"{middle:.1f}"


def main():
    folder = pathlib.Path(sys.argv[1])
    cells = collections.defaultdict(list)
    for path in sorted(folder.glob("load-*.json")):
        level, policy, values = row(folder, path)
        cells[level, policy].append(values)
    for level in sorted({level for level, _ in cells}):
        repeats = max(len(v) for (at, _), v in cells.items() if at == level)
        print(f"### {level[1]:.1f} requests/s, {level[0]} × the capacity; median of {repeats}\n")
        print("| policy | " + " | ".join(COLUMNS) + " |\n" + "|---" * (len(COLUMNS) + 1) + "|")
        for (at, policy), runs in cells.items():
            if at == level:
                print(f"| {policy} | " + " | ".join(text(list(column)) for column in zip(*runs)) + " |")
        print()


main()
