"""Figures of the documents against the raw data in bench/results, from the root of the tree:

    python3 bench/figures check    says what differs, and which figures nothing recomputes
    python3 bench/figures write    puts the raw data's figures into the documents, then checks
    python3 bench/figures show     prints the README's section "Measured" as the raw data have it
"""
import sys

from claims import ROOT, check, rewritten, section
from documents import DOCUMENTS
from pages import stale_pages, write_pages


def write():
    write_pages()
    for document in DOCUMENTS:
        path = ROOT / document.path
        path.write_text(rewritten(document, path.read_text()))


def show():
    readme = next(d for d in DOCUMENTS if d.path == "README.md")
    text = rewritten(readme, (ROOT / readme.path).read_text())
    start, end = section(text, "## Measured")
    print(text[start:end].rstrip())


def main(command):
    if command == "show":
        return show()
    if command == "write":
        write()
    errors = stale_pages() + [error for document in DOCUMENTS for error in check(document)]
    print("\n".join(errors) or "every figure is that of its raw data")
    sys.exit(bool(errors))


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in ("check", "write", "show"):
        sys.exit(__doc__)
    main(sys.argv[1])
