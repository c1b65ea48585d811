"""What ADR 4 says a first build takes."""
import json

from claims import Claim, Document
from raw import fixed, record, text
from runs import BUILD as COMMIT

CRATES = [json.loads(line) for line in text(COMMIT, "build", "crates.jsonl").splitlines()]


def of_hub(crate):
    """No other feature needs it."""
    return all("default" in build or "hub" in build for build in crate["builds"])


def share(crates):
    return fixed(sum(c["seconds"] for c in crates) / sum(c["seconds"] for c in CRATES))


HUB = [crate for crate in CRATES if of_hub(crate)]
OURS = [crate for crate in CRATES if crate["name"].startswith("saccade")]

ADR = Document("docs/adr/0004-libraries.md", [
    Claim("A first build compiles {all} crates and takes {wall} s on two cores",
          {"all": str(len(CRATES)), "wall": fixed(record(COMMIT, "build", "build")["wall_s"], 0)}),
    Claim("{hub} of them are the hub client's alone, most for Xet's transfers, and take {share} of the crates' time; our "
          "own take {ours}", {"hub": str(len(HUB)), "share": share(HUB), "ours": share(OURS)}),
])
