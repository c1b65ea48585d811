"""What Hugging Face transformers computes for the trained checkpoint of fetch.py: expected.json.

    python make_expected.py FOLDER GGUF    FOLDER: what fetch.py wrote; GGUF: the file it was made from

It also reads the GGUF file directly and compares: the folder must have the same weights, rounded.
"""

import json
import pathlib
import sys

import torch
import transformers

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from fetch import PACKAGE, weights_sha256  # noqa: E402
from make_reference import F32_TOLERANCE, MARGIN_SHARE, Runner, load  # noqa: E402
from make_reference import low_precision_error_of, reference_of_prompt, rounded  # noqa: E402

PASSAGE = """\
A server that answers many people at once has to decide, many times a second, whose turn it is. It keeps a list \
of those who wait and a list of those who are being served; it looks at both, gives each request a share of the \
next step, and begins the step. When the step has ended it hands every reader what is new, takes those off the \
list who have had enough, and begins again. As long as nothing else runs on the machine, this costs little: a few \
microseconds between two steps that take milliseconds each. But a machine is seldom alone. Somebody compiles a \
program, somebody else copies 12,500 files, a backup starts at 3:00, and the thread that was to make the decision \
waits for a core. The accelerator has finished and waits as well, and so does everyone who reads. What was a few \
microseconds becomes a few milliseconds, then tens of them; and since each token needs a decision, every token is \
late. The remedy is"""
TEXTS = (
    "The capital of France is",
    "Once upon a time, in a small village by the sea, there lived",
    "def fibonacci(n):\n    ",
    "<|im_start|>user\nWhat is 17 plus 25?<|im_end|>\n<|im_start|>assistant\n",
    PASSAGE,
)


def main() -> None:
    folder, original = map(pathlib.Path, sys.argv[1:])
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    model = load(folder, torch.float32)
    check_conversion(model, original)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    results = []
    for text in TEXTS:
        prompt = tokenizer.encode(text, add_special_tokens=False)
        results.append({"text": text} | reference_of_prompt(Runner(model, False), prompt))
        print(repr(tokenizer.decode(results[-1]["greedy"])), results[-1]["min_margin"], flush=True)
    min_margin = min(result["min_margin"] for result in results)
    expected = {
        "made_with": {"torch": torch.__version__, "transformers": transformers.__version__, "from": PACKAGE},
        "weights_sha256": weights_sha256(folder),
        "stored_dtype": "bfloat16",
        "tolerance": min(F32_TOLERANCE, min_margin / MARGIN_SHARE),
        "min_margin": min_margin,
        "low_precision_error": low_precision_error_of(load(folder, torch.bfloat16), results),
        "results": results,
    }
    text = json.dumps(rounded(expected), separators=(",", ":"), ensure_ascii=False)
    (HERE / "expected.json").write_text(text + "\n")


def check_conversion(model: transformers.PreTrainedModel, original: pathlib.Path) -> None:
    """The folder's weights against what transformers reads from the GGUF file."""
    theirs = transformers.AutoModelForCausalLM.from_pretrained(
        original.parent, gguf_file=original.name, dtype=torch.float32
    ).state_dict()
    ours = model.state_dict()
    assert ours.keys() == theirs.keys(), ours.keys() ^ theirs.keys()
    for name, values in ours.items():
        assert torch.equal(values, theirs[name].bfloat16().float()), name


if __name__ == "__main__":
    main()
