"""What documents say about the runs on a GPU."""
import gpu
from claims import Claim, Document
from gpu import FIRST, LATER, LLAMA, NOW, TICK, named
from gpu_h200_claims import H200
from raw import fixed, text
from runs import GPU_H200

QWEN, MOE = "model-qwen3-32b", "model-qwen3-30b-a3b"


def both(digits, first, now):
    return {"first": fixed(first, digits), "now": fixed(now, digits)}


def compared(label, digits, figure, ending):
    """A row of the table of targets with one figure before and one now."""
    return Claim(f"| {label} | {{first}} | {{now}} | {ending}", both(digits, figure(FIRST), figure(NOW)))


def several(text, digits, **figures):
    return Claim(text, {name: fixed(value, digits) for name, value in figures.items()})


def over_torch():
    figures = {f"{when}{batch}": gpu.torch_over_ours(commit, batch)
               for when, commit in (("f", FIRST), ("n", NOW)) for batch in (1, 16, 64, 256)}
    return several("÷ ours, batch 1, 16, 64, 256 | – | {f1}, {f16}, {f64}, {f256} | {n1}, {n16}, {n64}, {n256} |",
                   2, **figures)


def prefill_row():
    first, now = gpu.prefill(FIRST)["tflops"], gpu.prefill(NOW)["tflops"]
    return Claim("prefill of 4,096 rows, of 790 TFLOP/s | ≥ 0.60 | {first} ({ft}) | {now} ({nt}; PyTorch {torch}) |",
                 both(2, first / 790, now / 790) | named(0, ft=first, nt=now, torch=gpu.torch_prefill_tflops(4096)))


def checks_passed():
    """Lines of the two test programs."""
    passed = lambda name: sum(line.startswith("ok ") for line in text(GPU_H200, "gpu", name).splitlines())
    return Claim("{tests} checks of `gpu_test`, {models} of `model_gpu_test`",
                 named(0, tests=passed("tests.txt"), models=passed("model-tests.txt")))


def rotation_row():
    (workers, engines), (workers_now, engines_now) = gpu.rotation(FIRST), gpu.rotation(NOW)
    return Claim("of the copy engines | ≥ 0.94 | {first} ({fw} of {fe} GB/s) | {now} ({nw} of {ne} GB/s) |",
                 both(2, workers / engines, workers_now / engines_now)
                 | named(0, fw=workers, fe=engines, nw=workers_now, ne=engines_now))


def beside_rotation_row():
    return several("| decode at batch 64 while blocks move both ways, × alone: 2 blocks a direction, 8 | – | {f2}, "
                   "{f8} | {n2}, {n8} |", 2,
                   **{f"{when}{blocks}": gpu.beside_rotation(commit, blocks, blocks)
                      for when, commit in (("f", FIRST), ("n", NOW)) for blocks in (2, 8)})


def latencies():
    claim, token = "prompt_to_claim_us", "token_to_token_us"
    ways = {"a": "device_graphs", "b": "while_switch", "c": "host"}
    at = lambda when, commit, gap, of: {f"{when}{w}": gpu.micro(commit, ways[w], gap) for w in of}
    yield several("| scan of 4,096 slots | ≤ 5 µs | {first} µs | {now} µs | met |", 1,
                  first=gpu.of(FIRST, "micro")["scan_4096_slots_us"]["p50"],
                  now=gpu.of(NOW, "micro")["scan_4096_slots_us"]["p50"])
    yield several("| ≤ 5 µs and the prompt's copy | {fa}, {fc} µs | {la}, {lc} µs * |", 1,
                  **at("f", FIRST, claim, "ac"), **at("l", LATER, claim, "ac"))
    yield several("| token to token with null steps, (a), (b), (c) | – | {fa}, {fb}, {fc} µs | {la}, {lb}, {lc} µs "
                  "* |", 1,
                  **at("f", FIRST, token, "abc"), **at("l", LATER, token, "abc"))
    ticks = lambda way: {f"t{seats}": gpu.tick(LATER, way, seats) for seats in (1, 64, 256)}
    yield several("| tick with a null step, (a), at 1, 64, 256 seats | – | – | {t1}, {t64}, {t256} µs * |", 1,
                  **ticks("device_graphs"))
    yield several("| the same, (c) | – | – | {t1}, {t64}, {t256} µs * |", 1, **ticks("host"))


def hogs_rows():
    for text, placement, key, digits in (
            ("| tokens/s beside 16 and 64 hogs on 16 cores over those alone, of 8 requests/s, arrivals and drain: "
             "device | "
             "≥ 0.97 | {first}, – | {n16}, {n64} * |", "device", "kept", 3),
            ("| the same: host | – | {first}, – | {n16}, {n64} * | | the same |\n| P99 TPOT", "host", "kept", 3),
            ("beside them, × isolation: device | – | {first}, – | {n16}, {n64} * |", "device", "tpot_p99_ms_ratio", 2),
            ("| the same: host | – | {first}, – | {n16}, {n64} * | | the same |\n\nWhat these figures say", "host",
             "tpot_p99_ms_ratio", 2)):
        yield Claim(text, {"first": fixed(gpu.beside_hogs(FIRST, placement, 16, key)),
                           "n16": fixed(gpu.beside_hogs(LATER, placement, 16, key), digits),
                           "n64": fixed(gpu.beside_hogs(LATER, placement, 64, key), digits)})


def prose():
    yield Claim("P99 TPOT of the scheduler on a host thread is {h} times that alone; of the scheduler on the device, "
                "{d} times. All requests were answered in both", {
                    "h": fixed(gpu.beside_hogs(LATER, "host", 64, "tpot_p99_ms_ratio"), 1),
                    "d": fixed(gpu.beside_hogs(LATER, "device", 64, "tpot_p99_ms_ratio"))})
    yield several("the load client, which shared the cores ({d} and {h} times)", 2,
                  d=gpu.beside_hogs(LATER, "device", 64, "ttft_p99_ms_ratio"),
                  h=gpu.beside_hogs(LATER, "host", 64, "ttft_p99_ms_ratio"))
    access = gpu.of(NOW, "micro")["access_ns"]
    yield Claim("A tick first cost {t64} ms at 64 seats and {t256} ms at 256", {
        "t64": fixed(gpu.tick(TICK, "device_graphs", 64) / 1e3), "t256": fixed(gpu.tick(TICK, "device_graphs",
                                                                                        256) / 1e3, 1)})
    yield Claim("host memory is a trip of {load} µs, each fence {fence} µs, each word of device memory {device} µs",
                {"load": fixed(access["host_load"] / 1e3, 1), "fence": fixed(access["system_fence"] / 1e3, 1),
                 "device": fixed(access["device_load"] / 1e3)})
    yield several("takes the general way: {t64} ms at 64 seats, {t256} ms at 256 (P99 of those rows)", 2,
                  t64=gpu.tick(LATER, "device_graphs", 64, "p99") / 1e3,
                  t256=gpu.tick(LATER, "device_graphs", 256, "p99") / 1e3)
    yield Claim("Llama-3-8B's steps of 9 ms at batch 64 still pay {loss} %",
                {"loss": fixed((gpu.makespan(LATER, "llama3-8b", 64) - 1) * 100, 1)})
    mma, wgmma = gpu.prefill(NOW, "mma"), gpu.prefill(NOW, "wgmma")
    yield Claim("are {times} times as fast as by `mma` in prefill of 4,096 rows, and faster from batch 16 on in decode",
                {"times": fixed(mma["ms"] / wgmma["ms"], 1)})
    yield Claim("at batches 1 and 4 they are {slower} % slower: {share} of the bandwidth at batch 1", {
        "slower": fixed((gpu.steps(NOW, LLAMA, "decode", "batch", 1)["wgmma"]["ms"]
                         / gpu.steps(NOW, LLAMA, "decode", "batch", 1)["mma"]["ms"] - 1) * 100, 0),
        "share": fixed(gpu.bandwidth(NOW, LLAMA, "wgmma"))})
    workers, engines = gpu.rotation(NOW)
    yield several("Copies by the GPU's threads reach {share} of the copy engines' duplex rate", 2,
                  share=workers / engines)


def targets():
    yield compared("Llama-3-8B shape, decode at batch 1, of the bandwidth of the GPU's memory | ≥ 0.80", 3,
                   lambda c: gpu.bandwidth(c, LLAMA), "**not met** |")
    yield compared("Qwen3-32B shape, the same | ≥ 0.80", 3, lambda c: gpu.bandwidth(c, QWEN), "met |")
    yield compared("Qwen3-30B-A3B shape, the same | ≥ 0.80", 3, lambda c: gpu.bandwidth(c, MOE), "**not met** |")
    yield over_torch()
    yield prefill_row()
    yield from latencies()
    yield rotation_row()
    yield beside_rotation_row()
    yield Claim("Qwen3-32B shape at batch 16 | ≤ 1.00 | {first} | {now} * | met |",
                both(3, gpu.makespan(FIRST, "qwen3-32b", 16), gpu.makespan(LATER, "qwen3-32b", 16)))
    yield several("| the same, Llama-3-8B shape at batch 64 | ≤ 1.00 | – | {now} * | **not met** |", 3,
                  now=gpu.makespan(LATER, "llama3-8b", 64))
    yield from hogs_rows()


def elsewhere():
    """Outside the section of targets."""
    access = gpu.of(NOW, "micro")["access_ns"]
    yield Claim("a load from host memory takes {load} µs, a system fence {fence} µs whether anything is pending or "
                "not, a "
                "load past the first cache {device} µs, and one from shared memory {shared} µs",
                {"load": fixed(access["host_load"] / 1e3, 1), "fence": fixed(access["system_fence"] / 1e3, 1),
                 "device": fixed(access["device_load"] / 1e3), "shared": fixed(access["shared_load"] / 1e3, 3)})
    yield Claim("beside the step, every 20 µs", {})
    models = gpu.of(NOW, "logprobs")["models"]
    yield Claim("served models give the CPU device's logprobs within {bound}",
                {"bound": fixed(max(m["bound"] for m in models))})
    yield Claim("shown: at most {cpu} and {others} (`bench/gpu/logprobs.py`", {
        "cpu": fixed(max(max(m["whole"], m["drawn"]) for m in models)),
        "others": fixed(max(m["hugging_face"] for m in models if m["hugging_face"] is not None))})


def products_adr():
    mma, wgmma = gpu.prefill(NOW, "mma"), gpu.prefill(NOW, "wgmma")
    one = gpu.steps(NOW, LLAMA, "decode", "batch", 1)
    yield several("prefill of 4,096 rows of Llama-3-8B {wgmma} TFLOP/s by wgmma, {mma} by mma", 0,
                  wgmma=wgmma["tflops"],
                  mma=mma["tflops"])
    yield several("(one row: {wgmma} ms, by mma {mma})", 2, wgmma=one["wgmma"]["ms"], mma=one["mma"]["ms"])


def launching_adr():
    token = {way: gpu.micro(LATER, name, "token_to_token_us")
             for way, name in (("a", "device_graphs"), ("b", "while_switch"), ("c", "host"))}
    yield several("On an H100 (a) takes {a} µs from token to token with null steps, (b) {b} and (c) {c}", 0, **token)


def settings():
    """Numbers of the section that are not measurements."""
    yield Claim("On one H100 (SXM, 80 GB, driver 580.159.04, 16 host cores)", {})
    yield Claim("at 6d1e2cc;", {})
    yield Claim("the multiprocessor that the scheduler holds while it waits: 0.76 %", {})  # one of 132
    yield Claim("a scan is the mean of 64", {})
    yield checks_passed()


def account_rows():
    """The account's table of whole steps, by wgmma."""
    def step(kind, key, value):
        return [gpu.steps(commit, LLAMA, kind, key, value) for commit in (FIRST, NOW)]

    for batch in (1, 4, 16, 64, 128, 256):
        before, after = step("decode", "batch", batch)
        of_mma = " (mma {bm})", " (mma {am})"
        with_mma = batch in (1, 4)
        figures = {"b": before["wgmma"]["ms"], "a": after["wgmma"]["ms"], "r": after["wgmma"]["roofline_ms"]}
        if with_mma:
            figures |= {"bm": before["mma"]["ms"], "am": after["mma"]["ms"]}
        yield several(f"| decode, {batch} row{'s' if batch > 1 else ''} | {{b}}{of_mma[0] if with_mma else ''} | "
                      f"{{a}}{of_mma[1] if with_mma else ''} | {{r}} |", 2, **figures)
    for rows in (128, 512, 1024, 4096):
        before, after = (found["wgmma"] for found in step("prefill", "rows", rows))
        goal = "| 120.4 (475) |" if rows == 4096 else "| |"
        yield Claim(f"| prefill, {rows} rows | {{b}} ({{bt}}{' TFLOP/s' if rows == 128 else ''}) | {{a}} ({{at}}) "
                    f"{goal}",
                    named(2, b=before["ms"], a=after["ms"]) | named(0, bt=before["tflops"], at=after["tflops"]))


GPU = Document("docs/gpu.md", [*H200, *targets(), *prose(), *elsewhere(), *settings()],
               ("### On an H200", "### On an H100"))
ACCOUNT = Document("docs/gpu-account.md", list(account_rows()), ("### Whole steps",))
PRODUCTS = Document("docs/adr/0012-products-on-a-gpu.md", list(products_adr()))
LAUNCHING = Document("docs/adr/0008-launching-steps.md", list(launching_adr()))
