"""What documents say about the parts, measured separately."""
import json
import re
import sys

from claims import ROOT, Claim
from raw import fixed, folder, record, text
from runs import PARTS as COMMIT

sys.path.insert(0, str(ROOT / "bench"))
import parts_table  # noqa: E402

ABOUT = "parts"


def ring(bench, **named):
    """The line of ring_bench with these settings."""
    lines = map(json.loads, text(COMMIT, ABOUT, "ring.jsonl").splitlines())
    return next(line for line in lines if line["bench"] == bench and named.items() <= line.items())


def latency(device, percentile):
    return ring("latency", device=device)[percentile]


def frontend(streams):
    return record(COMMIT, ABOUT, f"frontend-{streams}")["runs"][0]["summary"]


def product(rows, k, n, library):
    """(GFLOP/s, GB/s of weights)."""
    return parts_table.products_of(folder(COMMIT, ABOUT) / "products.txt")[rows, k, n][library]


def product_row(rows, k, n):
    """A row of ADR 6; at one row and sixteen also the weights read."""
    ours, theirs = product(rows, k, n, OURS), product(rows, k, n, "onednn")
    figures = {"ours": fixed(ours[0], 0), "theirs": fixed(theirs[0], 0)}
    weights = " |"
    if rows <= 16:
        figures |= {"read": fixed(ours[1], 1), "theirs_read": fixed(theirs[1], 1)}
        weights = " {read} / {theirs_read} |"
    return Claim(f"| {rows} | {k} × {n} | {{ours}} | {{theirs}} |{weights}", figures)


OURS = "avx512_bf16"  # the kernel set that this machine takes


def copies(label):
    return float(re.search(rf"{re.escape(label)}\s+([\d.]+)", text(COMMIT, ABOUT, "copies.txt"))[1])


def perplexity_row(name):
    row = next(r for r in record(COMMIT, ABOUT, "perplexity") if r["name"] == name)
    gaps = {key: fixed(row[f"{key}_gap_nats"], 3) for key in ("mean", "p99", "max")}
    if name == "float32":
        return Claim(f"| {name} | {{ppl}} | | | |", {"ppl": fixed(row["perplexity"], 3)})
    return Claim(f"| {name} | {{ppl}} | {{mean}} | {{p99}} | {{max}} |", {"ppl": fixed(row["perplexity"], 3)} | gaps)


def plan(name, what):
    return record(COMMIT, ABOUT, f"plan-{name}")["rows"][0][what]["mean"] * 1e3


def faults():
    """Worlds, ticks, seconds of CPU."""
    said = text(COMMIT, ABOUT, "faults.txt")
    worlds, ticks = re.search(r"(\d+) worlds, (\d+) ticks", said).groups()
    minutes, seconds = re.search(r"user\s+(\d+)m([\d.]+)s", said).groups()
    return int(worlds), int(ticks), int(minutes) * 60 + float(seconds)


def whole(value):
    return fixed(value, 0)


README = [
    Claim("with a step that only writes tokens, {spin} µs at P50 while the device spins, and {asleep} µs at P50 and "
          "{late} µs "
          "at P99 once it has gone to sleep, which it does after 20 µs without work",
          {"spin": fixed(latency("spinning", "p50"), 1), "asleep": whole(latency("sleeping", "p50")),
           "late": whole(latency("sleeping", "p99"))}),
    Claim("The frontend serves {rps} requests/s and {tokens} streamed tokens/s at 256 streams against such a device", {
        "rps": whole(frontend(256)["achieved_rps"]), "tokens": whole(frontend(256)["achieved_tokens_per_s"])}),
]
ADR_PRODUCTS = [
    Claim("oneDNN 2.6.3 (Debian 12)", {}), Claim("a 2-core virtual machine", {}),
    *(product_row(rows, k, n) for rows in (1, 16, 128, 512) for k, n in ((1024, 4096), (3072, 1024))),
]
ADR_INT8 = [
    Claim("{tokens} tokens of a text that it has not seen", {
        "tokens": whole(record(COMMIT, ABOUT, "perplexity")[0]["tokens"])}),
    *map(perplexity_row, ("float32", "bfloat16", "bfloat16, int8 weights")),
]
ROTATION = [
    Claim("the engine moves blocks both ways at {ratio} times the rate of plain memcpy by two threads ({rate} "
          "GB/s), at "
          "{segments} times that of layer-first segments both ways, and {one_way} times that of those one way after "
          "the other; "
          "a decode step takes {busy} times its time alone while both directions are busy, {background} with one "
          "background "
          "copy", {"ratio": fixed(copies("engine / memcpy")), "rate": fixed(copies("memcpy, two threads"), 1),
                   "segments": fixed(copies("engine / segments")), "one_way": fixed(copies("engine / segments, one "
                                                                                           "way")),
                   "busy": fixed(copies("both directions busy")), "background": fixed(copies("one background copy"))}),
]
PLAN = [
    Claim("1,024 in, 512 out: mean time per token (Blink, table 1) | 13.0 ms | {host} ms with `--scheduler host`; "
          "{device} ms "
          "with `device` |", {"host": fixed(plan("llama-host", "tpot"), 1), "device": fixed(plan("llama-device",
                                                                                                 "tpot"), 1)}),
    Claim("(its own figure; its lengths and batch are not known) | 69.8 ms | {gap} ms mean gap between tokens at 15 "
          "requests/s |",
          {"gap": whole(plan("qwen", "tbt"))}),
    Claim("simulates 1,000 seeds, {worlds} worlds and {ticks} ticks, clean, in {seconds} s of CPU time",
          dict(zip(("worlds", "ticks", "seconds"), map(whole, faults())))),
]
