#!/usr/bin/env bash
# The parts of Saccade, measured separately on this machine.
#   bench/parts.sh                 all of them, into bench/results/<date>-<machine>-<commit>-parts
#   bench/parts.sh ring copies     only those: ring frontend step model copies products perplexity plan faults
# ring: scan, tick by live requests, submit to first token; frontend: HTTP against a device whose steps only write
# tokens; step: the CPU step on the Qwen3-0.6B shape, dummy bf16 weights, against the memory bandwidth; model: the same
# over HTTP; copies: KV blocks between two pools against memcpy; products: matrix products against oneDNN (Debian:
# libdnnl-dev); perplexity: 16-bit and 8-bit weights of the bundled model against 32-bit ones; plan: SIMULATED, the
# loads of docs/plan.md that others have measured; faults: the fault simulation, 1,000 seeds.
# Machines differ and are shared: compare figures of one run with each other. bench/parts_table.py makes the tables.
#   SACCADE_BENCH_BINARY    a `saccade` that is built already
#   SACCADE_BENCH_MACHINE, SACCADE_BENCH_OUT: name of the machine in the folder's name; the folder
set -euo pipefail
cd "$(dirname "$0")/.."
. bench/machine.sh
machine=${SACCADE_BENCH_MACHINE:-$(uname -m)-$(nproc)c}
out=${SACCADE_BENCH_OUT:-bench/results/$(date +%F)-$machine-$(git rev-parse --short HEAD)-parts}
saccade=${SACCADE_BENCH_BINARY:-${CARGO_TARGET_DIR:-target}/release/saccade}
build=build/device-bench
shape=(bench/models/qwen3-0.6b-shape --tokenizer models/saccade-tiny --served-model-name saccade-tiny
  --load-format dummy --dtype bfloat16 --max-model-len 1024 --max-num-seqs 16 --max-num-batched-tokens 512)
mkdir -p "$out"
[ -n "${SACCADE_BENCH_BINARY:-}" ] || cargo build --release --quiet -p saccade
cmake -S device -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release >/dev/null

# run TARGET ARGUMENTS...: a benchmark of the device plane.
run() {
  cmake --build "$build" --target "$1" >/dev/null
  "$(find "$build" -name "$1" -type f -perm -u+x | head -1)" "${@:2}"
}

servers=()
trap '[ ${#servers[@]} -eq 0 ] || kill "${servers[@]}" 2>/dev/null || true' EXIT
start() { # PORT FLAGS...
  "$saccade" serve "${@:2}" --port "$1" --log warn >"$out/server-$1.log" 2>&1 &
  servers+=($!)
  curl -sf --retry 600 --retry-delay 1 --retry-all-errors -o /dev/null "http://127.0.0.1:$1/ready" || {
    cat "$out/server-$1.log" >&2
    exit 1
  }
}
stop() {
  kill "${servers[@]}"
  wait "${servers[@]}" || true
  servers=()
  rm -f "$out"/server-*.log
}
# load FILE STREAMS REQUESTS PROMPT_TOKENS OUTPUT_TOKENS: a closed loop.
load() {
  "$saccade" bench serve --base-url http://127.0.0.1:18130 --vocab 256 --num-warmups "$2" --max-concurrency "$2" \
    --num-prompts "$3" --random-input-len "$4" --random-output-len "$5" --json "$1" >/dev/null
}

part_ring() { run ring_bench >"$out/ring.jsonl"; }
part_frontend() {
  local n
  start 18130 --device null --max-num-seqs 512 --max-num-batched-tokens 4096
  for n in 1 8 64 256; do load "$out/frontend-$n.json" "$n" $((n * 64 + 2048)) 32 128; done
  stop
}
part_step() { run cpu_step_bench >"$out/step.txt"; }
part_model() {
  local n
  start 18130 "${shape[@]}"
  for n in 1 4 8 16; do load "$out/model-$n.json" "$n" $((n * 3)) 128 64; done
  stop
}
part_copies() { run copy_bench >"$out/copies.txt"; }
part_products() { OMP_NUM_THREADS=1 run products_bench >"$out/products.txt"; }
part_perplexity() {
  start 18131 --dtype float32
  start 18132 --dtype bfloat16
  start 18133 --dtype bfloat16 --quantization int8
  python3 bench/perplexity.py models/saccade-tiny/README.md float32=http://127.0.0.1:18131 \
    bfloat16=http://127.0.0.1:18132 "bfloat16, int8 weights=http://127.0.0.1:18133" --json "$out/perplexity.json"
  stop
}
part_plan() {
  local scheduler
  for scheduler in host device; do
    "$saccade" plan --model Llama-3-8B --device H100 --request-rate 7 --input-len 1024 --output-len 512 \
      --scheduler $scheduler --json "$out/plan-llama-$scheduler.json" >/dev/null
    python3 bench/plan_table.py --thin "$out/plan-llama-$scheduler.json"
  done
  "$saccade" plan --model Qwen2.5-32B --device GH200 --request-rate 15 --kv-offloading-size 400 \
    --json "$out/plan-qwen.json" >/dev/null
  python3 bench/plan_table.py --thin "$out/plan-qwen.json"
}
part_faults() { { time run fault_sim --seeds 1-1000 --ticks 10000; } >"$out/faults.txt" 2>&1; }

describe_machine >"$out/machine.txt"
parts=(ring frontend step model copies products perplexity plan faults)
[ $# -eq 0 ] || parts=("$@")
for part in "${parts[@]}"; do
  echo "== $part"
  "part_$part"
done
python3 bench/parts_table.py "$out"
