"""What the frontend's README says about grammars."""
import re

from claims import Claim, Document
from raw import fixed, percent, text
from runs import FORCED, MASKBENCH as COMMIT


def counted(name, file="maskbench.txt"):
    found = re.search(rf"^{name} (\d+)$", text(COMMIT, "maskbench", file), re.MULTILINE)
    return f"{int(found[1]):,}"


def forced():
    """Of MaskBench's tokens; and of the bundled model's calls, the steps that are left by tool_choice."""
    tokens, of_those = re.search(r"tokens (\d+), forced (\d+)", text(FORCED, "forced-tokens", "maskbench.txt")).groups()
    rows = [line.split("|") for line in text(FORCED, "forced-tokens", "forced.md").splitlines()]
    steps = {(row[1].strip(), row[2].strip()): row[5].strip() for row in rows}
    left = {choice: int(steps[choice, "forced"]) / int(steps[choice, "drawn"]) for choice in ("auto", "required")}
    same = [re.search(r"same answer: (\d+) of (\d+)", row[6]) for row in rows if row[2].strip() == "both"]
    return {"share": percent(int(of_those) / int(tokens), 1), "auto": fixed(left["auto"]),
            "required": fixed(left["required"]), "same": str(sum(int(found[1]) for found in same)),
            "all": str(sum(int(found[2]) for found in same))}


README = Document("crates/frontend/README.md", [
    Claim("Of MaskBench's {schemas} schemas {passing} compile and judge each of their instances as the benchmark does; "
          "{accepted} accept an instance that they must not",
          {"schemas": counted("schemas"), "passing": counted("passing"),
           "accepted": counted("accepted an invalid instance")}),
    Claim("With `--max-grammar-kib 768` and `--max-grammar-steps 20000000` {some} do, with 60,000,000 steps {more}",
          {"some": counted("passing", "maskbench-20m.txt"), "more": counted("passing", "maskbench-60m.txt")}),
    Claim("The bundled model calls functions in {auto} (`auto`) and {required} (`required`) of the steps, with the "
          "same answer in {same} of {all} cases; of the tokens of MaskBench's instances {share} % are forced", forced()),
])
