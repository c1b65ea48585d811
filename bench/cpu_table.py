#!/usr/bin/env python3
"""Keeps the results of bench/cpu.sh, one JSON object a line, and makes tables of them.

    cpu_table.py cell OUT SHAPE SERVER REPEAT     a document of `bench serve --json -` on standard input
    cpu_table.py wave OUT SHAPE WEIGHTS           lines of openvino_wave.py on standard input
    cpu_table.py limits OUT REPEAT                the object of SACCADE_BENCH_ROOFLINE on standard input
    cpu_table.py roof OUT SHAPE SERVER REPEAT STREAMS INPUT    a document of `bench micro roof --json -` likewise
    cpu_table.py model OUT SHAPE FOLDER           what a model's weights weigh, from its safetensors header
    cpu_table.py tables OUT                       Markdown: every cell, then what is claimed of them
"""

import collections
import json
import pathlib
import statistics
import struct
import sys

from markdown_table import print_table

PERCENTILES = ("p50", "p99")
NARROW = ("-int8", "-q8", "-q4")  # servers whose weights have fewer than 16 bits


def append(out, name, record):
    with open(pathlib.Path(out) / f"{name}.jsonl", "a") as file:
        file.write(json.dumps(record) + "\n")


def read(out, name):
    path = pathlib.Path(out) / f"{name}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def cell(out, shape, server, repeat):
    run = json.load(sys.stdin)["runs"][0]
    summary, workload = run["summary"], run["spec"]["workload"]
    if summary["ok"] != summary["requests"] or summary["wrong_lengths"]:
        print(f"{server}: {summary['ok']} of {summary['requests']} ok, {summary['wrong_lengths']} of a wrong length")
    record = {
        "shape": shape, "server": server, "repeat": int(repeat), "streams": run["spec"]["arrival"]["concurrency"],
        "input_len": workload["input"]["tokens"], "output_len": workload["output"]["tokens"],
        "requests": summary["requests"], "ok": summary["ok"], "wrong_lengths": summary["wrong_lengths"],
        "tokens_per_s": summary["achieved_tokens_per_s"],
        "ttft_ms": {p: summary["from_sent"]["ttft_ms"][p] for p in PERCENTILES},
        "tpot_ms": {p: (summary["tpot_ms"] or {}).get(p) for p in PERCENTILES},
    }
    append(out, "serve", record)
    print(f"{shape} {server} {record['streams']} x {record['input_len']}/{record['output_len']}: {shown([record])}")


def wave(out, shape, weights):
    for line in sys.stdin:
        append(out, "wave", {"shape": shape, "weights": weights} | json.loads(line))


def limits(out, repeat):
    append(out, "limits", {"repeat": int(repeat)} | json.load(sys.stdin))


def roof(out, shape, server, repeat, streams, input_len, *_):
    measured = json.load(sys.stdin)["roof"]["roofs"]
    fastest = max(measured, key=lambda r: r["read_bytes_per_second"])
    rates = {rows: max(r["product_flops_per_second"][rows] for r in measured)
             for rows in fastest["product_flops_per_second"]}
    append(out, "roofs", {
        "shape": shape, "server": server, "repeat": int(repeat), "streams": int(streams), "input_len": int(input_len),
    } | fastest | {"product_flops_per_second": rates})


def model(out, shape, folder):
    """Bytes that a decode step reads and weights that a prompt token meets, at 2 bytes a weight."""
    with open(pathlib.Path(folder) / "model.safetensors", "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    header.pop("__metadata__", None)
    sizes = {name: (t["shape"], t["data_offsets"][1] - t["data_offsets"][0]) for name, t in header.items()}
    # A tied embedding is the output matrix too; an untied one is read a row at a time.
    untied = "lm_head.weight" in sizes
    step = sum(size for name, (_, size) in sizes.items() if not (untied and "embed_tokens" in name))
    layers = sum(shape[0] * shape[1] for name, (shape, _) in sizes.items() if ".layers." in name and len(shape) == 2)
    if all(known["shape"] != shape for known in read(out, "models")):
        append(out, "models", {"shape": shape, "step_bytes": step, "layer_weights": layers})


def median(records, *path):
    values = []
    for value in records:
        for key in path:
            value = value[key]
        if value is not None:
            values.append(value)
    return statistics.median(values) if values else None


def number(value):
    return "-" if value is None else f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def shown(records):
    """tok/s; TTFT p50/p99; TPOT p50/p99: medians over repeats."""
    times = ("ttft_ms", "tpot_ms")
    pairs = ["/".join(number(median(records, name, p)) for p in PERCENTILES) for name in times]
    failed = sum(r["requests"] - r["ok"] for r in records)
    return "; ".join([number(median(records, "tokens_per_s")), *pairs]) + (f" ({failed} failed)" if failed else "")


def group(records, *keys):
    groups = collections.defaultdict(list)
    for record in records:
        groups[tuple(record[key] for key in keys)].append(record)
    return groups


def serve_table(shape, records):
    """Every cell of a shape."""
    servers = list(dict.fromkeys(r["server"] for r in records))
    loads = sorted(group(records, "input_len", "output_len", "streams"))
    cells = group(records, "input_len", "output_len", "streams", "server")
    print(f"## {shape}: output tok/s; TTFT p50/p99 ms; TPOT p50/p99 ms\n")
    print_table(["load", *servers], [
        [f"{load[2]} x {load[0]}/{load[1]}", *(shown(cells[(*load, s)])
              if (*load, s) in cells else "" for s in servers)]
        for load in loads
    ])


def shares_of_roof(cells, roofs, sizes):
    """Of what each process of ours could do at most by its own measurement after the cell, medians over repeats."""
    for (server, streams, prompt), measured in sorted(group(roofs, "server", "streams", "input_len").items()):
        loads = [load for load in cells if load[0] == prompt and load[2:] == (streams, server)]
        if streams != 1 or not loads:
            continue
        if prompt == 128:
            steps = 1e3 / median(cells[loads[0]], "tpot_ms", "p50")
            most = statistics.median(r["read_bytes_per_second"] / r["step_weight_bytes"] for r in measured)
            yield f"one stream, {server}: {steps / most:.2f} of the {most:.1f} steps/s that reading its weights allows"
        else:
            rate = prompt / (median(cells[loads[0]], "ttft_ms", "p50") / 1e3)
            flop_per_s = statistics.median(max(r["product_flops_per_second"].values()) for r in measured)
            most = flop_per_s / (2 * sizes["layer_weights"])
            yield f"prompt of {prompt}, {server}: {rate / most:.2f} of the {most:.0f} tokens/s that its products allow"


def claims(shape, records, waves, machine, sizes, roofs):
    """How ours compares with the machine and the others, as lines."""
    cells = group(records, "input_len", "output_len", "streams", "server")
    loads = sorted(group(records, "input_len", "output_len", "streams"))
    decode = [load for load in loads if load[0] == 128]

    def rate(load, server):
        return median(cells.get((*load, server), []), "tokens_per_s")

    others = sorted({r["server"] for r in records if not r["server"].startswith("saccade")})
    one = next((load for load in decode if load[2] == 1), None)
    most = max(decode, key=lambda load: load[2], default=None)
    tpot = one and median(cells.get((*one, "saccade"), []), "tpot_ms", "p50")
    yield from shares_of_roof(cells, roofs, sizes)
    if machine and sizes and tpot and not roofs:
        limit = median(machine, "read_gb_per_s") * 1e9 / sizes["step_bytes"]
        yield f"one stream, bf16: {1e3 / tpot / limit:.2f} of {limit:.1f} steps/s, the bandwidth limit"
    if machine and sizes and not roofs:
        for load in loads:
            ttft = median(cells.get((*load, "saccade"), []), "ttft_ms", "p50")
            if load[0] > 128 and load[2] == 1 and ttft:
                peak = median(machine, "bf16_gflop_per_s") * 1e9
                share = 2 * sizes["layer_weights"] * load[0] / (ttft / 1e3) / peak
                yield f"prompt of {load[0]}: {load[0] / ttft * 1e3:.0f} tokens/s, {share:.2f} of the product rate"
    if most and rate(most, "saccade"):
        best = max((rate(most, s) or 0, s) for s in others) if others else (0, "")
        if best[0]:
            ratio = rate(most, "saccade") / best[0]
            yield f"{most[2]} streams: {ratio:.2f} x {best[1]}, the best of the others by HTTP"
        inside = [w for w in waves if w["weights"] == "fp16" and w["streams"] == most[2]]
        if inside:
            ratio = rate(most, "saccade") / median(inside, "tokens_per_s")
            yield f"{most[2]} streams: {ratio:.2f} x OpenVINO fp16 in process"
    if one and rate(one, "saccade") and rate(one, "saccade-int8"):
        yield f"one stream: int8 is {rate(one, 'saccade-int8') / rate(one, 'saccade'):.2f} x bf16"
    wide = [s for s in others if not s.removesuffix("-huge").endswith(NARROW)]
    for server in dict.fromkeys(r["server"] for r in records if r["server"].startswith("saccade")):
        for percentile in PERCENTILES:
            yield first_tokens(cells, loads, server, others if server.endswith(NARROW) else wide, percentile)


def first_tokens(cells, loads, server, others, percentile):
    """Where another's TTFT is lower; 8-bit weights of others are left out for our wider ones."""
    lower = []
    for load in loads:
        ours = median(cells.get((*load, server), []), "ttft_ms", percentile)
        theirs = [(median(cells.get((*load, o), []), "ttft_ms", percentile), o) for o in others]
        best = min((pair for pair in theirs if pair[0] is not None), default=None)
        if ours is not None and best is not None and best[0] <= ours:
            lower.append(f"{load[2]} x {load[0]}/{load[1]} ({number(ours)} ms, {best[1]} {number(best[0])})")
    than = "all" if server.endswith(NARROW) else "all with 16 bits or more a weight"
    return f"TTFT {percentile} of {server} is below that of {than}" + (f" but at {', '.join(lower)}" if lower else "")


def ratio(comparison, key):
    found = comparison.get(key)
    return "-" if not found else ("≥ " if found["at_least"] else "") + f"{found['median']:.2f}"


def work_per_s(record, server, condition):
    """What the neighbour got done next to that server, median over repeats; None where it does not count its work."""
    found = [c["work"]["per_s"] for c in record["cells"]
             if (c["server"], c["condition"]) == (server, condition) and c["work"]]
    return statistics.median(found) if found else None


def left_of_neighbour(record, server, condition):
    """Its pace next to a server over its pace next to one that computes nothing."""
    beside, alone = work_per_s(record, server, condition), work_per_s(record, IDLE, condition)
    return "-" if beside is None or not alone else f"{beside / alone:.2f}"


IDLE = "idle"  # the scripted server of bench/cpu.sh


def beside_table(out, name):
    path = pathlib.Path(out) / f"{name}.json"
    if not path.exists():
        return
    record = json.loads(path.read_text())
    found = group(record["comparisons"], "server", "condition")
    servers, conditions = (list(dict.fromkeys(key[i] for key in found)) for i in (0, 1))
    keys = ("retention_tokens", "inflation_ttft_p99", "inflation_tpot_p99")
    print(f"## {name}: tok/s kept; TTFT p99 ×; TPOT p99 ×; what is left of the neighbour's own pace (medians over "
          "repeats)\n")
    print_table(["server", *conditions], [
        [server, *("; ".join([*(ratio(found[server, c][0], key) for key in keys), left_of_neighbour(record, server, c)])
                   if (server, c) in found else "" for c in conditions)]
        for server in servers if server != IDLE
    ])


def tables(out):
    machine, waves = read(out, "limits"), read(out, "wave")
    if machine:
        keys = ("read_gb_per_s", "bf16_gflop_per_s")
        print("Limits, measured before each repeat: " + ", ".join(
            f"{key} {' '.join(number(m[key]) for m in machine)}" for key in keys) + "\n")
    sizes = {m["shape"]: m for m in read(out, "models")}
    for (shape,), records in group(read(out, "serve"), "shape").items():
        serve_table(shape, records)
        of_shape = [[r for r in kind if r["shape"] == shape] for kind in (waves, read(out, "roofs"))]
        lines = claims(shape, records, of_shape[0], machine, sizes.get(shape), of_shape[1])
        print("".join(f"- {line}\n" for line in lines))
    if waves:
        print("## OpenVINO's engine in process, one wave of 128-token prompts: tok/s; median TTFT ms; median TPOT ms\n")
        print_table(["shape", "streams", "weights", "figures"], [
            [shape, str(streams), weights, "; ".join(number(median(records, key)) for key in (
                "tokens_per_s", "ttft_ms_median", "tpot_ms_median"))]
            for (shape, streams, weights), records in group(waves, "shape", "streams", "weights").items()
        ])
    for name in ("neighbours", "priority"):
        beside_table(out, name)


COMMANDS = {"cell": cell, "wave": wave, "roof": roof, "limits": limits, "model": model, "tables": tables}

if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in COMMANDS:
        sys.exit(__doc__)
    COMMANDS[sys.argv[1]](*sys.argv[2:])
