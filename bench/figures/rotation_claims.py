"""What documents say about the policies under overload, with a real model on the CPU."""
import json
import statistics

from claims import Claim
from raw import fixed, folder
from runs import ROTATION as COMMIT

POLICIES = ("fcfs", "wf", "sf", "lvf", "goodput")
TIMES = "1.3"  # of the closed loop


def runs(policy, times=TIMES):
    paths = sorted(folder(COMMIT, "rotation").glob(f"load-{times}-{policy}-*.json"))
    return [json.loads(path.read_text())["runs"][0] for path in paths]


def goodput(policy):
    """Percent of the requests of each repeat."""
    return [next(a["share"] for a in run["summary"]["attainment"] if a["target"] == "all") * 100
            for run in runs(policy)]


def median(policy):
    return statistics.median(goodput(policy))


def offered():
    return [run["summary"]["offered_rps"] for run in runs("goodput")]


def each(policy):
    return {f"{policy}{i}": fixed(value, 0) for i, value in enumerate(goodput(policy))}


BEST = max((p for p in POLICIES if p != "goodput"), key=median)

def ttft_p99_s(policy):
    return statistics.median(run["summary"]["from_intended"]["ttft_ms"]["p99"] for run in runs(policy)) / 1e3


README = [
    Claim("with KV memory for about 25 requests and {least} to {most} requests/s offered, 1.3 times what a closed loop "
          "completes, the default policy meets both targets of {goodput0}, {goodput1} and {goodput2} % of the requests "
          "in three repeats", {"least": fixed(min(offered()), 1), "most": fixed(max(offered()), 1)} | each("goodput")),
    *(Claim(f"`{policy}` of {{{policy}0}}, {{{policy}1}} and {{{policy}2}} %", each(policy))
      for policy in ("wf", "fcfs", "lvf")),
    Claim("its P99 TTFT is {ours} s, that of `fcfs` {fcfs} s", {
        "ours": fixed(ttft_p99_s("goodput"), 0), "fcfs": fixed(ttft_p99_s("fcfs"), 0)}),
]
POLICIES_PAGE = [
    Claim("with KV memory for about 25 requests and more load than it can serve, `goodput` meets both targets of "
          "{goodput} % of the requests in the median of three repeats, "
          "`wf` of {wf}, `fcfs` of {fcfs}, `sf` of {sf} and `lvf` of {lvf} %",
          {policy: fixed(median(policy), 0) for policy in POLICIES}),
]
ADR = [
    Claim("real model, cpu device, {least} to {most} requests/s",
          {"least": fixed(min(offered()), 1), "most": fixed(max(offered()), 1)}),
    Claim("three repeats, medians (link) | {goodput} % | {best} % (`" + BEST + "`) |",
          {"goodput": fixed(median("goodput"), 0), "best": fixed(median(BEST), 0)}),
]
