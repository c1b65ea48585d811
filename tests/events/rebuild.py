#!/usr/bin/env python3
"""A subscriber that knows nothing of Saccade: it rebuilds the table of blocks from KV events as vLLM publishes them,
asks for what it has missed, and compares with the truth once FOLDER/truth.json is there.

    rebuild.py FOLDER PUB_ENDPOINT REPLAY_ENDPOINT
"""

import json
import random
import sys
import time
from pathlib import Path

import msgpack
import zmq

PATIENCE_S = 120
END = b"\xff" * 8
ADAPTERS = ["sql", "Ünterstützung"]  # of crates/events/tests/common


class Table:
    def __init__(self):
        self.blocks, self.last = {}, None
        self.batches = self.events = self.cleared = self.gaps = self.replayed = self.lives = 0

    def apply(self, number, payload):
        ts, events, rank = msgpack.unpackb(payload)
        assert rank == 0 and abs(ts - time.time()) < PATIENCE_S
        self.last = number
        self.batches += 1
        for event in events:
            self.events += 1
            kind = event["type"]
            if kind == "AllBlocksCleared":
                self.blocks.clear()
                self.cleared += 1
            elif kind == "BlockRemoved":
                assert event["group_idx"] == 0
                for key in event["block_hashes"]:
                    block = self.blocks.get(key)
                    if block and event["medium"] in block["media"]:
                        block["media"].remove(event["medium"])
                        if not block["media"]:
                            del self.blocks[key]
            else:
                self.store(event)

    def store(self, event):
        assert event["type"] == "BlockStored" and event["kv_cache_spec_kind"] == "full_attention"
        size, tokens, parent = event["block_size"], event["token_ids"], event["parent_block_hash"]
        assert len(tokens) == size * len(event["block_hashes"]) and len(event["extra_keys"]) * size == len(tokens)
        name = event["lora_name"]
        assert event["lora_id"] == (None if name is None else 1 + ADAPTERS.index(name))
        for i, key in enumerate(event["block_hashes"]):
            extra = event["extra_keys"][i] or []
            assert extra[:1] == [name] if name else True
            extra = extra[1:] if name else extra
            block = self.blocks.setdefault(
                key,
                {
                    "key": key,
                    "parent": parent,
                    "salt": extra[0] if extra else None,
                    "adapter": name,
                    "tokens": tokens[size * i : size * (i + 1)],
                    "media": set(),
                },
            )
            block["media"].add(event["medium"])
            parent = key

    def forget(self):
        self.blocks.clear()


def replay(context, endpoint, table, first):
    """All that is kept from a batch on. A beginning that is not kept any more voids what is known."""
    socket = context.socket(zmq.DEALER)
    socket.linger = 0
    socket.rcvtimeo = 5000
    socket.connect(endpoint)
    socket.send_multipart([b"", first.to_bytes(8, "big")])
    try:
        while True:
            _, topic, number, payload = socket.recv_multipart()
            if number == END:
                assert topic == b"" and payload == b""
                return
            assert topic == b"kv@test@model"
            number = int.from_bytes(number, "big")
            if number != first:
                table.forget()
                table.lives += 1
            table.apply(number, payload)
            table.replayed += 1
            first = number + 1
    except zmq.Again:
        pass  # the publisher is away: the next message shows the gap again
    finally:
        socket.close()


def main():
    folder, publisher, replayer = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    context = zmq.Context()
    subscriber = context.socket(zmq.SUB)
    subscriber.rcvtimeo = 200
    subscriber.rcvhwm = 10
    subscriber.connect(publisher)
    subscriber.subscribe(b"kv@")
    dead = context.socket(zmq.SUB)  # subscribes and never reads
    dead.rcvhwm = 1
    dead.connect(publisher)
    dead.subscribe(b"")
    table, dice = Table(), random.Random(1)
    truth, began = None, time.monotonic()
    while truth is None:
        assert time.monotonic() - began < PATIENCE_S, "no truth"
        try:
            topic, number, payload = subscriber.recv_multipart()
        except zmq.Again:
            if (folder / "truth.json").exists():
                truth = json.loads((folder / "truth.json").read_text())
            continue
        assert topic == b"kv@test@model" and len(number) == 8
        number = int.from_bytes(number, "big")
        if dice.random() < 0.005:
            continue  # loses it
        expected = 0 if table.last is None else table.last + 1
        if number < expected:
            continue  # a replay had it
        if number > expected:
            table.gaps += 1
            replay(context, replayer, table, expected)
        if table.last is not None and number == table.last + 1:
            table.apply(number, payload)
        if dice.random() < 0.005:
            time.sleep(0.05)  # falls behind
    replay(context, replayer, table, table.last + 1)
    (folder / "done").touch()
    known = {b["key"]: {**b, "media": sorted(b["media"])} for b in table.blocks.values()}
    true = {b["key"]: b for b in truth["blocks"]}
    counts = {k: v for k, v in vars(table).items() if isinstance(v, int)}
    print(f"device: {truth['events']} events, {truth['dropped']} lost, table resent {truth['retold']} times")
    print(f"subscriber: {counts}; {len(known)} blocks, {len(true)} true")
    wrong = [k for k in known.keys() | true.keys() if known.get(k) != true.get(k)]
    for key in wrong[:5]:
        print(f"{key}: known {known.get(key)}, true {true.get(key)}")
    assert truth["dropped"] > 0 and truth["retold"] >= 4 and len(true) > 100, "the test tested nothing"
    assert table.gaps > table.lives > 1, "no restart was seen"
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
