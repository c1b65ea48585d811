"""What documents say about the policies, simulated by `saccade plan`."""
import sys

from claims import ROOT, Claim
from raw import fixed, folder, percent, record
from runs import PLAN as COMMIT

sys.path.insert(0, str(ROOT / "bench"))
import plan_table  # noqa: E402

ABOUT = "plan-simulated"
BEYOND = (1.05, 1.15, 1.3)  # times the capacity
BELOW = (0.8, 0.95)


def rows(name, times):
    """policy -> row, at that multiple of the capacity."""
    plan = record(COMMIT, ABOUT, name)
    return {row["policy"]: row for row in plan["rows"] if abs(row["rate_rps"] / plan["capacity_rps"] - times) < 0.005}


def goodput(name, times, policy="goodput"):
    return rows(name, times)[policy]["attainment"]["goodput"]


def best_other(name, times):
    return max(row["attainment"]["goodput"] for policy, row in rows(name, times).items() if policy != "goodput")


def beyond(text, name, ours=True, others=True):
    figures = {}
    for i, times in enumerate(BEYOND):
        if ours:
            figures[f"g{i}"] = percent(goodput(name, times))
        if others:
            figures[f"o{i}"] = percent(best_other(name, times))
    return Claim(text, figures)


def least(names, of):
    return percent(min(of(name, times) for name in names for times in BELOW))


MODELS = [f"{model}-{workload}-below" for model in ("Llama-3-8B", "Mixtral-8x7B", "Qwen2.5-32B")
          for workload in ("sharegpt", "lmsys")]
SHARES = " | {g0}, {g1}, {g2} % | {o0}, {o1}, {o2} % |"

ADR = [
    beyond("simulated, Qwen2.5-32B on a GH200, ShareGPT-like, twenty minutes at 1.05, 1.15, 1.3 times the capacity"
           " (link)" + SHARES, "Qwen2.5-32B-sharegpt-1200"),
    beyond("simulated, the same LMSYS-like, where steps are the limit and not memory" + SHARES,
           "Qwen2.5-32B-lmsys-1200"),
    beyond("simulated, ShareGPT-like without host memory, ten minutes (link)" + SHARES, "qwen-one-tier"),
    Claim("simulated, six pairs of model and lengths below the capacity, five minutes | {g} % | {o} % |",
          {"g": least(MODELS, goodput), "o": least(MODELS, best_other)}),
    beyond("simulated, Llama-3-8B on a GH200, ShareGPT-like, ten minutes at 1.05, 1.15, 1.3 times (link)" + SHARES,
           "Llama-3-8B-sharegpt-600"),
]
def speeds():
    """Virtual seconds per second of CPU, of each file."""
    files = (record(COMMIT, ABOUT, path.stem) for path in folder(COMMIT, ABOUT).glob("*.json"))
    return [plan_table.speed(plan["rows"]) for plan in files if "rows" in plan]


PLAN = [
    Claim("beside compilers, the files of `bench/plan.sh` came to {least} to {most}", {
        "least": fixed(min(speeds()), 0), "most": fixed(max(speeds()), 0)}),
    Claim("for two minutes at 1.05 times the capacity every policy meets all targets, because memory was "
          "empty at the start; for twenty minutes only `goodput` meets nearly all: {ours} %, the best of the others "
          "{other} %", {
        "ours": percent(goodput("Qwen2.5-32B-sharegpt-1200", 1.05)),
        "other": percent(best_other("Qwen2.5-32B-sharegpt-1200", 1.05))}),
]
