#!/usr/bin/env python3
"""A vocabulary without weights for llama.cpp: vocabulary_gguf.py tokenizer.json OUT.gguf PRE"""

import json
import struct
import sys

UINT32, STRING, ARRAY, INT32 = 4, 8, 9, 5


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def entry(key, kind, payload):
    return text(key) + struct.pack("<I", kind) + payload


def array(kind, items):
    return struct.pack("<IQ", kind, len(items)) + b"".join(items)


def main():
    source, target, pre = sys.argv[1:]
    with open(source, encoding="utf-8") as file:
        whole = json.load(file)
    tokens = dict(whole["model"]["vocab"])
    special = {t["content"]: t["id"] for t in whole["added_tokens"]}
    names = {i: token for token, i in (tokens | special).items()}
    ordered = [names.get(i, f"<unused{i}>") for i in range(max(names) + 1)]
    merges = [" ".join(m) if isinstance(m, list) else m for m in whole["model"]["merges"]]
    kinds = [struct.pack("<i", 3 if token in special else 1) for token in ordered]
    entries = [
        entry("general.architecture", STRING, text("llama")),
        entry("tokenizer.ggml.model", STRING, text("gpt2")),
        entry("tokenizer.ggml.pre", STRING, text(pre)),
        entry("tokenizer.ggml.tokens", ARRAY, array(STRING, [text(t) for t in ordered])),
        entry("tokenizer.ggml.token_type", ARRAY, array(INT32, kinds)),
        entry("tokenizer.ggml.merges", ARRAY, array(STRING, [text(m) for m in merges])),
        entry("tokenizer.ggml.eos_token_id", UINT32, struct.pack("<I", special["<|endoftext|>"])),
    ]
    with open(target, "wb") as file:
        file.write(b"GGUF" + struct.pack("<IQQ", 3, 0, len(entries)) + b"".join(entries))


if __name__ == "__main__":
    main()
