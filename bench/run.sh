#!/usr/bin/env bash
# Measures this machine, into bench/results/<date>-<machine>-<commit>/:
#   ring.json     ring and tick alone: scan, tick time by live requests, submit to first token visible
#   frontend.txt  the frontend plane against a device whose steps only write tokens
#   step.txt      the CPU step on the Qwen3-0.6B shape, dummy bf16 weights, beside the memory bandwidth
#   model.txt     the same shape through HTTP at 1, 4, 8 and 16 streams
# Machines differ and are shared: compare figures of one run with each other.
set -euo pipefail
cd "$(dirname "$0")/.."
. bench/machine.sh
machine=${SACCADE_BENCH_MACHINE:-$(uname -m)-$(nproc)c}
out=bench/results/$(date +%F)-$machine-$(git rev-parse --short HEAD)
mkdir -p "$out"
cargo build --release --quiet -p saccade
cmake -S device -B build/device-bench -G Ninja -DCMAKE_BUILD_TYPE=Release >/dev/null
cmake --build build/device-bench --target ring_bench cpu_step_bench >/dev/null

server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null || true' EXIT
port=$((20000 + RANDOM % 20000))
start() {
  target/release/saccade serve "$@" --port "$port" --log warn >"$out/server.log" 2>&1 &
  server=$!
  for _ in $(seq 1200); do
    curl -sf "localhost:$port/ready" >/dev/null && return
    sleep 0.1
  done
  cat "$out/server.log" >&2
  exit 1
}
stop() { kill "$server" && wait "$server" 2>/dev/null || true; server=; }
# load FILE STREAMS REQUESTS PROMPT_TOKENS OUTPUT_TOKENS: a closed loop
load() {
  echo "$2 streams"
  target/release/saccade bench serve --base-url "http://127.0.0.1:$port" --vocab 256 --num-warmups 4 \
    --max-concurrency "$2" --num-prompts "$3" --random-input-len "$4" --random-output-len "$5" --json "$1"
}

describe_machine >"$out/machine.txt"
build/device-bench/ring_bench | tee "$out/ring.json"

start --device null --max-num-seqs 512 --max-num-batched-tokens 4096
for n in 1 8 64 256; do
  load "$out/frontend-$n.json" "$n" $((n * 32 + 512)) 32 128
done | tee "$out/frontend.txt"
stop

build/device-bench/cpu_step_bench | tee "$out/step.txt"

start bench/models/qwen3-0.6b-shape --tokenizer models/saccade-tiny --served-model-name saccade-tiny --load-format dummy --dtype bfloat16 \
  --max-model-len 1024 --max-num-seqs 16 --max-num-batched-tokens 512
for n in 1 4 8 16; do
  load "$out/model-$n.json" "$n" $((n * 3)) 128 64
done | tee "$out/model.txt"
stop
rm -f "$out/server.log"
echo "results in $out"
