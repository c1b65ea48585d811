"""Writes a model folder as a person would download it: config.json of either generation, weights in
one file or in shards, tokenizer, chat template."""

import json
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

import fp8
from cases import BOS_ID, EOS_ID, PAD_ID, SECOND_EOS_ID, Case, full_config
from weights import fill

V4_VERSION = "4.46.3"
# Families by the `model_type` of their files.
CLASSES = {
    "llama": "Llama",
    "mistral": "Mistral",
    "qwen2": "Qwen2",
    "qwen3": "Qwen3",
    "phi3": "Phi3",
    "mixtral": "Mixtral",
    "qwen3_moe": "Qwen3Moe",
}
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}[{{ message['role'] }}] {{ message['content'] }}\n"
    "{% endfor %}{% if add_generation_prompt %}[assistant] {% endif %}"
)


def write(case: Case, seed: int, folder: Path) -> None:
    """Makes the model of `case` from `seed` and writes its folder, replacing what is there."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    model = make_model(case, seed)
    model.save_pretrained(folder, max_shard_size=case.max_shard_size)
    if case.fp8 is not None:
        fp8.convert(folder, case.fp8, getattr(torch, case.fp8_scale_dtype))
    config = json.loads((folder / "config.json").read_text())
    if case.style == "v4":
        config = to_v4(config, case)
    for key in case.drop_keys:
        config.pop(key, None)
    dump(folder / "config.json", config)
    write_tokenizer(folder, full_config(case)["vocab_size"], case.template_file)
    for path in folder.iterdir():
        path.chmod(0o644)


def make_model(case: Case, seed: int) -> transformers.PreTrainedModel:
    """The model in memory, its parameters in the element type of the case."""
    prefix = CLASSES[case.family]
    config = getattr(transformers, prefix + "Config")(**full_config(case))
    model = getattr(transformers, prefix + "ForCausalLM")(config)
    silenced = {EOS_ID, SECOND_EOS_ID}
    fill(model, seed, case.embed_std, case.logit_std, case.planted, silenced)
    return model.to(getattr(torch, case.dtype))


def to_v4(config: dict[str, Any], case: Case) -> dict[str, Any]:
    """Turns a config.json of transformers v5 into what v4 wrote for the same model."""
    config = dict(config)
    rope = dict(config.pop("rope_parameters"))
    config["rope_theta"] = rope.pop("rope_theta")
    rope_type = rope.pop("rope_type")
    if case.family == "phi3":
        # Outside the dictionary, which holds only the type and its lists.
        config["partial_rotary_factor"] = rope.pop("partial_rotary_factor")
        rope.pop("original_max_position_embeddings", None)
    is_default = rope_type == "default"
    config["rope_scaling"] = None if is_default else {case.v4_rope_key: rope_type, **rope}
    config["torch_dtype"] = config.pop("dtype")
    config["transformers_version"] = V4_VERSION
    config.pop("layer_types", None)
    if case.family == "qwen3_moe" and "num_local_experts" in config:
        config["num_experts"] = config.pop("num_local_experts")
    return dict(sorted(config.items()))


def write_tokenizer(folder: Path, vocab_size: int, template_file: bool) -> None:
    """A byte-level tokenizer: id b is byte b; then three special tokens and fillers."""
    vocab = {char: byte for byte, char in enumerate(byte_alphabet())}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = {BOS_ID: "<|bos|>", EOS_ID: "<|eos|>", PAD_ID: "<|pad|>"}
    tokenizer.add_special_tokens([AddedToken(special[i], special=True) for i in sorted(special)])
    tokenizer.add_tokens([f"<|{i}|>" for i in range(256 + len(special), vocab_size)])
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    config = {
        "bos_token": special[BOS_ID],
        "eos_token": special[EOS_ID],
        "pad_token": {"content": special[PAD_ID], "special": True},
        "model_max_length": 1000000,
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    if template_file:
        (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE)
    else:
        config["chat_template"] = CHAT_TEMPLATE
    dump(folder / "tokenizer_config.json", config)


def byte_alphabet() -> list[str]:
    """The printable character that byte-level tokenizers use for each byte, by byte value."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


def dump(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n")
