#!/usr/bin/env bash
# Growing chats and a shared system prompt (bench/prefix/users.py) against ours, llama.cpp, vLLM and OpenVINO, each with
# its prefix cache on, over HTTP, one server at a time; bench/peers installs the others.
#   bench/prefix/compare.sh      into bench/results/<date>-<machine>-<commit>-prefix/serve.jsonl
#   SACCADE_BENCH_SERVERS (saccade llama.cpp vllm openvino saccade-off): saccade-off has its cache turned off
#   SACCADE_BENCH_LOADS (chats system): of users.py
#   SACCADE_BENCH_REPEATS (3): other prompts each time, in an order of servers that moves
#   SACCADE_BENCH_FIRST_REPEAT (0): to go on with a run
#   SACCADE_BENCH_BINARY    a `saccade` that is built already
#   SACCADE_BENCH_MACHINE, SACCADE_BENCH_OUT: name of the machine in the folder's name; the folder
source "$(dirname "$0")/../peers/common.sh"
cd "$(dirname "$0")/../.."
. bench/machine.sh
machine=${SACCADE_BENCH_MACHINE:-$(uname -m)-$(nproc)c}
out=${SACCADE_BENCH_OUT:-bench/results/$(date +%F)-$machine-$(git rev-parse --short HEAD)-prefix}
saccade=${SACCADE_BENCH_BINARY:-${CARGO_TARGET_DIR:-target}/release/saccade}
repeats=${SACCADE_BENCH_REPEATS:-3}
first_repeat=${SACCADE_BENCH_FIRST_REPEAT:-0}
model=$peers/models/qwen3-0.6b-random
slots=16
read -ra loads <<<"${SACCADE_BENCH_LOADS:-chats system}"
export SACCADE_PEERS_CONTEXT=${SACCADE_PEERS_CONTEXT:-2560} SACCADE_PEERS_KV_GIB=${SACCADE_PEERS_KV_GIB:-5}
mkdir -p "$out"
[ -f "$out/machine.txt" ] || describe_machine "KV memory of each engine: $SACCADE_PEERS_KV_GIB GiB" >"$out/machine.txt"
read -ra servers <<<"${SACCADE_BENCH_SERVERS:-saccade llama.cpp vllm openvino saccade-off}"

command_of() {
  local port=$2 flags
  flags="$model --port $port --served-model-name $(basename "$model") --dtype bfloat16 --log warn"
  flags+=" --max-model-len $SACCADE_PEERS_CONTEXT --max-num-seqs $slots --max-num-batched-tokens $batched_tokens"
  case $1 in
    saccade) echo "$saccade serve $flags" ;;
    saccade-off) echo "$saccade serve $flags --no-enable-prefix-caching" ;;
    llama.cpp) echo "bench/peers/llama_cpp.sh run $model $port $slots --cache-prompt --cache-ram 8192" ;;
    vllm) echo "bench/peers/vllm.sh run $model $port $slots --enable-prefix-caching --enable-prompt-tokens-details" ;;
    openvino) echo "bench/peers/openvino.sh run $model $port $slots --prefix-caching" ;;
    *) die "SACCADE_BENCH_SERVERS: no $1" ;;
  esac
}

trap 'end_serving; rm -f "$out"/*.log' EXIT
# users SERVER PORT LOAD SEED
users() {
  nice -n -10 python3 bench/prefix/users.py "$3" --url "http://127.0.0.1:$2" --model "$(basename "$model")" --seed "$4"
}

for ((repeat = first_repeat; repeat < first_repeat + repeats; repeat++)); do
  for ((turn = 0; turn < ${#servers[@]}; turn++)); do
    server=${servers[$(((turn + repeat) % ${#servers[@]}))]}
    port=$((18200 + turn + 10 * repeat))
    serve_alone "$server" "$port" "$out/$server.log" "$(command_of "$server" "$port")"
    users "$server" "$port" system "warm-$repeat" >/dev/null
    for load in "${loads[@]}"; do
      line=$(users "$server" "$port" "$load" "$repeat") || { tail -5 "$out/$server.log" >&2; exit 1; }
      printf '{"server": "%s", "repeat": %s, %s\n' "$server" "$repeat" "${line#\{}" | tee -a "$out/serve.jsonl"
    done
    end_serving
  done
done
