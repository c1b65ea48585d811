"""The reader of deny.toml: each kind of violation is found, and what is fine is not."""

import unittest

import check

CRATES_IO = "registry+https://github.com/rust-lang/crates.io-index"


def package(name="one", version="1.0.0", licence="MIT", source=CRATES_IO, dependencies=()):
    return {"name": name, "version": version, "license": licence, "source": source, "dependencies": list(dependencies)}


class Expressions(unittest.TestCase):
    def test_what_allowed_licences_satisfy(self):
        allowed = {"MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "ISC"}
        for expression, fine in [
            ("MIT", True),
            ("GPL-3.0-only", False),
            ("GPL-3.0-only OR MIT", True),
            ("MIT/GPL-3.0-only", True),
            ("MIT AND GPL-3.0-only", False),
            ("GPL-3.0-only AND MIT OR ISC", True),
            ("GPL-3.0-only AND (MIT OR ISC)", False),
            ("ISC AND (GPL-3.0-only OR MIT)", True),
            ("Apache-2.0 WITH LLVM-exception", True),
            ("MIT WITH LLVM-exception", False),
        ]:
            self.assertEqual(check.satisfied(expression, allowed), fine, expression)
        for broken in ["", "OR MIT", "MIT ISC", "(MIT", "MIT AND", "MIT)"]:
            with self.assertRaises(ValueError, msg=broken):
                check.satisfied(broken, allowed)


class Rules(unittest.TestCase):
    def test_licences(self):
        rules = {"allow": ["MIT"], "exceptions": [{"crate": "two", "allow": ["MPL-2.0"]}]}
        fine = [package(), package("two", licence="MPL-2.0"), package("ours", licence=None, source=None)]
        self.assertEqual(check.wrong_licences(fine, rules), [])
        for licence in ["MPL-2.0", None, "MIT ISC"]:
            self.assertEqual(len(check.wrong_licences([*fine, package("three", licence=licence)], rules)), 1)
        self.assertIn("two, which is not used", check.wrong_licences([package()], rules)[0])

    def test_bans(self):
        rules = {"deny": [{"crate": "tls"}, {"crate": "io", "deny-multiple-versions": True}]}
        self.assertEqual(check.banned([package(), package("io")], rules), [])
        self.assertEqual(len(check.banned([package("tls")], rules)), 1)
        self.assertEqual(len(check.banned([package("io"), package("io", "2.0.0")], rules)), 1)
        needs = [{"name": "x", "req": "*", "path": "/here"}, {"name": "y", "req": "*"}]
        self.assertEqual(len(check.banned([package("ours", source=None, dependencies=needs)], rules)), 1)

    def test_sources(self):
        rules = {"allow-registry": ["https://github.com/rust-lang/crates.io-index"]}
        self.assertEqual(check.foreign([package(), package(source=None)], rules), [])
        self.assertEqual(len(check.foreign([package(source="git+https://example.org/x")], rules)), 1)

    def test_a_rule_that_would_be_ignored_is_refused(self):
        with self.assertRaises(SystemExit):
            check.check_rules({"licenses": {"deny": ["MIT"]}, "bans": {"deny": []}})
        with self.assertRaises(SystemExit):
            check.check_rules({"bans": {"deny": [{"crate": "x", "wrappers": ["y"]}]}})


if __name__ == "__main__":
    unittest.main()
