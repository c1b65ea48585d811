"""What documents say of the CPU step beside other engines, and of both beside neighbours."""
import json
import statistics

from claims import Claim
from raw import fixed, record, text
from runs import CPU, CPU_AMX, CPU_NEIGHBOURS, CPU_RAISED

SIXTEEN_BITS = ("llama.cpp", "vllm", "openvino")
WORDS = ("none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def servers(engine):
    """As it comes, and with huge pages for its malloc, where a run has that."""
    return engine, f"{engine}-huge"


class Run:
    """What one run of `bench/cpu.sh serve` measured."""

    def __init__(self, commit):
        self.commit = commit
        self.cells = [json.loads(line) for line in text(commit, "cpu", "serve.jsonl").splitlines()]

    def measured(self, server, streams, input_len, *path):
        """The median over the repeats of a cell; None for an engine that was not measured there."""
        values = []
        for cell in self.cells:
            if (cell["server"], cell["streams"], cell["input_len"]) == (server, streams, input_len):
                for key in path:
                    cell = cell[key]
                values.append(cell)
        return statistics.median(values) if values else None

    def tokens_per_s(self, server, streams, input_len=128):
        return self.measured(server, streams, input_len, "tokens_per_s")

    def least(self, engine, streams, input_len, *path):
        """The lesser of an engine's figures with huge pages for its malloc and without."""
        both = [self.measured(server, streams, input_len, *path) for server in servers(engine)]
        return min((value for value in both if value is not None), default=None)

    def ttft_s(self, engine, streams, input_len):
        ms = self.least(engine, streams, input_len, "ttft_ms", "p99")
        return None if ms is None else ms / 1e3

    def over_best(self, streams, ours="saccade"):
        """Our output tokens/s over those of the best other engine with 16-bit weights."""
        others = [self.tokens_per_s(server, streams) for engine in SIXTEEN_BITS for server in servers(engine)]
        return self.tokens_per_s(ours, streams) / max(other for other in others if other is not None)

    def points(self):
        return sorted({(cell["streams"], cell["input_len"]) for cell in self.cells if cell["server"] == "saccade"})

    def leads(self, streams, input_len):
        """Whether our P99 TTFT is the lowest of the engines with 16-bit weights."""
        others = [self.ttft_s(other, streams, input_len) for other in SIXTEEN_BITS]
        return all(self.ttft_s("saccade", streams, input_len) < other for other in others if other is not None)

    def points_led(self):
        points = self.points()
        return f"{WORDS[sum(self.leads(*point) for point in points)]} of {WORDS[len(points)]} points"

    def at_streams(self):
        return {name: fixed(self.over_best(n)) for name, n in zip("abcd", (1, 4, 8, 16))}

    def prompt_s(self, input_len):
        """P99 TTFT of one prompt, by engine."""
        return {name: fixed(self.ttft_s(server, 1, input_len), 1) for name, server in
                (("ours", "saccade"), ("openvino", "openvino"), ("vllm", "vllm"), ("llama", "llama.cpp"))
                if self.ttft_s(server, 1, input_len) is not None}

    def most_streams(self):
        """P99 TPOT and TTFT at 16 streams by both ways to give prompts room, and our tokens/s by the other one."""
        tpot = lambda engine: fixed(self.least(engine, 16, 128, "tpot_ms", "p99"), 0)
        ttft = lambda server: fixed(self.ttft_s(server, 16, 128), 1)
        return {"tpot": tpot("saccade"), "their_tpot": tpot("openvino"), "ttft": ttft("saccade"),
                "their_ttft": ttft("vllm"), "chunked_tpot": tpot("saccade-chunked"),
                "chunked_ttft": ttft("saccade-chunked"), "chunked": fixed(self.over_best(16, "saccade-chunked"))}

    def of_roof(self):
        """One stream's steps/s over what reading the weights allows, by its own process right afterwards."""
        roofs = [json.loads(line) for line in text(self.commit, "cpu", "roofs.jsonl").splitlines()]
        allowed = [r["read_bytes_per_second"] / r["step_weight_bytes"] for r in roofs
                   if (r["server"], r["streams"], r["input_len"]) == ("saccade", 1, 128)]
        return {"share": fixed(1e3 / self.measured("saccade", 1, 128, "tpot_ms", "p50") / statistics.median(allowed))}

    def int8(self):
        """Output tokens/s of 8-bit weights over OpenVINO's."""
        over = lambda n: self.tokens_per_s("saccade-int8", n) / self.tokens_per_s("openvino-int8", n)
        return {"o1": fixed(over(1)), "o16": fixed(over(16))}


BESIDE = {"neighbours": CPU_NEIGHBOURS, "priority": CPU_RAISED}  # the run of each part


def cells(name, server, condition):
    return [c for c in record(BESIDE[name], "cpu", name)["cells"]
            if c["server"] == server and c["condition"].startswith(condition)]


def kept(name, server, condition):
    comparisons = record(BESIDE[name], "cpu", name)["comparisons"]
    return next(c["retention_tokens"]["median"] for c in comparisons
                if c["server"] == server and c["condition"].startswith(condition))


def work_kept(name, server, condition):
    """A neighbour's work beside a server over its work beside one that computes nothing."""
    per_s = lambda of: statistics.median(c["work"]["per_s"] for c in cells(name, of, condition))
    return per_s(server) / per_s("idle")


def readme():
    run, amx = Run(CPU), Run(CPU_AMX)
    yield Claim("output tokens/s are {a}, {b}, {c} and {d} times those of the best other engine at 1, 4, 8 and 16 "
                "streams of 128 tokens in and 64 out", run.at_streams())
    yield Claim("one stream decodes at {share} of what reading its weights allows", run.of_roof())
    yield Claim(f"P99 TTFT is the lowest of the four at {run.points_led()}; "
                "a prompt of 2,048 tokens takes {ours} s, in OpenVINO {openvino}, in vLLM {vllm}, in llama.cpp {llama}",
                run.prompt_s(2048))
    yield Claim("one of 8,192 takes {ours} s, in OpenVINO {openvino}, in vLLM {vllm}", run.prompt_s(8192))
    yield Claim("At 16 streams P99 TPOT is {tpot} ms, in OpenVINO {their_tpot}, and P99 TTFT {ttft} s, in vLLM "
                "{their_ttft}; with `--prefill-policy chunked` they are {chunked_tpot} ms and {chunked_ttft} s, and output "
                "tokens/s {chunked} times those of the best other engine", run.most_streams())
    yield Claim("In 8 bits they are {o1} and {o16} times OpenVINO's at 1 and 16 streams", run.int8())
    # Of this run only what no prefix cache had a part in (about.md).
    yield Claim("output tokens/s at one stream of 128 tokens in and 64 out are {best} times those of the best other engine",
                {"best": fixed(amx.over_best(1))})
    yield Claim("P99 TTFT there is {ours} ms, in vLLM {vllm}, in OpenVINO {openvino}",
                {name: fixed(1e3 * amx.ttft_s(server, 1, 128), 0) for name, server in
                 (("ours", "saccade"), ("vllm", "vllm"), ("openvino", "openvino"))})
    yield Claim("A prompt of 4,096 tokens takes {ours} s, in vLLM {vllm}, in OpenVINO {openvino}", amx.prompt_s(4096))
    for name, words in (("neighbours", "at equal priority it keeps"), ("priority", "raised by 20 nice levels it keeps")):
        figures = {}
        for key, server in (("s", "saccade"), ("v", "openvino")):
            figures[key] = fixed(kept(name, server, "pbzip2"))
            figures[f"{key}n"] = fixed(work_kept(name, server, "pbzip2"))
        yield Claim(words + " {s} of its tokens/s and leaves pbzip2 {sn} of its speed, OpenVINO {v} and {vn}", figures)


README = list(readme())
