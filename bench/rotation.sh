#!/usr/bin/env bash
# The scheduling policies under overload of KV memory, over HTTP, with a real model on the cpu device.
#   bench/rotation.sh         all of it, into bench/results/<date>-<machine>-<commit>-rotation
#   bench/rotation.sh load    only those: capacity load
# capacity: what a closed loop with far more streams than fit completes per second, first come, first served.
# load: open-loop arrivals at multiples of it, one server per policy, the same arrivals and lengths for each, in an
# order that moves with each repeat. bench/rotation_table.py makes the tables.
# The KV pool is small, so that memory is the limit and not the processor; host memory for KV is ample.
#   SACCADE_BENCH_POLICIES  (fcfs wf sf lvf goodput)
#   SACCADE_BENCH_TIMES     multiples of the capacity (0.9 1.1 1.3)
#   SACCADE_BENCH_BLOCKS    KV blocks of 16 tokens (384)
#   SACCADE_BENCH_LEVEL_S   seconds of arrivals (40)      SACCADE_BENCH_REPEATS (2)
#   SACCADE_BENCH_TTFT_MS (500)   SACCADE_BENCH_TPOT_MS (20)
#   SACCADE_BENCH_MODEL     a model folder (models/saccade-tiny)
#   SACCADE_BENCH_BINARY    a `saccade` that is built already
#   SACCADE_BENCH_MACHINE, SACCADE_BENCH_OUT: name of the machine in the folder's name; the folder
set -euo pipefail
cd "$(dirname "$0")/.."
. bench/machine.sh
machine=${SACCADE_BENCH_MACHINE:-$(uname -m)-$(nproc)c}
out=${SACCADE_BENCH_OUT:-bench/results/$(date +%F)-$machine-$(git rev-parse --short HEAD)-rotation}
read -ra policies <<<"${SACCADE_BENCH_POLICIES:-fcfs wf sf lvf goodput}"
read -ra times <<<"${SACCADE_BENCH_TIMES:-0.9 1.1 1.3}"
repeats=${SACCADE_BENCH_REPEATS:-2}
level_s=${SACCADE_BENCH_LEVEL_S:-40}
ttft_ms=${SACCADE_BENCH_TTFT_MS:-500} tpot_ms=${SACCADE_BENCH_TPOT_MS:-20}
model=${SACCADE_BENCH_MODEL:-models/saccade-tiny}
saccade=${SACCADE_BENCH_BINARY:-${CARGO_TARGET_DIR:-target}/release/saccade}
[ -n "${SACCADE_BENCH_BINARY:-}" ] || cargo build --release --quiet -p saccade
mkdir -p "$out"

serve=("$saccade" serve "$model" --port 18100 --log warn --max-num-seqs 512 --max-num-batched-tokens 512
  --num-gpu-blocks-override "${SACCADE_BENCH_BLOCKS:-384}" --kv-offloading-size 1
  --slo-ttft-ms "$ttft_ms" --slo-tpot-ms "$tpot_ms")
# Lengths as ShareGPT's in shape: 150 in, 200 out in the mean, widely spread.
load=(--base-url http://127.0.0.1:18100 --vocab 256 --random-input-len 150 --random-output-len 200
  --random-range-ratio 0.9 --goodput "ttft:$ttft_ms" "tpot:$tpot_ms" --client-priority nice:-10 --request-timeout 900)

pid=
stop() {
  [ -z "$pid" ] || { kill "$pid" 2>/dev/null && wait "$pid" 2>/dev/null; } || true
  pid=
}
trap stop EXIT
start() { # POLICY
  "${serve[@]}" --scheduling-policy "$1" >"$out/server.log" 2>&1 &
  pid=$!
  curl -sf --retry 100 --retry-delay 1 --retry-all-errors -o /dev/null http://127.0.0.1:18100/v1/models
}

part_capacity() {
  start fcfs
  "$saccade" bench serve "${load[@]}" --name capacity --max-concurrency 400 --num-warmups 400 --duration "$level_s" \
    --json "$out/capacity.json" >/dev/null
  stop
  python3 - "$out/capacity.json" <<'P' | tee "$out/capacity.txt"
import json, sys
print(f"{json.load(open(sys.argv[1]))['runs'][0]['summary']['achieved_rps']:.2f}")
P
}

part_load() {
  local capacity rate policy repeat index n=${#policies[@]}
  capacity=$(cat "$out/capacity.txt")
  for ((repeat = 0; repeat < repeats; ++repeat)); do
    for t in "${times[@]}"; do
      rate=$(python3 -c "print(round($capacity * $t, 2))")
      for ((index = 0; index < n; ++index)); do
        policy=${policies[(index + repeat) % n]}
        start "$policy"
        echo "== $policy at $rate/s ($t x), repeat $repeat"
        "$saccade" bench serve "${load[@]}" --name "$policy" --request-rate "$rate" --duration "$level_s" --seed $((repeat + 1)) \
          --json "$out/load-$t-$policy-$repeat.json" | tail -12
        curl -s http://127.0.0.1:18100/metrics | grep -E '^saccade:device_(rotations|blocks_copied)' >>"$out/metrics-$t-$policy-$repeat.txt" || true
        stop
      done
    done
  done
  rm -f "$out/server.log"
}

describe_machine "model $(basename "$model")" >"$out/machine.txt"
parts=(capacity load)
[ $# -eq 0 ] || parts=("$@")
for part in "${parts[@]}"; do "part_$part"; done
