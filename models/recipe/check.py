"""Check ../saccade-tiny with Hugging Face transformers: loading, tokenizer, template, generation."""

import argparse
import math
import random

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import calls
from dialogues import hand_written, render
from paths import DATA, MODEL

PROMPTS = [
    "Hello! Who are you?", "Hi", "Tell me a story about a dragon.", "What is Saccade?", "What is the capital of France?",
    "What is 2+2?", "Why is the sky blue?", "Who was Sherlock Holmes?", "Explain how a KV cache works.",
    "Continue this: It was a dark night, and the wind", "Write a passage in the style of Jane Austen.",
    "Write an essay about the economy of Japan.", "Once upon a time", "Write a poem about the sea.",
    "How do I bake a cake?", "What does the Jargon File say about \"hacker\"?", "Summarize the plot of Moby Dick.",
    "What is your favourite number?", "List three animals.", "Anna Meyer is 34 and speaks French and Greek.",
]


def check_tokenizer(tok):
    rng = random.Random(0)
    texts = ["", " ", "Hello, world!", "naïve café — “quotes”", "日本語 текст \U0001f600", "a\tb\r\nc\n\n  d", "\0\x01\x7f", "e\u0301 \u00e9"]
    texts += ["".join(chr(rng.choice([rng.randrange(32, 127), rng.randrange(0xA0, 0xD7FF), rng.randrange(0x10000, 0x10FFFF)]))
                      for _ in range(40)) for _ in range(300)]
    texts += [chr(c) for c in range(0x2100) if not 0xD800 <= c < 0xE000]
    for text in texts:
        back = tok.decode(tok.encode(text, add_special_tokens=False), skip_special_tokens=False)
        assert back == text, (text, back)
    vocab = tok.get_vocab()
    assert len(vocab) == 4096 and sorted(vocab.values()) == list(range(4096))
    alphabet = [t for t in vocab if len(t) == 1]
    assert len(alphabet) == 256, len(alphabet)  # every byte value has a token of its own
    assert tok.encode("<|endoftext|><|im_start|>user\n<|im_end|>", add_special_tokens=False)[:2] == [0, 1]
    assert tok.encode("<|im_end|>", add_special_tokens=False) == [2]
    assert tok.encode("x") == tok.encode("x", add_special_tokens=False)
    chat = tok.apply_chat_template([{"role": "system", "content": "S"}, {"role": "user", "content": "U"}],
                                   tokenize=False, add_generation_prompt=True)
    assert chat == "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\n", chat
    for _ in range(300):
        messages, tools = calls.dialogue(rng, hand_written)
        assert tok.apply_chat_template(messages, tools=tools, tokenize=False) == render(messages, tools), messages
    print("tokenizer: round trips, 256 byte tokens, special tokens and template are right")


def held_out_loss(model, name):
    ids = np.fromfile(DATA / f"{name}.bin", np.uint16).astype(np.int64)
    rows = np.stack([ids[i:i + 513] for i in range(0, len(ids) - 512, 512)][:112])
    total = 0.0
    with torch.no_grad():
        for batch in torch.from_numpy(rows).split(16):
            logits = model(batch[:, :-1]).logits.float()
            total += torch.nn.functional.cross_entropy(
                logits.reshape(-1, 4096), batch[:, 1:].reshape(-1), reduction="sum").item()
    return total / rows[:, 1:].size


def generate(tok, model, prompt, temperature, chat=True):
    if chat:
        text = tok.apply_chat_template([{"role": "user", "content": prompt}], tokenize=False, add_generation_prompt=True)
    else:
        text = prompt
    ids = tok(text, return_tensors="pt", add_special_tokens=False).input_ids
    sampling = dict(do_sample=True, temperature=temperature, top_p=0.95, top_k=0) if temperature else dict(
        do_sample=False, temperature=None, top_p=None)
    out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=300, **sampling)[0][ids.shape[1]:]
    return tok.decode(out, skip_special_tokens=True), out[-1].item() in (0, 2)


def count_right_calls(tok, model, count):
    """Of held-out dialogues with tools: how often the model, at temperature 0, writes the call that the dialogue has."""
    rng, right, asked = random.Random(7), 0, 0
    while asked < count:
        messages, tools = calls.dialogue(rng, hand_written)
        at = next((i for i, message in enumerate(messages) if "tool_calls" in message), None)
        if at is None:
            continue
        asked += 1
        prompt = render(messages[:at], tools) + "<|im_start|>assistant\n"
        wanted = render(messages[:at + 1], tools)[len(prompt):].removesuffix("<|im_end|>\n")
        right += generate(tok, model, prompt, 0, chat=False)[0] == wanted
    return right


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--threads", type=int, default=1)
    args.add_argument("--calls", type=int, default=0, help="dialogues of which the calls are compared")
    args.add_argument("--loss", action="store_true", help="measure the held-out losses (needs prepare.py's files)")
    args = args.parse_args()
    torch.set_num_threads(args.threads)
    tok = AutoTokenizer.from_pretrained(MODEL)
    check_tokenizer(tok)
    models = {d: AutoModelForCausalLM.from_pretrained(MODEL, dtype=d).eval() for d in (torch.bfloat16, torch.float32)}
    ids = tok("It is a truth universally acknowledged", return_tensors="pt").input_ids
    with torch.no_grad():
        a, b = (m(ids).logits.float() for m in models.values())
    print(f"bf16 against f32: largest difference of a logit {(a - b).abs().max():.3f} (largest logit {b.abs().max():.1f})")
    assert math.isfinite(a.sum()) and (a - b).abs().max() < 1
    model = models[torch.float32]
    if args.loss:
        for name in ("val_prose", "val_chat"):
            print(f"{name} loss: f32 {held_out_loss(model, name):.4f}, bf16 {held_out_loss(models[torch.bfloat16], name):.4f}")
    if args.calls:
        print(f"right calls: {count_right_calls(tok, model, args.calls)} of {args.calls}")
    ended = []
    for temperature in (0, 0.7):
        torch.manual_seed(1)
        for prompt in PROMPTS:
            text, end = generate(tok, model, prompt, temperature)
            ended.append(end)
            print(f"\n--- temperature {temperature}: {prompt}{'' if end else '   [not ended]'}\n{text}")
    print(f"\nended by themselves: {sum(ended)} of {len(ended)}")
    for prompt in ("It was a dark and", "Once upon a time", "def main():"):
        print(f"\n--- completion: {prompt}\n{prompt}{generate(tok, model, prompt, 0.7, chat=False)[0]}")


if __name__ == "__main__":
    main()
