"""The rules by which documents are checked against raw data, on made-up documents; then the documents themselves."""
import re
import subprocess
import unittest

import claims
import pages
from claims import Claim, Document
from documents import DOCUMENTS

LINK = "([1234567](bench/results/2026-01-01-1234567-parts))"


def errors_of(text, *made, sections=()):
    document = Document("made-up.md", list(made), sections)
    found, errors = claims.matches(document, text)
    return errors + claims.wrong_figures(document, found) + claims.uncovered(document, text, found)


class RulesTest(unittest.TestCase):
    def test_a_figure_of_the_raw_data_is_right_whatever_the_line_breaks(self):
        text = f"- **Ring** {LINK}: it takes\n  2.2 µs while it\n  spins.\n"
        self.assertEqual(errors_of(text, Claim("it takes {p50} µs while it spins", {"p50": "2.2"})), [])

    def test_another_figure_is_an_error_that_says_both(self):
        error, = errors_of(f"{LINK}: it takes 2.2 µs.\n", Claim("it takes {p50} µs", {"p50": "2.3"}))
        self.assertIn("says 2.2, the raw data 2.3", error)

    def test_a_claim_must_be_found_once(self):
        claim = Claim("takes {n} µs", {"n": "1"})
        self.assertIn("found 0 times", errors_of("It takes long.\n", claim)[0])
        self.assertIn("found 2 times", errors_of("It takes 1 µs. That takes 1 µs.\n", claim)[0])

    def test_a_figure_beside_a_link_to_results_needs_a_claim(self):
        text = f"One {LINK}: 3 times as fast,\nby 17 %.\n\nAnother paragraph of 5 lines.\n- {LINK} and 8\n- without 9\n"
        self.assertEqual(len(errors_of(text)), 3)
        self.assertEqual(len(errors_of(text, Claim("{n} times as fast", {"n": "3"}))), 2)

    def test_names_code_and_links_hold_no_figures(self):
        self.assertEqual(errors_of(f"An H100 {LINK} has `--device-nice -20`, P99, Llama-3-8B and "
                                   f"[0754fc8](a/12).\n"), [])

    def test_all_figures_of_a_section_need_claims(self):
        text = "# A\n\n4 words.\n\n## B\n\n5 words.\n\n### C\n\n6 words.\n\n## D\n\n7 words.\n"
        self.assertEqual(len(errors_of(text, sections=("## B",))), 2)

    def test_a_claim_may_reach_over_a_link(self):
        self.assertEqual(errors_of(f"| so fast {LINK} | 12 % |\n", Claim("fast (link) | {n} % |", {"n": "12"})), [])

    def test_writing_puts_the_raw_figures_in_place(self):
        document = Document("made-up.md", [Claim("{a} and {b} µs", {"a": "1,200", "b": "0.50"})])
        self.assertEqual(claims.rewritten(document, "It takes 7 and\n10.25 µs."), "It takes 1,200 and\n0.50 µs.")

    def test_a_claim_whose_fields_are_not_its_figures_is_refused(self):
        with self.assertRaises(ValueError):
            errors_of("1 and 2", Claim("{a} and {b}", {"a": "1"}))


class TreeTest(unittest.TestCase):
    def test_the_commits_that_results_name_are_in_the_history(self):
        git = lambda *words: subprocess.run(["git", *words], cwd=claims.ROOT, capture_output=True, text=True)
        if git("rev-parse", "--is-shallow-repository").stdout.strip() != "false":
            self.skipTest("the whole history is not here")
        for folder in sorted(path.name for path in claims.RESULTS.iterdir() if path.is_dir()):
            commit = re.search(r"-([0-9a-f]{7})-", folder)[1]
            with self.subTest(folder):
                self.assertEqual(git("merge-base", "--is-ancestor", commit, "HEAD").returncode, 0)

    def test_every_figure_is_that_of_its_raw_data(self):
        for document in DOCUMENTS:
            with self.subTest(document.path):
                self.assertEqual(claims.check(document), [])

    def test_pages_of_results_are_their_text_and_the_tables_of_their_raw_data(self):
        self.assertEqual(pages.stale_pages(), [])

    def test_documents_that_link_to_results_are_held_against_them(self):
        known = {document.path for document in DOCUMENTS}
        for path in (*claims.ROOT.glob("*.md"), *(claims.ROOT / "docs").rglob("*.md"),
                     *claims.ROOT.glob("crates/*/*.md")):
            name = str(path.relative_to(claims.ROOT))
            if name not in known:
                self.assertEqual(errors_of_file(name), [], name)


def errors_of_file(name):
    return claims.check(Document(name, []))


class ResultsTest(unittest.TestCase):
    def test_no_pages_that_a_command_draws_of_the_json_beside_them(self):
        self.assertEqual(sorted(claims.RESULTS.rglob("*.html")), [])


if __name__ == "__main__":
    unittest.main()
