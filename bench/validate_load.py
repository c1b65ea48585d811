#!/usr/bin/env python3
"""Does `saccade bench serve` measure what a server did?

Starts the scripted server (crates/mock), which records its own times, loads it, and compares every
percentile with the one computed here from those records: within 1 ms or 1 %, at 1,000 requests/s,
on an idle machine and next to as many CPU hogs as it has cores, and with a server that answers
nothing for 5 s. The stall is also measured by a closed loop, to show what that would hide.

    cargo build --release -p saccade -p saccade-mock
    bench/validate_load.py [--json FILE]

Exit code 1 if anything is off. With hogs, both sides run under SCHED_FIFO where that is
permitted: this tests the measurement, not the scheduler's kindness.
"""

import argparse
import contextlib
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[1]
PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}
TOLERANCE_MS = 1.0
TOLERANCE_SHARE = 0.01
LATENESS_P99_MS = 1.0


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--saccade", default=str(ROOT / "target/release/saccade"))
    parser.add_argument("--mock", default=str(ROOT / "target/release/saccade-mock"))
    parser.add_argument("--rate", type=float, default=1000.0)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--case", action="append", choices=CASES, help="default: all")
    parser.add_argument("--json", help="write what was compared to this file")
    return parser.parse_args()


def may_use_fifo():
    """Whether this user may start processes under SCHED_FIFO."""
    tried = subprocess.run(["chrt", "-f", "1", "true"], capture_output=True, check=False)
    return tried.returncode == 0


@contextlib.contextmanager
def mock(binary, *flags):
    """A scripted server; yields its URL."""
    command = [binary, "--listen", "127.0.0.1:0", *flags]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield server.stdout.readline().split()[-1]
    finally:
        server.kill()
        server.wait()


@contextlib.contextmanager
def hogs(count):
    """Processes that do nothing but use a core."""
    running = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        time.sleep(0.5 if count else 0)
        yield
    finally:
        for hog in running:
            hog.kill()
            hog.wait()


def load(args, url, *flags):
    """One run of `saccade bench serve`; its JSON."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "run.json"
        command = [args.saccade, "bench", "serve", "--base-url", url, "--model", "mock", "--json", out]
        command += ["--save-detailed", "--random-input-len", "16", "--random-output-len", "8", *flags]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return json.loads(out.read_text())["runs"][0]


def records(url):
    """What the server did, by request id."""
    with urllib.request.urlopen(url + "/records") as answer:
        listing = json.load(answer)
    assert listing["dropped"] == 0, "the server's records are incomplete"
    return {r["request_id"]: r for r in listing["records"] if r["request_id"]}


def reset(url):
    urllib.request.urlopen(urllib.request.Request(url + "/reset", method="POST")).close()


def truth_ms(run, by_id):
    """The latencies as the server's clock has them, from the times at which arrivals were due."""
    ttft, tpot, itl, e2e = [], [], [], []
    for request in run["requests"]:
        if request["warmup"]:
            continue
        record = by_id[f"{run['request_id_prefix']}{request['index']}"]
        written = [event["written_s"] for event in record["events"]]
        due = run["started_monotonic_s"] + request["intended_s"]
        ttft.append((written[0] - due) * 1e3)
        e2e.append((record["ended_s"] - due) * 1e3)
        tpot.append((written[-1] - written[0]) / (record["output_tokens"] - 1) * 1e3)
        itl += [(b - a) * 1e3 for a, b in zip(written, written[1:])]
    return {"ttft": ttft, "tpot": tpot, "itl": itl, "e2e": e2e}


def percentile(values, share):
    """By nearest rank, as the tool documents it."""
    values = sorted(values)
    return values[max(math.ceil(share * len(values) - 1e-9), 1) - 1]


def compare(run, truth):
    """Rows (metric, statistic, measured, true, difference within bounds)."""
    summary = run["summary"]
    measured = {
        "ttft": summary["from_intended"]["ttft_ms"],
        "tpot": summary["tpot_ms"],
        "itl": summary["itl_ms"],
        "e2e": summary["from_intended"]["e2e_ms"],
    }
    rows = []
    for metric, values in truth.items():
        expected = {name: percentile(values, share) for name, share in PERCENTILES.items()}
        expected["mean"] = sum(values) / len(values)
        for name, true in expected.items():
            got = measured[metric][name]
            fine = abs(got - true) <= max(TOLERANCE_MS, TOLERANCE_SHARE * true)
            rows.append((metric, name, got, true, fine))
    return rows


def show(title, run, rows):
    client = run["client"]
    late = client["send_lateness_ms"]
    print(f"\n{title}: {run['summary']['requests']} requests, {run['summary']['achieved_rps']:.0f}/s")
    print(f"  client: sends P99 {late['p99']:.3f} ms late, {client['cpu_share'] * 100:.0f} % of a core")
    print(f"  {'':<10}{'measured':>12}{'true':>12}{'difference':>12}  ms")
    for metric, name, got, true, fine in rows:
        mark = "" if fine else "  OFF"
        print(f"  {metric:<5}{name:<5}{got:>12.3f}{true:>12.3f}{got - true:>12.3f}{mark}")


def steady(args, title, hog_count, fifo):
    """A server with spread-out delays at the full rate."""
    script = ["--ttft", "lognormal:20ms,0.5", "--itl", "lognormal:4ms,0.4", "--seed", "1"]
    script += ["--priority", "fifo:20"] if fifo else []
    flags = ["--request-rate", str(args.rate), "--duration", str(args.seconds), "--warmup", "1"]
    flags += ["--client-priority", "fifo:10"] if fifo else []
    with mock(args.mock, *script) as url, hogs(hog_count):
        run = load(args, url, *flags)
        rows = compare(run, truth_ms(run, records(url)))
    show(title, run, rows)
    late = run["client"]["send_lateness_ms"]["p99"]
    in_time = late < LATENESS_P99_MS
    if not in_time:
        print(f"  OFF: the client sent {late:.3f} ms late at P99")
    complete = run["summary"]["ok"] == run["summary"]["requests"]
    return {"rows": rows, "client": run["client"], "passed": in_time and complete and all(r[4] for r in rows)}


def idle(args):
    return steady(args, "idle", 0, False)


def hogged(args):
    count = os.cpu_count() or 1
    fifo = may_use_fifo()
    if not fifo:
        print("\nSCHED_FIFO is not permitted: the hogs slow both sides, and the comparison may fail")
    return steady(args, f"beside {count} CPU hogs", count, fifo)


def stalled(args):
    """Nothing for 5 s: requests that arrived meanwhile have waited."""
    script = ["--ttft", "constant:5ms", "--itl", "constant:1ms", "--stall", "2+5"]
    with mock(args.mock, *script) as url:
        reset(url)
        run = load(args, url, "--request-rate", "200", "--duration", "12")
        rows = compare(run, truth_ms(run, records(url)))
        reset(url)
        closed = load(args, url, "--max-concurrency", "4", "--duration", "12")
    show("a server that stalls for 5 s, open loop", run, rows)
    ttft, hidden = run["summary"]["from_intended"]["ttft_ms"], closed["summary"]["from_intended"]["ttft_ms"]
    print(f"  TTFT P90 {ttft['p90']:.1f} ms; a closed loop of 4 says {hidden['p90']:.1f} ms")
    # 5 of 12 s of arrivals met the stall: the worst tenth of all waited at least 3.8 s.
    seen = ttft["p90"] > 3500
    return {"rows": rows, "closed_ttft_ms": hidden, "passed": seen and all(r[4] for r in rows)}


CASES = {"idle": idle, "hogs": hogged, "stall": stalled}


def main():
    args = arguments()
    results = {name: CASES[name](args) for name in args.case or CASES}
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(results, indent=1) + "\n")
    failed = [name for name, result in results.items() if not result["passed"]]
    print(f"\n{'failed: ' + ', '.join(failed) if failed else 'all within bounds'}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
