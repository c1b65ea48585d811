#!/usr/bin/env bash
# Growing chats and a shared system prompt (bench/prefix/users.py) against ours, llama.cpp, vLLM and OpenVINO, each with
# its prefix cache on, over HTTP, one server at a time; bench/peers installs the others.
#   bench/prefix/compare.sh      into bench/results/<date>-<machine>-<commit>-prefix/serve.jsonl
#   SACCADE_BENCH_SERVERS   of saccade saccade-off llama.cpp vllm openvino (all that are installed); saccade-off has its
#                           cache turned off
#   SACCADE_BENCH_REPEATS (3): other prompts each time, in an order of servers that moves
#   SACCADE_BENCH_BINARY    a `saccade` that is built already
#   SACCADE_BENCH_MACHINE, SACCADE_BENCH_OUT: name of the machine in the folder's name; the folder
source "$(dirname "$0")/../peers/common.sh"
cd "$(dirname "$0")/../.."
. bench/machine.sh
machine=${SACCADE_BENCH_MACHINE:-$(uname -m)-$(nproc)c}
out=${SACCADE_BENCH_OUT:-bench/results/$(date +%F)-$machine-$(git rev-parse --short HEAD)-prefix}
saccade=${SACCADE_BENCH_BINARY:-${CARGO_TARGET_DIR:-target}/release/saccade}
repeats=${SACCADE_BENCH_REPEATS:-3}
model=$peers/models/qwen3-0.6b-random
slots=16
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

running=
stop() {
  local signal
  [ -n "$running" ] || return 0
  for signal in INT TERM KILL; do
    # shellcheck disable=SC2046  # a list of pids
    [ -z "$(session_of "$running")" ] || kill -s "$signal" $(session_of "$running") 2>/dev/null || true
    for _ in $(seq 50); do
      [ -n "$(session_of "$running")" ] || { running=; return 0; }
      sleep 0.1
    done
  done
  die "processes of session $running do not end"
}
trap 'stop; rm -f "$out"/*.log' EXIT
start() {
  local ready=/v1/models waited
  case $1 in saccade*) ready=/ready ;; esac
  setsid sh -c "exec $(command_of "$1" "$2")" >"$out/$1.log" 2>&1 </dev/null &
  running=$!
  for ((waited = 0; waited < ready_timeout_s; waited++)); do
    ! curl -sf -o /dev/null --max-time 2 "http://127.0.0.1:$2$ready" || return 0
    kill -0 "$running" 2>/dev/null || { tail -5 "$out/$1.log" >&2; die "$1 ended before it was ready"; }
    sleep 1
  done
  die "$1 was not ready after $ready_timeout_s s"
}
# users SERVER PORT LOAD SEED
users() {
  nice -n -10 python3 bench/prefix/users.py "$3" --url "http://127.0.0.1:$2" --model "$(basename "$model")" --seed "$4"
}

for ((repeat = 0; repeat < repeats; repeat++)); do
  for ((turn = 0; turn < ${#servers[@]}; turn++)); do
    server=${servers[$(((turn + repeat) % ${#servers[@]}))]}
    port=$((18200 + turn + 10 * repeat))
    start "$server" "$port"
    users "$server" "$port" system "warm-$repeat" >/dev/null
    for load in chats system; do
      line=$(users "$server" "$port" "$load" "$repeat") || { tail -5 "$out/$server.log" >&2; exit 1; }
      printf '{"server": "%s", "repeat": %s, %s\n' "$server" "$repeat" "${line#\{}" | tee -a "$out/serve.jsonl"
    done
    stop
  done
done
