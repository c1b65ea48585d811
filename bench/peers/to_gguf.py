#!/usr/bin/env python3
"""Converts a model folder to GGUF with llama.cpp's own converter.

    to_gguf.py LLAMA_CPP_SOURCE MODEL_DIR OUT.gguf bf16|q8_0

The converter knows pre-tokenizers by a hash of what they do to a test text, and refuses one that it has not
seen. A tokenizer trained here has its own vocabulary, so it always refuses. llama.cpp names the way of
splitting text, not the vocabulary: where tokenizer.json splits exactly as Qwen2's does, that name is right,
and it is given to the converter while it runs. Nothing of the converter is changed on disk.
"""

import json
import pathlib
import runpy
import sys

QWEN2_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def splits_as_qwen2(model):
    """Whether the pre-tokenizer of `model` is Qwen2's."""
    steps = json.loads((model / "tokenizer.json").read_text())["pre_tokenizer"].get("pretokenizers", [])
    patterns = [step["pattern"].get("Regex") for step in steps if step["type"] == "Split"]
    return patterns == [QWEN2_SPLIT] and steps[-1]["type"] == "ByteLevel"


def main():
    source, model, out = (pathlib.Path(argument).resolve() for argument in sys.argv[1:4])
    kind = sys.argv[4]
    if not splits_as_qwen2(model):
        sys.exit(f"{model}/tokenizer.json: does not split text as Qwen2 does")
    sys.path[:0] = [str(source), str(source / "gguf-py")]
    from conversion.base import TextModel

    def no_sentencepiece(self):
        raise FileNotFoundError("tokenizer.model")

    TextModel.get_vocab_base_pre = lambda self, tokenizer: "qwen2"
    # For Llama models it tries two other kinds of vocabulary first, with a library that is not needed here.
    TextModel._set_vocab_sentencepiece = no_sentencepiece
    TextModel._set_vocab_llama_hf = no_sentencepiece
    sys.argv = ["convert_hf_to_gguf.py", str(model), "--outfile", str(out), "--outtype", kind]
    runpy.run_path(str(source / "convert_hf_to_gguf.py"), run_name="__main__")


if __name__ == "__main__":
    main()
