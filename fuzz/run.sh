#!/usr/bin/env bash
# Runs every fuzz target for SECONDS each, and fails on the first finding.
#   fuzz/run.sh SECONDS [TARGET...]     e.g. fuzz/run.sh 15 ring_hostile_device
#   FUZZ_BUILD_ONLY=1 fuzz/run.sh 0     only builds
# Works with the pinned stable toolchain and installs nothing: the instrumentation flags, which
# cargo-fuzz would pass to a nightly compiler, are unlocked with RUSTC_BOOTSTRAP.
# It goes on from what earlier runs found: corpus/, or without one corpora/, which fuzz/keep.sh writes.
# A finding is left in fuzz/artifacts/TARGET/; give its path to the same binary to repeat it.
set -euo pipefail
cd "$(dirname "$0")"
. ../tests/skip.sh

seconds=${1:?usage: fuzz/run.sh SECONDS [TARGET...]}
shift
targets=("$@")
. ./programs.sh
if [ ${#targets[@]} -eq 0 ]; then
  targets=(fuzz_targets/*.rs)
  targets=("${targets[@]##*/}")
  targets=("${targets[@]%.rs}" "$device_target")
fi
rust_targets=()
for target in "${targets[@]}"; do [ "$target" = "$device_target" ] || rust_targets+=("--bin=$target"); done

flags=(
  --cfg fuzzing
  -Cpasses=sancov-module
  -Cllvm-args=-sanitizer-coverage-level=4
  -Cllvm-args=-sanitizer-coverage-inline-8bit-counters
  -Cllvm-args=-sanitizer-coverage-pc-table
  -Cllvm-args=-sanitizer-coverage-trace-compares
  -Ccodegen-units=1
)
# The address sanitizer's runtime comes with the toolchain on the larger platforms only.
runtime=$(rustc --print target-libdir)/librustc-stable_rt.asan.a
if [ -e "$runtime" ]; then
  flags+=(-Zsanitizer=address)
else
  skip "ASan in the fuzz targets" "this toolchain has none for $host"
fi

# --target keeps the flags away from build scripts and procedural macros.
[ ${#rust_targets[@]} -eq 0 ] ||
  RUSTC_BOOTSTRAP=1 RUSTFLAGS="${flags[*]}" cargo build -p saccade-fuzz --profile fuzz --target "$host" \
    "${rust_targets[@]}"
if [ ${#rust_targets[@]} -lt ${#targets[@]} ]; then
  clang=$(command -v clang++-14 || command -v clang++ || true)
  if [ -n "$clang" ]; then
    cmake -S ../device -B ../build/device-asan -G Ninja -DSACCADE_SANITIZER=asan -DCMAKE_CXX_COMPILER="$clang" >/dev/null
    cmake --build ../build/device-asan --target fuzzers
  else
    skip "$device_target" "no clang++"
    targets=("${rust_targets[@]#--bin=}")
  fi
fi
[ -z "${FUZZ_BUILD_ONLY:-}" ] || { say_skipped && exit 0; }

# A leak at exit is no finding: the allocation limit below catches growth. Nor are two constants of one size at one
# address, which gcc makes of equal tables in a C library (odr 1: only of different sizes).
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=0:allocator_may_return_null=1:detect_odr_violation=1}
for target in "${targets[@]}"; do
  echo "== fuzz $target for $seconds s"
  if [ ! -d "corpus/$target" ] && [ -e "corpora/$target.tar.xz" ]; then
    mkdir -p "corpus/$target"
    tar -xJf "corpora/$target.tar.xz" -C "corpus/$target"
  fi
  mkdir -p "corpus/$target" "artifacts/$target"
  seeds=()
  [ ! -d "seeds/$target" ] || seeds=("seeds/$target")
  "$(program_of "$target")" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
    -len_control=0 -verbosity=0 -print_final_stats=1 \
    -artifact_prefix="artifacts/$target/" "corpus/$target" "${seeds[@]}"
done
say_skipped
