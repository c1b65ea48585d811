"""Checks what documents say against raw data.

A claim is a piece of a document's text with its figures as {names}, and the value of each by the raw data. The text is
found in the document whatever its line breaks. In every paragraph that links to bench/results, and in the sections
that a document names, each number must belong to a claim: a figure that nothing recomputes is an error.
"""
import pathlib
import re
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[2]
RESULTS = ROOT / "bench" / "results"

NUMBER = r"[+-]?\d[\d,]*(?:\.\d+)?"
FIELD = re.compile(r"\{(\w+)\}")
LINK = "(link)"  # in a claim: any link in brackets
# What may contain digits but is no figure: code, targets of links, names of commits and dates in the text of links.
NO_FIGURE = re.compile(r"`[^`]*`|\]\([^)]*\)|\[[0-9a-f]{7}(?=\])|ADR \d+")
# H100, P99, Llama-3-8B and bf16 are names.
FIGURE = re.compile(r"(?<![\w.-])\d")


class Claim(NamedTuple):
    text: str
    figures: dict


class Document(NamedTuple):
    path: str  # from the root
    claims: list
    sections: tuple = ()  # headings, with their #s, whose numbers all belong to claims


def pattern(text):
    """The text as an expression: any white space is like any other, figures are groups."""
    pieces = FIELD.split(text)
    literal = [re.sub(r"(?:\\?\s)+", r"\\s+", re.escape(piece)) for piece in pieces[::2]]
    literal = [piece.replace(re.escape(LINK), r"\(\[[^\]]*\]\([^)]*\)\)") for piece in literal]
    fields = [f"(?P<{name}>{NUMBER})" for name in pieces[1::2]]
    return re.compile("".join(a + b for a, b in zip(literal, [*fields, ""])))


def matches(document, text):
    """(claim, match) of each claim, and errors about claims that are not in the text exactly once."""
    found, errors = [], []
    for claim in document.claims:
        if set(FIELD.findall(claim.text)) != set(claim.figures):
            raise ValueError(f"{document.path}: fields and figures differ: {claim.text}")
        hits = list(pattern(claim.text).finditer(text))
        if len(hits) == 1:
            found.append((claim, hits[0]))
        else:
            errors.append(f"{document.path}: found {len(hits)} times: {claim.text}")
    return found, errors


def wrong_figures(document, found):
    return [f"{document.path}: says {match[name]}, the raw data {value}: {claim.text}"
            for claim, match in found for name, value in claim.figures.items() if match[name] != value]


def section(text, heading):
    """From a heading to the next of the same or a higher level."""
    level = len(heading) - len(heading.lstrip("#"))
    start = text.index(f"{heading}\n")
    end = re.search(rf"^#{{1,{level}}} ", text[start + len(heading):], re.MULTILINE)
    return start, start + len(heading) + end.start() if end else len(text)


def scopes(document, text):
    """Parts of the text, (start, end), in which every figure must be a claim's: sections, and paragraphs, items of
    lists and rows of tables that link to results."""
    parts = [section(text, heading) for heading in document.sections]
    for paragraph in re.finditer(r"(?:^(?!\s*$).*\n?)+", text, re.MULTILINE):
        items = [m.start() for m in re.finditer(r"^\s*- |^\|", paragraph[0], re.MULTILINE)]
        edges = sorted({0, *items, len(paragraph[0])})
        for a, b in zip(edges, edges[1:]):
            if re.search(r"\]\([^)]*(?:bench/results|\.\./20\d\d-)[^)]*\)", paragraph[0][a:b]):
                parts.append((paragraph.start() + a, paragraph.start() + b))
    return parts


def uncovered(document, text, found):
    blank = lambda match: re.sub(r"\S", " ", match[0])
    rest = list(NO_FIGURE.sub(blank, text))
    for _, match in found:
        rest[match.start():match.end()] = " " * (match.end() - match.start())
    rest = "".join(rest)
    spots = sorted({start + m.start() for start, end in scopes(document, text)
                    for m in FIGURE.finditer(rest[start:end])})
    return [f"{document.path}: no claim has: …{' '.join(text[max(0, at - 50):at + 30].split())}…" for at in spots]


def check(document):
    """Errors, in words."""
    text = (ROOT / document.path).read_text()
    found, errors = matches(document, text)
    return errors + wrong_figures(document, found) + uncovered(document, text, found)


def rewritten(document, text):
    """The text with the figures of the raw data."""
    found, _ = matches(document, text)
    edits = [(*match.span(name), value) for claim, match in found for name, value in claim.figures.items()]
    for start, end, value in sorted(edits, reverse=True):
        text = text[:start] + value + text[end:]
    return text
