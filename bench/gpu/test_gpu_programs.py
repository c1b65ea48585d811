"""What bench/gpu has that needs no GPU: `python3 -m unittest discover -s bench/gpu`."""

import argparse
import json
import os
import pathlib
import shutil
import stat
import subprocess
import tarfile
import tempfile
import unittest

import logprobs
import nvml
import placements
import table

HERE = pathlib.Path(__file__).parent
MADE_UP = HERE / "testdata/made-up-figures"
RUNS = sorted((HERE.parent / "results").glob("*-gpu"))
MOST_S = 540


class TableTest(unittest.TestCase):
    def setUp(self):
        self.text = table.readme(MADE_UP)

    def row(self, start, text=None):
        return next(line for line in (text or self.text).splitlines() if line.startswith(f"| {start} "))

    def test_tests_are_counted_and_the_sanitizer_quoted(self):
        self.assertIn("2 passed, **1 failed**", self.row("tests.txt"))
        self.assertIn("ERROR SUMMARY: 0 errors", self.row("memcheck, gpu_test"))
        self.assertIn("RAN OUT OF TIME", self.row("racecheck, gpu_test"))

    def test_a_report_that_ended_early_says_so(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder)
            (path / "tests.txt").write_text("ok      one\nskipped  two\nENDED EARLY: exit code 124\n")
            self.assertEqual(self.row("tests.txt", table.readme(path)),
                             "| tests.txt | 1 passed, 0 failed, 1 skipped, **ENDED EARLY: exit code 124** |")

    def test_pytorch_is_beside_the_same_batch_of_the_same_model(self):
        self.assertEqual(self.row("1"), "| 1 | 10.000 | 12.500 | 9.000 | 0.90 | 12.000 | 1.20 |")
        self.assertEqual(self.row("64"), "| 64 | 20.000 | 16.000 | 10.000 | 0.62 |  |  |")
        self.assertIn("| 1 | 50.000 | 25.000 | 0.50 |\n", self.text)

    def test_the_faster_products_count_at_each_prompt(self):
        self.assertEqual(self.row("128"), "| 128 | 10.00 (200) | 20.00 (100) | 0.25 |  |  |")
        self.assertEqual(self.row("4,096"), "| 4,096 | 100.00 (500) | 80.00 (395) | 0.50 | 200.00 (250) | 2.50 |")
        self.assertIn("| 4,096 | 400.00 (600) | 0.76 |\n", self.text)

    def test_rotation_is_a_share_of_the_peak_and_costs_steps(self):
        self.assertEqual(self.row("vector"), "| vector | 1, 4 | 5.0 | 5.0 | 20.0 | 0.80 |")
        self.assertIn("| vector | 1, 4 | 15.0 | 30.000 | 1.50 |", self.text)

    def test_steps_with_adapters_are_beside_those_without(self):
        self.assertEqual(self.row("mma | decode, 1"), "| mma | decode, 1 | 5.000 | 5.500 | 1.100 |")
        self.assertEqual(self.row("wgmma | prefill, 4,096"), "| wgmma | prefill, 4,096 | 80.000 | 100.000 | 1.250 |")
        self.assertIn("4 adapters of rank 16", self.text)

    def test_conditions_are_medians_of_quotients_within_their_repeat(self):
        self.assertEqual(self.row("8 | host | cpu x16"),
                         "| 8 | host | cpu x16 | 300.0 (3.00×) | 30.00 (3.00×) | 275 (0.275) | 3.00 (600 W) | 0 of 18 "
                         "|  |")
        self.assertEqual(self.row("8 | device | cpu x16").split(" | ")[5], "1,480 (0.980)")

    def test_conditions_are_in_order_of_load_and_hogs(self):
        order = [(r["rate"], r["placement"], r["name"])
                 for r in table.conditions(json.loads((MADE_UP / "interference.json").read_text()))]
        self.assertEqual(order, [(2, "device", "isolation"), (2, "device", "cpu x16"), (8, "device", "isolation"),
                                 (8, "device", "cpu x16"), (8, "host", "isolation"), (8, "host", "cpu x16"),
                                 (8, "host", "cpu x64")])

    def test_what_failed_and_what_was_left_out_is_said(self):
        self.assertIn("**Failed:** 24 requests/s: the server is down", self.text)
        self.assertIn("No time was left for (the rest of): 2 requests/s, repeat 2.", self.text)

    def test_what_is_not_there_is_named(self):
        self.assertIn("Not in this run: Makespan, scheduler on the device and on the host; steps of qwen3-30b-a3b.",
                      self.text)

    def test_an_empty_folder_has_a_readme(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertIn("Not in this run: Targets; Tests;", table.readme(pathlib.Path(folder)))

    def test_a_partial_file_is_not_a_result(self):
        with tempfile.TemporaryDirectory() as folder:
            copy = pathlib.Path(folder) / "results"
            shutil.copytree(MADE_UP, copy)
            (copy / "micro.json").rename(copy / "micro.json.partial")
            (copy / "rotation.json").write_text("")
            text = table.readme(copy)
            self.assertIn("Not in this run: Latencies of the scheduler; Rotation;", text)
            self.assertNotIn("scan of 4,096 slots", text)

    def test_the_page_of_each_run_is_what_its_records_give(self):
        self.assertGreaterEqual(len(RUNS), 3)
        for run in RUNS:
            self.assertEqual((run / "README.md").read_text(), table.readme(run), run.name)


class TargetTest(unittest.TestCase):
    """One line for each target, on either side of it."""

    def models(self, **changes):
        record = json.loads((MADE_UP / "model-llama3-8b.json").read_text())
        return {"llama3-8b": {**record, **changes}}

    def test_decode_by_the_faster_way(self):
        row, = table.decode_targets(self.models())
        self.assertEqual(row[2:], ["0.900 (mma)", "met"])
        slow = [{"batch": 1, "ms": 12.6, "roofline_ms": 9.0}]
        row, = table.decode_targets(self.models(decode=slow, wgmma={"decode": slow}))
        self.assertEqual(row[2:], ["0.714 (mma)", "**not met**"])

    def test_prefill_of_4096_rows(self):
        row, = table.prefill_targets(self.models())
        self.assertEqual(row[2:], ["0.500: 395 TFLOP/s (wgmma)", "**not met**"])
        fast = {"prefill": [{"rows": 4096, "ms": 60.0, "tflops": 474.0}]}
        self.assertEqual(table.prefill_targets(self.models(wgmma=fast))[0][3], "met")
        self.assertEqual(table.prefill_targets(self.models(prefill=[], wgmma={"prefill": []})), [])

    def test_scan_and_claim(self):
        record = json.loads((MADE_UP / "micro.json").read_text())
        scan, claim, _ = table.micro_targets(record)
        self.assertEqual(scan[2:], ["6.00 µs", "**not met**"])
        self.assertEqual(claim[2:], ["1.0 µs (the copy was not measured by itself)", "met"])
        record["device_graphs"]["prompt_to_claim_us"]["p50"] = 6.0
        self.assertEqual(table.micro_targets(record)[1][3], "**not met**")
        record["prompt_copy_us"] = {"p50": 1.5}
        self.assertEqual(table.micro_targets(record)[1][2:], ["6.0 µs (copy 1.50 µs)", "met"])

    def test_rotation_against_the_copy_engines(self):
        record = json.loads((MADE_UP / "rotation.json").read_text())
        self.assertEqual(table.rotation_targets(record)[0][2:],
                         ["0.800: 20.0 GB/s (vector, blocks: 1 down, 4 up)", "**not met**"])
        record["rotation"][1]["both_gb_s"] = 23.5
        self.assertEqual(table.rotation_targets(record)[0][3], "met")

    def test_rotation_of_records_with_one_number_of_blocks(self):
        rates = [{"way": "copy engines, one piece", "blocks": 0, "down_gb_s": 10, "up_gb_s": 10, "both_gb_s": 20},
                 {"way": "bulk", "blocks": 2, "down_gb_s": 5, "up_gb_s": 5, "both_gb_s": 10}]
        self.assertEqual(table.rotation_targets({"rotation": rates})[0][2], "0.500: 10.0 GB/s (bulk, 2 blocks)")
        text = table.rotation({"rotation": rates})
        self.assertIn("| way | blocks a direction |", text)
        self.assertIn("| copy engines, one piece |  | 10.0 |", text)
        self.assertIn("| bulk | 2 | 5.0 |", text)

    def test_makespan_by_the_mean_of_the_workloads(self):
        def of(batch, *quotients):
            return {"model": "m", "batch": batch, "workloads": [{"device_over_host": q} for q in quotients]}

        met, missed = table.makespan_targets({"models": [of(16, 0.9, 1.05), of(64, 0.999, 1.002), of(8, 2.0)]})
        self.assertEqual(met[2:], ["0.9721 (workloads 0.9000 to 1.0500)", "met"])
        self.assertEqual(missed[2:], ["1.0005 (workloads 0.9990 to 1.0020)", "**not met**"])

    def test_throughput_kept_is_judged_for_the_device_only(self):
        device, host = table.interference_targets(json.loads((MADE_UP / "interference.json").read_text()))
        self.assertEqual(device[1:], ["≥ 0.97", "0.980", "met"])
        self.assertEqual(host[1:], ["(none)", "0.100", "for comparison"])

    def test_tokens_over_arrivals_and_drain_bound_what_is_kept_from_below(self):
        def cell(condition, tokens):
            return {"placement": "device", "condition": condition, "requests": 1, "failed": 0, "tokens_per_s": tokens,
                    "ttft_p99_ms": 1, "tpot_p99_ms": 1, "distrust": [], "joules_per_token": None, "watts": None}

        record = {"rate_rps": 8, "model": "m", "cores": 1, "cells": [cell("isolation", 10.0), cell("cpu x16", 9.8)]}
        self.assertEqual(table.interference_targets(record)[0][1:], ["≥ 0.97", "at least 0.980", "met"])
        self.assertIn("the drain behind them", table.interference(record))


class SamplerTest(unittest.TestCase):
    def test_joules_between_samples_are_interpolated(self):
        sampler = nvml.Sampler(counter=None)
        sampler.samples = [(10.0, 100.0), (11.0, 300.0), (13.0, 400.0)]
        self.assertAlmostEqual(sampler.joules(10.5, 12.0), 150.0)
        self.assertAlmostEqual(sampler.joules(9.0, 14.0), 300.0)  # not beyond the samples

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
            "summary": {"requests": 4, "ok": 3, "output_tokens": 50, "achieved_tokens_per_s": 25.0, "span_s": 2.0,
                        "from_intended": {"ttft_ms": {"p99": 7.0}}, "tpot_ms": {"p99": 3.0}}}

    def test_energy_is_that_of_the_cell(self):
        sampler = nvml.Sampler(counter=None)
        sampler.samples = [(0.0, 0.0), (10.0, 1000.0), (12.0, 1200.0), (20.0, 9000.0)]
        row = placements.cell_of(self.CELL, sampler)
        self.assertAlmostEqual(row["joules_per_token"], 4.0)
        self.assertAlmostEqual(row["watts"], 100.0)
        self.assertEqual(row["failed"], 1)

    def test_a_run_that_was_cut_off_has_the_cells_of_placements_with_an_isolation(self):
        def cell(server, condition):
            return {**self.CELL, "server": server, "condition": condition}

        with tempfile.TemporaryDirectory() as folder:
            work = pathlib.Path(folder)
            self.assertEqual(placements.cells_of(work, None), [])
            record = work / placements.RECORD
            record.write_text(json.dumps({"cells": [cell("device", "cpu x16"), cell("device", "isolation"),
                                                    cell("host", "cpu x16")]}))
            rows = [(row["placement"], row["condition"]) for row in placements.cells_of(work, None)]
            self.assertEqual(rows, [("device", "cpu x16"), ("device", "isolation")])
            record.write_text(record.read_text()[:-9])
            self.assertEqual(placements.cells_of(work, None), [])

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
        for name in logprobs.ADAPTERS:
            self.assertTrue((logprobs.REFERENCE / name / "adapter_config.json").exists(), name)

    def test_an_adapter_is_asked_as_its_model_is_and_yields_other_values(self):
        for name in logprobs.ADAPTERS:
            texts, plain = logprobs.texts_of(name), logprobs.texts_of(logprobs.model_of(name))
            self.assertEqual([prompt for prompt, _, _ in texts], [prompt for prompt, _, _ in plain])
            # A device that ignores the adapter must not pass.
            apart = max(logprobs.largest(a[2], b[2]) for a, b in zip(texts, plain))
            self.assertGreater(apart, 4 * logprobs.deviation(name))


class ClockTest(unittest.TestCase):
    def clock(self, within_s, *moments):
        return placements.Clock(within_s, now=iter(moments).__next__)

    def test_without_a_limit_everything_fits(self):
        clock = self.clock(None, 0.0, 50.0, 60.0, 110.0)
        for _ in range(2):
            with clock.timed("a"):
                pass
        self.assertIsNone(clock.left())

    def test_the_first_of_a_kind_is_tried_and_a_longer_one_is_not(self):
        clock = self.clock(10.0, 0.0, 0.0, 0.0, 6.0, 6.0)
        with clock.timed("a"):
            pass
        with self.assertRaises(placements.OutOfTime), clock.timed("a"):
            self.fail("six seconds do not fit into four")


class MakespanTest(unittest.TestCase):
    def setUp(self):
        self.spans_of = placements.spans_of
        self.addCleanup(setattr, placements, "spans_of", self.spans_of)
        self.args = argparse.Namespace(device="null", model=None)

    def test_placements_take_turns_at_being_first(self):
        seen = []

        def spans_of(args, model, placement, repeat, work, clock):
            seen.append((repeat, model, placement))
            return [2.0 + repeat if placement == "device" else 1.0] * len(placements.WORKLOADS)

        placements.spans_of = spans_of
        result = placements.makespan(self.args, None, placements.Clock(None))
        self.assertEqual([placement for repeat, model, placement in seen if model == "qwen3-32b-shape"],
                         ["device", "host", "host", "device"])
        self.assertEqual([(m["model"], m["batch"]) for m in result["models"]],
                         [("llama3-8b-shape", 64), ("qwen3-32b-shape", 16)])
        workload = result["models"][0]["workloads"][0]
        self.assertEqual(workload["requests"], 128)
        self.assertEqual((workload["device_s"], workload["host_s"]), ([2.0, 3.0], [1.0, 1.0]))
        self.assertEqual(workload["device_over_host"], 2.5)
        self.assertIn("| 128 × 128 → 16 | 2.00 3.00 | 1.00 1.00 | 2.5000 |", table.makespan(result))

    def test_what_failed_or_did_not_fit_costs_nothing_else(self):
        def spans_of(args, model, placement, repeat, work, clock):
            if (model, repeat) == ("qwen3-32b-shape", 0):
                raise RuntimeError("3 of 16 requests failed")
            if repeat == 1:
                raise placements.OutOfTime
            return [1.0] * len(placements.WORKLOADS)

        placements.spans_of = spans_of
        result = placements.makespan(self.args, None, placements.Clock(None))
        self.assertEqual([m["model"] for m in result["models"]], ["llama3-8b-shape"])
        self.assertEqual(result["failures"], ["qwen3-32b-shape, repeat 1: 3 of 16 requests failed"])
        self.assertEqual(result["left_out"], ["llama3-8b-shape, repeat 2", "qwen3-32b-shape, repeat 2"])


class Machine:
    """A folder of stand-ins for a GPU machine's programs, and what check.sh makes of them."""

    GOOD = """
        case "$1" in
          --probe) echo '{}' ;;
          --bench) cat MADE_UP/micro.json ;;
          --rotation) cat MADE_UP/rotation.json ;;
          *) echo "ok      one" ;;
        esac"""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.cuda, self.results = self.folder / "cuda", self.folder / "results"
        self.cuda.mkdir()
        for name in ("gpu_test", "model_gpu_test"):
            self.program(name, self.GOOD)
        self.program("model_bench", "cat MADE_UP/model-llama3-8b.json")
        (self.cuda / "libsaccade_cuda.so").write_bytes(b"a library")
        shutil.copy("/bin/true", self.folder / "saccade")

    def program(self, name, script):
        path = self.cuda / name
        path.write_text("#!/bin/bash\n" + script.replace("MADE_UP", str(MADE_UP)) + "\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def call(self, script, *words, **more):
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "SACCADE_GPU_RESULTS": str(self.results),
                       "SACCADE_CUDA_BUILD": str(self.cuda), "SACCADE_BINARY": str(self.folder / "saccade"),
                       "SACCADE_GPU_PACK": "", **more}
        environment = {name: value for name, value in environment.items() if value is not None}
        return subprocess.run([HERE / script, *words], capture_output=True, text=True, env=environment)

    def check(self, *parts, **more):
        return self.call("check.sh", *parts, **more)


class CheckTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.machine = Machine(folder.name)
        self.results = self.machine.results

    def test_each_command_takes_no_more_than_nine_minutes(self):
        said = self.machine.check("--budgets").stdout
        for command in ("first", "second"):
            parts = {part: int(seconds) for name, part, seconds in map(str.split, said.splitlines()) if name == command}
            self.assertEqual(parts.pop("sum"), sum(parts.values()))
            self.assertLessEqual(sum(parts.values()), MOST_S, command)

    def test_a_part_that_there_is_not_is_an_error(self):
        done = self.machine.check("micro", "nonsense")
        self.assertEqual(done.returncode, 2)
        self.assertIn("no part is called nonsense", done.stderr)
        self.assertFalse(self.results.exists())

    def test_whole_outputs_are_results(self):
        done = self.machine.check("test", "micro", "table")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual((self.results / "micro.json").read_text(), (MADE_UP / "micro.json").read_text())
        self.assertIn("1 passed, 0 failed", (self.results / "README.md").read_text())

    def test_half_a_json_is_not_a_result(self):
        for script, said in (("head -c 100 MADE_UP/micro.json; exit 0", "FAILED (2)"),
                             ("cat MADE_UP/micro.json; exit 4", "FAILED (4)"),
                             ("head -c 100 MADE_UP/micro.json; exit 124", "ran out of time")):
            self.machine.program("gpu_test", script)
            done = self.machine.check("micro")
            self.assertEqual(done.returncode, 1)
            self.assertIn(f"micro: {said}", done.stdout)
            self.assertFalse((self.results / "micro.json").exists())

    def test_a_part_that_fails_leaves_no_earlier_result_of_its_own(self):
        flag = self.machine.folder / "fails"
        self.machine.program("gpu_test", f"[ ! -e {flag} ] || exit 2; cat MADE_UP/micro.json")
        self.machine.check("micro")
        self.assertTrue((self.results / "micro.json").exists())
        flag.touch()
        self.assertEqual(self.machine.check("micro").returncode, 1)
        self.assertFalse((self.results / "micro.json").exists())

    def test_what_a_program_says_of_its_error_is_kept(self):
        self.machine.program("model_bench", "echo 'error: out of memory' >&2; exit 2")
        self.assertIn("error: out of memory", self.machine.check("model").stdout)
        self.assertEqual((self.results / "model-qwen3-32b.errors").read_text(), "error: out of memory\n")

    def test_a_report_of_checks_that_is_cut_off_says_so(self):
        self.machine.program("gpu_test", "echo 'ok      one'; exit 4")
        self.assertEqual(self.machine.check("test").returncode, 1)
        self.assertEqual((self.results / "tests.txt").read_text(), "ok      one\nENDED EARLY: exit code 4\n")
        self.assertEqual((self.results / "model-tests.txt").read_text(), "ok      one\n")

    def test_a_model_that_fails_does_not_cost_the_others(self):
        self.machine.program("model_bench", '[ "$1" != qwen3-32b ] || exit 2; cat MADE_UP/model-llama3-8b.json')
        self.assertEqual(self.machine.check("model").returncode, 1)
        self.assertEqual(sorted(path.name for path in self.results.glob("model-*.json")),
                         ["model-llama3-8b.json", "model-qwen3-30b-a3b.json"])

    def test_no_gpu_is_exit_code_3_and_leaves_no_result(self):
        for name in ("gpu_test", "model_gpu_test", "model_bench"):
            self.machine.program(name, "echo 'no CUDA driver or GPU: cudaErrorNoDevice'; exit 3")
        done = self.machine.check("test", "micro", "model", "torch", "sanitizer", "makespan", "table")
        self.assertEqual(done.returncode, 3, done.stdout)
        self.assertEqual(done.stdout.count("no GPU, "), 7)
        self.assertEqual([path.name for path in self.results.iterdir() if path.suffix in (".json", ".md")], [])

    def test_a_program_that_is_not_there_is_a_failure_and_not_a_missing_gpu(self):
        (self.machine.cuda / "gpu_test").unlink()
        self.assertEqual(self.machine.check("micro", "makespan").returncode, 1)

    def test_results_of_other_programs_are_never_joined(self):
        self.machine.check("micro")
        self.machine.check("rotation")
        self.assertTrue((self.results / "micro.json").exists())
        self.machine.program("gpu_test", "# rebuilt" + Machine.GOOD)
        done = self.machine.check("rotation")
        self.assertIn("earlier results are now in", done.stdout)
        self.assertFalse((self.results / "micro.json").exists())
        self.assertTrue((self.results / "rotation.json").exists())
        self.assertTrue((self.machine.folder / "results.previous/micro.json").exists())

    def test_a_folder_of_something_else_is_left_alone(self):
        self.results.mkdir()
        (self.results / "thesis.txt").write_text("years of work")
        done = self.machine.check("micro")
        self.assertEqual(done.returncode, 2)
        self.assertEqual([path.name for path in self.results.iterdir()], ["thesis.txt"])

    def test_the_archive_has_what_is_whole(self):
        archive = self.machine.folder / "results.tar.gz"
        self.machine.program("gpu_test", '[ "$1" = --bench ] || exit 2; cat MADE_UP/micro.json')
        self.machine.check("micro", "rotation", SACCADE_GPU_ARCHIVE=str(archive))
        with tarfile.open(archive) as results:
            names = {name.removeprefix("./") for name in results.getnames()}
        self.assertEqual(names - {"", "."}, {"commit.txt", "micro.json", "summary.txt"})

    def test_a_sanitizer_that_runs_out_of_time_says_so(self):
        tools = self.machine.folder / "tools"
        tools.mkdir()
        tool = tools / "compute-sanitizer"
        tool.write_text('#!/bin/bash\n[ "$2" != memcheck ] || exit 124\necho "===== ERROR SUMMARY: 0 errors"\n')
        tool.chmod(0o755)
        done = self.machine.check("sanitizer", PATH=f"{tools}:{os.environ['PATH']}")
        self.assertEqual(done.returncode, 1)
        self.assertIn("sanitizer: ran out of time", done.stdout)
        self.assertIn("RAN OUT OF TIME", (self.results / "sanitizer-memcheck-gpu_test.txt").read_text())
        self.assertIn("0 errors", (self.results / "sanitizer-racecheck-gpu_test.txt").read_text())


class PackTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.machine = Machine(folder.name)
        self.pack = self.machine.folder / "pack.tar.xz"

    def make(self, **more):
        return self.machine.call("pack.sh", SACCADE_GPU_PACK=str(self.pack), XZ_OPT="-0", **more)

    def test_what_was_packed_is_what_runs(self):
        done = self.make()
        self.assertEqual(done.returncode, 0, done.stderr)
        with tarfile.open(self.pack) as pack:
            names = {name.removeprefix("./") for name in pack.getnames()}
            commit = pack.extractfile("./commit.txt").read().decode()
        self.assertEqual(names - {"", "."}, {"commit.txt", "saccade", "cuda", "cuda/gpu_test", "cuda/model_gpu_test",
                                             "cuda/model_bench", "cuda/libsaccade_cuda.so"})
        shutil.rmtree(self.machine.cuda)
        (self.machine.folder / "saccade").unlink()
        done = self.machine.check("test", "micro", SACCADE_GPU_PACK=str(self.pack), SACCADE_CUDA_BUILD=None,
                                  SACCADE_BINARY=None, TMPDIR=str(self.machine.folder))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual((self.machine.results / "commit.txt").read_text(), commit)
        self.assertEqual(list(self.machine.folder.glob("tmp*")), [])

    def test_an_archive_that_is_too_large_is_refused_with_its_size(self):
        (self.machine.cuda / "model_bench").write_bytes(os.urandom(1200 << 10))
        done = self.make(SACCADE_GPU_PACK_MIB="1")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"takes 1[23]\d{5} bytes, more than 1 MiB")
        self.assertEqual(list(self.machine.folder.glob("pack*")), [])

    def test_a_program_that_is_missing_is_named(self):
        (self.machine.cuda / "model_bench").unlink()
        done = self.make()
        self.assertEqual(done.returncode, 1)
        self.assertIn("model_bench: build it first", done.stderr)

    def test_an_archive_that_was_named_and_is_not_there_is_an_error(self):
        self.assertEqual(self.machine.check("micro", SACCADE_GPU_PACK="/nowhere/pack.tar.xz").returncode, 2)

    def test_half_an_archive_is_an_error(self):
        self.make()
        self.pack.write_bytes(self.pack.read_bytes()[:-500])
        done = self.machine.check("micro", SACCADE_GPU_PACK=str(self.pack))
        self.assertEqual(done.returncode, 2)
        self.assertIn("cannot be unpacked", done.stderr)


if __name__ == "__main__":
    unittest.main()
