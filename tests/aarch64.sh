#!/usr/bin/env bash
# A frontend plane and a fetch plane built for aarch64 (a DPU's cores) serve this machine's device plane, through the
# same rings: run under qemu-user, next to native ones for comparison. Before that, the CPU step's kernels for aarch64
# (NEON by the compiler's vectors) and the tokenizer run their own tests.
set -euo pipefail
cd "$(dirname "$0")/.."
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc CXX_aarch64_unknown_linux_gnu=aarch64-linux-gnu-g++
cargo build --quiet --target aarch64-unknown-linux-gnu -p saccade --no-default-features --features fetch
cargo test --quiet --workspace --no-run # the native program, as in the other tests

# doctest is header-only; the headers of the build machine's C library must stay out of the way.
doctest=build/device-aarch64-include
mkdir -p "$doctest"
ln -sfn /usr/include/doctest "$doctest/doctest"
cmake -S device -B build/device-aarch64 -G Ninja -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
  -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ -DDOCTEST_INCLUDE_DIR="$PWD/$doctest" >/dev/null
cmake --build build/device-aarch64 --target kernels_test cpu_step_test
for test in kernels_test cpu_step_test; do
  qemu-aarch64-static -L /usr/aarch64-linux-gnu "build/device-aarch64/tests/$test"
done

# The tokenizer's NEON code against its portable twin, and both against the definition of the merges. The reference
# implementations of its other tests only have to compile here.
CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64-static -L /usr/aarch64-linux-gnu" \
  cargo test --quiet --target aarch64-unknown-linux-gnu -p saccade-tokenizer --lib \
  --config profile.dev.package.tokenizers.opt-level=0 --config profile.dev.package.onig_sys.opt-level=0

native=target/debug/saccade
foreign=target/aarch64-unknown-linux-gnu/debug/saccade
file -b "$foreign" 2>/dev/null | grep -q aarch64 || readelf -h "$foreign" | grep -q AArch64

work=$(mktemp -d)
ring=$(mktemp -u /dev/shm/saccade-aarch64-XXXXXX.ring)
pids=()
finish() {
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  wait 2>/dev/null || true
  rm -rf "$work" "$ring" "${ring%.ring}.fetch"
}
trap finish EXIT

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
native_port=$(free_port)
foreign_port=$(free_port)

# The supervisor is stopped below, so that it does not start its frontend again.
SACCADE_LOG=warn $native serve --port "$native_port" --ring "$ring" --ring-slots 128 \
  --api-server-count 1 --kv-cache-memory-bytes 12000000 --prefix-store "file://$work/store" \
  --fetch-frame-bytes 33554432 --fetch-always --fetch-late-ms 60000 >"$work/native.log" 2>&1 &
pids+=($!)
ready() {
  for _ in $(seq 600); do
    curl -sf "localhost:$1/ready" >/dev/null && return 0
    sleep 0.1
  done
  echo "port $1 is not ready" >&2
  cat "$work"/*.log >&2
  return 1
}
ready "$native_port"
ask() {
  curl -sf "localhost:$1/v1/completions" -H 'content-type: application/json' \
    -d '{"model": "saccade-tiny", "prompt": "In the beginning", "max_tokens": 24, "temperature": 0, "logprobs": 1, "ignore_eos": true}' |
    python3 -c 'import json, sys; c = json.load(sys.stdin)["choices"][0]; print(c["text"], c["logprobs"]["token_logprobs"])'
}
expected=$(ask "$native_port")

# The native frontend leaves its place (index 0) to the foreign one: same slots, next epoch.
frontend=$(pgrep -P "${pids[0]}" -f ' frontend ' || pgrep -P "${pids[0]}" -f 'saccade frontend')
kill -STOP "${pids[0]}" && kill -KILL "$frontend"
qemu-aarch64-static -L /usr/aarch64-linux-gnu "$foreign" frontend models/saccade-tiny --ring "$ring" \
  --served-model-name saccade-tiny --port "$foreign_port" >"$work/foreign.log" 2>&1 &
pids+=($!)
ready "$foreign_port"
got=$(ask "$foreign_port")
if [ "$expected" != "$got" ]; then
  printf 'aarch64 frontend answered\n%s\nnative frontend answered\n%s\n' "$got" "$expected" >&2
  exit 1
fi
echo "aarch64 frontend under qemu: same completion as the native one through the same ring"

# The native fetch plane stores a prompt's chunks, and leaves its place to the foreign one. The device has KV for two
# such prompts: what has left it is loaded, decoded by the code for aarch64, whichever plane stored it.
long() { # N: what is said, and how many of 1500 tokens were cached
  local prompt
  prompt=$(python3 -c "print([10 + ($1 * 7919 + i * i * 31 + i * 17 + (i >> 5) * $1) % 240 for i in range(1500)])")
  curl -sSf "localhost:$foreign_port/v1/completions" -H 'content-type: application/json' \
    -d "{\"model\": \"saccade-tiny\", \"prompt\": $prompt, \"max_tokens\": 24, \"temperature\": 0, \"logprobs\": 1,
         \"ignore_eos\": true}" | python3 -c 'import json, sys; a = json.load(sys.stdin); c = a["choices"][0]
print(c["text"].encode(), c["logprobs"]["token_logprobs"], a["usage"]["prompt_tokens_details"]["cached_tokens"], sep="|")'
}
counted() { # METRIC LEAST
  local value
  for _ in $(seq 300); do
    value=$(curl -sf "localhost:$foreign_port/metrics" | grep -F "$1" | awk '{ n += $NF } END { print int(n) }')
    [ "${value:-0}" -lt "$2" ] || return 0
    sleep 0.1
  done
  echo "$1 is $value, not $2" >&2
  tail -n 20 "$work"/*.log >&2
  return 1
}
stored='op="store",result="done"'
first=$(long 1)
counted "$stored" 5
kill -KILL "$(pgrep -P "${pids[0]}" -f 'saccade fetch')"
SACCADE_LOG=info qemu-aarch64-static -L /usr/aarch64-linux-gnu "$foreign" fetch --fetch-ring "${ring%.ring}.fetch" \
  --prefix-store "file://$work/store" >"$work/fetch.log" 2>&1 &
pids+=($!)
counted saccade:fetch_planes_joined_total 2
second=$(long 2)
counted "$stored" 10
for n in 3 4 5; do long $n >/dev/null; done
for pair in "1|$first" "2|$second"; do
  again=$(long "${pair%%|*}")
  expected=${pair#*|}
  if [ "${again%|*}" != "${expected%|*}" ] || [ "${again##*|}" -lt 1280 ]; then
    printf 'aarch64 fetch plane: with what it loaded\n%s\ncomputed\n%s\n' "$again" "$expected" >&2
    exit 1
  fi
done
counted 'op="load",result="done"' 10
kill -CONT "${pids[0]}"
echo "aarch64 fetch plane under qemu: loads what the native one stored, and what it stored itself"
echo "2 passed, 0 failed"
