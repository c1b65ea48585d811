"""What documents say of the policies under overload, with a real model on the CPU."""
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


def blocks(policy):
    return (folder(COMMIT, "rotation") / f"b-xfer-{policy}.txt").read_text().strip()


def each(policy):
    return {f"{policy}{i}": fixed(value, 0) for i, value in enumerate(goodput(policy))}


BEST = max((p for p in POLICIES if p != "goodput"), key=median)

README = [
    Claim("with KV memory for about 25 requests and {least} to {most} requests/s offered, the default policy meets "
          "both "
          "targets of {goodput0}, {goodput1} and {goodput2} % of the requests in three repeats",
          {"least": fixed(min(offered()), 1), "most": fixed(max(offered()), 1)} | each("goodput")),
    Claim("`fcfs` of {fcfs0}, {fcfs1} and {fcfs2} %, `lvf`, whose transfer budget of {blocks} blocks was the best "
          "of four, of "
          "{lvf0}, {lvf1} and {lvf2} %", each("fcfs") | each("lvf") | {"blocks": blocks("lvf")}),
]
POLICIES_PAGE = [
    Claim("`goodput` meets both targets of {goodput} % of the requests in the median of three repeats, "
          "`wf` of {wf}, `fcfs` of {fcfs}, `sf` of {sf} and `lvf` of {lvf} %",
          {policy: fixed(median(policy), 0) for policy in POLICIES}),
]
ADR = [
    Claim("real model, cpu device, {least} to {most} requests/s",
          {"least": fixed(min(offered()), 1), "most": fixed(max(offered()), 1)}),
    Claim("three repeats, medians (link) | {goodput} % | {best} % (`" + BEST + "`) |",
          {"goodput": fixed(median("goodput"), 0), "best": fixed(median(BEST), 0)}),
]
