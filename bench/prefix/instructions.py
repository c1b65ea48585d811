#!/usr/bin/env python3
"""Instructions that shared prefixes cost the scheduler, beside the cache turned off: what a shared machine's noise does
not blur.

    instructions.py PREFIX_BENCH      the program of that name that device's build makes

Runs each kind of work under valgrind (a Debian package) a few times and twice as often; the difference is the work
itself. One JSON object per line: a tick in which requests decode, a prompt that was never seen, and one that is cached.
valgrind runs AVX2 but not AVX-512.
"""

import json
import re
import subprocess
import sys


def count(program, kind, cache, size, times):
    valgrind = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
    command = [*valgrind, program, kind, cache, str(size), str(times)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(re.search(r"I\s+refs:\s+([\d,]+)", done.stderr)[1].replace(",", ""))


def each(program, kind, cache, size, times):
    """Instructions of one more time."""
    return (count(program, kind, cache, size, 2 * times) - count(program, kind, cache, size, times)) / times


def first(program, cache, size):
    """Instructions of the first prompt, beside what a process without any takes."""
    return count(program, "prompts", cache, size, 1) - count(program, "prompts", cache, size, 0)


def say(what, size, off, on):
    print(json.dumps({"what": what, "size": size, "unit": "instructions", "off": off, "on": on, "ratio": on / off}))


def main():
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    program = sys.argv[1]
    for seats in [1, 16, 64, 256]:
        off, on = (each(program, "decode", cache, seats, 200) for cache in ["off", "on"])
        say("decode tick, requests", seats, off, on)
    for tokens in [512, 4096, 131072]:
        off, cold = (first(program, cache, tokens) for cache in ["off", "on"])
        say("prompt, never seen, tokens", tokens, off, cold)
        say("prompt, cached, tokens", tokens, each(program, "prompts", "off", tokens, 2),
            each(program, "prompts", "on", tokens, 2))


if __name__ == "__main__":
    main()
