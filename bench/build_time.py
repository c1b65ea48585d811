#!/usr/bin/env python3
"""What a first build of `saccade` takes, by crate and by feature.

    bench/build_time.py measure OUT [--timings FILE]
        a release build into an empty folder with `--timings`, or the page that such a build has left; writes
        OUT/crates.jsonl, build.json and machine.txt
    bench/build_time.py table OUT
        Markdown

A crate's time is that of its units as cargo measured them, one core each: its build script, what that compiles, and
itself. Only with as many jobs as cores does their sum compare crates; what C and C++ compilers do in parallel within
one unit counts once.
"""
import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from markdown_table import print_table

ROOT = pathlib.Path(__file__).resolve().parent.parent
SERVER = "device,bundled-model"  # with the fetch plane, which `device` brings
FEATURES = {
    "a server of local folders": SERVER,
    "with models by hub id (`hub`)": f"{SERVER},hub",
    "with measuring tools (`tools`)": f"{SERVER},tools",
    "with the simulator of loads (`plan`)": f"{SERVER},plan",
    "everything, the default": f"{SERVER},hub,tools,plan",
}
SHOWN = 20  # crates in the table


def build():
    """The page of a build from nothing."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["cargo", "build", "--release", "--timings", "-p", "saccade"]
        subprocess.run(command, cwd=ROOT, check=True, env=os.environ | {"CARGO_TARGET_DIR": folder})
        return (pathlib.Path(folder) / "cargo-timings/cargo-timing.html").read_text()


def crates_of(features):
    """(name, version) of all that such a build compiles."""
    command = ["cargo", "tree", "-p", "saccade", "-e", "normal,build", "--prefix", "none", "--no-default-features",
               "--features", features]
    lines = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    words = [line.split() for line in lines if line]
    return {(name, version.removeprefix("v")) for name, version, *_ in words}


def measure(out, page):
    units = json.loads(re.search(r"const UNIT_DATA = (\[.*?\]);", page, re.DOTALL).group(1))
    seconds = collections.Counter()
    for unit in units:
        seconds[unit["name"], unit["version"]] += unit["duration"]
    builds = {label: crates_of(features) for label, features in FEATURES.items()}
    with open(out / "crates.jsonl", "w") as file:
        for (name, version), s in seconds.most_common():
            needed_by = [label for label, crates in builds.items() if (name, version) in crates]
            line = {"name": name, "version": version, "seconds": round(s, 2), "builds": needed_by}
            file.write(json.dumps(line) + "\n")
    took = max(unit["start"] + unit["duration"] for unit in units)
    (out / "build.json").write_text(json.dumps({"wall_s": round(took, 1), "cores": os.cpu_count()}) + "\n")
    machine = subprocess.run(["bash", "-c", ". bench/machine.sh; describe_machine"], cwd=ROOT, check=True,
                             capture_output=True, text=True).stdout
    (out / "machine.txt").write_text(machine)


def table(out):
    crates = [json.loads(line) for line in (out / "crates.jsonl").read_text().splitlines()]
    built = json.loads((out / "build.json").read_text())
    total = sum(c["seconds"] for c in crates)
    print(f"From nothing to the program: {built['wall_s']:.0f} s on {built['cores']} cores; {total:.0f} s of crates.\n")
    rows = []
    for label in FEATURES:
        needed = [c for c in crates if label in c["builds"]]
        rows.append([label, str(len(needed)), f"{sum(c['seconds'] for c in needed) / total:.2f}"])
    print_table(["build", "crates", "share of the time"], rows)
    ours = [c for c in crates if c["name"].startswith("saccade")]
    rows = [["all of ours", f"{sum(c['seconds'] for c in ours):.0f}"]]
    rows += [[c["name"], f"{c['seconds']:.0f}"] for c in crates[:SHOWN]]
    print_table(["crate", "s"], rows)


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "table":
        return table(pathlib.Path(sys.argv[2]))
    if len(sys.argv) < 3 or sys.argv[1] != "measure" or (sys.argv[3:4] or ["--timings"]) != ["--timings"]:
        sys.exit(__doc__)
    out = pathlib.Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    measure(out, pathlib.Path(sys.argv[4]).read_text() if len(sys.argv) == 5 else build())


if __name__ == "__main__":
    main()
