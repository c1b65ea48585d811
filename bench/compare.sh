#!/usr/bin/env bash
# Four servers side by side: ours, llama.cpp, vLLM (bench/peers installs them) and the scripted mock.
# Each part measures all of them, except nice (ours and llama.cpp) and the micro benchmarks, which need no server.
#   bench/compare.sh                    all of it, into bench/results/<date>-<machine>-<commit>-compare
#   bench/compare.sh serve attack       only those: serve interference nice attack micro doctor
# SACCADE_BENCH_MODEL: folder that all engines load (default: the bundled model).
# SACCADE_BENCH_MACHINE: name of the machine in the folder's name.
# The servers listen on 18100 to 18103; servers not being measured are stopped (SIGSTOP) meanwhile.
set -euo pipefail
cd "$(dirname "$0")/.."
. bench/machine.sh
machine=${SACCADE_BENCH_MACHINE:-$(uname -m)-$(nproc)c}
model=${SACCADE_BENCH_MODEL:-models/saccade-tiny}
name=$(basename "$model")
out=${SACCADE_BENCH_OUT:-bench/results/$(date +%F)-$machine-$(git rev-parse --short HEAD)-compare}
slots=16
cores=0-$(($(nproc) - 1))
mkdir -p "$out"
cargo build --release --quiet -p saccade -p saccade-mock
saccade=target/release/saccade

ours="$saccade serve $model --served-model-name $name --port 18100 --max-model-len 2048 --no-enable-prefix-caching"
ours+=" --max-num-seqs $slots --max-num-batched-tokens 512 --log warn" # one line: it goes through sh -c
mock="target/release/saccade-mock --listen 127.0.0.1:18103 --script bench/mock-engine.json"
llama="bench/peers/llama_cpp.sh run $model 18101 $slots"
vllm="bench/peers/vllm.sh run $model 18102 $slots"
servers=(--server saccade=http://127.0.0.1:18100 --server llama.cpp=http://127.0.0.1:18101
  --server vllm=http://127.0.0.1:18102 --server mock=http://127.0.0.1:18103)

pids=()
start_ours() {
  $ours >"$out/saccade.log" 2>&1 &
  pids+=($!)
  curl -sf --retry 100 --retry-delay 1 --retry-all-errors -o /dev/null http://127.0.0.1:18100/health
}
start_all() {
  start_ours
  $mock >"$out/mock.log" 2>&1 &
  pids+=($!)
  bench/peers/llama_cpp.sh start "$model" 18101 "$slots" "$cores" >/dev/null
  bench/peers/vllm.sh start "$model" 18102 "$slots" "$cores" >/dev/null
}
stop_all() {
  [ ${#pids[@]} -eq 0 ] || kill "${pids[@]}" 2>/dev/null || true
  pids=()
  bench/peers/llama_cpp.sh stop 18101 2>/dev/null || true
  bench/peers/vllm.sh stop 18102 2>/dev/null || true
  rm -f "$out"/saccade.log "$out"/mock.log
}

# One ladder of rates for each server, while the others are stopped.
part_serve() {
  start_all
  local label port pid
  for server in saccade:18100 llama.cpp:18101 vllm:18102 mock:18103; do
    label=${server%:*} port=${server#*:}
    "$saccade" bench serve --base-url "http://127.0.0.1:$port" --name "$label" --vocab 256 \
      --random-input-len 128 --random-output-len 32 --rates "${SACCADE_BENCH_RATES:-2,4,8,16,32,64}" \
      --duration "${SACCADE_BENCH_LEVEL_S:-8}" --warmup 1 --max-concurrency 64 --client-priority nice:-10 \
      --json "$out/serve-$label.json" --html "$out/serve-$label.html" 2>&1 | tee "$out/serve-$label.txt"
  done
  stop_all
}

part_interference() {
  start_all
  "$saccade" bench interference "${servers[@]}" --pause-others --vocab 256 \
    --random-input-len 128 --random-output-len 16 --max-concurrency 4 --duration "${SACCADE_BENCH_CELL_S:-4}" --num-warmups 4 \
    --neighbour cpu --neighbour memory-bandwidth --neighbour cache --neighbour tlb --neighbour fork \
    --neighbour pbzip2 --neighbour compile --neighbour-threads "$(nproc)" --settle 0.5 \
    --repeats "${SACCADE_BENCH_REPEATS:-3}" \
    --json "$out/interference.json" --html "$out/interference.html" | tee "$out/interference.txt"
  stop_all
}

# What the priority of a server's processes saves: ours by its own flag, llama.cpp by nice(1).
part_nice() {
  "$saccade" bench interference --keep-running --pause-others --vocab 256 --log-dir "$out" \
    --server saccade=http://127.0.0.1:18100 --start "saccade=$ours" \
    --server saccade-nice=http://127.0.0.1:18104 --start "saccade-nice=${ours/18100/18104} --device-nice -15" \
    --server llama.cpp=http://127.0.0.1:18101 --start "llama.cpp=$llama" \
    --server llama.cpp-nice=http://127.0.0.1:18105 --start "llama.cpp-nice=nice -n -15 ${llama/18101/18105}" \
    --random-input-len 128 --random-output-len 16 --max-concurrency 4 --duration "${SACCADE_BENCH_CELL_S:-4}" \
    --num-warmups 4 --neighbour cpu --neighbour pbzip2 --neighbour-threads "$(nproc)" --settle 0.5 \
    --repeats "${SACCADE_BENCH_REPEATS:-3}" --json "$out/nice.json" --html "$out/nice.html" | tee "$out/nice.txt"
}

# Each server is restarted for each number of cores, alone on the machine.
part_attack() {
  "$saccade" bench attack "${servers[@]}" --start "saccade=$ours" --start "llama.cpp=$llama" --start "vllm=$vllm" \
    --start "mock=$mock" --cores 1,2 --attack-rate "${SACCADE_BENCH_ATTACK_RATES:-4,16}" \
    --attack-len "${SACCADE_BENCH_ATTACK_LENS:-400,1600}" --attack-output-len 16 --victim-len 200 --victims 5 --lead 1 \
    --timeout 15 --drain 10 --repeats "${SACCADE_BENCH_SERIES:-1}" \
    --log-dir "$out" --json "$out/attack.json" --html "$out/attack.html" | tee "$out/attack.txt"
}

part_micro() {
  start_all
  for server in saccade:18100 llama.cpp:18101 vllm:18102 mock:18103; do
    echo "== ${server%:*}"
    "$saccade" bench micro tokenize --base-url "http://127.0.0.1:${server#*:}" --batches 1,4 --lengths 128,512,1024 \
      --json "$out/tokenize-${server%:*}.json" --html "$out/tokenize-${server%:*}.html"
  done | tee "$out/tokenize.txt"
  stop_all
  "$saccade" bench micro broadcast --json "$out/broadcast.json" --html "$out/broadcast.html" |
    tee "$out/broadcast.txt"
  "$saccade" bench micro straggler --json "$out/straggler.json" --html "$out/straggler.html" |
    tee "$out/straggler.txt"
}

# Its exit code is its verdict.
part_doctor() {
  start_all
  for port in 18100 18101 18102 18103; do
    "$saccade" doctor --url "http://127.0.0.1:$port" --seconds 3 --verbose || true
  done | sed "s|$PWD/||g; s|$HOME/|~/|g" | tee "$out/doctor.txt"
  for port in 18100 18101 18102 18103; do
    "$saccade" top --once --url "http://127.0.0.1:$port" 2>&1 || true
  done | tee "$out/top.txt"
  stop_all
}

trap stop_all EXIT
describe_machine "model $name" >"$out/machine.txt"
parts=(serve interference nice attack micro doctor)
[ $# -eq 0 ] || parts=("$@")
for part in "${parts[@]}"; do
  echo "== $part"
  "part_$part"
done
