#!/usr/bin/env python3
"""What bench/rotation.sh left in a folder.

    rotation_table.py tuned FOLDER     writes the best B_xfer of each policy to b-xfer-POLICY.txt
    rotation_table.py tables FOLDER    Markdown: a table for each level of load, and what tuning found
"""
import collections
import json
import pathlib
import statistics
import sys

from markdown_table import print_table

COLUMNS = ("B_xfer", "goodput, %: each repeat", "TTFT in time, %", "mean TBT in time, %", "TTFT P50 / P99, ms",
           "TPOT P50 / P99, ms", "tokens/s", "rotations: each repeat")


def share(summary, target):
    """Percent of the requests that met a target; `all` is every target at once."""
    return next(a["share"] * 100 for a in summary["attainment"] if a["target"] == target)


def run_of(path):
    return json.loads(path.read_text())["runs"][0]


def rotations(path):
    """Both directions, from the server's counters after the load."""
    lines = path.with_name(f"metrics-{path.stem}.txt").read_text().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("saccade:device_rotations"))


def tuning(folder):
    """(policy, blocks) -> goodput in percent."""
    found = {}
    for path in folder.glob("tune-*.json"):
        _, policy, blocks = path.stem.split("-")
        found[policy, int(blocks)] = share(run_of(path)["summary"], "all")
    return found


def best(found, policy):
    """The smaller of equals: it moves less."""
    return min((-goodput, blocks) for (p, blocks), goodput in found.items() if p == policy)[1]


def tuned(folder):
    found = tuning(folder)
    for policy in {policy for policy, _ in found}:
        (folder / f"b-xfer-{policy}.txt").write_text(f"{best(found, policy)}\n")


def middle(values):
    value = statistics.median(values)
    return f"{value:,.0f}" if value >= 1000 else f"{value:.1f}"


def each(values, digits=0):
    return ", ".join(f"{value:.{digits}f}" for value in values)


def cells(folder, runs):
    """A policy at a level: medians over the repeats, except what is shown for each repeat."""
    summaries = [run["summary"] for _, run in runs]
    policy = runs[0][0].stem.split("-")[2]
    chosen = folder / f"b-xfer-{policy}.txt"

    def of(target):
        return [share(s, target) for s in summaries]

    def pair(latency):
        return " / ".join(middle([latency(s)[p] for s in summaries]) for p in ("p50", "p99"))

    return (chosen.read_text().strip() if chosen.exists() else "-", f"{middle(of('all'))}: {each(of('all'))}",
            middle(of("ttft")), middle(of("tpot")), pair(lambda s: s["from_intended"]["ttft_ms"]),
            pair(lambda s: s["tpot_ms"]), middle([s["achieved_tokens_per_s"] for s in summaries]),
            each(rotations(path) for path, _ in runs))


def levels(folder):
    """times -> policy -> [(path, run)] in order of the repeats."""
    found = collections.defaultdict(lambda: collections.defaultdict(list))
    for path in sorted(folder.glob("load-*.json")):
        _, times, policy, _ = path.stem.split("-")
        found[times][policy].append((path, run_of(path)))
    return found


def tables(folder):
    for times, policies in sorted(levels(folder).items(), key=lambda item: float(item[0])):
        runs = next(iter(policies.values()))
        offered = each((run["summary"]["offered_rps"] for _, run in runs), 1)
        print(f"### {times} × the closed loop: {runs[0][1]['rate_rps']:.1f} requests/s asked for, {offered} offered; "
              f"medians of {len(runs)} repeats\n")
        print_table(("policy", *COLUMNS), [(policy, *cells(folder, runs)) for policy, runs in policies.items()])
    found = tuning(folder)
    if found:
        blocks = sorted({b for _, b in found})
        print("### Goodput, %, by B_xfer (blocks per tick), other arrivals, one repeat\n")
        print_table(("policy", *map(str, blocks)),
              [(policy, *(f"{found[policy, b]:.1f}" for b in blocks)) for policy in sorted({p for p, _ in found})])


if __name__ == "__main__":
    commands = {"tuned": tuned, "tables": tables}
    if len(sys.argv) != 3 or sys.argv[1] not in commands:
        sys.exit(__doc__)
    commands[sys.argv[1]](pathlib.Path(sys.argv[2]))
