"""Turn the unpacked Debian packages into clean prose.

Writes one JSON file per source under CLEAN: a list of documents, each a list of paragraphs (for the
two dictionaries: a list of [headword, definition] pairs). No markup, no licence boilerplate, no
page furniture; typographic quotes and dashes become ASCII so that the small vocabulary is not spent
on two spellings of the same mark.
"""

import gzip
import json
import re
import struct
import zlib

from paths import CLEAN, TEXT

ASCII = str.maketrans({
    "\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\u2014": "--", "\u2013": "-",
    "\u2026": "...", "\u00a0": " ", "\u00b4": "'", "\ufeff": "", "\u2011": "-",
})


def tidy(text):
    text = text.translate(ASCII)
    text = re.sub(r"\[(Illustration|sic|Footnote|Transcriber)[^\]]*\]", "", text, flags=re.I)
    text = re.sub(r"_([^_\n]{1,200})_", r"\1", text)  # _italics_
    text = text.replace("_", " ").replace("*", "").replace("``", '"').replace("''", '"')
    text = re.sub(r"\s+", " ", text)
    text = re.sub(r" ?--+ ?", "--", text)
    text = re.sub(r" ([,;.!?])", r"\1", text)
    return text.strip()


def paragraphs(text):
    for block in re.split(r"\n\s*\n", text):
        yield block.strip("\n")


def is_prose(par):
    letters = sum(c.isalpha() or c == " " for c in par)
    return (
        len(par) >= 20
        and letters / len(par) > 0.85
        and any(c.islower() for c in par)
        and par[-1] in ".!?\"':;,-)"
    )


HEADING = re.compile(
    r"^(CHAPTER|Chapter|VOLUME|Volume|BOOK|ADVENTURE|EPILOGUE|ETYMOLOGY|EXTRACTS|PREFACE|[IVX]+\.?$"
    r"|[IVX]+\. (THE )?[A-Z])"
)


def split_chapters(text):
    """Chapters as lists of prose paragraphs; headings and other furniture are dropped."""
    chapters, current = [], []
    for block in paragraphs(text):
        head = block.strip()
        if HEADING.match(head) and len(head) < 120:
            if current:
                chapters.append(current)
            current = []
            continue
        par = tidy(block)
        if is_prose(par):
            # A first word in capitals ("MOST of the adventures") is typography, not emphasis.
            if not current:
                par = re.sub(r"^[A-Z]{2,}\b", lambda m: m[0].capitalize(), par)
            current.append(par)
    if current:
        chapters.append(current)
    return [c for c in chapters if sum(map(len, c)) > 600]


def strip_gutenberg(text):
    text = text.replace("\r", "")
    start = re.search(r"\*\*\* ?START OF TH.*?\*\*\*", text, re.S)
    end = re.search(r"\*\*\* ?END OF TH|End of (the )?Project Gutenberg", text)
    return text[start.end() if start else 0:end.start() if end else len(text)]


def r_strings(path):
    """The character vectors in an R lazy-load database (one zlib stream per object)."""
    raw, at = path.read_bytes(), 0
    while at < len(raw):
        stream = zlib.decompressobj()
        data = stream.decompress(raw[at + 4:])
        at = len(raw) - len(stream.unused_data)
        # Header: "X\n", three version words, native encoding; then STRSXP (16) and its length.
        head = re.search(rb"\0\0[\0\x02]\x10(.{4})", data, re.S)
        count, pos = struct.unpack(">I", head[1])[0], head.end()
        strings = []
        for _ in range(count):
            _flags, size = struct.unpack(">Ii", data[pos:pos + 8])
            pos += 8
            strings.append("" if size < 0 else data[pos:pos + size].decode("utf-8"))
            pos += max(size, 0)
        yield strings


def austen():
    path = TEXT / "r-cran-janeaustenr/usr/lib/R/site-library/janeaustenr/data/Rdata.rdb"
    for lines in r_strings(path):
        yield from split_chapters("\n".join(lines))


def moby_dick():
    path = TEXT / "r-cran-tokenizers/usr/lib/R/site-library/tokenizers/data/Rdata.rdb"
    for strings in r_strings(path):
        text = strip_gutenberg("\n".join(strings))
        begin = text.find("Call me Ishmael")
        yield from split_chapters(text[max(begin, 0):])


LZ4 = "golang-github-pierrec-lz4-dev/usr/share/gocode/src/github.com/pierrec/lz4/testdata/"


def sherlock_holmes():
    text = strip_gutenberg((TEXT / (LZ4 + "pg1661.txt")).read_text("utf-8"))
    yield from split_chapters(text[text.find("ADVENTURE I. A SCANDAL"):])


def tom_sawyer():
    text = (TEXT / (LZ4 + "Mark.Twain-Tom.Sawyer.txt")).read_text("utf-8", errors="ignore")
    yield from split_chapters(text.replace("\r", "")[text.find("MOST of the adventures"):])


# Narrative and proverb books only: law codes, genealogies and prophecy in verse are left out.
BIBLE_BOOKS = (
    "Gen Exod Josh Judg Ruth 1Sam 2Sam 1Kgs 2Kgs Neh Esth Tob Jdt Prov Eccl Dan Jonah "
    "Matt Mark Luke John Acts Jas"
).split()


def world_english_bible():
    base = TEXT / "sword-text-web/usr/share/sword/modules/texts/ztext/engWEB2015eb"
    for part in ("ot", "nt"):
        index, packed = (base / f"{part}.bzs").read_bytes(), (base / f"{part}.bzz").read_bytes()
        for i in range(len(index) // 12):
            offset, size, _ = struct.unpack("<III", index[12 * i:12 * i + 12])
            if not size:
                continue
            text = zlib.decompress(packed[offset:offset + size]).decode("utf-8")
            book = re.search(r'<chapter [^>]*osisID="([^".]+)', text)
            if not book or book[1] not in BIBLE_BOOKS:
                continue
            for chapter in re.split(r"<chapter [^>]*sID=[^>]*>", text)[1:]:
                chapter = re.sub(r"<note.*?</note>|<title.*?</title>", " ", chapter, flags=re.S)
                chapter = re.sub(r'<div [^>]*eID="[^"]*"[^>]*type="x-p"/>', "\n\n", chapter)
                chapter = re.sub(r"<[^>]*>", "", chapter).replace("\0", " ").replace("\u2019\u201d", "\u201d")
                pars = [p for p in map(tidy, paragraphs(chapter)) if is_prose(p)]
                if sum(map(len, pars)) > 600:
                    yield pars


def devils_dictionary():
    text = gzip.decompress((TEXT / "dict-devil/usr/share/dictd/devil.dict.dz").read_bytes())
    pairs = []
    for block in paragraphs(text.decode("utf-8", errors="ignore")):
        entry = re.match(r"([A-Z][A-Z' -]+), (?:n|adj|v\.[ti]|adv|pp|v)\.\s+(.*)", block, re.S)
        if entry:
            definition = tidy(entry[2])
            if is_prose(definition) and len(definition) < 900:
                pairs.append([entry[1].lower(), definition])
    return pairs


def jargon_file():
    text = gzip.decompress((TEXT / "dict-jargon/usr/share/dictd/jargon.dict.dz").read_bytes())
    text = text.decode("utf-8", errors="ignore")
    pairs = []
    for entry in re.split(r"\n\n(?=\S)", text):
        head, _, body = entry.partition("\n")
        if not re.fullmatch(r"[A-Za-z][A-Za-z '-]{2,30}", head):
            continue
        pars = []
        for block in paragraphs(body):
            # Indented further than the entry's own text: figures, programs, verse.
            if not block.startswith("    ") or block.startswith("     "):
                continue
            par = block.replace("{", "").replace("}", "")
            par = re.sub(r"\[[^\]]*\]", "", par)
            par = re.sub(r"^\s*\d+\. ", "", par)
            par = re.sub(r"(Compare|See also|See|Contrast|Oppose)\b[^.]*\.", "", par)
            par = tidy(par)
            if is_prose(par) and "http" not in par and "@" not in par:
                pars.append(par)
        if pars:
            pairs.append([head, pars])
    return pairs


def main():
    CLEAN.mkdir(parents=True, exist_ok=True)
    for source in (
        austen, moby_dick, sherlock_holmes, tom_sawyer, world_english_bible,
        devils_dictionary, jargon_file,
    ):
        documents = list(source())
        out = CLEAN / f"{source.__name__}.json"
        out.write_text(json.dumps(documents, indent=0, ensure_ascii=False), "utf-8")
        print(f"{source.__name__:20} {len(documents):5} documents {out.stat().st_size:9} bytes")


if __name__ == "__main__":
    main()
