#!/usr/bin/env python3
"""Writes the README of a folder that bench/gpu/check.sh filled: table.py FOLDER

Targets first, judged; then a table for each part. A part that has not run has none and is named at the end. A file
about.md in the folder, a heading and what was run, comes before everything.
"""
import json
import pathlib
import statistics
import sys

SCAN_TARGET_US = 5
CLAIM_TARGET_US = 5  # and what copying the prompt takes
DECODE_TARGET = 0.8  # of the bandwidth of the GPU's memory, at batch 1
PREFILL_ROWS = 4096
PREFILL_PEAK = 790  # TFLOP/s
PREFILL_TARGET = 0.6  # of that
ROTATION_TARGET = 0.94  # of what the copy engines move both ways at once
MAKESPAN_TARGET = 1.0
MAKESPAN_BATCHES = (16, 64)
KEPT_TARGET = 0.97
COMPARED = "llama3-8b"  # the model that PyTorch has too
MODELS = (COMPARED, "qwen3-32b", "qwen3-30b-a3b")
WAYS = {"device_graphs": "(a) device graphs", "device_graphs_left": "(a) steps left alone",
        "while_switch": "(b) WHILE and SWITCH", "host": "(c) host thread"}
GAPS = {"prompt_to_claim_us": "prompt to claim", "submit_to_first_token_us": "prompt to first token",
        "token_to_token_us": "token to token", "step_to_publish_us": "step to publish",
        "step_to_step_us": "step to step"}


def table(header, rows):
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def verdict(met):
    return "met" if met else "**not met**"


def listed(value):
    """Records of the first run have one where later ones have several."""
    return value if isinstance(value, list) else [value]


def products_of(record):
    """By way of products: its decode steps and prefill steps."""
    return {"mma": record, **({"wgmma": record["wgmma"]} if "wgmma" in record else {})}


def best(steps):
    """Of (way, step) pairs, the faster."""
    return min(steps, key=lambda pair: pair[1]["ms"])


def at(record, kind, key, value):
    """The steps of each way, at one batch or one number of rows."""
    found = [(way, step) for way, steps in products_of(record).items()
             for step in listed(steps[kind]) if step[key] == value]
    return found or None


# --- Targets ---------------------------------------------------------------------------------------------------------


def decode_targets(models):
    rows = []
    for name, record in models.items():
        way, step = best(at(record, "decode", "batch", 1))
        share = step["roofline_ms"] / step["ms"]
        rows.append([f"decode of {name} at batch 1, of the memory's bandwidth", f"≥ {DECODE_TARGET:.2f}",
                     f"{share:.3f} ({way})", verdict(share >= DECODE_TARGET)])
    return rows


def prefill_targets(models):
    steps = at(models[COMPARED], "prefill", "rows", PREFILL_ROWS) if COMPARED in models else None
    if not steps:
        return []
    way, step = best(steps)
    share = step["tflops"] / PREFILL_PEAK
    return [[f"prefill of {COMPARED}, {PREFILL_ROWS:,} rows, of {PREFILL_PEAK} TFLOP/s", f"≥ {PREFILL_TARGET:.2f}",
             f"{share:.3f}: {step['tflops']:.0f} TFLOP/s ({way})", verdict(share >= PREFILL_TARGET)]]


def micro_targets(record):
    scan = record["scan_4096_slots_us"]["p50"]
    rows = [["scan of 4,096 slots, P50", f"≤ {SCAN_TARGET_US} µs", f"{scan:.2f} µs", verdict(scan <= SCAN_TARGET_US)]]
    copy = record.get("prompt_copy_us", {}).get("p50")
    most = CLAIM_TARGET_US + (copy or 0)
    for way in ("device_graphs", "while_switch"):
        claim = record[way]["prompt_to_claim_us"]["p50"]
        beside = f" (copy {copy:.2f} µs)" if copy is not None else " (the copy was not measured by itself)"
        rows.append([f"prompt to claim, {WAYS[way]}, P50", f"≤ {CLAIM_TARGET_US} µs and the prompt's copy",
                     f"{claim:.1f} µs{beside}", verdict(claim <= most)])
    return rows


def blocks_of(row):
    """Thread blocks that copy, down and up. Records of the first runs have one number for both."""
    return (row["blocks_down"], row["blocks_up"]) if "blocks_down" in row else (row["blocks"], row["blocks"])


def blocks_header(rows):
    return "blocks down, up" if "blocks_down" in rows[0] else "blocks a direction"


def blocks_cell(row):
    """Empty for the copy engines, which have none."""
    down, up = blocks_of(row)
    if not up:
        return ""
    return f"{down}, {up}" if "blocks_down" in row else up


def duplex_peak(rates):
    return max(r["both_gb_s"] for r in rates if r["way"].startswith("copy engines"))


def rotation_targets(record):
    rates = record["rotation"]
    top = max((r for r in rates if not r["way"].startswith("copy engines")), key=lambda r: r["both_gb_s"])
    share = top["both_gb_s"] / duplex_peak(rates)
    down, up = blocks_of(top)
    blocks = f"blocks: {down} down, {up} up" if "blocks_down" in top else f"{up} blocks"
    return [["rotation both ways at once, of the copy engines' peak", f"≥ {ROTATION_TARGET:.2f}",
             f"{share:.3f}: {top['both_gb_s']:.1f} GB/s ({top['way']}, {blocks})",
             verdict(share >= ROTATION_TARGET)]]


def makespan_targets(record):
    rows = []
    for m in makespans(record):
        if m["batch"] not in MAKESPAN_BATCHES:
            continue
        quotients = [w["device_over_host"] for w in m["workloads"]]
        mean = statistics.geometric_mean(quotients)
        rows.append([f"makespan, device ÷ host, {m['model']} at batch {m['batch']}", f"≤ {MAKESPAN_TARGET:.2f}",
                     f"{mean:.4f} (workloads {min(quotients):.4f} to {max(quotients):.4f})",
                     verdict(mean <= MAKESPAN_TARGET)])
    return rows


def interference_targets(record):
    rows = []
    for placement, judged in (("device", True), ("host", False)):
        kept = [row["kept"] for row in conditions(record) if row["placement"] == placement and not row["alone"]]
        if kept:
            least = "" if in_window(record) else "at least "
            rows.append([f"throughput kept beside hogs, scheduler on the {placement}, worst of {len(kept)}",
                         f"≥ {KEPT_TARGET:.2f}" if judged else "(none)", f"{least}{min(kept):.3f}",
                         verdict(min(kept) >= KEPT_TARGET) if judged else "for comparison"])
    return rows


def targets(records, models):
    """Of what was measured; what was not is named at the end of the page."""
    rows = decode_targets(models) + prefill_targets(models)
    for name, make in (("micro", micro_targets), ("rotation", rotation_targets), ("makespan", makespan_targets),
                       ("interference", interference_targets)):
        rows += make(records[name]) if records[name] else []
    return table(["figure", "target", "measured", ""], rows) if rows else None


# --- Tables of the parts ---------------------------------------------------------------------------------------------


def checks(folder):
    """Lines of the two test programs, and what the sanitizer summed up."""
    rows = []
    for name in ("tests.txt", "model-tests.txt"):
        path = folder / name
        if path.exists():
            lines = path.read_text().splitlines()
            ok, failed, skipped = (sum(line.startswith(word) for line in lines)
                                   for word in ("ok ", "FAILED", "skipped"))
            early = [f"**{line}**" for line in lines if line.startswith("ENDED EARLY")]
            counts = f"{ok} passed, {f'**{failed} failed**' if failed else '0 failed'}"
            rows.append([name, ", ".join([counts] + [f"{skipped} skipped"] * bool(skipped) + early)])
    for path in sorted(folder.glob("sanitizer-*.txt")):
        sums = [line.strip("= ") for line in path.read_text().splitlines()
                if "SUMMARY" in line or line.startswith(("RAN OUT OF TIME", "FAILED: exit code"))]
        rows.append([path.stem.removeprefix("sanitizer-").replace("-", ", ", 1), "; ".join(sums) or "no summary"])
    return table(["check", "result"], rows) if rows else None


def logprobs(record):
    rows = [[m["model"], f"{m['whole']:.4f}", f"{m['drawn']:.4f}", f"{m['bound']:.3f}",
             "" if m["hugging_face"] is None else f"{m['hugging_face']:.4f} (bound {m['hugging_face_bound']:.3f})",
             f"{m['same_tokens']} of {m['requests']}", "yes" if m["ok"] else "**no**"] for m in record["models"]]
    return table(["model", f"from {record['against']}, whole", "token by token", "bound", "from Hugging Face",
                  "same greedy tokens", "within"], rows)


def micro(record):
    scan = record["scan_4096_slots_us"]
    text = f"Scan of 4,096 slots: {scan['p50']:.2f} µs P50, {scan['p99']:.2f} µs P99.\n\n"
    ways = {way: name for way, name in WAYS.items() if way in record}
    rows = [[name, *(f"{record[way][gap]['p50']:.1f} / {record[way][gap]['p99']:.1f}" for gap in GAPS)]
            for way, name in ways.items()]
    rows = table(["µs, P50 / P99, null steps", *GAPS.values()], rows)
    captured = "\n".join(f"- {name}: {record[way]['captured']}" for way, name in ways.items())
    rows += batches(record, ways)
    return f"{text}{rows}\n\nCaptured:\n\n{captured}"


def batches(record, ways):
    """What a tick takes with its null step, by seats that decode at once."""
    measured = {way: {b["seats"]: b for b in record[way]["batches"]} for way in ways if "batches" in record[way]}
    if not measured:
        return ""
    seats = sorted(set().union(*measured.values()))
    rows = [[ways[way], *(f"{by[n]['tick_with_step_us']['p50']:.1f}" if n in by else "" for n in seats)]
            for way, by in measured.items()]
    return "\n\n" + table(["tick with a null step, µs, P50", *(f"{n} seats" for n in seats)], rows)


def rotation(record):
    rates = record["rotation"]
    peak = duplex_peak(rates)
    rows = [[r["way"], blocks_cell(r), f"{r['down_gb_s']:.1f}", f"{r['up_gb_s']:.1f}", f"{r['both_gb_s']:.1f}",
             f"{r['both_gb_s'] / peak:.2f}"] for r in rates]
    return table(["way", blocks_header(rates), "down, GB/s", "up, GB/s", "both at once, GB/s", "of the measured peak"],
                 rows)


def by_products(record, kind, key, value, show):
    """A cell for each way of products."""
    steps = dict(at(record, kind, key, value))
    return [show(steps[way]) if way in steps else "" for way in products_of(record)]


def decode_table(record, torch):
    theirs = {d["batch"]: d["ms"] for d in torch["decode"]} if torch else {}
    rows = []
    for d in record["decode"]:
        _, step = best(at(record, "decode", "batch", d["batch"]))
        row = [d["batch"], *by_products(record, "decode", "batch", d["batch"], lambda s: f"{s['ms']:.3f}"),
               f"{d['roofline_ms']:.3f}", f"{d['roofline_ms'] / step['ms']:.2f}"]
        if torch:
            other = theirs.get(d["batch"])
            row += [f"{other:.3f}", f"{other / step['ms']:.2f}"] if other else ["", ""]
        rows.append(row)
    header = ["batch", *(f"decode step by {way}, ms" for way in products_of(record)), "roofline, ms",
              "roofline ÷ faster"]
    return table(header + (["PyTorch with CUDA graphs, ms", "PyTorch ÷ faster"] if torch else []), rows)


def prefill_table(record, torch):
    theirs = {p["rows"]: p for p in listed(torch["prefill"])} if torch else {}
    rate = lambda s: f"{s['ms']:.2f} ({s['tflops']:.0f})"
    rows = []
    for p in listed(record["prefill"]):
        _, step = best(at(record, "prefill", "rows", p["rows"]))
        row = [f"{p['rows']:,}", *by_products(record, "prefill", "rows", p["rows"], rate),
               f"{step['tflops'] / PREFILL_PEAK:.2f}"]
        if torch:
            other = theirs.get(p["rows"])
            row += [rate(other), f"{other['ms'] / step['ms']:.2f}"] if other else ["", ""]
        rows.append(row)
    header = ["rows", *(f"prefill by {way}, ms (TFLOP/s)" for way in products_of(record)),
              f"faster, of {PREFILL_PEAK} TFLOP/s"]
    return table(header + (["PyTorch, ms (TFLOP/s)", "PyTorch ÷ faster"] if torch else []), rows)


def beside_rotation(record):
    beside = record.get("decode_beside_rotation")
    if not beside:
        return ""
    alone = next(d["ms"] for d in record["decode"] if d["batch"] == beside[0]["batch"])
    rows = [[b["way"], blocks_cell(b), f"{b['both_gb_s']:.1f}", f"{b['ms']:.3f}", f"{b['ms'] / alone:.2f}"]
            for b in beside]
    return (f"\n\nDecode by mma at batch {beside[0]['batch']} while KV blocks move both ways without a pause (alone "
            f"{alone:.3f} ms):\n\n" + table(["way", blocks_header(beside), "both, GB/s", "step, ms", "× alone"], rows))


def model(models, torch):
    first = next(iter(models.values()))
    sections = [f"{first['context']:,} positions are behind each decoded row. The roofline of a step is the time that "
                "reading its weights and KV takes at the bandwidth of a copy within the GPU's memory, measured in the "
                "run (bytes read and written); of experts, as many as even routing is expected to draw. TFLOP/s count "
                "products only."]
    for name, record in models.items():
        beside = torch if name == COMPARED else None
        sections.append(f"### {name}\n\nCopy bandwidth: {record['copy_bytes_per_s'] * 1e-9:,.0f} GB/s.\n\n"
                        f"{decode_table(record, beside)}\n\n{prefill_table(record, beside)}{beside_rotation(record)}")
    return "\n\n".join(sections)


def adapters(record):
    """Each step without and with an adapter on every row."""
    rows = []
    for way, steps in products_of(record).items():
        for kind, key in (("decode", "batch"), ("prefill", "rows")):
            rows += [[way, f"{kind}, {step[key]:,}", f"{step['ms']:.3f}", f"{step['adapters_ms']:.3f}",
                      f"{step['adapters_ms'] / step['ms']:.3f}"] for step in steps[kind]]
    return (f"{record['model']}, {record['adapters']} adapters of rank {record['adapter_rank']} on all matrices of each "
            "layer, which sequences take in turn.\n\n" +
            table(["products by", "step", "without, ms", "with an adapter on every row, ms", "with ÷ without"], rows))


def makespans(record):
    return record["models"] if "models" in record else [record]


def makespan(record):
    sections = []
    for m in makespans(record):
        rows = [[f"{w['requests']} × {w['input_tokens']:,} → {w['output_tokens']}",
                 *(" ".join(f"{s:.2f}" for s in listed(w[side])) for side in ("device_s", "host_s")),
                 f"{w['device_over_host']:.4f}"] for w in m["workloads"]]
        sections.append(f"{m['model']}, batch {m['batch']}, random weights; each repeat is one figure, the quotient "
                        "their median.\n\n" + table(["requests × in → out", "scheduler on the device, s", "on the host, s",
                                               "device ÷ host"], rows))
    return "\n\n".join(sections) + remarks(record)


def cells_of_loads(record):
    return [(load, cell) for load in record.get("loads", [record]) for cell in load["cells"]]


def in_window(record):
    """Whether tokens were counted in the window of arrivals. Earlier records count them over the arrivals and the drain
    after them, so that longer answers read as fewer tokens per second: a lower bound on what is kept."""
    return all("achieved_tokens_per_s" in cell for _, cell in cells_of_loads(record))


def conditions(record):
    """A row for each load, placement and condition: medians over repeats, quotients to isolation in the same repeat."""
    cells, tokens = {}, "achieved_tokens_per_s" if in_window(record) else "tokens_per_s"
    for load, c in cells_of_loads(record):
        alone = next(a for a in load["cells"] if (a["placement"], a["condition"]) == (c["placement"], "isolation"))
        key = (load["rate_rps"], c["placement"], c["condition"])
        cells.setdefault(key, []).append((c, alone))
    # Hogs by their number: "cpu x16" is before "cpu x64".
    order = lambda key: (key[0], key[1], key[2] != "isolation", len(key[2]), key[2])
    return [condition(*key, cells[key], tokens) for key in sorted(cells, key=order)]


def condition(rate, placement, name, pairs, tokens):
    row = {"rate": rate, "placement": placement, "name": name, "alone": name == "isolation",
           "failed": sum(c["failed"] for c, _ in pairs), "requests": sum(c["requests"] for c, _ in pairs),
           "distrust": sorted({reason for c, _ in pairs for reason in c["distrust"]})}
    for name, key in (("ttft_p99_ms", "ttft_p99_ms"), ("tpot_p99_ms", "tpot_p99_ms"), ("tokens_per_s", tokens)):
        row[name] = statistics.median(c[key] for c, _ in pairs)
        row[f"{name}_ratio"] = statistics.median(c[key] / base[key] for c, base in pairs)
    for key in ("joules_per_token", "watts"):
        values = [c[key] for c, _ in pairs if c[key] is not None]
        row[key] = statistics.median(values) if values else None
    row["kept"] = row["tokens_per_s_ratio"]
    return row


def interference(record):
    rows = []
    for c in conditions(record):
        energy = "" if c["joules_per_token"] is None else f"{c['joules_per_token']:.2f} ({c['watts']:.0f} W)"
        rows.append([f"{c['rate']:g}", c["placement"], c["name"],
                     f"{c['ttft_p99_ms']:.1f} ({c['ttft_p99_ms_ratio']:.2f}×)",
                     f"{c['tpot_p99_ms']:.2f} ({c['tpot_p99_ms_ratio']:.2f}×)",
                     f"{c['tokens_per_s']:,.0f} ({c['kept']:.3f})", energy, f"{c['failed']} of {c['requests']}",
                     "; ".join(c["distrust"])])
    window = "the window of arrivals" if in_window(record) else (
        "the arrivals and the drain behind them, so that slower answers read as fewer tokens/s")
    return (f"{record['model']}, {record['cores']} cores; `cpu xN` is N hogs, which take all of them. Quotients are to "
            f"the same scheduler in isolation. Tokens/s are over {window}.\n\n" +
            table(["requests/s", "scheduler on the", "condition", "P99 TTFT, ms", "P99 TPOT, ms", "tokens/s (×)",
                   "J a token", "failed", "not trusted because"], rows) + remarks(record))


def remarks(record):
    """What failed, and what there was no time for."""
    text = "".join(f"\n\n**Failed:** {failure}" for failure in record.get("failures", []))
    left_out = record.get("left_out")
    return text + (f"\n\nNo time was left for (the rest of): {'; '.join(left_out)}." if left_out else "")


# --- The page --------------------------------------------------------------------------------------------------------


def load(folder, name):
    path = folder / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() and path.stat().st_size else None


def opening(folder):
    about, environment, commit = (folder / name for name in ("about.md", "environment.txt", "commit.txt"))
    parts = [about.read_text().strip() if about.exists() else "# Results of `bench/gpu/check.sh`"]
    said = [path.read_text().strip() for path in (environment, commit) if path.exists()]
    return parts + (["```\n" + "\n".join(said) + "\n```"] if said else [])


def readme(folder):
    parts = opening(folder)
    records = {name: load(folder, name) for name in ("logprobs", "micro", "rotation", "adapters", "torch", "makespan",
                                                     "interference")}
    models = {name: record for name in MODELS if (record := load(folder, f"model-{name}"))}
    sections = [("Targets", targets(records, models)), ("Tests", checks(folder))]
    for title, name, make in (("Log probabilities", "logprobs", logprobs),
                              ("Latencies of the scheduler", "micro", micro), ("Rotation", "rotation", rotation)):
        sections.append((title, make(records[name]) if records[name] else None))
    sections.append(("Steps of large models", model(models, records["torch"]) if models else None))
    for title, name, make in (("Adapters (LoRA)", "adapters", adapters),
                              ("Makespan, scheduler on the device and on the host", "makespan", makespan),
                              ("Beside hogs on every core", "interference", interference)):
        sections.append((title, make(records[name]) if records[name] else None))
    parts += [f"## {title}\n\n{text}" for title, text in sections if text]
    missing = [title for title, text in sections if not text]
    missing += [f"steps of {name}" for name in MODELS if models and name not in models]
    missing += ["PyTorch"] if models and not records["torch"] else []
    missing += ["sanitizer"] if not list(folder.glob("sanitizer-*.txt")) else []
    if missing:
        parts.append("Not in this run: " + "; ".join(missing) + ".")
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    target = pathlib.Path(sys.argv[1])
    (target / "README.md").write_text(readme(target))
    print(f"written: {target / 'README.md'}")
