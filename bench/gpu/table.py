#!/usr/bin/env python3
"""Writes the README of a folder that bench/gpu/check.sh filled: table.py FOLDER

A part that has not run has no table and is named at the end. A figure beside a target says whether it meets it.
"""
import json
import pathlib
import sys

SCAN_TARGET_US = 5
DECODE_TARGET = 0.8  # of the roofline, at batch 1
WAYS = {"device_graphs": "(a) device graphs", "while_switch": "(b) WHILE and SWITCH", "host": "(c) host thread"}
GAPS = {"prompt_to_claim_us": "prompt to claim", "submit_to_first_token_us": "prompt to first token",
        "token_to_token_us": "token to token", "step_to_publish_us": "step to publish",
        "step_to_step_us": "step to step"}


def table(header, rows):
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def verdict(met):
    return "met" if met else "**not met**"


def checks(folder):
    """Lines of the two test programs, and what the sanitizer summed up."""
    rows = []
    for name in ("tests.txt", "model-tests.txt"):
        path = folder / name
        if path.exists():
            lines = path.read_text().splitlines()
            ok, failed = (sum(line.startswith(word) for line in lines) for word in ("ok ", "FAILED"))
            rows.append([name, f"{ok} passed, {failed} failed"])
    for path in sorted(folder.glob("sanitizer-*.txt")):
        sums = [line.strip("= ") for line in path.read_text().splitlines() if "SUMMARY" in line]
        rows.append([path.stem.removeprefix("sanitizer-").replace("-", ", ", 1), sums[-1] if sums else "no summary"])
    return table(["check", "result"], rows) if rows else None


def logprobs(record):
    rows = [[m["model"], f"{m['whole']:.4f}", f"{m['drawn']:.4f}", f"{m['bound']:.3f}",
             "" if m["hugging_face"] is None else f"{m['hugging_face']:.4f} (bound {m['hugging_face_bound']:.3f})",
             f"{m['same_tokens']} of {m['requests']}", "yes" if m["ok"] else "**no**"] for m in record["models"]]
    return table(["model", f"from {record['against']}, whole", "token by token", "bound", "from Hugging Face",
                  "same greedy tokens", "within"], rows)


def micro(record):
    scan = record["scan_4096_slots_us"]
    text = (f"Scan of 4,096 slots: {scan['p50']:.2f} µs P50, {scan['p99']:.2f} µs P99; at most {SCAN_TARGET_US} µs: "
            f"{verdict(scan['p50'] <= SCAN_TARGET_US)}.\n\n")
    rows = [[name, *(f"{record[way][gap]['p50']:.1f} / {record[way][gap]['p99']:.1f}" for gap in GAPS)]
            for way, name in WAYS.items()]
    rows = table(["µs, P50 / P99, null steps", *GAPS.values()], rows)
    captured = "\n".join(f"- {name}: {record[way]['captured']}" for way, name in WAYS.items())
    return f"{text}{rows}\n\nCaptured:\n\n{captured}"


def rotation(record):
    rates = record["rotation"]
    peak = max(r["both_gb_s"] for r in rates if r["way"].startswith("copy engines"))
    rows = [[r["way"], r["blocks"] or "", f"{r['down_gb_s']:.1f}", f"{r['up_gb_s']:.1f}", f"{r['both_gb_s']:.1f}",
             f"{r['both_gb_s'] / peak:.2f}"] for r in rates]
    return table(["way", "blocks a direction", "down, GB/s", "up, GB/s", "both at once, GB/s", "of the measured peak"],
                 rows)


def ways_of_products(mma, wgmma):
    """Both ways of computing products side by side; the decision is made by this table."""
    rows = [[f"decode, batch {d['batch']}", f"{d['ms']:.3f}", f"{w['ms']:.3f}", f"{d['ms'] / w['ms']:.2f}"]
            for d, w in zip(mma["decode"], wgmma["decode"], strict=True)]
    p, w = mma["prefill"], wgmma["prefill"]
    rows.append([f"prefill, {p['rows']:,} rows", f"{p['ms']:.3f} ({p['tflops']:.0f} TFLOP/s)",
                 f"{w['ms']:.3f} ({w['tflops']:.0f} TFLOP/s)", f"{p['ms'] / w['ms']:.2f}"])
    return table(["step, ms", "products by mma", "by wgmma", "mma ÷ wgmma"], rows)


def model(record, torch):
    theirs = {d["batch"]: d["ms"] for d in torch["decode"]} if torch else {}
    gb_per_s = record["copy_bytes_per_s"] * 1e-9
    sections = [f"Copy bandwidth measured in the run: {gb_per_s:,.0f} GB/s (read and written). "
                f"{record['context']} positions behind each decoded row. The roofline of a step is the time that "
                "reading its weights and KV takes at that bandwidth; of experts, so many as even routing is expected "
                "to draw."]
    for m in record["models"]:
        compared = torch is not None and m["model"] == "llama3-8b"
        rows = []
        for d in m["decode"]:
            share = d["roofline_ms"] / d["ms"]
            row = [d["batch"], f"{d['ms']:.3f}", f"{d['roofline_ms']:.3f}", f"{share:.2f}"]
            if compared:
                other = theirs.get(d["batch"])
                row += [f"{other:.3f}", f"{other / d['ms']:.2f}"] if other else ["", ""]
            rows.append(row)
        header = ["batch", "decode step, ms", "roofline, ms", "roofline ÷ step"]
        header += ["PyTorch with CUDA graphs, ms", "PyTorch ÷ ours"] if compared else []
        first = m["decode"][0]
        reached = first["roofline_ms"] / first["ms"]
        p = m["prefill"]
        text = (f"### {m['model']}\n\n{table(header, rows)}\n\nBatch {first['batch']} reaches {reached:.2f} of its "
                f"roofline; {DECODE_TARGET}: {verdict(reached >= DECODE_TARGET)}. Prefill of {p['rows']:,} rows: "
                f"{p['ms']:.1f} ms, {p['tflops']:.0f} TFLOP/s in products")
        if compared:
            text += f"; PyTorch {torch['prefill']['ms']:.1f} ms, {torch['prefill']['tflops']:.0f} TFLOP/s"
        text += "."
        if "wgmma" in m:
            text += f"\n\n{ways_of_products(m, m['wgmma'])}"
        beside = m.get("decode_beside_rotation")
        if beside:
            alone = next(d["ms"] for d in m["decode"] if d["batch"] == beside[0]["batch"])
            rows = [[b["way"], b["blocks"], f"{b['both_gb_s']:.1f}", f"{b['ms']:.3f}", f"{b['ms'] / alone:.2f}"]
                    for b in beside]
            text += (f"\n\nDecode at batch {beside[0]['batch']} while KV blocks move both ways without a pause (alone "
                     f"{alone:.3f} ms):\n\n" +
                     table(["way", "blocks a direction", "both, GB/s", "step, ms", "× alone"], rows))
        sections.append(text)
    return "\n\n".join(sections)


def makespan(record):
    rows = [[f"{w['requests']} × {w['input_tokens']:,} → {w['output_tokens']}", f"{w['device_s']:.2f}",
             f"{w['host_s']:.2f}", f"{w['device_over_host']:.3f}"] for w in record["workloads"]]
    return (f"{record['model']}, batch {record['batch']}, random weights.\n\n" +
            table(["requests × in → out", "scheduler on the device, s", "on the host, s", "device ÷ host"], rows))


def interference(record):
    alone = {c["placement"]: c for c in record["cells"] if c["condition"] == "isolation"}
    rows = []
    for c in sorted(record["cells"], key=lambda c: (c["placement"], c["condition"] != "isolation", c["condition"])):
        base = alone[c["placement"]]
        energy = "" if c["joules_per_token"] is None else f"{c['joules_per_token']:.2f} ({c['watts']:.0f} W)"
        rows.append([c["placement"], c["condition"],
                     f"{c['ttft_p99_ms']:.1f} ({c['ttft_p99_ms'] / base['ttft_p99_ms']:.2f}×)",
                     f"{c['tpot_p99_ms']:.2f} ({c['tpot_p99_ms'] / base['tpot_p99_ms']:.2f}×)",
                     f"{c['tokens_per_s']:,.0f} ({c['tokens_per_s'] / base['tokens_per_s']:.2f})", energy, c["failed"],
                     "; ".join(c["distrust"])])
    return (f"{record['model']}, {record['rate_rps']:g} requests/s, {record['cores']} cores; hogs on all of them.\n\n" +
            table(["scheduler on the", "condition", "P99 TTFT, ms", "P99 TPOT, ms", "tokens/s (kept)", "J a token",
                   "failed", "not trusted because"], rows))


def load(folder, name):
    path = folder / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() and path.stat().st_size else None


def readme(folder):
    environment = folder / "environment.txt"
    parts = ["# Results of `just gpu-check`"]
    if environment.exists():
        parts.append("```\n" + environment.read_text().strip() + "\n```")
    missing = []
    sections = [("Tests", checks(folder))]
    for title, name, make in (("Log probabilities", "logprobs", logprobs),
                              ("Latencies of the scheduler", "micro", micro), ("Rotation", "rotation", rotation)):
        record = load(folder, name)
        sections.append((title, make(record) if record else None))
    record = load(folder, "model")
    sections.append(("Steps of large models", model(record, load(folder, "torch")) if record else None))
    for title, name, make in (("Makespan, scheduler on the device and on the host", "makespan", makespan),
                              ("Beside hogs on every core", "interference", interference)):
        record = load(folder, name)
        sections.append((title, make(record) if record else None))
    for title, text in sections:
        if text is None:
            missing.append(title)
        else:
            parts.append(f"## {title}\n\n{text}")
    if missing:
        parts.append("Not in this run: " + "; ".join(missing) + ".")
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    target = pathlib.Path(sys.argv[1])
    (target / "README.md").write_text(readme(target))
    print(f"written: {target / 'README.md'}")
