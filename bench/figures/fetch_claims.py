"""What docs/fetch.md says about accuracy behind a prefix from a store."""
import json

from claims import Claim, Document
from raw import fixed, percent, text
from runs import FETCH as COMMIT

ROWS = {row["codec"]: row for row in map(json.loads, text(COMMIT, "fetch", "accuracy.jsonl").splitlines())}


def claim(head, codec):
    row = ROWS[codec]
    return Claim(f"| {head} | {{perplexity}} | {{mean}} | {{most}} | {{same}} |", {
        "perplexity": fixed(row["perplexity"]),
        "mean": fixed(row["own_gap_mean_nats"], 3),
        "most": fixed(row["own_gap_max_nats"]),
        "same": percent(row["same_first"]),
    })


PAGE = Document("docs/fetch.md", [
    Claim("| computed | {perplexity} |", {"perplexity": fixed(ROWS["computed"]["perplexity"])}),
    claim("`lossless`", "lossless"),
    claim("`bins-rans`, and the other `bins`", "bins-rans"),
    claim("`cachegen`", "cachegen"),
])
