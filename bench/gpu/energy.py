#!/usr/bin/env python3
"""Runs a command and says what the GPU used meanwhile, from the driver's own counter.

    energy.py [--json FILE] -- COMMAND...

Writes {"joules", "seconds", "watts", "idle_watts", "command"}. Exit code: the command's; 3 if there is
no GPU or its driver counts no energy.
"""
import argparse
import json
import subprocess
import sys
import time

NO_GPU = 3
IDLE_SECONDS = 2.0


class Counter:
    """Millijoules since the driver was loaded, of the first GPU."""

    def __init__(self):
        import pynvml

        self.nvml = pynvml
        pynvml.nvmlInit()
        self.device = pynvml.nvmlDeviceGetHandleByIndex(0)

    def read(self) -> float:
        return self.nvml.nvmlDeviceGetTotalEnergyConsumption(self.device) / 1e3


def measure(counter: Counter, run) -> tuple[float, float, int]:
    """Joules, seconds, and what `run` returned."""
    joules, began = counter.read(), time.monotonic()
    code = run()
    return counter.read() - joules, time.monotonic() - began, code


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json")
    parser.add_argument("command", nargs="+")
    args = parser.parse_args()
    try:
        counter = Counter()
        counter.read()
    except Exception as error:  # the binding raises classes of its own, for a missing library too
        print(f"no GPU: {type(error).__name__}: {error}")
        return NO_GPU
    idle_joules, idle_seconds, _ = measure(counter, lambda: time.sleep(IDLE_SECONDS))
    joules, seconds, code = measure(counter, lambda: subprocess.run(args.command).returncode)
    result = {
        "command": args.command,
        "joules": joules,
        "seconds": seconds,
        "watts": joules / seconds,
        "idle_watts": idle_joules / idle_seconds,
    }
    print(json.dumps(result))
    if args.json:
        with open(args.json, "w") as file:
            json.dump(result, file, indent=1)
    return code


if __name__ == "__main__":
    sys.exit(main())
