#!/usr/bin/env bash
# Measures this machine, into bench/results/<date>-<machine>-<commit>/:
#   ring.json     ring and tick alone: scan, tick time by live requests, submit to first token visible
#   frontend.json the frontend plane against a device whose steps only write tokens
#   step.txt      the CPU step on the Qwen3-0.6B shape, dummy bf16 weights, beside the memory bandwidth
#   model.json    the same shape through HTTP at 1, 4, 8 and 16 streams
# Machines differ and are shared: compare figures of one run with each other.
set -euo pipefail
cd "$(dirname "$0")/.."
machine=${SACCADE_BENCH_MACHINE:-$(uname -m)-$(nproc)c}
out=bench/results/$(date +%F)-$machine-$(git rev-parse --short HEAD)
mkdir -p "$out"
cargo build --release --quiet -p saccade -p saccade-bench
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
load() { target/release/saccade-load --server "127.0.0.1:$port" "$@"; }

{ lscpu | grep -E 'Model name|^CPU\(s\)|L[123]'; uname -r; echo "commit $(git rev-parse HEAD)"; echo "load $(cut -d' ' -f1-3 /proc/loadavg)"; } >"$out/machine.txt"
build/device-bench/ring_bench | tee "$out/ring.json"

start --device null --max-num-seqs 512 --max-num-batched-tokens 4096
for n in 1 8 64 256; do
  load --concurrency "$n" --requests $((n * 32 + 512)) --prompt-tokens 32 --output-tokens 128
done | tee "$out/frontend.json"
stop

build/device-bench/cpu_step_bench | tee "$out/step.txt"

start bench/models/qwen3-0.6b-shape --tokenizer models/saccade-tiny --served-model-name saccade-tiny --load-format dummy --dtype bfloat16 \
  --max-model-len 1024 --max-num-seqs 16 --max-num-batched-tokens 512
for n in 1 4 8 16; do
  load --concurrency "$n" --requests $((n * 3)) --warmup 1 --every-token \
    --prompt-tokens 128 --output-tokens 64
done | tee "$out/model.json"
stop
rm -f "$out/server.log"
echo "results in $out"
