#!/usr/bin/env python3
"""What forced tokens save, and whether answers change with them.

    bench/grammar/forced.py OUT [--binary target/release/saccade] [--calls 200] [--seed 7]

The bundled model calls strict functions at temperature 0, in dialogues made as those of its training are
(models/recipe/calls.py). Each request goes to a server with forced tokens and to one with --disable-jump-forward, in
turn. OUT gets forced.md: tokens and steps, answers that are the same and calls that are right, and the ratio of times.
"""

import argparse
import contextlib
import json
import pathlib
import random
import statistics
import sys
import time
import urllib.request

from server import Server

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "models/recipe"))
import calls  # noqa: E402

CHOICES = ("auto", "required")
SERVERS = {"forced": (), "drawn": ("--disable-jump-forward",)}


def small_talk(_):
    return "Hello!", "Hello! How can I help?"


def asked(count, seed):
    """Messages, functions, and the calls that the dialogue has."""
    rng = random.Random(seed)
    while count > 0:
        messages, tools = calls.dialogue(rng, small_talk)
        at = next((i for i, message in enumerate(messages) if "tool_calls" in message), None)
        if at is None:
            continue
        count -= 1
        for tool in tools:
            tool["function"]["strict"] = True
        yield messages[:at], tools, [call["function"] for call in messages[at]["tool_calls"]]


def timed(server, body):
    """The calls of an answer, its tokens and its seconds."""
    begin = time.perf_counter()
    answer = server.post("/v1/chat/completions", body, timeout_s=60)
    took_s = time.perf_counter() - begin
    found = answer["choices"][0]["message"].get("tool_calls") or []
    return [call["function"] for call in found], answer["usage"]["completion_tokens"], took_s


def metric(server, name):
    with urllib.request.urlopen(f"{server.url}/metrics", timeout=10) as reply:
        rows = reply.read().decode().splitlines()
    return sum(float(row.split()[-1]) for row in rows if row.startswith(f"saccade:{name}{{"))


def same(found, wanted):
    """Calls of the same functions with the same arguments."""
    def plain(call):
        arguments = call["arguments"]
        return call["name"], json.loads(arguments) if isinstance(arguments, str) else arguments
    try:
        return [plain(call) for call in found] == [plain(call) for call in wanted]
    except ValueError:  # cut off
        return False


def compare(servers, choice, args):
    """One row of the table for each server, and the median ratio of times."""
    tokens, steps, forced = ({name: 0 for name in servers} for _ in range(3))
    right = {name: 0 for name in servers}
    equal, ratios = 0, []
    for name, server in servers.items():
        steps[name], forced[name] = metric(server, "device_steps_total"), metric(server, "device_forced_tokens_total")
    for number, (messages, tools, wanted) in enumerate(asked(args.calls, args.seed)):
        body = {"messages": messages, "tools": tools, "tool_choice": choice, "temperature": 0, "max_tokens": 200}
        found, took_s = {}, {}
        for name in sorted(servers, reverse=number % 2 == 1):
            found[name], count, took_s[name] = timed(servers[name], body)
            tokens[name] += count
            right[name] += same(found[name], wanted)
        equal += found["forced"] == found["drawn"]
        ratios.append(took_s["forced"] / took_s["drawn"])
    time.sleep(0.5)  # the last tick's statistics
    rows = []
    for name, server in servers.items():
        steps[name] = metric(server, "device_steps_total") - steps[name]
        forced[name] = metric(server, "device_forced_tokens_total") - forced[name]
        rows.append(f"| {choice} | {name} | {tokens[name]} | {forced[name]:.0f} | {steps[name]:.0f} "
                    f"| {right[name]} of {args.calls} |")
    rows.append(f"| {choice} | both | | | {steps['forced'] / steps['drawn']:.2f} x "
                f"| same answer: {equal} of {args.calls}; time {statistics.median(ratios):.2f} x |")
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--binary", default=str(ROOT / "target/release/saccade"))
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--seed", type=int, default=7)
    args = parser.parse_args()
    lines = ["| tool_choice | tokens are | tokens | forced | steps | right calls |", "|---|---|---|---|---|---|"]
    with contextlib.ExitStack() as stack:
        servers = {name: stack.enter_context(Server(args.binary, ROOT / "models/saccade-tiny", *flags, weights="auto"))
                   for name, flags in SERVERS.items()}
        for choice in CHOICES:
            lines += compare(servers, choice, args)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "forced.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
