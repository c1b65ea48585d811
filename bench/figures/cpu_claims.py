"""What documents say about the CPU step compared with other engines, and about both with neighbours."""
import json
import statistics

from claims import Claim
from raw import fixed, record, text
from runs import CPU, CPU_NEIGHBOURS, CPU_NICE


def lines(name):
    return [json.loads(line) for line in text(CPU, "cpu", f"{name}.jsonl").splitlines()]


def cell(server, streams, input_len):
    return next(c for c in lines("serve") if (c["server"], c["streams"], c["input_len"]) == (server, streams,
                                                                                             input_len))


def over_openvino(streams):
    return cell("saccade", streams, 128)["tokens_per_s"] / cell("openvino", streams, 128)["tokens_per_s"]


def ttft_p99(server, streams, input_len):
    return cell(server, streams, input_len)["ttft_ms"]["p99"]


def points_led():
    """(points at which our P99 TTFT is the lowest of the engines with 16-bit weights, points)."""
    loads = sorted({(c["streams"], c["input_len"]) for c in lines("serve")})
    others = {c["server"] for c in lines("serve")} - {"saccade", "saccade-int8"}
    led = sum(all(ttft_p99("saccade", *load) < ttft_p99(other, *load) for other in others) for load in loads)
    return led, len(loads)


def of_bandwidth():
    """One stream's rate of steps over the rate that reading the weights allows."""
    read_gb_per_s = statistics.median(line["read_gb_per_s"] for line in lines("limits"))
    limit = read_gb_per_s * 1e9 / lines("models")[0]["step_bytes"]
    return 1e3 / cell("saccade", 1, 128)["tpot_ms"]["p50"] / limit


def kept(commit, about, name, server, condition):
    comparisons = record(commit, about, name)["comparisons"]
    return next(c["retention_tokens"]["median"] for c in comparisons
                if c["server"] == server and c["condition"].startswith(condition))


def beside(server, name="neighbours"):
    return [kept(CPU_NEIGHBOURS, "cpu", name, server, condition) for condition in ("pbzip2", "compile")]


def pbzip2_mb_per_s():
    cells = record(CPU_NEIGHBOURS, "cpu", "priority")["cells"]
    return next(c["work"]["per_s"] for c in cells if c["condition"].startswith("pbzip2")) / 1e6


WORDS = ("none", "one", "two", "three", "four", "five", "six", "seven", "eight")


def readme():
    led, points = points_led()
    yield Claim(f"P99 TTFT is the lowest of ours, llama.cpp, vLLM and OpenVINO at {WORDS[led]} of {WORDS[points]} "
                f"points; "
                "OpenVINO's is lower at 4 streams of 512 tokens ({theirs} against {ours} ms) and vLLM's at one of "
                "2,048 "
                "({vllm} against {long} ms)", {
                    "theirs": fixed(ttft_p99("openvino", 4, 512), 0), "ours": fixed(ttft_p99("saccade", 4, 512), 0),
                    "vllm": fixed(ttft_p99("vllm", 1, 2048), 0), "long": fixed(ttft_p99("saccade", 1, 2048), 0)})
    yield Claim("Output tokens/s are {most} times OpenVINO's at 16 streams, {eight} times at 8",
                {"most": fixed(over_openvino(16)), "eight": fixed(over_openvino(8))})
    yield Claim("Decode at one stream reaches {share} of the memory bandwidth", {"share": fixed(of_bandwidth())})
    ours, openvino, (vllm, _) = beside("saccade"), beside("openvino"), beside("vllm")
    yield Claim("it keeps {o0} and {o1} of its tokens/s, OpenVINO {v0} and {v1}, vLLM {l0}", {
        "o0": fixed(ours[0]), "o1": fixed(ours[1]), "v0": fixed(openvino[0]), "v1": fixed(openvino[1]),
        "l0": fixed(vllm)})
    yield Claim("A model of 5 M parameters keeps less, {ours} beside pbzip2 where llama.cpp keeps {theirs}", {
        server: fixed(kept(CPU_NICE, "nice", "nice", name, "pbzip2"))
        for server, name in (("ours", "saccade"), ("theirs", "llama.cpp"))})
    raised = beside("saccade", "priority")
    yield Claim("it keeps {r0} and {r1}, at the neighbours' expense: pbzip2 is left {mb} MB/s", {
        "r0": fixed(raised[0]), "r1": fixed(raised[1]), "mb": fixed(pbzip2_mb_per_s())})


README = list(readme())
