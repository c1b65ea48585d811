"""Train the tokenizer and write the token files: prose.bin, chat.bin and a validation pair.

Prose is the books in order, each chapter ended by <|endoftext|>. Chat is generated dialogues. One
chapter in forty, and every exchange made of it, is held out for validation.
"""

import json
import random
import re

import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from dialogues import AUTHORS, Books, dialogue, plain_story, render
from paths import CLEAN, DATA

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
VOCAB = 4096
CHAT_TOKENS = 9_000_000
# Words that a demonstration should not print; a paragraph with one of them is dropped.
UNFIT = re.compile(r"\b(nigger|injun|niggah|fuck|shit|cunt|whore|harlot|rape|foreskin|prostitute|bitch)", re.I)
# The split of the current generation of byte-level tokenizers: contractions, words, single digits...
SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")


def load():
    clean = {}
    for path in sorted(CLEAN.glob("*.json")):
        documents = json.loads(path.read_text("utf-8"))
        if path.stem == "devils_dictionary":
            documents = [e for e in documents if not UNFIT.search(e[1])]
        elif path.stem == "jargon_file":
            documents = [e for e in documents if not UNFIT.search(e[0] + " ".join(e[1]))]
        else:
            documents = [[p for p in d if not UNFIT.search(p)] for d in documents]
        clean[path.stem] = [d for d in documents if d]
    return clean


def train_tokenizer(texts):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=VOCAB,
        special_tokens=[AddedToken(t, special=True, normalized=False) for t in SPECIAL],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    ))
    return tokenizer


def encode(tokenizer, texts):
    ids = []
    for i in range(0, len(texts), 4096):
        for e in tokenizer.encode_batch(texts[i:i + 4096]):
            ids += e.ids
    return np.array(ids, dtype=np.uint16)


def main():
    DATA.mkdir(parents=True, exist_ok=True)
    clean = load()
    held = {n: [d for i, d in enumerate(ds) if i % 40 == 9] for n, ds in clean.items()}
    kept = {n: [d for i, d in enumerate(ds) if i % 40 != 9] for n, ds in clean.items()}

    def prose(part):
        return ["\n\n".join(d) + "<|endoftext|>" for n in AUTHORS for d in part[n]]

    def chat(part, seed, count):
        rng, books = random.Random(seed), Books(part)
        return [render(*dialogue(rng, books)) + "<|endoftext|>" for _ in range(count)]

    rng = random.Random(1)
    stories = [plain_story(rng) + "<|endoftext|>" for _ in range(1500)]
    sample = chat(kept, 2, 20_000)
    path = DATA / "tokenizer.json"
    if not path.exists():  # an existing one is kept: a run can continue with other dialogues
        train_tokenizer(prose(kept) + sample[:6000]).save(str(path))
    tokenizer = Tokenizer.from_file(str(path))

    train = prose(kept) + stories
    random.Random(3).shuffle(train)
    per = len(encode(tokenizer, sample)) / len(sample)
    for name, texts in (
        ("prose", train),
        ("chat", chat(kept, 4, int(CHAT_TOKENS / per))),
        ("val_prose", prose(held)),
        ("val_chat", chat(held, 5, 600)),
    ):
        ids = encode(tokenizer, texts)
        ids.tofile(DATA / f"{name}.bin")
        print(f"{name:10} {len(texts):7} documents {len(ids):9} tokens "
              f"{sum(map(len, texts)) / len(ids):.2f} characters a token", flush=True)


if __name__ == "__main__":
    main()
