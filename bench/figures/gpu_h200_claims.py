"""What docs/gpu.md and the README say about the runs on an H200."""
import gpu
from claims import Claim
from gpu import LLAMA
from raw import fixed, record
from runs import GPU_H200 as NOW
from runs import GPU_H200_BEFORE as BEFORE
from runs import GPU_EXPERTS, GPU_NARROW

QWEN, MOE = "model-qwen3-32b", "model-qwen3-30b-a3b"
BATCHES = (1, 16, 64, 256)
PLACES = {"a": "device_graphs", "b": "while_switch", "c": "host"}


def row(label, digits, verdict, **figures):
    """A row with one figure a run; `figures`: before and now."""
    return Claim(f"| {label} | {{before}} | {{now}} | {verdict} |",
                 {name: fixed(value, digits) for name, value in figures.items()})


def pair(label, digits, verdict, figure):
    return row(label, digits, verdict, before=figure(BEFORE), now=figure(NOW))


def several(label, digits, verdict, **lists):
    """A row with several figures a run."""
    sides, figures = [], {}
    for side, values in lists.items():
        names = [f"{side}{i}" for i in range(len(values))]
        figures |= {name: fixed(value, digits) for name, value in zip(names, values)}
        sides.append(", ".join(f"{{{name}}}" for name in names) or "–")
    return Claim(f"| {label} | " + " | ".join(sides) + f" | {verdict} |", figures)


def lists(label, digits, verdict, figures):
    return several(label, digits, verdict, b=figures(BEFORE), n=figures(NOW))


def claim(label, digits, **figures):
    return Claim(label, {name: fixed(value, digits) for name, value in figures.items()})


def prefill(commit):
    return gpu.prefill(commit)["tflops"]


def narrow(model, side, weights, batch):
    """A decode step of the run about products of few rows."""
    steps = record(GPU_NARROW, "narrow", f"{model}-{side}-{weights}")["wgmma"]["decode"]
    return next(step for step in steps if step["batch"] == batch)


def narrow_bandwidth(side):
    step = narrow("llama3-8b", side, "bf16", 1)
    return step["roofline_ms"] / step["ms"]


def narrow_ratio(model, batch, one, other):
    return narrow(model, *one, batch)["ms"] / narrow(model, *other, batch)["ms"]


def experts(model, side, weights, kind, key, value):
    """A step of the run about experts and products of many rows."""
    steps = record(GPU_EXPERTS, "experts", f"{model}-{side}-{weights}")["wgmma"][kind]
    return next(step for step in steps if step[key] == value)


def experts_bandwidth(side):
    step = experts("qwen3-30b-a3b", side, "bf16", "decode", "batch", 1)
    return step["roofline_ms"] / step["ms"]


def experts_ratio(model, weights, kind, value):
    key = "batch" if kind == "decode" else "rows"
    now, before = (experts(model, side, weights, kind, key, value) for side in ("after", "before"))
    return now["ms"] / before["ms"]


def rows():
    yield pair("Llama-3-8B shape, decode at batch 1, of the memory's bandwidth | ≥ 0.80", 3, "**not met**",
               lambda c: gpu.bandwidth(c, LLAMA))
    yield row("the same, by `wgmma`, before and after [b3631e7](../bench/results/2026-11-26-h200-b3631e7-narrow/README.md) "
              "| ≥ 0.80", 3, "met", before=narrow_bandwidth("before"), now=narrow_bandwidth("after"))
    yield pair("Qwen3-32B shape, likewise | ≥ 0.80", 3, "met", lambda c: gpu.bandwidth(c, QWEN))
    yield pair("Qwen3-30B-A3B shape, likewise | ≥ 0.80", 3, "**not met**", lambda c: gpu.bandwidth(c, MOE))
    yield row("the same, before and after [dadb5bd](../bench/results/2026-11-26-h200-dadb5bd-experts/README.md) | ≥ 0.80",
              3, "**not met**", before=experts_bandwidth("before"), now=experts_bandwidth("after"))
    yield lists("PyTorch with CUDA graphs ÷ ours, decode of the Llama-3-8B shape, batch 1, 16, 64, 256 | –", 2, "",
                lambda c: [gpu.torch_over_ours(c, batch) for batch in BATCHES])
    yield Claim("| prefill of 4,096 rows of the Llama-3-8B shape, of 790 TFLOP/s | ≥ 0.60 | {b} ({bt}; PyTorch {bp}) | "
                "{n} ({nt}; PyTorch {np}) | met |",
                {"b": fixed(prefill(BEFORE) / 790), "bt": fixed(prefill(BEFORE), 0), "n": fixed(prefill(NOW) / 790),
                 "nt": fixed(prefill(NOW), 0), "bp": fixed(gpu.torch_prefill_tflops(4096, BEFORE), 0),
                 "np": fixed(gpu.torch_prefill_tflops(4096, NOW), 0)})
    yield pair("scan of 4,096 slots, µs | ≤ 5", 1, "met", lambda c: gpu.of(c, "micro")["scan_4096_slots_us"]["p50"])
    yield lists("prompt to claim, µs, (a) and (c) | ≤ 5 and the prompt's copy", 1, "**not met** by (a)",
                lambda c: [gpu.micro(c, PLACES[p], "prompt_to_claim_us") for p in "ac"])
    yield lists("token to token with null steps, µs, (a), (b), (c) | –", 1, "",
                lambda c: [gpu.micro(c, PLACES[p], "token_to_token_us") for p in "abc"])
    yield lists("tick with a null step, µs, (a), at 1, 64, 256 seats | –", 1, "",
                lambda c: [gpu.tick(c, "device_graphs", seats) for seats in (1, 64, 256)])
    yield lists("the same, (c) | –", 1, "", lambda c: [gpu.tick(c, "host", seats) for seats in (1, 64, 256)])
    (workers, engines), (workers_now, engines_now) = gpu.rotation(BEFORE), gpu.rotation(NOW)
    yield Claim("| rotation both ways at once, share of the copy engines' rate | ≥ 0.94 | {b} ({bw} of {be} GB/s) | "
                "{n} ({nw} of {ne} GB/s) | **not met** |",
                {"b": fixed(workers / engines), "bw": fixed(workers, 0), "be": fixed(engines, 0),
                 "n": fixed(workers_now / engines_now), "nw": fixed(workers_now, 0), "ne": fixed(engines_now, 0)})
    yield Claim("| decode at batch 64 while blocks move both ways by the default's blocks, × alone | – | {b} | {n} | |",
                {"b": fixed(gpu.beside_rotation(BEFORE, 2, 2)), "n": fixed(gpu.beside_rotation(NOW, 1, 4))})
    yield Claim("| makespan, scheduler on the device ÷ on the host, Qwen3-32B shape at batch 16 | ≤ 1.00 | – | {n} | "
                "**not met** |", {"n": fixed(gpu.makespan(NOW, "qwen3-32b", 16), 3)})
    yield Claim("| the same, Llama-3-8B shape at batch 64 | ≤ 1.00 | – | {n} | **not met** |",
                {"n": fixed(gpu.makespan(NOW, "llama3-8b", 64), 3)})
    for label, placement, key, digits, verdict in (
            ("tokens/s beside 16 and 64 hogs on 16 cores over those alone, 8 requests/s: device | ≥ 0.97", "device",
             "kept", 3, "met"),
            ("tokens/s, the same: host | –", "host", "kept", 3, ""),
            ("P99 TPOT beside 16 and 64 hogs, × isolation: device | –", "device", "tpot_p99_ms_ratio", 2, ""),
            ("P99 TPOT, the same: host | –", "host", "tpot_p99_ms_ratio", 2, "")):
        kept = [gpu.beside_hogs(NOW, placement, hogs, key) for hogs in (16, 64)]
        yield several(label, digits, verdict, b=[], n=kept)


def prose():
    yield Claim("the copy engines moved {b} GB/s both ways in the run before and {n} in this one",
                {"b": fixed(gpu.rotation(BEFORE)[1], 0), "n": fixed(gpu.rotation(NOW)[1], 0)})
    yield Claim("of {b} and {n} GB/s", {"b": fixed(gpu.of(BEFORE, LLAMA)["copy_bytes_per_s"] / 1e9, 0),
                                        "n": fixed(gpu.of(NOW, LLAMA)["copy_bytes_per_s"] / 1e9, 0)})
    yield Claim("P99 TPOT is {h} times that alone with the scheduler on a host thread and {d} times with it on the "
                "device", {"h": fixed(gpu.beside_hogs(NOW, "host", 64, "tpot_p99_ms_ratio"), 1),
                           "d": fixed(gpu.beside_hogs(NOW, "device", 64, "tpot_p99_ms_ratio"))})
    mma, wgmma = (gpu.steps(NOW, LLAMA, "decode", "batch", 1)[way]["ms"] for way in ("mma", "wgmma"))
    before = gpu.steps(BEFORE, LLAMA, "decode", "batch", 1)["wgmma"]["ms"]
    yield Claim("A step of one row takes {w} ms by `wgmma` ({b} before) and {m} by `mma`",
                {"w": fixed(wgmma), "b": fixed(before), "m": fixed(mma)})


def products_of_few_rows():
    before, now = ((side, "bf16") for side in ("before", "after"))
    yield claim("A step of 16 rows takes {llama} of the time of 703b4af, of 32 {more}", 2,
                llama=narrow_ratio("llama3-8b", 16, now, before), more=narrow_ratio("llama3-8b", 32, now, before))
    yield claim("Against bf16, steps of 1, 16, 32 and 64 rows take {l1}, {l16}, {l32} and {l64} of the time for the "
                "Llama-3-8B shape, and {q1}, {q16}, {q32} and {q64} for Qwen3-32B's", 2,
                **{f"{name}{rows}": narrow_ratio(model, rows, ("after", "fp8"), now)
                   for name, model in (("l", "llama3-8b"), ("q", "qwen3-32b")) for rows in (1, 16, 32, 64)})


def experts_and_many_rows():
    model = "qwen3-30b-a3b"
    yield claim("Of Qwen3-30B-A3B's shape prompts of 512, 2,048 and 4,096 rows take {p512}, {p2048} and {p4096} of the "
                "time, steps of 1, 64 and 256 rows {d1}, {d64} and {d256}", 2,
                **{f"p{rows}": experts_ratio(model, "bf16", "prefill", rows) for rows in (512, 2048, 4096)},
                **{f"d{rows}": experts_ratio(model, "bf16", "decode", rows) for rows in (1, 64, 256)})
    yield claim("Of the Llama-3-8B shape steps of 256 rows take {bf16} of the time in bf16 and {fp8} in e4m3", 2,
                **{weights: experts_ratio("llama3-8b", weights, "decode", 256) for weights in ("bf16", "fp8")})
    makespans = record(GPU_EXPERTS, "experts", "makespan")
    yield claim("At dadb5bd the quotients are {qwen} and {llama}", 3,
                qwen=gpu.makespan_of(makespans, "qwen3-32b", 16), llama=gpu.makespan_of(makespans, "llama3-8b", 64))


def readme():
    mma, wgmma = gpu.bandwidth(NOW, LLAMA, "mma"), gpu.bandwidth(NOW, LLAMA, "wgmma")
    yield claim("decodes at {mma} of the memory's bandwidth at batch 1 by `mma`, at {wgmma} by `wgmma`", 3, mma=mma,
                wgmma=wgmma)
    yield claim("Since [b3631e7](bench/results/2026-11-26-h200-b3631e7-narrow) `wgmma` reaches {now}", 3,
                now=narrow_bandwidth("after"))
    faster = [gpu.torch_over_ours(NOW, batch) for batch in (1, 4, 16, 64)]
    yield claim("the faster way of each batch is {least} to {most} times as fast as PyTorch with CUDA graphs from 1 to "
                "64, and {large} times at 256", 2, least=min(faster), most=max(faster),
                large=gpu.torch_over_ours(NOW, 256))
    yield claim("prefill of 4,096 rows reaches {ours} TFLOP/s, PyTorch {theirs}", 0, ours=prefill(NOW),
                theirs=gpu.torch_prefill_tflops(4096, NOW))
    yield claim("Beside four hogs a core on 16 cores, at 8 requests/s, P99 TPOT is {device} times that alone with the "
                "scheduler on the device, {host} times with it on a host thread", 2,
                **{side: gpu.beside_hogs(NOW, side, 64, "tpot_p99_ms_ratio") for side in ("device", "host")})
    yield claim("makespan is {qwen} times the host's for a Qwen3-32B shape at batch 16 and {llama} times for "
                "Llama-3-8B at 64", 3, qwen=gpu.makespan(NOW, "qwen3-32b", 16), llama=gpu.makespan(NOW, "llama3-8b", 64))
    workers, engines = gpu.rotation(NOW)
    yield claim("Rotation by the GPU's threads moves {workers} GB/s both ways, the copy engines {engines}", 0,
                workers=workers, engines=engines)


SETTING = Claim("One H200 (SXM, 141 GB, driver 580.159.04, 16 host cores)", {})  # not a measurement
README = list(readme())
H200 = [*rows(), *prose(), *products_of_few_rows(), *experts_and_many_rows(), SETTING]
