#!/usr/bin/env bash
# What a decode step of the cpu device costs as work grows, next to what the machine allows: 1 to 256 streams, 128 to
# 16,384 tokens of context, as far as their KV fits in memory. Into bench/results/<date>-<machine>-<commit>-grid:
# grid.jsonl, SHAPE.svg, tables on standard output. Needs g++, cmake and matplotlib (bench/requirements.txt).
#   SACCADE_BENCH_SHAPES  (qwen3-0.6b llama-125m)
#   SACCADE_BENCH_KV_GIB  memory of the KV pool (half of what is available)
#   SACCADE_BENCH_MACHINE, SACCADE_BENCH_OUT: as in bench/cpu.sh
set -euo pipefail
cd "$(dirname "$0")/.."
. bench/machine.sh
machine=${SACCADE_BENCH_MACHINE:-$(uname -m)-$(nproc)c}
out=${SACCADE_BENCH_OUT:-bench/results/$(date +%F)-$machine-$(git rev-parse --short HEAD)-grid}
read -ra shapes <<<"${SACCADE_BENCH_SHAPES:-qwen3-0.6b llama-125m}"
kv_gib=${SACCADE_BENCH_KV_GIB:-$(awk '/MemAvailable/ { print int($2 / 2097152) }' /proc/meminfo)}
cmake -S device -B build/device-bench -G Ninja -DCMAKE_BUILD_TYPE=Release >/dev/null
cmake --build build/device-bench --target step_grid_bench >/dev/null
mkdir -p "$out"
describe_machine "KV $kv_gib GiB" >"$out/machine.txt"
for shape in "${shapes[@]}"; do
  build/device-bench/step_grid_bench "$shape" "$kv_gib" "$(nproc)"
done | tee "$out/grid.jsonl"
python3 bench/grid_table.py "$out"
