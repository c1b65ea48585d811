#!/usr/bin/env python3
"""Prefix caches over a trace of a real service, simulated apart from the device plane: what its own
figures are held against.

    simulate.py TRACE [--shares 1,3,10,30,100] [--policies lru,belady,adaptive] [--device PROGRAM]

TRACE is Mooncake's format, gzipped or not: a JSON object a line with `hash_ids`, one id per block of
the prompt; equal ids mean equal prefixes. Requests come one after the other: each looks up its
prompt, then all of its blocks are in the cache, and what is least worth keeping leaves. A pool is a
share (percent) of the trace's unique blocks. Prints, per pool and policy, hit blocks / all blocks.

lru: what vLLM's free queue equals: a request's blocks become the most recent ones, its last block
the least recent among them. belady: the block whose next use is furthest away leaves: no policy can
do better. thin-N: as lru, but of requests that bring new blocks only one in N keeps them; the others'
leave first. adaptive: what the device does, see Adaptive. --device: the shipped scheduler itself, through
device/tests/prefix_trace.cpp (build/device-plain/prefix_trace).
"""

import argparse
import gzip
import heapq
import json
import subprocess
from collections import OrderedDict


def read_trace(path):
    opener = gzip.open if path.endswith(".gz") else open
    with opener(path, "rt") as lines:
        return [json.loads(line)["hash_ids"] for line in lines if line.strip()]


def leading(ids, cache):
    count = 0
    for block in ids:
        if block not in cache:
            break
        count += 1
    return count


class Recency:
    """Blocks in order of recency, a pool of `capacity`. keep(number of the request) says whether its
    new blocks are kept like the others, or leave first."""

    def __init__(self, capacity, keep=lambda request: True):
        self.capacity, self.keep = capacity, keep
        self.order, self.requests = OrderedDict(), 0

    def serve(self, ids):
        hits = leading(ids, self.order)
        self.requests += 1
        if self.keep(self.requests):
            for block in reversed(ids):
                self.order[block] = None
                self.order.move_to_end(block)
        else:
            for block in reversed(ids[:hits]):
                self.order.move_to_end(block)
            for block in ids[hits:]:
                self.order[block] = None
                self.order.move_to_end(block, last=False)
        while len(self.order) > self.capacity:
            self.order.popitem(last=False)
        return hits


def thin(capacity, one_in):
    return Recency(capacity, lambda request: request % one_in == 0)


class Belady:
    NEVER = 1 << 60

    def __init__(self, capacity, trace):
        self.capacity = capacity
        self.uses = {}
        for at, ids in enumerate(trace):
            for block in ids:
                self.uses.setdefault(block, []).append(at)
        for uses in self.uses.values():
            uses.reverse()
        self.next, self.heap = {}, []

    def serve(self, ids):
        hits = leading(ids, self.next)
        for depth, block in enumerate(ids):
            uses = self.uses[block]
            uses.pop()
            self.next[block] = uses[-1] if uses else self.NEVER
            heapq.heappush(self.heap, (-self.next[block], -depth, block))
        while len(self.next) > self.capacity:
            use, _, block = heapq.heappop(self.heap)
            if self.next.get(block) == -use:
                del self.next[block]
        return hits


def mixed(value):
    value = (value ^ (value >> 33)) * 0xFF51AFD7ED558CCD & (1 << 64) - 1
    value = (value ^ (value >> 33)) * 0xC4CEB9FE1A85EC53 & (1 << 64) - 1
    return value ^ (value >> 33)


class Shadow:
    """The sampled blocks that a pool would hold which keeps the new ones of one request in `one_in`."""

    def __init__(self, capacity, one_in):
        self.capacity, self.one_in, self.order = capacity, one_in, OrderedDict()

    def keeps(self, request):
        return mixed(request) % self.one_in == 0

    def serve(self, sampled, request):
        """`sampled`: a chain's blocks from the last to the first. Returns how many of them are here."""
        hits, keeps = 0, self.keeps(request)
        for block in sampled:
            if block in self.order:
                hits += 1
                self.order.move_to_end(block)
            elif keeps or len(self.order) < self.capacity:
                if len(self.order) == self.capacity:
                    self.order.popitem(last=False)
                self.order[block] = None
                if not keeps:
                    self.order.move_to_end(block, last=False)
        return hits


class Adaptive:
    """What device/kv/eviction.hpp does, written a second time: shadows of a sample play several shares of
    kept requests through, and the pool follows one that beats least recently used by more than three
    standard deviations and a twentieth. It goes back when it has found 1 % less than that in all."""

    RATES = (1, 4, 16)

    def __init__(self, capacity):
        self.sample = 1
        while self.sample < 16 and capacity // (2 * self.sample) >= 256:
            self.sample *= 2
        self.size = max(1, capacity // self.sample)
        self.shadows = [Shadow(self.size, one_in) for one_in in self.RATES]
        self.chosen, self.held, self.requests = 0, False, 0
        self.sums, self.squares = [0] * 3, [0] * 3
        self.baseline = self.used = self.lru_hits = self.own_hits = 0
        self.cache = Recency(capacity, lambda request: self.shadows[self.chosen].keeps(request))

    def in_sample(self, block):
        return mixed(7 * block + 1) % self.sample == 0

    def serve(self, ids):
        self.requests += 1
        hits = self.cache.serve(ids)
        sampled = [block for block in reversed(ids) if self.in_sample(block)]
        found = [shadow.serve(sampled, self.requests) for shadow in self.shadows]
        for i, own in enumerate(found):
            self.sums[i] += own - found[0]
            self.squares[i] += (own - found[0]) ** 2
        self.baseline += found[0]
        self.lru_hits += found[0]
        self.own_hits += sum(map(self.in_sample, ids[:hits]))
        self.watch_loss()
        self.chosen = self.choose()
        self.used += len(sampled)
        if self.used >= 16 * self.size:
            self.used, self.baseline = 0, self.baseline / 2
            self.sums = [value / 2 for value in self.sums]
            self.squares = [value / 4 for value in self.squares]
        return hits

    def watch_loss(self):
        lost = self.lru_hits - self.own_hits
        if lost > self.lru_hits / 100 + 4:
            self.held = True
        if lost <= self.lru_hits / 200 + 2:
            self.held = False

    def exceeds(self, i, deviations):
        return self.sums[i] > 0 and self.sums[i] ** 2 > deviations * self.squares[i]

    def choose(self):
        if self.held:
            return 0
        best = self.chosen if self.chosen and self.exceeds(self.chosen, 1) else 0
        for i in (1, 2):
            clear = self.exceeds(i, 9) and self.sums[i] > self.baseline / 20
            if clear and (best == 0 or 0.95 * self.sums[i] > self.sums[best]):
                best = i
        return best


def policy_of(name, capacity, trace):
    if name == "lru":
        return Recency(capacity)
    if name == "belady":
        return Belady(capacity, trace)
    if name == "adaptive":
        return Adaptive(capacity)
    if name.startswith("thin-"):
        return thin(capacity, int(name[5:]))
    raise SystemExit(f"--policies: {name} is not lru, belady, thin-N or adaptive")


def hit_rate(policy, trace):
    return sum(policy.serve(ids) for ids in trace) / sum(len(ids) for ids in trace)


def device_rate(program, capacity, trace):
    lines = "\n".join(" ".join(map(str, ids)) for ids in trace)
    done = subprocess.run([program, "--blocks", str(capacity)], input=lines, text=True, capture_output=True, check=True)
    counted = json.loads(done.stdout)
    return counted["hits"] / counted["blocks"]


def main():
    parser = argparse.ArgumentParser(description="Hit rates of prefix caches over a trace.")
    parser.add_argument("trace")
    parser.add_argument("--shares", default="1,3,10,30,100", help="pools, percent of unique blocks")
    parser.add_argument("--policies", default="lru,belady,adaptive")
    parser.add_argument("--device", metavar="PROGRAM", help="prefix_trace, built")
    args = parser.parse_args()
    trace = read_trace(args.trace)
    unique = len({block for ids in trace for block in ids})
    print(f"{len(trace)} requests, {sum(map(len, trace))} blocks, {unique} of them unique")
    for share in args.shares.split(","):
        capacity = max(1, round(unique * float(share) / 100))
        rates = {p: hit_rate(policy_of(p, capacity, trace), trace) for p in args.policies.split(",")}
        if args.device:
            rates["device"] = device_rate(args.device, capacity, trace)
        print(f"pool {share:>4} % = {capacity:7} blocks: " + "  ".join(f"{p} {r:.3f}" for p, r in rates.items()))


if __name__ == "__main__":
    main()
