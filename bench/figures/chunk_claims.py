"""What ADR 15 says about the codecs of chunks."""
import json

from claims import Claim, Document
from raw import fixed, text
from runs import CHUNKS as COMMIT

ABOUT = "chunks"
ROWS = {row["codec"]: row for row in map(json.loads, text(COMMIT, ABOUT, "codecs.jsonl").splitlines())}


def rate(gbps):
    return fixed(gbps, 0 if gbps >= 10 else 1)


def claim(codec):
    row = ROWS[codec]
    rates = {name: rate(row[f"{name}_gbps"]) for name in ("encode", "decode", "coder")}
    return Claim(f"| {codec} | {{ratio}} | {{encode}} | {{decode}} | {{coder}} |",
                 {"ratio": fixed(row["ratio"])} | rates)


ADR = Document("docs/adr/0015-chunks.md",
               [claim(codec) for codec in ("lossless", "bins-rans", "bins-zstd", "bins-deflate", "cachegen")])
