#!/usr/bin/env bash
# The device plane's own tests: plain, under ASan and UBSan, and under TSan. Which run where: tests/README.md,
# whose table is compared with what ctest lists (tests/flavours.py).
set -euo pipefail
cd "$(dirname "$0")/.."
. tests/skip.sh
# clang compiles ASan's and UBSan's checks faster than g++, and is a second compiler for the same code.
clang=$(command -v clang++-14 || command -v clang++ || true)
# Configures all three first: the table of tests is checked before anything is compiled.
for flavour in plain asan tsan; do
  compiler=()
  [ $flavour != asan ] || [ -z "$clang" ] || compiler=(-DCMAKE_CXX_COMPILER="$clang")
  cmake -S device -B "build/device-$flavour" -G Ninja -DSACCADE_SANITIZER="$flavour" "${compiler[@]}" >/dev/null
done
if [ -n "$clang" ]; then
  tests/flavours.py
else
  skip "fuzz_hostile_frontend, and the table of tests" "no clang++"
fi
for flavour in plain asan tsan; do
  cmake --build "build/device-$flavour" --target all
  ctest --test-dir "build/device-$flavour" --no-tests=error --output-on-failure -j "$(nproc)"
done
# Benchmarks are not part of a build; this keeps them compiling against its interfaces.
cmake --build build/device-plain --target ring_bench cpu_step_bench step_grid_bench step_turns step_library \
  products_bench roofline copy_bench
say_skipped
