"""What documents say of the CPU step beside other engines, and of both beside neighbours."""
import json
import statistics

from claims import Claim
from raw import fixed, record, text
from runs import CPU

SIXTEEN_BITS = ("llama.cpp", "vllm", "openvino")
LOADS = ((1, 128), (4, 128), (8, 128), (16, 128), (1, 512), (4, 512), (1, 2048))
WORDS = ("none", "one", "two", "three", "four", "five", "six", "seven", "eight")


def lines(name):
    return [json.loads(line) for line in text(CPU, "cpu", f"{name}.jsonl").splitlines()]


def measured(server, streams, input_len, *path):
    """The median over the repeats of a cell."""
    values = []
    for cell in lines("serve"):
        if (cell["server"], cell["streams"], cell["input_len"]) == (server, streams, input_len):
            for key in path:
                cell = cell[key]
            values.append(cell)
    return statistics.median(values)


def tokens_per_s(server, streams, input_len=128):
    return measured(server, streams, input_len, "tokens_per_s")


def ttft_s(server, streams, input_len):
    return measured(server, streams, input_len, "ttft_ms", "p99") / 1e3


def over_best(streams):
    return tokens_per_s("saccade", streams) / max(tokens_per_s(other, streams) for other in SIXTEEN_BITS)


def points_led():
    """Loads at which our P99 TTFT is the lowest of the engines with 16-bit weights."""
    return sum(all(ttft_s("saccade", *load) < ttft_s(other, *load) for other in SIXTEEN_BITS) for load in LOADS)


def cells(name, server, condition):
    return [c for c in record(CPU, "cpu", name)["cells"]
            if c["server"] == server and c["condition"].startswith(condition)]


def kept(name, server, condition):
    comparisons = record(CPU, "cpu", name)["comparisons"]
    return next(c["retention_tokens"]["median"] for c in comparisons
                if c["server"] == server and c["condition"].startswith(condition))


def work_kept(name, server, condition):
    """A neighbour's work beside a server over its work beside one that computes nothing."""
    per_s = lambda of: statistics.median(c["work"]["per_s"] for c in cells(name, of, condition))
    return per_s(server) / per_s("idle")


def readme():
    yield Claim("output tokens/s are {a}, {b}, {c} and {d} times those of the best other engine at 1, 4, 8 and 16 "
                "streams of 128 tokens in and 64 out",
                {name: fixed(over_best(n)) for name, n in zip("abcd", (1, 4, 8, 16))})
    yield Claim(f"P99 TTFT is the lowest of the four at {WORDS[points_led()]} of seven points; "
                "a prompt of 2,048 tokens takes {ours} s, in OpenVINO {openvino}, in vLLM {vllm}, in llama.cpp {llama}",
                {name: fixed(ttft_s(server, 1, 2048), 1) for name, server in
                 (("ours", "saccade"), ("openvino", "openvino"), ("vllm", "vllm"), ("llama", "llama.cpp"))})
    int8 = lambda other, n: fixed(tokens_per_s("saccade-int8", n) / tokens_per_s(other, n))
    yield Claim("In 8 bits they are {o1} and {o16} times OpenVINO's at 1 and 16 streams",
                {"o1": int8("openvino-int8", 1), "o16": int8("openvino-int8", 16)})
    for name, words in (("neighbours", "at equal priority it keeps"), ("priority", "raised by 20 nice levels it keeps")):
        figures = {}
        for key, server in (("s", "saccade"), ("v", "openvino")):
            figures[key] = fixed(kept(name, server, "pbzip2"))
            figures[f"{key}n"] = fixed(work_kept(name, server, "pbzip2"))
        yield Claim(words + " {s} of its tokens/s and leaves pbzip2 {sn} of its speed, OpenVINO {v} and {vn}", figures)


README = list(readme())
