#!/usr/bin/env python3
"""KV of real text, for bench/chunks/run.sh: what a model computes of a text, as chunks of 256 tokens.

    real_kv.py MODEL_FOLDER TEXT OUT [--chunks 8]

Needs torch and transformers. Writes OUT, bfloat16 as [layer][k, v][token][kv_head][head_dim] of each
chunk, and prints its geometry as arguments of the codec table.
"""

import argparse
import pathlib

import torch
import transformers

CHUNK = 256


def main():
    parser = argparse.ArgumentParser(description="KV of real text.")
    parser.add_argument("model")
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--chunks", type=int, default=8)
    args = parser.parse_args()
    tokenizer = transformers.AutoTokenizer.from_pretrained(args.model)
    model = transformers.AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.bfloat16)
    tokens = tokenizer(args.text.read_text(), return_tensors="pt").input_ids[:, : args.chunks * CHUNK]
    if tokens.shape[1] < args.chunks * CHUNK:
        raise SystemExit(f"{args.text} has {tokens.shape[1]} tokens, fewer than {args.chunks} chunks")
    with torch.no_grad():
        cache = model(tokens, use_cache=True).past_key_values
    # [layer][k, v][head][token][dim] of one sequence.
    kv = torch.stack([torch.stack([layer.keys[0], layer.values[0]]) for layer in cache.layers])
    layers, _, heads, _, dim = kv.shape
    with args.out.open("wb") as out:
        for chunk in kv.split(CHUNK, dim=3):
            out.write(chunk.transpose(2, 3).contiguous().view(torch.int16).numpy().tobytes())
    print(f"--num-layers {layers} --kv-heads {heads} --head-dim {dim} --dtype bf16")


if __name__ == "__main__":
    main()
