#!/usr/bin/env python3
"""Which of the device plane's tests run plainly, under ASan and UBSan, and under TSan.

    tests/flavours.py           compares what ctest lists in build/device-* with the table of tests/README.md
    tests/flavours.py --write   writes the table
"""

import json
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
README = HERE / "README.md"
BEGIN, END = "<!-- flavours: tests/flavours.py --write -->\n", "<!-- end of flavours -->\n"
FLAVOURS = {"plain": "plain", "asan": "ASan and UBSan", "tsan": "TSan"}


def listed(flavour: str) -> set[str]:
    command = ["ctest", "--test-dir", str(HERE.parent / f"build/device-{flavour}"), "--show-only=json-v1"]
    answer = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    names = {test["name"] for test in answer["tests"]}
    # One row for the planted bugs.
    return {"fault_sim_finds_*" if name.startswith("fault_sim_finds_") else name for name in names}


def table() -> str:
    tests = {flavour: listed(flavour) for flavour in FLAVOURS}
    groups: dict[tuple[str, ...], list[str]] = {}
    for name in sorted(set.union(*tests.values())):
        groups.setdefault(tuple(f for f in FLAVOURS if name in tests[f]), []).append(name)
    rows = ["| runs | tests |", "|---|---|"]
    for where in sorted(groups, key=len, reverse=True):
        names = ", ".join(f"`{name}`" for name in groups[where])
        rows.append(f"| {', '.join(FLAVOURS[f] for f in where)} | {names} |")
    return "\n".join(rows) + "\n"


def main() -> None:
    before, rest = README.read_text().split(BEGIN)
    written, after = rest.split(END)
    if sys.argv[1:] == ["--write"]:
        README.write_text(before + BEGIN + table() + END + after)
    elif sys.argv[1:]:
        sys.exit(__doc__)
    elif written != table():
        sys.exit(f"tests/README.md does not say what runs; tests/flavours.py --write mends it. It runs:\n{table()}")


if __name__ == "__main__":
    main()
