#!/usr/bin/env python3
"""Tables and plots of a run of bench/grid.sh.

    grid_table.py OUT      reads grid.jsonl there, prints Markdown, writes a plot for each shape

The limit of a step is the larger of two times: reading the weights and the streams' KV at the rate at which the step's
threads read the packed weights right before and after it, and its operations at the rate of products of as many rows in
the caches.
"""

import json
import pathlib
import sys

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402


def limit_ms(point):
    """Milliseconds that memory and arithmetic need for it."""
    moved = (point["weight_bytes"] + point["kv_bytes"]) / (point["read_gb_per_s"] * 1e9)
    return 1e3 * max(moved, point["flop"] / (point["product_gflop_per_s"] * 1e9))


def by_context(points):
    contexts = {}
    for point in points:
        contexts.setdefault(point["context"], []).append(point)
    return contexts


def table(shape, points):
    streams = sorted({point["streams"] for point in points})
    yield f"\n### {shape}\n"
    yield "Tokens/s, and in brackets the share of what the machine allows at that point.\n"
    yield "| context | " + " | ".join(f"{count} streams" for count in streams) + " |"
    yield "|---" * (len(streams) + 1) + "|"
    for context, row in sorted(by_context(points).items()):
        cells = {p["streams"]: (p["streams"] / p["step_ms"] * 1e3, p["share"]) for p in row}
        shown = [f"{cells[s][0]:,.1f} ({cells[s][1]:.2f})" if s in cells else "no room" for s in streams]
        yield f"| {context:,} | " + " | ".join(shown) + " |"


def plot(path, shape, points):
    figure, axes = plt.subplots(figsize=(8, 5))
    for context, row in sorted(by_context(points).items()):
        streams = [p["streams"] for p in row]
        (line,) = axes.plot(streams, [p["streams"] / p["step_ms"] * 1e3 for p in row], "o-", label=f"{context:,} tokens")
        allowed = [p["streams"] / limit_ms(p) * 1e3 for p in row]
        axes.plot(streams, allowed, "--", color=line.get_color(), linewidth=1)
    axes.set(xscale="log", yscale="log", xlabel="streams", ylabel="tokens/s")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_title(f"{shape}: decode by context; dashed: what the machine allows")
    axes.grid(True, which="both", alpha=0.3)
    axes.legend(title="context")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def main():
    out = pathlib.Path(sys.argv[1])
    points = [json.loads(line) for line in (out / "grid.jsonl").read_text().splitlines()]
    print(f"Kernels {points[0]['kernels']}, {points[0]['threads']} threads.")
    for shape in dict.fromkeys(point["shape"] for point in points):
        of_shape = [point for point in points if point["shape"] == shape]
        print("\n".join(table(shape, of_shape)))
        plot(out / f"{shape}.svg", shape, of_shape)


if __name__ == "__main__":
    main()
