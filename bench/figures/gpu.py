"""Claims about the runs on a GPU."""
import statistics
import sys

from claims import ROOT, Claim
from raw import fixed, record
from runs import GPU as NOW
from runs import GPU_FIRST as FIRST
from runs import GPU_LATER as LATER
from runs import GPU_TICK as TICK

sys.path.insert(0, str(ROOT / "bench" / "gpu"))
import table  # noqa: E402

LLAMA = "model-llama3-8b"


def of(commit, name):
    return record(commit, "gpu", name)


def steps(commit, model, kind, key, value):
    """way -> step, of what that run has."""
    return dict(table.at(of(commit, model), kind, key, value))


def fastest(commit, model, kind, key, value):
    return table.best(steps(commit, model, kind, key, value).items())[1]


def bandwidth(commit, model, way=None):
    found = steps(commit, model, "decode", "batch", 1)
    step = found[way] if way else table.best(found.items())[1]
    return step["roofline_ms"] / step["ms"]


def torch_over_ours(commit, batch):
    theirs = next(d["ms"] for d in of(commit, "torch")["decode"] if d["batch"] == batch)
    return theirs / fastest(commit, LLAMA, "decode", "batch", batch)["ms"]


def torch_prefill_tflops(rows, commit=NOW):
    return next(p["tflops"] for p in of(commit, "torch")["prefill"] if p["rows"] == rows)


def prefill(commit, way=None, rows=4096):
    found = steps(commit, LLAMA, "prefill", "rows", rows)
    return found[way] if way else table.best(found.items())[1]


def rotation(commit):
    """(by the GPU's threads at their best, by the copy engines at theirs), GB/s both ways at once."""
    rates = of(commit, "rotation")["rotation"]
    engines = table.duplex_peak(rates)
    return max(r["both_gb_s"] for r in rates if not r["way"].startswith("copy engines")), engines


def beside_rotation(commit, down, up):
    """A decode step at batch 64 during rotation by vector accesses over the same alone."""
    found = of(commit, LLAMA)
    beside = next(b for b in found["decode_beside_rotation"]
                  if table.blocks_of(b) == (down, up) and b["way"] == "vector")
    return beside["ms"] / next(d["ms"] for d in found["decode"] if d["batch"] == beside["batch"])


def makespan(commit, model, batch):
    return makespan_of(of(commit, "makespan"), model, batch)


def makespan_of(found, model, batch):
    found = next(m for m in table.makespans(found) if m["model"].startswith(model) and m["batch"] == batch)
    return statistics.geometric_mean(w["device_over_host"] for w in found["workloads"])


def beside_hogs(commit, placement, hogs, key):
    return next(row[key] for row in table.conditions(of(commit, "interference"))
                if (row["placement"], row["name"]) == (placement, f"cpu x{hogs}"))


def micro(commit, way, gap, percentile="p50"):
    return of(commit, "micro")[way][gap][percentile]


def tick(commit, way, seats, percentile="p50"):
    return next(b["tick_with_step_us"][percentile] for b in of(commit, "micro")[way]["batches"] if b["seats"] == seats)


def named(digits, **values):
    return {name: fixed(value, digits) for name, value in values.items()}
