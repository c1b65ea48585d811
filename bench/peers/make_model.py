#!/usr/bin/env python3
"""Writes a model folder of a given shape with random bf16 weights, so that every engine loads the same one.

    make_model.py OUT [--shape bench/models/qwen3-0.6b-shape] [--tokenizer models/saccade-tiny] [--seed 0]

The tokenizer is that of the bundled model; ids above its vocabulary are padding. Every weight is
N(0, 1 / fan_in), norms are 1: activations keep their size through the layers and logits stay finite. Which
tokens come out means nothing; how long they take does. But engines send no text, or no event, for ids without
a text of their own (padding, special tokens, parts of a UTF-8 character), so their rows of the tied embedding
are zero: a greedy answer (temperature 0) is then made of tokens that every engine shows one by one.
Needs torch and safetensors (the environment that common.sh makes, or names).
"""

import argparse
import json
import pathlib
import shutil

import torch
from model_shapes import TOKENIZER_FILES, shapes
from safetensors.torch import save_file

ROOT = pathlib.Path(__file__).resolve().parents[2]


def draw(shape, generator):
    """A norm of ones, or a matrix [out, in] of N(0, 1 / in), bf16."""
    if len(shape) == 1:
        return torch.ones(shape, dtype=torch.bfloat16)
    return (torch.randn(shape, generator=generator) * shape[1] ** -0.5).to(torch.bfloat16)


def silent_ids(tokenizer, vocab_size):
    """Ids that are not a piece of printable ASCII text."""
    # The byte-level alphabet writes printable ASCII as itself, the blank and the line feed as these two.
    plain = {chr(byte) for byte in range(0x21, 0x7F)} | {"\u0120", "\u010a"}
    vocabulary = json.loads((tokenizer / "tokenizer.json").read_text())
    special = {token["id"] for token in vocabulary["added_tokens"]}
    shown = {id for token, id in vocabulary["model"]["vocab"].items() if set(token) <= plain} - special
    return sorted(set(range(vocab_size)) - shown)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--shape", type=pathlib.Path, default=ROOT / "bench/models/qwen3-0.6b-shape")
    parser.add_argument("--tokenizer", type=pathlib.Path, default=ROOT / "models/saccade-tiny")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    config = json.loads((args.shape / "config.json").read_text())
    if config["model_type"] not in ("llama", "qwen3"):
        parser.error(f"--shape: model_type {config['model_type']!r} is not one of llama, qwen3")
    ids = json.loads((args.tokenizer / "config.json").read_text())
    if ids["vocab_size"] > config["vocab_size"]:
        parser.error(f"--tokenizer has {ids['vocab_size']} ids, the shape only {config['vocab_size']}")
    config |= {key: ids[key] for key in ("bos_token_id", "eos_token_id") if key in ids}

    args.out.mkdir(parents=True, exist_ok=True)
    generator = torch.Generator().manual_seed(args.seed)
    tensors = {name: draw(shape, generator) for name, shape in shapes(config)}
    output = "model.embed_tokens.weight" if config["tie_word_embeddings"] else "lm_head.weight"
    tensors[output][silent_ids(args.tokenizer, config["vocab_size"])] = 0
    save_file(tensors, args.out / "model.safetensors", metadata={"format": "pt"})
    (args.out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    for name in TOKENIZER_FILES:
        shutil.copy(args.tokenizer / name, args.out / name)
    parameters = sum(tensor.numel() for tensor in tensors.values())
    print(f"{args.out}: {parameters / 1e6:.0f} M parameters, seed {args.seed}")


if __name__ == "__main__":
    main()
