"""Writes ROWS rows of accounting, and computes from its own numbers what the audit must find.

Usage: independent.py ROWS FILE > expected.json

Nothing here is shared with the audit: ratios are exact fractions, weights whole sevenths of GPU seconds (a MIG slice
is a seventh of a GPU), and percentiles are found by sorting.
"""

import functools
import json
import random
import sys
from fractions import Fraction

PERCENTILES = [1, 5, 10, 25, 50, 75, 90, 95, 99]
MODELS = ["h100", "a100", "v100", "l40s", "a100_1g.10gb"]
PARTITIONS = [f"part{i}" for i in range(12)]


def slices(model):
    return 1 if "1g." in model else 7


ratio_of = functools.cache(Fraction)


def job(rng):
    gpus = rng.choice([1, 1, 1, 2, 4, 8, 8, 16])
    cores = rng.choice([1, 2, 4, gpus, gpus + 1, 2 * gpus, 4 * gpus, 8 * gpus, 12 * gpus, rng.randint(1, 128)])
    model = rng.choices(MODELS, [6, 4, 2, 1, 1])[0]
    seconds = int(rng.expovariate(1 / 7200)) + 1
    return cores, gpus, model, seconds, rng.choice(PARTITIONS)


def elapsed(seconds):
    days, rest = divmod(seconds, 86400)
    clock = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{days}-{clock}" if days else clock


def percentiles(jobs):
    """The lowest ratio whose jobs, with those of lower ones, hold the share of the weight."""
    total = sum(weight for _, weight in jobs)
    found, below, wanted = {}, 0, list(PERCENTILES)
    for ratio, weight in sorted(jobs, key=lambda job: float(job[0])):
        below += weight
        while wanted and below * 100 >= total * wanted[0]:
            found[f"p{wanted.pop(0)}"] = float(ratio)
    return {"gpu_hours": total / 7 / 3600, "percentiles": found}


def main():
    rows, path = int(sys.argv[1]), sys.argv[2]
    rng = random.Random(20260301)
    groups = {}
    caught = {"below_gpus_plus_1": 0, "below_2_per_gpu": 0, "below_4_per_gpu": 0, "below_8_per_gpu": 0}
    missing = {4: 0, 8: 0}
    read = counted = 0
    with open(path, "w") as out:
        out.write("JobID|User|Partition|AllocTRES|Elapsed|State\n")
        for i in range(rows):
            cores, gpus, model, seconds, partition = job(rng)
            tres = f"billing=1,cpu={cores},gres/gpu:{model}={gpus},gres/gpu={gpus},mem=8G,node=1"
            row = f"{i}|u{i % 97}|{partition}|{tres}|{elapsed(seconds)}|COMPLETED\n"
            kind = i % 20
            read += 1
            if kind == 17:  # a job without GPUs
                row = row.replace(f",gres/gpu:{model}={gpus},gres/gpu={gpus}", "")
            elif kind == 18:  # a step
                row = row.replace("|", ".batch|", 1)
            elif kind == 19:  # not readable
                row = row.replace("cpu=", "cpu=x")
            out.write(row)
            if kind >= 17:
                continue
            counted += 1
            ratio, weight = ratio_of(cores, gpus), gpus * slices(model) * seconds
            for name in ("all", "model " + model, "place " + partition):
                groups.setdefault(name, []).append((ratio, weight))
            for key, bound in zip(caught, (gpus + 1, 2 * gpus, 4 * gpus, 8 * gpus)):
                caught[key] += weight if cores < bound else 0
            for goal in missing:
                missing[goal] += max(0, goal * gpus - cores) * seconds
    total = sum(weight for _, weight in groups["all"])
    expected = {
        "read": read,
        "counted": counted,
        "groups": {name: percentiles(jobs) for name, jobs in groups.items()},
        "below": {key: weight / total for key, weight in caught.items()},
        "missing_core_hours": {str(goal): core_seconds / 3600 for goal, core_seconds in missing.items()},
    }
    json.dump(expected, sys.stdout)


if __name__ == "__main__":
    main()
