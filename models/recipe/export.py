"""Write the Hugging Face folder ../saccade-tiny from the last checkpoint (the averaged weights)."""

import json
import shutil

import torch
from safetensors.torch import save_file

from model import CONFIG
from paths import CHECKPOINTS, DATA, MODEL, RECIPE
from prepare import SPECIAL

END_OF_TEXT, _, END_OF_TURN = range(len(SPECIAL))
LIMIT = 16_000_000


def write_json(name, value):
    (MODEL / name).write_text(json.dumps(value, indent=2) + "\n")


def main():
    MODEL.mkdir(exist_ok=True)
    state = torch.load(CHECKPOINTS / "last.pt", weights_only=True)
    weights = {k: v.to(torch.bfloat16).contiguous() for k, v in state["average"].items()}
    save_file(weights, MODEL / "model.safetensors", metadata={"format": "pt"})
    (MODEL / "model.safetensors").chmod(0o644)
    size = (MODEL / "model.safetensors").stat().st_size
    assert size <= LIMIT, size

    write_json("config.json", {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": END_OF_TEXT,
        "eos_token_id": END_OF_TURN,
        "hidden_act": "silu",
        "initializer_range": 0.02,
        "mlp_bias": False,
        "pretraining_tp": 1,
        "rope_scaling": None,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        **CONFIG,
    })
    write_json("generation_config.json", {
        "bos_token_id": END_OF_TEXT,
        "eos_token_id": [END_OF_TURN, END_OF_TEXT],
        "pad_token_id": END_OF_TEXT,
        "do_sample": True,
        "temperature": 0.7,
        "top_p": 0.95,
    })
    write_json("tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_bos_token": False,
        "add_eos_token": False,
        "added_tokens_decoder": {
            str(i): {"content": t, "lstrip": False, "normalized": False, "rstrip": False,
                     "single_word": False, "special": True}
            for i, t in enumerate(SPECIAL)
        },
        "additional_special_tokens": SPECIAL[1:],
        "bos_token": None,
        "clean_up_tokenization_spaces": False,
        "eos_token": SPECIAL[END_OF_TURN],
        "pad_token": SPECIAL[END_OF_TEXT],
        "unk_token": None,
        "model_max_length": CONFIG["max_position_embeddings"],
    })
    shutil.copyfile(DATA / "tokenizer.json", MODEL / "tokenizer.json")
    shutil.copyfile(RECIPE / "chat_template.jinja", MODEL / "chat_template.jinja")
    parameters = sum(v.numel() for v in weights.values())
    print(f"step {state['step']}: {parameters} parameters, model.safetensors {size} bytes")


if __name__ == "__main__":
    main()
