#!/usr/bin/env bash
# Rings over UCX, by its transports through shared memory: the tests of the ring and of the fetch plane, processes that
# are killed, garbled handshakes; and a ring outside the host's file. RDMA needs a NIC. Over TCP: tests/hosts.sh. Needs
# libucx-dev, pkg-config and curl.
#   tests/ucx.sh            all
#   tests/ucx.sh ring       only the tests of crates/ring and crates/fetch
#   tests/ucx.sh memory     only a ring outside the host's file, where a GPU's would be (needs CMake, Ninja)
set -euo pipefail
cd "$(dirname "$0")/.."
. tests/within.sh
parts=("$@")
[ $# -gt 0 ] || parts=(ring memory)
# Warnings about a killed peer are part of the test.
export UCX_LOG_LEVEL=${UCX_LOG_LEVEL:-fatal}

# The whole workspace, as in the other tests: what does not depend on the ring is not recompiled.
ucx=(--quiet --workspace --features saccade/ucx,saccade-ring/ucx)
# Tests of the ring and of the fetch plane, which hold for any way to a region.
over_ucx=(--test lives --test properties --test chunks --test hostile --test remote)
build() {
  cargo test "${ucx[@]}" --no-run "${over_ucx[@]}" --test tidy
  # The next build without the feature replaces it.
  mkdir -p build/ucx
  cp -f target/debug/saccade build/ucx/saccade
}

ring() {
  for transports in posix,cma sysv; do
    echo "UCX_TLS=$transports"
    UCX_TLS=$transports SACCADE_TEST_RING=ucx cargo test "${ucx[@]}" "${over_ucx[@]}"
  done
}

# A ring where the GPU's memory would be, in a stand-in for the GPU's library: only frontends that join by
# --ring-listen reach it, and the region's file stays empty.
memory() {
  local work
  work=$(mktemp -d)
  pids=()
  # shellcheck disable=SC2064  # the name is of now
  trap "kill -KILL \${pids[*]} 2>/dev/null; wait 2>/dev/null; rm -rf $work" EXIT
  cmake -S device -B build/device-plain -G Ninja >/dev/null # as tests/device.sh does, which shares the folder
  cmake --build build/device-plain --target gpu_stand_in -j "$(nproc)" >/dev/null
  local saccade=build/ucx/saccade
  export UCX_TLS=sysv SACCADE_LOG=info
  local serve=("$saccade" serve --device cuda:null --cuda-library build/device-plain/tests/libgpu_stand_in.so
    --ring "$work/ring" --ring-slots 128 --ring-memory device --remote-frontends 1)

  refused() { # SENTENCE FLAG...
    local sentence=$1 said code=0
    shift
    said=$(timeout 20 "${serve[@]}" "$@" 2>&1) || code=$?
    [ $code -eq 2 ] && grep -qF -- "$sentence" <<<"$said" || { echo "$*: $code: $said" >&2; return 1; }
  }
  refused "--api-server-count 0" --ring-listen 127.0.0.1:7701
  refused "--remote-frontends: no frontend plane can join without --ring-listen" --api-server-count 0
  refused "--scheduler host" --ring-listen 127.0.0.1:7701 --api-server-count 0 --scheduler host

  "${serve[@]}" --ring-listen 127.0.0.1:7701 --api-server-count 0 >"$work/a.log" 2>&1 &
  pids+=($!)
  local served=$!
  join() {
    $saccade frontend models/saccade-tiny --ring ucx://127.0.0.1:7701 --served-model-name saccade-tiny --port 8003 \
      >>"$work/b.log" 2>&1 &
    pids+=($!)
    joined=$!
  }
  is_ready() { curl -sf localhost:8003/ready >/dev/null; }
  answers() { # WHEN
    local got
    got=$(curl -sf localhost:8003/v1/completions -H 'content-type: application/json' \
      -d '{"model": "saccade-tiny", "prompt": "Once", "max_tokens": 24, "ignore_eos": true}' |
      python3 -c 'import json, sys; print(json.load(sys.stdin)["usage"]["completion_tokens"])')
    [ "$got" = 24 ] || { echo "$1: got '$got' tokens" >&2; return 1; }
    echo "memory: $1: answers from a ring that is in no file"
  }
  within 20 "the listener" grep -q "the ring is handed out" "$work/a.log"
  join
  within 20 "port 8003 is ready" is_ready
  answers "at first"
  # The file shows no trace of a request: its doorbells are those of a region that no frontend has joined.
  python3 - "$work/ring" <<'PYTHON'
import struct, sys
region = open(sys.argv[1], "rb").read()
doorbells, cursors = struct.unpack_from("<QQ", region, 56 + 5 * 8)
assert not any(region[doorbells:cursors]), "a doorbell was rung in the file"
PYTHON

  # When a device dies, its ring dies with it: the next one has another.
  kill -KILL "$(pgrep -P "$served" -f 'saccade device')"
  within 20 "the frontend's end" is_gone "$joined"
  grep -q "another ring is handed out" "$work/b.log"
  join
  within 20 "port 8003 is ready" is_ready
  answers "after the device was killed"
}

build
for part in "${parts[@]}"; do ("$part"); done
