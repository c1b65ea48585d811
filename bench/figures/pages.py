"""READMEs of bench/results whose tables a command generates from the raw data next to them."""
import json
import statistics
import subprocess
import sys

from claims import RESULTS, ROOT

# By the end of a folder's name: what prints its tables. The README is about.md and that.
TABLES = {
    "-cpu": ["bench/cpu_table.py", "tables"],
    "-emulated": ["bench/emulated_table.py"],
    "-rotation": ["bench/rotation_table.py", "tables"],
    "-parts": ["bench/parts_table.py"],
    "-turns": ["bench/turns_table.py"],
    "-plan-simulated": ["bench/plan_table.py"],
    "-build": ["bench/build_time.py", "table"],
}


def tokenizer_rows(folder):
    """What the comparisons printed, and medians over the windows of bench/long_prompts.py."""
    lines = [line for path in sorted(folder.glob("*.txt")) for line in path.read_text().splitlines()]
    lines.append("| | P50 | P99 | P99.9 | longest |")
    for path in sorted(folder.glob("long-prompts-*.json")):
        for name, windows in json.loads(path.read_text())["windows"].items():
            label = name if name == "alone" else f"beside 16 x 100,000 ({path.stem.removeprefix('long-prompts-')})"
            cells = [statistics.median(w[key] for w in windows) for key in ("p50", "p99", "p99.9", "max")]
            lines.append(f"| {label} | " + " | ".join(f"{cell:.2f} ms" for cell in cells) + " |")
    return lines


# Programs printed these tables in the run: each row of the README is one of theirs.
ROWS = {"-tokenizer": tokenizer_rows}


def printed(command, folder):
    program, *arguments = command
    return subprocess.run([sys.executable, str(ROOT / program), *arguments, str(folder)], cwd=ROOT, check=True,
                          capture_output=True, text=True).stdout


def of_kind(kinds):
    """(folder, what makes its tables) of the folders whose names end like that."""
    for folder in sorted(path for path in RESULTS.iterdir() if path.is_dir()):
        for end, make in kinds.items():
            if folder.name.endswith(end):
                yield folder, make


def page(folder, command):
    about = folder / "about.md"
    opening = about.read_text().rstrip() if about.exists() else f"# {folder.name}"
    return f"{opening}\n\n{printed(command, folder).rstrip()}\n"


def write_pages():
    for folder, command in of_kind(TABLES):
        (folder / "README.md").write_text(page(folder, command))


def is_stale(folder, command):
    readme = folder / "README.md"
    return not readme.exists() or readme.read_text() != page(folder, command)


def stale_pages():
    errors = [f"{folder.name}/README.md is not about.md and the tables of its raw data"
              for folder, command in of_kind(TABLES) if is_stale(folder, command)]
    for folder, make in of_kind(ROWS):
        known = set(make(folder))
        errors += [f"{folder.name}/README.md: no command prints {line}"
                   for line in (folder / "README.md").read_text().splitlines()
                   if line.startswith("|") and not line.startswith("|---") and line not in known]
    return errors
