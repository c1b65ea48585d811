#!/usr/bin/env bash
# An EMULATED H100 that serves Llama-3-8B (docs/plan.md), with the scheduler on a host's cores and with the scheduler on
# the device, alone and with CPU hogs on the host's core, at 13 loads from 1 to 32 requests/s.
#   bench/emulated.sh         into bench/results/<date>-<machine>-<commit>-emulated
# The last core plays accelerator and SmartNIC, core 0 the host. The whole host-scheduler server (frontend and tick)
# runs on core 0, the whole device-scheduler server on the last core. The client is on core 0 with
# the highest priority it may have. The hogs are on core 0. bench/emulated_table.py makes the tables.
#   SACCADE_BENCH_RATES      (1 2 3 4 5 6 7 8 10 12 16 24 32)
#   SACCADE_BENCH_CELL_S     seconds of arrivals of a cell (6; three times as many below 4 requests/s)
#   SACCADE_BENCH_INPUT_LEN (1019) SACCADE_BENCH_OUTPUT_LEN (463): tokens, the means of Blink's ShareGPT v3
#   SACCADE_BENCH_NEIGHBOUR  (cpu), SACCADE_BENCH_THREADS (4)
#   SACCADE_BENCH_BINARY, SACCADE_BENCH_MACHINE, SACCADE_BENCH_OUT: as in bench/cpu.sh
set -euo pipefail
cd "$(dirname "$0")/.."
. bench/machine.sh
machine=${SACCADE_BENCH_MACHINE:-$(uname -m)-$(nproc)c}
out=${SACCADE_BENCH_OUT:-bench/results/$(date +%F)-$machine-$(git rev-parse --short HEAD)-emulated}
read -ra rates <<<"${SACCADE_BENCH_RATES:-1 2 3 4 5 6 7 8 10 12 16 24 32}"
cell_s=${SACCADE_BENCH_CELL_S:-6}
saccade=${SACCADE_BENCH_BINARY:-${CARGO_TARGET_DIR:-target}/release/saccade}
[ -n "${SACCADE_BENCH_BINARY:-}" ] || cargo build --release --quiet -p saccade
mkdir -p "$out"
last=$(($(nproc) - 1))
[ "$last" -gt 0 ] || { echo "one core cannot be host and device at once" >&2 && exit 1; }

serve="$saccade serve models/saccade-tiny --device sim:H100 --sim-model Llama-3-8B --log warn --max-model-len 2048"
serve+=" --max-num-seqs 256 --max-num-batched-tokens 2048 --no-enable-prefix-caching"
host="$serve --port 18120 --scheduler host --device-cores 0 --frontend-cores 0"
device="$serve --port 18121 --scheduler device --device-cores $last --frontend-cores $last"

describe_machine >"$out/machine.txt"
for rate in "${rates[@]}"; do
  duration=$([ "$rate" -ge 4 ] && echo "$cell_s" || echo $((cell_s * 3)))
  echo "== $rate requests/s"
  "$saccade" bench interference --keep-running --pause-others --log-dir "$out" --vocab 256 \
    --server host=http://127.0.0.1:18120 --start "host=$host" \
    --server device=http://127.0.0.1:18121 --start "device=$device" \
    --neighbour "${SACCADE_BENCH_NEIGHBOUR:-cpu}" --neighbour-threads "${SACCADE_BENCH_THREADS:-4}" \
    --placement cores=0 --client-cores 0 --request-rate "$rate" --duration "$duration" --num-warmups 4 --repeats 1 \
    --random-input-len "${SACCADE_BENCH_INPUT_LEN:-1019}" --random-output-len "${SACCADE_BENCH_OUTPUT_LEN:-463}" \
    --settle 0.5 --seed "$rate" --json "$out/rate-$rate.json" >"$out/rate-$rate.txt" || cat "$out/rate-$rate.txt"
done
rm -f "$out"/*.log
