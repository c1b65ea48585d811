#!/usr/bin/env python3
"""The bytes that msgspec makes of batches of KV events; `crates/events` must make the same.

    make_golden.py          writes crates/events/tests/golden
    make_golden.py --check  compares with what is there

The classes have the fields of vLLM's KV events (v0.26), in their order and with their defaults.
"""

import sys
from pathlib import Path

import msgspec

FOLDER = Path(__file__).resolve().parents[2] / "crates/events/tests/golden"


class Batch(msgspec.Struct, array_like=True, omit_defaults=True):
    ts: float
    events: list
    data_parallel_rank: int | None = None


class BlockStored(msgspec.Struct, omit_defaults=True, tag=True):
    block_hashes: list[int]
    parent_block_hash: int | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None
    lora_name: str | None
    extra_keys: list | None = None
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None
    kv_cache_spec_sliding_window: int | None = None


class BlockRemoved(msgspec.Struct, omit_defaults=True, tag=True):
    block_hashes: list[int]
    medium: str | None
    group_idx: int | None = None


class AllBlocksCleared(msgspec.Struct, omit_defaults=True, tag=True):
    pass


def stored(hashes, parent, tokens, size, medium="GPU", salt=None, lora=(None, None)):
    """`lora`: number and name. Extra keys as vLLM makes them: the name for each block, the salt for the first."""
    number, name = lora
    of_all = (name,) if name else ()
    keys = [of_all + ((salt,) if salt and i == 0 else ()) or None for i in range(len(hashes))]
    return BlockStored(hashes, parent, tokens, size, number, medium, name, keys, 0, "full_attention")


# Numbers at both sides of every length that MessagePack has for them.
EDGES = [0, 127, 128, 255, 256, 65535, 65536, 2**32 - 1]

BATCHES = {
    "kinds": Batch(
        1789095808.8378847,
        [
            AllBlocksCleared(),
            stored([1, 2**64 - 1], None, EDGES, 4, salt="00000000000abcde"),
            stored([2**63], 2**64 - 1, EDGES[4:], 4, "CPU"),
            stored([2**32], None, EDGES[:4], 4),
            BlockRemoved([1, 2**32], "GPU", 0),
            BlockRemoved([2**63], "CPU", 0),
        ],
        0,
    ),
    "adapters": Batch(
        1789095808.8378847,
        [
            stored([1, 2], None, EDGES, 4, lora=(1, "sql")),
            stored([3, 4], None, EDGES, 4, "CPU", salt="00000000000abcde", lora=(128, "Größe")),
            stored([5], 6, EDGES[:4], 4, lora=(256, "x" * 256)),
            stored([7], None, EDGES[:4], 4),
        ],
        0,
    ),
    "long": Batch(
        0.0,
        [
            stored(list(range(1, 21)), None, list(range(20 * 256)), 256),
            BlockRemoved(list(range(700, 0, -1)), "CPU", 0),
        ],
        0,
    ),
    "empty": Batch(1.5, [], 0),
}


def main():
    wrong = 0
    for name, batch in BATCHES.items():
        path = FOLDER / f"{name}.msgpack"
        made = msgspec.msgpack.encode(batch)
        if "--check" not in sys.argv:
            path.write_bytes(made)
        elif path.read_bytes() != made:
            print(f"{path} is not what msgspec {msgspec.__version__} makes")
            wrong = 1
    return wrong


if __name__ == "__main__":
    sys.exit(main())
