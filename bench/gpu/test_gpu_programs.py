"""What bench/gpu has that needs no GPU: `python3 -m unittest discover -s bench/gpu`."""

import pathlib
import shutil
import subprocess
import tempfile
import unittest

import logprobs
import nvml
import placements
import table

HERE = pathlib.Path(__file__).parent
MADE_UP = HERE / "testdata/made-up-figures"
MOST_S = 540


class TableTest(unittest.TestCase):
    def setUp(self):
        self.text = table.readme(MADE_UP)

    def row(self, start):
        return next(line for line in self.text.splitlines() if line.startswith(f"| {start} "))

    def test_targets_are_judged(self):
        self.assertIn("at most 5 µs: **not met**", self.text)
        self.assertIn("Batch 1 reaches 0.90 of its roofline; 0.8: met", self.text)
        self.assertIn("Batch 1 reaches 0.50 of its roofline; 0.8: **not met**", self.text)

    def test_tests_are_counted_and_the_sanitizer_quoted(self):
        self.assertIn("2 passed, 1 failed", self.row("tests.txt"))
        self.assertIn("ERROR SUMMARY: 0 errors", self.row("memcheck, gpu_test"))

    def test_pytorch_stands_beside_the_same_batch_of_the_same_model(self):
        self.assertEqual(self.row("1"), "| 1 | 10.000 | 9.000 | 0.90 | 12.000 | 1.20 |")
        self.assertEqual(self.row("64"), "| 64 | 20.000 | 10.000 | 0.50 |  |  |")
        self.assertIn("| 1 | 50.000 | 25.000 | 0.50 |\n", self.text)

    def test_both_ways_of_products_stand_side_by_side(self):
        self.assertEqual(self.row("decode, batch 1"), "| decode, batch 1 | 10.000 | 12.500 | 0.80 |")
        self.assertEqual(self.row("prefill, 4,096 rows"),
                         "| prefill, 4,096 rows | 100.000 (500 TFLOP/s) | 80.000 (625 TFLOP/s) | 1.25 |")

    def test_rotation_is_a_share_of_the_peak_and_costs_steps(self):
        self.assertEqual(self.row("vector"), "| vector | 2 | 5.0 | 5.0 | 20.0 | 0.80 |")
        self.assertIn("| vector | 2 | 15.0 | 30.000 | 1.50 |", self.text)

    def test_conditions_are_compared_with_isolation_of_their_placement(self):
        self.assertEqual(self.row("host | cpu x16"),
                         "| host | cpu x16 | 400.0 (4.00×) | 40.00 (4.00×) | 250 (0.25) | 2.00 (500 W) | 0 |  |")

    def test_what_is_not_there_is_named(self):
        self.assertIn("Not in this run: Makespan, scheduler on the device and on the host.", self.text)

    def test_an_empty_folder_has_a_readme(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertIn("Not in this run: Tests;", table.readme(pathlib.Path(folder)))

    def test_a_file_that_a_part_left_empty_is_not_a_result(self):
        with tempfile.TemporaryDirectory() as folder:
            copy = pathlib.Path(folder) / "results"
            shutil.copytree(MADE_UP, copy)
            (copy / "micro.json").write_text("")
            self.assertIn("Not in this run: Latencies of the scheduler;", table.readme(copy))


class SamplerTest(unittest.TestCase):
    def test_joules_between_samples_are_interpolated(self):
        sampler = nvml.Sampler(counter=None)
        sampler.samples = [(10.0, 100.0), (11.0, 300.0), (13.0, 400.0)]
        self.assertAlmostEqual(sampler.joules(10.5, 12.0), 150.0)
        self.assertAlmostEqual(sampler.joules(9.0, 14.0), 300.0)  # no further than there are samples

    def test_samples_are_taken_while_it_is_open(self):
        class Rising:
            value = 0.0

            def read(self):
                self.value += 1
                return self.value

        with nvml.Sampler(Rising()) as sampler:
            pass
        self.assertEqual([joules for _, joules in sampler.samples], sorted(joules for _, joules in sampler.samples))
        self.assertGreaterEqual(len(sampler.samples), 2)


class CounterTest(unittest.TestCase):
    def test_without_the_drivers_library_it_says_so(self):
        library, nvml.LIBRARY = nvml.LIBRARY, "libthat-is-nowhere.so"
        try:
            with self.assertRaisesRegex(nvml.NotCounted, "libthat-is-nowhere"):
                nvml.Counter()
        finally:
            nvml.LIBRARY = library


class CellTest(unittest.TestCase):
    CELL = {"server": "device", "condition": "isolation", "error": None, "distrust": [], "started_unix_s": 10.0,
            "summary": {"requests": 4, "ok": 3, "output_tokens": 50, "output_tokens_per_s": 25.0, "span_s": 2.0,
                        "from_intended": {"ttft_ms": {"p99": 7.0}}, "tpot_ms": {"p99": 3.0}}}

    def test_energy_is_that_of_the_cell(self):
        sampler = nvml.Sampler(counter=None)
        sampler.samples = [(0.0, 0.0), (10.0, 1000.0), (12.0, 1200.0), (20.0, 9000.0)]
        row = placements.cell_of(self.CELL, sampler)
        self.assertAlmostEqual(row["joules_per_token"], 4.0)
        self.assertAlmostEqual(row["watts"], 100.0)
        self.assertEqual(row["failed"], 1)

    def test_neighbours_are_those_that_the_machine_has(self):
        self.assertEqual(placements.neighbours(lambda program: f"/usr/bin/{program}"), ["cpu", "compile", "pbzip2"])
        self.assertEqual(placements.neighbours({"c++": "/usr/bin/c++"}.get), ["cpu", "compile"])
        self.assertEqual(placements.neighbours({}.get), ["cpu", "memory-bandwidth"])

    def test_a_failed_cell_is_an_error(self):
        with self.assertRaises(RuntimeError):
            placements.cell_of({**self.CELL, "error": "the server is down"}, None)


class LogprobsTest(unittest.TestCase):
    def test_drawn_tokens_count_up_to_the_first_that_differs(self):
        a = ([1, 2, 3, 4], [-1.0, -2.0, -3.0])
        b = ([1, 2, 9, 4], [-1.5, -7.0, -9.0])
        self.assertEqual(logprobs.drawn_difference(a, b), 0.5)
        self.assertEqual(logprobs.drawn_difference(a, a), 0.0)

    def test_every_model_is_there(self):
        for name in logprobs.MODELS:
            self.assertTrue((logprobs.REFERENCE / "models" / name / "config.json").exists(), name)


class CheckTest(unittest.TestCase):
    def test_all_parts_together_take_no_more_than_nine_minutes(self):
        said = subprocess.run([HERE / "check.sh", "--budgets"], capture_output=True, text=True, check=True).stdout
        parts = dict(line.split() for line in said.splitlines())
        self.assertEqual(int(parts.pop("sum")), sum(map(int, parts.values())))
        self.assertLessEqual(sum(map(int, parts.values())), MOST_S)

    def test_a_part_that_there_is_not_is_an_error(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([HERE / "check.sh", "nonsense"], capture_output=True, text=True,
                                  env={"PATH": "/usr/bin:/bin", "SACCADE_GPU_RESULTS": folder})
        self.assertEqual(done.returncode, 2)
        self.assertIn("no part is called nonsense", done.stderr)


if __name__ == "__main__":
    unittest.main()
