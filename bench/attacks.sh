#!/usr/bin/env bash
# Well-behaved clients alone and beside each kind of attacker, on ours, llama.cpp, vLLM and OpenVINO (bench/peers
# installs them), one server at a time: `saccade bench attack --attacks` (docs/measure.md).
#   bench/attacks.sh                   all servers, into bench/results/<date>-<machine>-<commit>-attacks
#   bench/attacks.sh saccade vllm      only those: saccade llama.cpp vllm openvino, or saccade-emulated: ours on an
#                                      EMULATED H100 that serves Llama-3-8B (docs/plan.md), on the last core; client and
#                                      attackers are on core 0, so that they take nothing from the server
# On ours, victims and attackers are two tenants (bench/attack-tenants.yaml); the others do not know tenants.
#   SACCADE_ATTACKS (all): which; SACCADE_ATTACK_FLAGS: more flags of `saccade bench attack`
#   SACCADE_ATTACK_VICTIMS (24), SACCADE_ATTACK_WINDOW_S (20), SACCADE_ATTACK_REPEATS (1)
#   SACCADE_BENCH_MODEL     folder that all engines load (default: the bundled model)
#   SACCADE_BENCH_BINARY    a `saccade` that is built already
#   SACCADE_BENCH_MACHINE, SACCADE_BENCH_OUT: name of the machine in the folder's name; the folder
set -euo pipefail
cd "$(dirname "$0")/.."
. bench/machine.sh
machine=${SACCADE_BENCH_MACHINE:-$(uname -m)-$(nproc)c}
model=${SACCADE_BENCH_MODEL:-models/saccade-tiny}
out=${SACCADE_BENCH_OUT:-bench/results/$(date +%F)-$machine-$(git rev-parse --short HEAD)-attacks}
saccade=${SACCADE_BENCH_BINARY:-${CARGO_TARGET_DIR:-target}/release/saccade}
slots=32 # of all servers: the victims and eight more
[ -n "${SACCADE_BENCH_BINARY:-}" ] || cargo build --release --quiet -p saccade
mkdir -p "$out"
describe_machine "model $(basename "$model")" >"$out/machine.txt"

ours="$saccade serve $model --port 18200 --max-model-len 2048 --max-num-seqs $slots --max-num-batched-tokens 512"
ours+=" --no-enable-prefix-caching --tenants bench/attack-tenants.yaml --log warn"
last=$(($(nproc) - 1))

command_of() {
  case $1 in
    saccade) echo "$ours" ;;
    saccade-emulated) echo "$ours --device sim:H100 --sim-model Llama-3-8B --device-cores $last --frontend-cores $last" ;;
    llama.cpp) echo "bench/peers/llama_cpp.sh run $model 18201 $slots" ;;
    vllm) echo "bench/peers/vllm.sh run $model 18202 $slots" ;;
    openvino) echo "bench/peers/openvino.sh run $model 18203 $slots" ;;
    *) echo "no such server: $1" >&2 && exit 2 ;;
  esac
}
port_of() {
  case $1 in saccade*) echo 18200 ;; llama.cpp) echo 18201 ;; vllm) echo 18202 ;; *) echo 18203 ;; esac
}

names=(saccade llama.cpp vllm openvino)
[ $# -eq 0 ] || names=("$@")
for name in "${names[@]}"; do
  command=$(command_of "$name")
  cores=()
  if [ "$name" = saccade-emulated ]; then
    [ "$last" -gt 0 ] || { echo "$name: one core cannot be server and client at once" >&2 && exit 1; }
    cores=(--client-cores 0)
  fi
  # The exit code says that a window could not be measured; the record says which.
  "$saccade" bench attack --server "$name=http://127.0.0.1:$(port_of "$name")" --start "$name=$command" \
    --attacks "${SACCADE_ATTACKS:-all}" --victim-api-key victims --attacker-api-key attackers \
    --victim-streams "${SACCADE_ATTACK_VICTIMS:-24}" --window "${SACCADE_ATTACK_WINDOW_S:-20}" \
    --repeats "${SACCADE_ATTACK_REPEATS:-1}" --lead 2 --log-dir "$out" "${cores[@]}" ${SACCADE_ATTACK_FLAGS:-} \
    --json "$out/$name.json" --html "$out/$name.html" | tee "$out/$name.txt" || echo "$name: see its record" >&2
done
