#!/usr/bin/env bash
# The CPU step of this tree and of another commit, steps of both by turns in one process.
#   bench/turns.sh COMMIT          into bench/results/<date>-<machine>-<commit>-turns
# On a virtual machine whose speed moves from second to second, runs one after the other compare nothing.
#   SACCADE_TURNS_ROUNDS (25)                       steps of each kind
#   SACCADE_TURNS_SHAPES (qwen3-0.6b llama-8b-layers)   the second: two layers of a model of 8 billion parameters; of
#                                                   most rows of a prompt the last computes K and V alone
#   SACCADE_BENCH_MACHINE, SACCADE_BENCH_OUT: name of the machine in the folder's name; the folder
set -euo pipefail
cd "$(dirname "$0")/.."
. bench/machine.sh
other=${1:?usage: bench/turns.sh COMMIT}
machine=${SACCADE_BENCH_MACHINE:-$(uname -m)-$(nproc)c}
out=${SACCADE_BENCH_OUT:-bench/results/$(date +%F)-$machine-$(git rev-parse --short HEAD)-turns}
work=$(mktemp -d)
trap 'git worktree remove --force "$work/other" || true; rm -rf "$work"' EXIT
git worktree add --quiet --detach "$work/other" "$other"

# build ROOT FOLDER NAME
build() {
  cmake -S "$1/device" -B "$2" -G Ninja -DCMAKE_BUILD_TYPE=Release >/dev/null
  cmake --build "$2" --target test_devices saccade_device >/dev/null
  # Its own copy of every symbol, though both libraries have the same.
  ${CXX:-g++} -std=c++20 -O3 -fPIC -shared -Wl,-Bsymbolic -I"$1" -I"$1/device" device/tests/step_library.cpp \
    "$2/libtest_devices.a" "$2/libsaccade_device.a" -pthread -o "$work/$3.so"
}
build "$work/other" "$work/build" first
build . build/device-bench second
cmake --build build/device-bench --target step_turns >/dev/null

mkdir -p "$out"
describe_machine >"$out/machine.txt"
for shape in ${SACCADE_TURNS_SHAPES:-qwen3-0.6b llama-8b-layers}; do
  build/device-bench/step_turns "$work/first.so" "$work/second.so" "${SACCADE_TURNS_ROUNDS:-25}" "$shape" "$(nproc)" \
    >"$out/$shape.jsonl"
done
bench/turns_table.py "$out"
