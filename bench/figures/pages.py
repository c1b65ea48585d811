"""READMEs of bench/results whose tables a command makes of the raw data beside them."""
import subprocess
import sys

from claims import RESULTS, ROOT

# By the end of a folder's name: what prints its tables. The README is about.md and that.
TABLES = {
    "-cpu": ["bench/cpu_table.py", "tables"],
    "-emulated": ["bench/emulated_table.py"],
    "-rotation": ["bench/rotation_table.py", "tables"],
    "-parts": ["bench/parts_table.py"],
}
# These print more than the README shows, or need libraries: each row of the README is one of theirs.
ROWS = {
    "-plan-simulated": lambda folder: printed(["bench/plan_table.py"], folder),
    "-tokenizer": lambda folder: "\n".join(path.read_text() for path in sorted(folder.glob("*.txt"))),
}


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


def stale_pages():
    errors = [f"{folder.name}/README.md is not about.md and the tables of its raw data"
              for folder, command in of_kind(TABLES) if (folder / "README.md").read_text() != page(folder, command)]
    for folder, make in of_kind(ROWS):
        known = set(make(folder).splitlines())
        errors += [f"{folder.name}/README.md: no command prints {line}"
                   for line in (folder / "README.md").read_text().splitlines()
                   if line.startswith("|") and not line.startswith("|---") and line not in known]
    return errors
