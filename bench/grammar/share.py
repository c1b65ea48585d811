#!/usr/bin/env python3
"""What part of the device plane's processor time grammars take.

    bench/grammar/share.py TOKENIZER OUT [--binary target/release/saccade] [--tokens 200]

Model, grammars and numbers of streams are tpot.py's. Times per token differ by more than grammars cost from one second
to the next; this counts the samples of `perf record` in the walk of the tree of tokens and in what applies its masks.
The binary must have symbols, as Cargo's release build has. OUT gets share.md.
"""

import concurrent.futures
import pathlib
import re
import signal
import subprocess
import tempfile
import time

from tpot import GRAMMARS, STREAMS, arguments, ends_by_itself, shape_server

# Functions of device/grammar and device/sample/obey.hpp that are not inlined.
OF_GRAMMARS = re.compile(r"::(obey_grammar|for_each_legal|fill_mask|apply_mask|take_bytes|take_token)\b")
ATTACH_S = 0.5


def device_plane(server):
    """The child of the server that is its device plane."""
    pid = server.process.pid
    for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        if pathlib.Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")[1] == b"device":
            return child
    raise SystemExit("the server has no device plane")


def answer(server, grammar, tokens, seed):
    body = {"model": "shape", "prompt": [1, 2, 3, 4, 10 + seed], "max_tokens": tokens, "seed": seed, "temperature": 1}
    body |= {"structured_outputs": grammar} if grammar else {}
    body["ignore_eos"] = not ends_by_itself(grammar)
    got = server.post("/v1/completions", body, timeout_s=600)["usage"]["completion_tokens"]
    if got != tokens:
        raise SystemExit(f"an answer of {got} tokens, {tokens} asked for")


def share_percent(server, grammar, streams, tokens):
    """Percent of the device plane's samples, while that many answers are written."""
    answer(server, grammar, 2, 0)  # compiles the grammar
    with tempfile.TemporaryDirectory() as folder:
        data = pathlib.Path(folder) / "perf.data"
        perf = subprocess.Popen(["perf", "record", "-o", data, "-F", "1999", "-p", device_plane(server)],
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(ATTACH_S)
        with concurrent.futures.ThreadPoolExecutor(streams) as pool:
            for done in [pool.submit(answer, server, grammar, tokens, seed) for seed in range(1, streams + 1)]:
                done.result()
        perf.send_signal(signal.SIGINT)
        perf.wait()
        report = subprocess.run(["perf", "report", "-i", data, "--no-children", "--stdio", "-F", "overhead,symbol"],
                                check=True, capture_output=True, text=True).stdout
    found = re.findall(r"^\s*([\d.]+)%\s+\[\.\]\s+(.*)$", report, re.MULTILINE)
    return sum(float(percent) for percent, symbol in found if OF_GRAMMARS.search(symbol))


def main():
    args = arguments(__doc__, tokens=200).parse_args()
    lines = ["| grammar | " + " | ".join(f"{n} streams, %" for n in STREAMS) + " |", "|---|" + "---|" * len(STREAMS)]
    with shape_server(args) as server:
        for name, grammar in GRAMMARS.items():
            shares = [share_percent(server, grammar, streams, args.tokens) for streams in STREAMS]
            lines.append(f"| {name} | " + " | ".join(f"{share:.2f}" for share in shares) + " |")
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "share.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
