#!/usr/bin/env bash
# A server with the bundled model under known questions, attackers of every kind and kills of each of its planes:
# no wrong, lost or doubled token, every stream ended by an answer or an explicit error, memory and descriptors plotted.
#   bench/soak.sh [FLAGS of `saccade bench soak`...]   into bench/results/<date>-<machine>-<commit>-soak: soak.json, .txt
#   SACCADE_SOAK_SECONDS (3600): its length. The nightly takes 300.
#   SACCADE_SOAK_SIGNALS (kill): or kill,stop
#   SACCADE_SOAK_SEED (of the time): everything that is drawn; it is printed
#   SACCADE_SOAK_PORT (18500)
#   SACCADE_BENCH_BINARY    a `saccade` that is built already
#   SACCADE_BENCH_MACHINE, SACCADE_BENCH_OUT: name of the machine in the folder's name; the folder
set -euo pipefail
cd "$(dirname "$0")/.."
. bench/machine.sh
machine=${SACCADE_BENCH_MACHINE:-$(uname -m)-$(nproc)c}
out=${SACCADE_BENCH_OUT:-bench/results/$(date +%F)-$machine-$(git rev-parse --short HEAD)-soak}
saccade=${SACCADE_BENCH_BINARY:-${CARGO_TARGET_DIR:-target}/release/saccade}
port=${SACCADE_SOAK_PORT:-18500}
mkdir -p "$out"
[ -n "${SACCADE_BENCH_BINARY:-}" ] || cargo build --release --quiet -p saccade
describe_machine >"$out/machine.txt"
store=$(mktemp -d)
trap 'rm -rf "$store"' EXIT

# Planes may die as often as they are killed; the store makes the fetch plane run.
serve="$saccade serve --port $port --max-restarts 1000000 --prefix-store file://$store --log warn"
"$saccade" bench soak --server "saccade=http://127.0.0.1:$port" --start "saccade=$serve" \
  --duration "${SACCADE_SOAK_SECONDS:-3600}" --seed "${SACCADE_SOAK_SEED:-$(date +%s)}" \
  --attacks all --attack-set stalled.clients=32,idle-connections.clients=200,half-heads.clients=100 \
  --kill device,frontend,fetch --signals "${SACCADE_SOAK_SIGNALS:-kill}" \
  --log-dir "$out" --json "$out/soak.json" --html "$out/soak.html" "$@" | tee "$out/soak.txt"
