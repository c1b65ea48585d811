#!/usr/bin/env python3
"""The Llama-3-8B shape in PyTorch, its steps as CUDA graphs: what model_bench is compared with, in the same run.

    torch_model.py [--json FILE] [--device cuda|cpu] [--layers 32] [--context 1024] [--rows N]... [--batch N]...

Random bfloat16 weights; attention by scaled_dot_product_attention over contiguous KV; greedy sampling in
the step, as in ours. Decode at --batch rows after --context positions each, then prompts of --rows. With --device
cpu it runs without graphs, to try the program without a GPU.
Exit codes: 0 done, 2 an error (no PyTorch), 3 no GPU.
"""
import argparse
import json
import pathlib
import statistics
import sys
import time

NO_GPU = 3
HIDDEN, MLP, HEADS, KV_HEADS, HEAD_DIM, VOCAB = 4096, 14336, 32, 8, 128, 128256
EPS = 1e-5
WARM, REPEATS = 3, 20


class Model:
    """Fused projections, as an engine would have them."""

    def __init__(self, torch, layers, device):
        self.torch, self.device = torch, device
        width = (HEADS + 2 * KV_HEADS) * HEAD_DIM
        self.embed = self.weight(VOCAB, HIDDEN)
        self.head = self.weight(VOCAB, HIDDEN)
        self.norm = self.ones()
        self.layers = [
            {"in": self.ones(), "post": self.ones(), "qkv": self.weight(width, HIDDEN),
             "o": self.weight(HIDDEN, HEADS * HEAD_DIM), "gate_up": self.weight(2 * MLP, HIDDEN),
             "down": self.weight(HIDDEN, MLP)}
            for _ in range(layers)
        ]

    def weight(self, rows, columns):
        w = self.torch.empty(rows, columns, dtype=self.torch.bfloat16, device=self.device)
        return w.uniform_(-0.035, 0.035)

    def ones(self):
        return self.torch.ones(HIDDEN, dtype=self.torch.bfloat16, device=self.device)

    def cache(self, batch, length):
        shape = (2, batch, KV_HEADS, length, HEAD_DIM)
        return [self.torch.zeros(shape, dtype=self.torch.bfloat16, device=self.device) for _ in self.layers]

    def rotate(self, x, cos, sin):
        a, b = x.chunk(2, dim=-1)
        return self.torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)

    def step(self, ids, position, caches, cos, sin):
        """ids [batch][rows] at positions from `position` on; the next token of each sequence."""
        functional = self.torch.nn.functional
        batch, rows = ids.shape
        x = functional.embedding(ids, self.embed)
        for w, cache in zip(self.layers, caches):
            n = functional.rms_norm(x, (HIDDEN,), w["in"], EPS)
            qkv = functional.linear(n, w["qkv"]).view(batch, rows, HEADS + 2 * KV_HEADS, HEAD_DIM).transpose(1, 2)
            q, k, v = qkv.split((HEADS, KV_HEADS, KV_HEADS), dim=1)
            q, k = self.rotate(q, cos, sin), self.rotate(k, cos, sin)
            cache[0][:, :, position : position + rows] = k
            cache[1][:, :, position : position + rows] = v
            seen = position + rows
            out = functional.scaled_dot_product_attention(
                q, cache[0][:, :, :seen], cache[1][:, :, :seen], is_causal=rows > 1, enable_gqa=True)
            x = x + functional.linear(out.transpose(1, 2).reshape(batch, rows, HEADS * HEAD_DIM), w["o"])
            n = functional.rms_norm(x, (HIDDEN,), w["post"], EPS)
            gate, up = functional.linear(n, w["gate_up"]).chunk(2, dim=-1)
            x = x + functional.linear(functional.silu(gate) * up, w["down"])
        last = functional.rms_norm(x[:, -1], (HIDDEN,), self.norm, EPS)
        return functional.linear(last, self.head).argmax(-1)


def median_ms(torch, device, run):
    """Of REPEATS calls; on a GPU as one graph, by its events."""
    if device == "cpu":
        times = []
        for _ in range(REPEATS):
            began = time.perf_counter()
            run()
            times.append((time.perf_counter() - began) * 1e3)
        return statistics.median(times)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM):
            run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    times = []
    for _ in range(WARM + REPEATS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times[WARM:])


def measure(torch, model, device, batch, rows, position):
    if device == "cuda":
        torch.cuda.empty_cache()  # of the previous measurement: nothing can be freed while a graph is captured
    ids = torch.randint(0, VOCAB, (batch, rows), device=device)
    caches = model.cache(batch, position + rows)
    angles = torch.rand(rows, HEAD_DIM // 2, device=device)
    cos, sin = angles.cos().to(torch.bfloat16), angles.sin().to(torch.bfloat16)
    return median_ms(torch, device, lambda: model.step(ids, position, caches, cos, sin))


def prefill_of(torch, model, args, rows):
    ms = measure(torch, model, args.device, 1, rows, 0)
    per_layer = HIDDEN * (HEADS + 2 * KV_HEADS) * HEAD_DIM + HEADS * HEAD_DIM * HIDDEN + 3 * HIDDEN * MLP
    # As model_bench counts: products, one row of logits, no attention.
    flops = 2 * (rows * args.layers * per_layer + HIDDEN * VOCAB)
    return {"rows": rows, "ms": ms, "tflops": flops / ms * 1e-9}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--rows", type=int, action="append", help="[128 512 1024 4096]")
    parser.add_argument("--batch", type=int, action="append", help="[1 4 16 64 128 256]")
    args = parser.parse_args()
    try:
        import torch
    except ImportError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if args.device == "cuda" and not torch.cuda.is_available():
        print("no GPU: torch.cuda.is_available() is false")
        return NO_GPU
    with torch.inference_mode():
        model = Model(torch, args.layers, args.device)
        decode = [{"batch": batch, "ms": measure(torch, model, args.device, batch, 1, args.context - 1)}
                  for batch in args.batch or [1, 4, 16, 64, 128, 256]]
        prefill = [prefill_of(torch, model, args, rows) for rows in args.rows or [128, 512, 1024, 4096]]
    result = {"torch": torch.__version__, "device": args.device, "layers": args.layers, "context": args.context,
              "decode": decode, "prefill": prefill}
    text = json.dumps(result, indent=1) + "\n"
    print(text, end="")
    if args.json:
        pathlib.Path(args.json).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
