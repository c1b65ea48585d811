#!/usr/bin/env bash
# The scheduling policies under overload of KV memory, over HTTP, with a real model on the cpu device.
#   bench/rotation.sh         all of it, into bench/results/<date>-<machine>-<commit>-rotation
#   bench/rotation.sh load    only those: capacity tune load
# capacity: what a closed loop with far more streams than fit completes per second, first come, first served.
# tune: B_xfer of each policy that uses one: the value of a list with the best goodput, at the highest multiple of the
# capacity, with arrivals that the part load does not use.
# load: open-loop arrivals at multiples of the capacity, one server per policy, the same arrivals and lengths for each,
# in an order that moves with each repeat. bench/rotation_table.py makes the tables. A run that fails ends the script.
# The KV pool is small, so that memory is the limit and not the processor; host memory for KV is ample.
#   SACCADE_BENCH_POLICIES  (fcfs wf sf lvf goodput)
#   SACCADE_BENCH_TIMES     multiples of the capacity (0.9 1.1 1.3)
#   SACCADE_BENCH_BLOCKS    KV blocks of 16 tokens (384)
#   SACCADE_BENCH_B_XFER    blocks per tick that tune tries (8 32 96 384)
#   SACCADE_BENCH_LEVEL_S   seconds of arrivals (40)      SACCADE_BENCH_REPEATS (3)
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
read -ra b_xfer <<<"${SACCADE_BENCH_B_XFER:-8 32 96 384}"
repeats=${SACCADE_BENCH_REPEATS:-3}
level_s=${SACCADE_BENCH_LEVEL_S:-40}
ttft_ms=${SACCADE_BENCH_TTFT_MS:-500} tpot_ms=${SACCADE_BENCH_TPOT_MS:-20}
model=${SACCADE_BENCH_MODEL:-models/saccade-tiny}
saccade=${SACCADE_BENCH_BINARY:-${CARGO_TARGET_DIR:-target}/release/saccade}
[ -n "${SACCADE_BENCH_BINARY:-}" ] || cargo build --release --quiet -p saccade
mkdir -p "$out"

serve=("$saccade" serve "$model" --port 18100 --log warn --max-num-seqs 512 --max-num-batched-tokens 512
  --num-gpu-blocks-override "${SACCADE_BENCH_BLOCKS:-384}" --kv-offloading-size 1
  --slo-ttft-ms "$ttft_ms" --slo-tpot-ms "$tpot_ms")
# Lengths shaped like ShareGPT's: 150 in, 200 out in the mean, widely spread.
load=(--base-url http://127.0.0.1:18100 --vocab 256 --random-input-len 150 --random-output-len 200
  --random-range-ratio 0.9 --goodput "ttft:$ttft_ms" "tpot:$tpot_ms" --client-priority nice:-10 --request-timeout 900)

pid=
stop() {
  [ -z "$pid" ] || { kill "$pid" 2>/dev/null && wait "$pid" 2>/dev/null; } || true
  pid=
}
trap stop EXIT
start() { # POLICY FLAGS
  "${serve[@]}" --scheduling-policy "$@" >"$out/server.log" 2>&1 &
  pid=$!
  curl -sf --retry 100 --retry-delay 1 --retry-all-errors -o /dev/null http://127.0.0.1:18100/v1/models
}

part_capacity() {
  start fcfs
  "$saccade" bench serve "${load[@]}" --name capacity --max-concurrency 400 --num-warmups 400 --duration "$level_s" \
    --json "$out/capacity.json" >/dev/null
  stop
}

rate_of() { # TIMES: that multiple of the capacity, requests/s
  python3 - "$out/capacity.json" "$1" <<'P'
import json, sys
print(round(json.load(open(sys.argv[1]))["runs"][0]["summary"]["achieved_rps"] * float(sys.argv[2]), 2))
P
}

level() { # NAME TIMES SEED POLICY FLAGS: one server under one load, into NAME.json and metrics-NAME.txt
  local name=$1 rate
  rate=$(rate_of "$2")
  start "${@:4}"
  echo "== ${*:4} at $rate/s ($2 x), seed $3"
  "$saccade" bench serve "${load[@]}" --name "$4" --request-rate "$rate" --duration "$level_s" --seed "$3" \
    --json "$out/$name.json" | tail -12
  curl -sf http://127.0.0.1:18100/metrics | grep -E '^saccade:device_(rotations|blocks_copied)' \
    >"$out/metrics-$name.txt"
  stop
}

# The others rotate no request out by choice.
transfers() { [ "$1" != fcfs ] && [ "$1" != sf ]; }

part_tune() {
  local policy blocks highest=${times[-1]}
  for policy in "${policies[@]}"; do
    transfers "$policy" || continue
    for blocks in "${b_xfer[@]}"; do
      level "tune-$policy-$blocks" "$highest" 1000 "$policy" --b-xfer-blocks "$blocks"
    done
  done
  python3 bench/rotation_table.py tuned "$out"
}

part_load() {
  local policy repeat index n=${#policies[@]} flags
  for ((repeat = 0; repeat < repeats; ++repeat)); do
    for t in "${times[@]}"; do
      for ((index = 0; index < n; ++index)); do
        policy=${policies[(index + repeat) % n]}
        flags=()
        ! transfers "$policy" || flags=(--b-xfer-blocks "$(cat "$out/b-xfer-$policy.txt")")
        level "load-$t-$policy-$repeat" "$t" $((repeat + 1)) "$policy" "${flags[@]}"
      done
    done
  done
  rm -f "$out/server.log"
}

describe_machine "model $(basename "$model")" >"$out/machine.txt"
parts=(capacity tune load)
[ $# -eq 0 ] || parts=("$@")
for part in "${parts[@]}"; do "part_$part"; done
python3 bench/rotation_table.py tables "$out" | tee "$out/tables.md"
