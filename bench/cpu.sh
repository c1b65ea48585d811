#!/usr/bin/env bash
# The CPU step against llama.cpp, vLLM, OpenVINO and mistral.rs (bench/peers installs them), over HTTP, one server at a
# time.
#   bench/cpu.sh                      all of it, into bench/results/<date>-<machine>-<commit>-cpu
#   bench/cpu.sh serve wave           only those: serve wave neighbours priority
# serve: closed loops of 1 to 16 streams and long prompts, every server in turn, in an order that moves with each
# repeat; the limits of the machine are measured before each repeat. wave: OpenVINO's engine in process, without HTTP.
# neighbours: 8 streams of the first shape beside pbzip2 and a compiler at equal priority; priority: the same with each
# server raised (ours by its flags, the others by nice). In both a scripted server that computes nothing has its turn:
# beside it the neighbours run as alone, which is what their own loss beside the others is measured by.
#   SACCADE_BENCH_SHAPES    folders of bench/models without "-shape" (qwen3-0.6b llama-125m), random weights
#   SACCADE_BENCH_SERVERS   of saccade saccade-int8 llama.cpp llama.cpp-q8 llama.cpp-q4 vllm openvino openvino-int8
#                           mistral.rs (all that are installed); and, if named, saccade-chunked and saccade-inline (ours
#                           with that --prefill-policy), and another's name with -huge: its malloc asks for huge pages
#   SACCADE_BENCH_BESIDE    those of neighbours and priority (the same)
#   SACCADE_BENCH_REPEATS (3); SACCADE_BENCH_FIRST_REPEAT (0): of serve, to go on with a run that was cut off
#   SACCADE_BENCH_WAVES (3) and SACCADE_BENCH_LEAST (8): measured requests of a cell of serve, a stream and in all;
#                           SACCADE_BENCH_PROMPT_WAVES (the same): a stream, in cells of long prompts
#   SACCADE_BENCH_CELL_S (30): seconds of a cell of neighbours and priority
#   SACCADE_BENCH_NEIGHBOURS (pbzip2 compile): those of neighbours and priority
#   SACCADE_BENCH_STREAMS (1 4 8 16)   SACCADE_BENCH_PROMPTS (1x512 4x512 1x2048 4x2048): streams x tokens
#   SACCADE_BENCH_OUTPUT_LEN (128)
#   SACCADE_BENCH_ROOFLINE  a command that prints {"read_gb_per_s": …, "bf16_gflop_per_s": …}; without it the tables
#                           have no limits
#   SACCADE_BENCH_RAISED    flags of ours in priority (--device-nice -20)
#   SACCADE_BENCH_BINARY    a `saccade` that is built already
#   SACCADE_BENCH_MACHINE, SACCADE_BENCH_OUT: name of the machine in the folder's name; the folder
source "$(dirname "$0")/peers/common.sh"
cd "$(dirname "$0")/.."
. bench/machine.sh
machine=${SACCADE_BENCH_MACHINE:-$(uname -m)-$(nproc)c}
out=${SACCADE_BENCH_OUT:-bench/results/$(date +%F)-$machine-$(git rev-parse --short HEAD)-cpu}
read -ra shapes <<<"${SACCADE_BENCH_SHAPES:-qwen3-0.6b llama-125m}"
read -ra streams <<<"${SACCADE_BENCH_STREAMS:-1 4 8 16}"
read -ra neighbours <<<"${SACCADE_BENCH_NEIGHBOURS:-pbzip2 compile}"
read -ra prompts <<<"${SACCADE_BENCH_PROMPTS:-1x512 4x512 1x2048 4x2048}"
repeats=${SACCADE_BENCH_REPEATS:-3}
first_repeat=${SACCADE_BENCH_FIRST_REPEAT:-0}
waves=${SACCADE_BENCH_WAVES:-3}
prompt_waves=${SACCADE_BENCH_PROMPT_WAVES:-$waves}
least=${SACCADE_BENCH_LEAST:-8}
output_len=${SACCADE_BENCH_OUTPUT_LEN:-128}
raised=${SACCADE_BENCH_RAISED:---device-nice -20}
slots=16
cores=0-$(($(nproc) - 1))
# A prompt of 2,048 and its answer; all slots full in bf16 at the larger shape.
export SACCADE_PEERS_CONTEXT=${SACCADE_PEERS_CONTEXT:-2560} SACCADE_PEERS_KV_GIB=${SACCADE_PEERS_KV_GIB:-5}
mkdir -p "$out"
saccade=${SACCADE_BENCH_BINARY:-${CARGO_TARGET_DIR:-target}/release/saccade}
[ -n "${SACCADE_BENCH_BINARY:-}" ] || cargo build --release --quiet -p saccade -p saccade-mock
mock=$(dirname "$saccade")/saccade-mock

# Ids that every tokenizer here has a text for: those of models/saccade-tiny.
load=(--vocab 256 --request-timeout 900)

quantizes() { "$saccade" serve --help | grep -q -- --quantization; }
all_servers() {
  echo saccade
  if quantizes; then echo saccade-int8; fi
  [ ! -x "$peers/build-llama/bin/llama-server" ] || printf 'llama.cpp\nllama.cpp-q8\nllama.cpp-q4\n'
  [ ! -x "$peers/vllm/bin/vllm" ] || echo vllm
  [ ! -x "$peers/openvino/bin/python" ] || printf 'openvino\nopenvino-int8\n'
  [ ! -x "$peers/mistral-rs/bin/python" ] || echo mistral.rs
}
mapfile -t servers < <(all_servers)
[ -z "${SACCADE_BENCH_SERVERS:-}" ] || read -ra servers <<<"$SACCADE_BENCH_SERVERS"
read -ra beside_servers <<<"${SACCADE_BENCH_BESIDE:-${servers[*]}}"

model_of() { echo "$peers/models/$1-random"; }
port_of() {
  case ${1%-huge} in
    saccade) echo 18100 ;; saccade-int8) echo 18110 ;; saccade-chunked) echo 18120 ;; saccade-inline) echo 18140 ;;
    llama.cpp) echo 18101 ;; llama.cpp-q8) echo 18111 ;; llama.cpp-q4) echo 18121 ;; idle) echo 18130 ;;
    vllm) echo 18102 ;; openvino) echo 18104 ;; openvino-int8) echo 18114 ;; mistral.rs) echo 18105 ;;
    *) die "SACCADE_BENCH_SERVERS: no $1" ;;
  esac
}
# The command line, run by `sh -c`, that server $1 with model folder $2 is in the foreground.
command_of() {
  local ours="$saccade serve $2 --served-model-name $(basename "$2") --port $(port_of "$1") --dtype bfloat16 --log warn"
  ours+=" --max-model-len $SACCADE_PEERS_CONTEXT --max-num-seqs $slots --max-num-batched-tokens $batched_tokens"
  ours+=" --no-enable-prefix-caching"
  local place
  place="$2 $(port_of "$1") $slots"
  case $1 in
    saccade) echo "$ours" ;;
    saccade-chunked | saccade-inline) echo "$ours --prefill-policy ${1#saccade-}" ;;
    saccade-int8) echo "$ours --quantization int8" ;;
    # glibc's malloc, and mmap of what is large, in pages of 2 MiB (what ours does by itself).
    *-huge) echo "env GLIBC_TUNABLES=glibc.malloc.hugetlb=1 $(command_of "${1%-huge}" "$2")" ;;
    llama.cpp) echo "bench/peers/llama_cpp.sh run $place" ;;
    llama.cpp-q8) echo "env SACCADE_PEERS_GGUF_TYPE=q8_0 bench/peers/llama_cpp.sh run $place" ;;
    llama.cpp-q4) echo "env SACCADE_PEERS_GGUF_TYPE=q4_k_m bench/peers/llama_cpp.sh run $place" ;;
    idle) echo "$mock --listen 127.0.0.1:$(port_of idle) --ttft constant:200ms --itl constant:100ms" ;;
    vllm) echo "bench/peers/vllm.sh run $place" ;;
    openvino) echo "bench/peers/openvino.sh run $place" ;;
    mistral.rs) echo "bench/peers/mistral_rs.sh run $place" ;;
    openvino-int8) echo "env SACCADE_PEERS_OPENVINO_WEIGHTS=int8 bench/peers/openvino.sh run $place" ;;
  esac
}

start() { serve_alone "$1" "$(port_of "$1")" "$out/$1.log" "$(command_of "$1" "$2")"; }
trap 'end_serving; rm -f "$out"/*.log' EXIT

prepare() {
  local shape model
  for shape in "${shapes[@]}"; do
    model=$(model_of "$shape")
    [ -f "$model/model.safetensors" ] ||
      "$(torch_venv)/bin/python" bench/peers/make_model.py "$model" --shape "bench/models/$shape-shape"
    python3 bench/cpu_table.py model "$out" "$shape" "$model"
    # Conversions are no part of a start.
    for server in "${servers[@]}"; do
      case ${server%-huge} in
        openvino) bench/peers/openvino.sh convert "$model" >/dev/null ;;
        openvino-int8) SACCADE_PEERS_OPENVINO_WEIGHTS=int8 bench/peers/openvino.sh convert "$model" >/dev/null ;;
      esac
    done
  done
}
limits() {
  [ -n "${SACCADE_BENCH_ROOFLINE:-}" ] || return 0
  $SACCADE_BENCH_ROOFLINE | python3 bench/cpu_table.py limits "$out" "$1"
}

# cell SHAPE SERVER REPEAT STREAMS INPUT OUTPUT WAVES
cell() {
  local requests=$(($4 * $7))
  [ "$requests" -ge "$least" ] || requests=$least
  "$saccade" bench serve --base-url "http://127.0.0.1:$(port_of "$2")" --name "$2" "${load[@]}" --max-concurrency "$4" \
    --random-input-len "$5" --random-output-len "$6" --num-warmups $(($4 + 1)) --num-prompts "$requests" --seed "$3" \
    --client-priority nice:-10 --json - 2>"$out/cell.log" | python3 bench/cpu_table.py cell "$out" "$1" "$2" "$3" ||
    { cat "$out/cell.log" >&2; return 1; }
  case $2 in saccade*) roof "$@" ;; esac
}
# What the machine allows that very process, right after a cell.
roof() {
  "$saccade" bench micro roof --base-url "http://127.0.0.1:$(port_of "$2")" --repeats 3 --json - |
    python3 bench/cpu_table.py roof "$out" "$@"
}
# Cells of one seed have prompts that begin alike: a server that keeps prefixes would not compute them.
check_nothing_cached() {
  local hits
  hits=$({ curl -sf "http://127.0.0.1:$(port_of "$1")/metrics" || true; } |
    awk '/^vllm:prefix_cache_hits_total/ {sum += $NF} END {print sum + 0}')
  [ "$hits" = 0 ] || die "$1: $hits prompt tokens came from its prefix cache"
}
part_serve() {
  local repeat shape turn server n prompt
  for ((repeat = first_repeat; repeat < repeats; repeat++)); do
    for shape in "${shapes[@]}"; do
      limits "$repeat"
      for ((turn = 0; turn < ${#servers[@]}; turn++)); do
        server=${servers[$(((turn + repeat) % ${#servers[@]}))]}
        start "$server" "$(model_of "$shape")"
        for n in "${streams[@]}"; do cell "$shape" "$server" "$repeat" "$n" 128 "$output_len" "$waves"; done
        for prompt in "${prompts[@]}"; do
          cell "$shape" "$server" "$repeat" "${prompt%x*}" "${prompt#*x}" 16 "$prompt_waves"
        done
        check_nothing_cached "$server"
        end_serving
      done
    done
  done
  limits "$repeats"
}

part_wave() {
  local shape weights n
  [ -x "$peers/openvino/bin/python" ] || { echo "openvino.sh is not installed"; return 0; }
  for shape in "${shapes[@]}"; do
    for n in "${streams[@]}"; do
      for weights in fp16 int8; do
        SACCADE_PEERS_OPENVINO_WEIGHTS=$weights bench/peers/openvino.sh wave "$(model_of "$shape")" "$cores" \
          --streams "$n" --input-len 128 --output-len "$output_len" --repeats "$repeats" |
          python3 bench/cpu_table.py wave "$out" "$shape" "$weights"
      done
    done
  done
}

# beside NAME COMMAND-PREFIX-OF-OTHERS FLAGS-OF-OURS: servers are children of the tool, in its session, as the
# neighbours are, so that no autogroup stands between them.
beside() {
  local server command neighbour flags=()
  for server in idle "${beside_servers[@]}"; do
    command=$(command_of "$server" "$(model_of "${shapes[0]}")")
    case $server in idle) ;; saccade*) command+=" $3" ;; *) command="$2 $command" ;; esac
    flags+=(--server "$server=http://127.0.0.1:$(port_of "$server")" --start "$server=$command")
  done
  for neighbour in "${neighbours[@]}"; do flags+=(--neighbour "$neighbour"); done
  "$saccade" bench interference "${flags[@]}" "${load[@]}" --log-dir "$out" --max-concurrency 8 --random-input-len 128 \
    --random-output-len "$output_len" --duration "${SACCADE_BENCH_CELL_S:-30}" --num-warmups 9 \
    --neighbour-threads 2 --settle 1 --repeats "$repeats" --json "$out/$1.json"
  sed -i "s|$(dirname "$saccade")/|target/release/|g; s|$PWD/||g; s|$HOME/|~/|g" "$out/$1.json"
}
part_neighbours() { beside neighbours "" ""; }
part_priority() { beside priority "nice -n -20" "$raised"; }

# A run that goes on adds its lines.
describe_machine "servers ${servers[*]}" >>"$out/machine.txt"
prepare
parts=(serve wave neighbours priority)
[ $# -eq 0 ] || parts=("$@")
for part in "${parts[@]}"; do
  echo "== $part"
  "part_$part"
done
python3 bench/cpu_table.py tables "$out"
