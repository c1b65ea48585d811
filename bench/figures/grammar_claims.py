"""What the frontend's README says about grammars."""
import re

from claims import Claim, Document
from raw import text
from runs import MASKBENCH as COMMIT


def counted(name):
    found = re.search(rf"^{name} (\d+)$", text(COMMIT, "maskbench", "maskbench.txt"), re.MULTILINE)
    return f"{int(found[1]):,}"


README = Document("crates/frontend/README.md", [
    Claim("Of MaskBench's {schemas} schemas {passing} compile and judge each of their instances as the benchmark does; "
          "{accepted} accept an instance that they must not",
          {"schemas": counted("schemas"), "passing": counted("passing"),
           "accepted": counted("accepted an invalid instance")}),
])
