#!/usr/bin/env python3
"""Holds a library's machine code to what its kernels are meant to be.

    sass_check.py LIBRARY ARCH... [--scheduler ARCH...]

The scheduler's kernels are looked for on the architectures after --scheduler only, by default on all.

Each rule names kernels by a pattern and says which instructions one of them must have and which none
may have. A rule that no kernel matches is an error, so that a renamed kernel is noticed. Prints one
line per rule. Needs cuobjdump and, beside it, nvdisasm.
"""
import argparse
import re
import subprocess
import sys

# Patterns of mangled names; opcodes as in SASS, before the first dot.
# LDL and STL are accesses to a thread's local memory: spills, or arrays that were indexed at run time.
LOCAL = {"LDL", "STL"}
RULES = [
    # name, kernels, architectures, all of these, one of these, none of these
    ("bulk copies by the copy engine", r"bulk_rotation_kernel", r"sm_(90|100)", {"UBLKCP"}, set(), LOCAL),
    ("vector copies, 16 bytes at a time", r"vector_rotation_kernel", r"", {"LDG", "STG"}, set(), LOCAL),
    ("products of warpgroups, fed by bulk copies", r"WarpgroupProductKernel", r"sm_90a", {"HGMMA", "UBLKCP", "SYNCS"},
     set(), LOCAL | {"HMMA"}),
    ("products of few rows, fed by bulk copies", r"NarrowProductKernel", r"sm_90a", {"HMMA", "LDSM", "UBLKCP", "SYNCS"},
     set(), LOCAL | {"HGMMA"}),
    ("kernels that overlap wait for each other", r"(Narrow|Warpgroup)ProductKernel|NormKernel", r"sm_90a", {"ACQBULK"},
     set(), set()),
    ("products of warps, fed by asynchronous copies", r"_13ProductKernelI", r"", {"HMMA", "LDSM", "LDGSTS"}, set(),
     LOCAL | {"HGMMA"}),
    ("attention on matrix units", r"ChunkAttentionKernel|TileAttentionKernelILj\d+ELb0", r"", {"HMMA", "LDGSTS"}, set(),
     LOCAL | {"HGMMA"}),
    ("prompts' attention by warpgroups", r"TileAttentionKernelILj\d+ELb1", r"sm_90a", {"HGMMA", "LDGSTS"}, set(),
     LOCAL | {"HMMA"}),
    ("the scheduler launches graphs", r"window_kernel", r"", set(), {"CALL", "BAR"}, set()),
    ("conditions are set, nothing is launched", r"round_kernel", r"", set(), {"CALL", "BAR"}, set()),
]
# Of device/cuda/launch, which a build may leave out for some architectures.
SCHEDULER = {r"window_kernel", r"round_kernel"}
WIDE = re.compile(r"\b(LDG|STG)\.E\.(?:\w+\.)*128")


def kernels(library: str, arch: str) -> dict[str, str]:
    """SASS of each kernel of one architecture, by its mangled name."""
    dump = subprocess.run(
        ["cuobjdump", "--dump-sass", library], check=True, capture_output=True, text=True
    ).stdout
    found: dict[str, str] = {}
    for part in re.split(r"\n(?=Fatbin elf code)", dump):
        if not re.search(rf"^arch = {re.escape(arch)}\b", part, re.M):
            continue
        for function in re.split(r"\n\s*Function : ", part)[1:]:
            name, _, text = function.partition("\n")
            found[name.strip()] = text
    return found


def opcodes(text: str) -> set[str]:
    """Opcodes without their modifiers."""
    instruction = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9]*)")
    return set(instruction.findall(text))


def check_rule(rule: tuple, code: dict[str, str]) -> list[str]:
    name, pattern, _, every, some, none = rule
    matching = {k: opcodes(text) for k, text in code.items() if re.search(pattern, k)}
    if not matching:
        return [f"{name}: no kernel is called {pattern}"]
    wrong = []
    for kernel, ops in matching.items():
        if missing := every - ops:
            wrong.append(f"{name}: {kernel} has no {', '.join(sorted(missing))}")
        if some and not some & ops:
            wrong.append(f"{name}: {kernel} has none of {', '.join(sorted(some))}")
        if bad := none & ops:
            wrong.append(f"{name}: {kernel} has {', '.join(sorted(bad))}")
    if not wrong:
        print(f"  ok  {name}: {len(matching)} kernels")
    return wrong


def check_width(code: dict[str, str]) -> list[str]:
    """Loads and stores of the vector copies are 16 bytes wide."""
    return [
        f"{kernel}: loads or stores are narrower than 16 bytes"
        for kernel, text in code.items()
        if "vector_rotation_kernel" in kernel and set(WIDE.findall(text)) != {"LDG", "STG"}
    ]


def rules(arch: str, with_scheduler: bool) -> list[tuple]:
    """What kernels of this architecture are held to."""
    return [rule for rule in RULES if re.match(rule[2], arch) and (with_scheduler or rule[1] not in SCHEDULER)]


def check_arch(library: str, arch: str, with_scheduler: bool) -> bool:
    """Prints what holds for one architecture, and what does not."""
    code = kernels(library, arch)
    if not code:
        print(f"no machine code for {arch} in {library}", file=sys.stderr)
        return False
    wrong = check_width(code)
    for rule in rules(arch, with_scheduler):
        wrong += check_rule(rule, code)
    for line in wrong:
        print(line, file=sys.stderr)
    print(f"machine code of {len(code)} kernels for {arch}: {'wrong' if wrong else 'as meant'}")
    return not wrong


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("archs", nargs="+")
    parser.add_argument("--scheduler", nargs="+")
    given = parser.parse_args()
    scheduler = given.archs if given.scheduler is None else given.scheduler
    return 0 if all([check_arch(given.library, arch, arch in scheduler) for arch in given.archs]) else 1


if __name__ == "__main__":
    sys.exit(main())
