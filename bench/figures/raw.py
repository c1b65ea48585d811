"""Raw data of bench/results by the names that documents give to runs, and how figures are written."""
import functools
import json
import re
import statistics

from claims import RESULTS


def folder(commit, about):
    """The one folder of results of that commit about that."""
    found = list(RESULTS.glob(f"*-{commit}-{about}"))
    if len(found) != 1:
        raise FileNotFoundError(f"bench/results has {len(found)} folders *-{commit}-{about}")
    return found[0]


@functools.lru_cache(maxsize=None)
def record(commit, about, name):
    return json.loads((folder(commit, about) / f"{name}.json").read_text())


def text(commit, about, name):
    return (folder(commit, about) / name).read_text()


def fixed(value, digits=2):
    """With a decimal point and thousands apart."""
    return f"{value:,.{digits}f}"


def percent(share, digits=0):
    return f"{share * 100:.{digits}f}"


def median(values):
    return statistics.median(values)


def table_rows(lines):
    """Cells of the rows of Markdown tables, heads and rules left out."""
    rows = [[cell.strip() for cell in line.strip("| \n").split("|")] for line in lines.splitlines()
            if line.startswith("|")]
    return [row for row, rule in zip(rows, [*rows[1:], ["end"]])
            if not set(row[0]) <= set("-: ") and not set(rule[0]) <= set("-: ")] if rows else []


def numbers(cell):
    return [float(number) for number in re.findall(r"\d+(?:\.\d+)?", cell)]
