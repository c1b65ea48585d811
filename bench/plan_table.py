#!/usr/bin/env python3
"""What bench/plan.sh left in a folder.

    plan_table.py FOLDER         Markdown: summaries of all files, and the tables of some (SHOWN)
    plan_table.py --thin FILE    leaves out what only a page's plots over time need; one row a line
"""
import json
import pathlib
import sys

SHOWN = ("Qwen2.5-32B-sharegpt-1200", "Qwen2.5-32B-lmsys-1200", "qwen-sharegpt", "qwen-one-tier", "fleet", "fleet-h100")
BEYOND = (1.05, 1.15, 1.3)  # times the capacity
GOODPUT, TTFT = ("goodput", "Goodput, %"), ("ttft", "TTFT in time, %")
TBT_MEAN, TBT_P99 = ("tbt_mean", "Mean TBT in time, %"), ("tbt_p99", "P99 TBT in time, %")
TBT_TOKEN = ("tbt_per_token", "Gaps in time, %")


def policies_of(plan):
    return list(dict.fromkeys(row["policy"] for row in plan["rows"]))


def cell(plan, rate, policy, value):
    rows = [r for r in plan["rows"] if r["rate_rps"] == rate and r["policy"] == policy]
    return value(rows[0]) if rows else "–"


def table(plan, title, value):
    """One row per rate, one column per policy."""
    policies = policies_of(plan)
    print(f"| {title} at requests/s (× capacity) | " + " | ".join(policies) + " |")
    print("|---" * (len(policies) + 1) + "|")
    for rate in dict.fromkeys(r["rate_rps"] for r in plan["rows"]):
        times = rate / plan["capacity_rps"]
        cells = [cell(plan, rate, p, value) for p in policies]
        print(f"| {rate:.1f} ({times:.2f} ×) | " + " | ".join(cells) + " |")
    print()


def share(name):
    return lambda row: f"{row['attainment'][name] * 100:.1f}"


def refused(row):
    return f"{row.get('refused', 0) / row['requests'] * 100:.1f}"


def capacity(plan):
    found = plan.get("capacity")  # not in saccade-plan/1
    text = f"capacity {plan['capacity_rps']:.1f} requests/s"
    if found is None:
        return text
    seqs = f"at most {found['num_seqs']} at once keep it" if found["num_seqs"] else "not even one keeps it"
    return f"{text} within the TBT target ({seqs}), all at once {found['flood_rps']:.1f}"


def show(path):
    plan = json.loads(path.read_text())
    print(f"### {path.stem}\n")
    print(f"{plan['model']} on {plan['device']}, {plan['kv_tokens']:,} tokens of KV, {plan['copies']} copies, "
          f"burstiness {plan['burstiness']}, seed {plan['seed']}; {capacity(plan)}.\n")
    if "fleets" in plan:
        print("| requests/s | policy | devices | goodput, % | with one less, % | which fails by |\n" + "|---" * 6 + "|")
        for f in plan["fleets"]:
            less = f["one_less"]
            goodput_less, fails_by = ("–", "–") if less is None else (f"{less['goodput'] * 100:.1f}", less["fails_by"])
            goodput = f["outcome"]["attainment"]["goodput"] * 100
            print(f"| {f['rate_rps']:.0f} | {f['policy']} | {f['devices']} | {goodput:.1f} | {goodput_less} "
                  f"| {fails_by} |")
        print()
        return
    for name, title in (GOODPUT, TTFT, TBT_MEAN, TBT_TOKEN, TBT_P99):
        table(plan, title, share(name))
    table(plan, "Refused, %", refused)
    table(plan, "Output tokens/s", lambda r: f"{r['output_tokens_per_s']:,.0f}")
    table(plan, "TTFT P99 / longest, s", lambda r: f"{r['ttft']['p99']:.1f} / {r['ttft']['max']:.1f}")
    table(plan, "TBT P99, ms", lambda r: f"{r['tbt']['p99'] * 1e3:.0f}")
    table(plan, "Virtual seconds per second of CPU", lambda r: f"{r['speedup']:,.0f}")


def speed(rows):
    """Virtual seconds per second of CPU, of all rows together."""
    return sum(r["simulated_s"] for r in rows) / sum(r["simulated_s"] / r["speedup"] for r in rows)


def summary(plans):
    """goodput next to the best of the others, one line per file and rate."""
    print("### `goodput` beside the best of the others\n")
    print("| file | requests/s (× capacity) | goodput, %: `goodput` | best other | ahead by"
          " | 0.9 of capacity ÷ rate | mean TBT in time, %: `goodput` / `fcfs` | gaps in time | longest TTFT, s"
          " | refused, % |")
    print("|---" * 10 + "|")
    for name, plan in plans:
        for rate in dict.fromkeys(r["rate_rps"] for r in plan["rows"]):
            rows = {r["policy"]: r for r in plan["rows"] if r["rate_rps"] == rate}
            if not {"goodput", "fcfs"} <= rows.keys():
                continue
            ours, fcfs, times = rows.pop("goodput"), rows["fcfs"], rate / plan["capacity_rps"]
            best = max(rows.values(), key=lambda r: r["attainment"]["goodput"])
            wanted = f"{90 / times:.0f}" if times > 1 else "–"
            ahead = (ours["attainment"]["goodput"] - best["attainment"]["goodput"]) * 100
            cells = [share("goodput")(ours), f"{share('goodput')(best)} (`{best['policy']}`)", f"{ahead:.1f}", wanted]
            cells += [f"{share(what)(ours)} / {share(what)(fcfs)}" for what in ("tbt_mean", "tbt_per_token")]
            cells.append(f"{ours['ttft']['max']:.0f} / {fcfs['ttft']['max']:.0f}")
            cells.append(f"{refused(ours)} / {refused(fcfs)}")
            print(f"| {name} | {rate:.1f} ({times:.2f} ×) | " + " | ".join(cells) + " |")
    print()


def speeds(plans):
    """How fast each file was simulated, by policy."""
    print("### Virtual seconds per second of CPU, all rates of a file together\n")
    policies = list(dict.fromkeys(p for _, plan in plans for p in policies_of(plan)))
    print("| file | all | " + " | ".join(policies) + " |\n" + "|---" * (len(policies) + 2) + "|")
    for name, plan in plans:
        by_policy = [[r for r in plan["rows"] if r["policy"] == p] for p in policies]
        cells = [f"{speed(rows):,.0f}" if rows else "–" for rows in (plan["rows"], *by_policy)]
        print(f"| {name} | " + " | ".join(cells) + " |")
    print()


def xfer(folder):
    """LVF by blocks that may change hands."""
    files = sorted(folder.glob("qwen-xfer-*.json"), key=lambda p: (p.stem.split("-")[2], int(p.stem.split("-")[3])))
    if not files:
        return
    print("### LVF by B_xfer\n\n| copies | blocks | " + " | ".join(
        f"{t} × capacity: goodput · TTFT · mean TBT, %; TTFT P99 s; TBT P99 ms" for t in (1, 1.15, 1.3)) + " |")
    print("|---|---|---|---|---|")
    for path in files:
        plan = json.loads(path.read_text())
        cells = []
        for row in plan["rows"]:
            a = row["attainment"]
            shares = " · ".join(f"{a[name] * 100:.0f}" for name in ("goodput", "ttft", "tbt_mean"))
            cells.append(f"{shares}; {row['ttft']['p99']:.1f}; {row['tbt']['p99'] * 1e3:.0f}")
        print(f"| {plan['copies']} | {path.stem.split('-')[3]} | " + " | ".join(cells) + " |")
    print()


def shares_of(plan, times):
    """(goodput, the best of the others), percent, at that multiple of the capacity."""
    rows = {r["policy"]: r["attainment"]["goodput"] * 100 for r in plan["rows"]
            if abs(r["rate_rps"] / plan["capacity_rps"] - times) < 0.005}
    return rows.pop("goodput"), max(rows.values())


def sustained(plans):
    """`goodput` in long overloads, one line per model and kind of lengths."""
    by_name, overloads = dict(plans), {}
    for name in by_name:
        if name.endswith("-600") and name.removesuffix("-600") + "-1200" in by_name:
            overloads[name.removesuffix("-600")] = [by_name[name], by_name[name.removesuffix("-600") + "-1200"]]
    if not overloads:
        return
    at = ", ".join(map(str, BEYOND))
    print("### `goodput` in overloads of ten and of twenty minutes\n")
    print(f"| model, lengths | goodput, % at {at} × capacity: ten minutes | twenty | points ahead of the best other: "
          "ten minutes | twenty |\n|---|---|---|---|---|")
    for name, both in overloads.items():
        pairs = [[shares_of(plan, times) for times in BEYOND] for plan in both]
        shares = [", ".join(f"{ours:.1f}" for ours, _ in each) for each in pairs]
        ahead = [", ".join(f"{ours - other:.0f}" for ours, other in each) for each in pairs]
        print(f"| {name} | " + " | ".join(shares + ahead) + " |")
    print()


def thin(path):
    plan = json.loads(path.read_text())
    for row in plan.get("rows", []):
        row.pop("over_time", None)
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in plan.items() if key != "rows"]
    if "rows" in plan:
        lines.append('"rows": [\n' + ",\n".join(map(json.dumps, plan["rows"])) + "\n]")
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def main():
    if sys.argv[1] == "--thin":
        return thin(pathlib.Path(sys.argv[2]))
    folder = pathlib.Path(sys.argv[1])
    paths = [path for path in sorted(folder.glob("*.json")) if "-xfer-" not in path.stem]
    plans = [(path.stem, json.loads(path.read_text())) for path in paths]
    compared = [(name, plan) for name, plan in plans if "rows" in plan]
    sustained(compared)
    summary(compared)
    xfer(folder)
    for path in paths:
        if path.stem in SHOWN:
            show(path)
    speeds(compared)


if __name__ == "__main__":
    main()
