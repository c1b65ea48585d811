#!/usr/bin/env bash
# OpenVINO GenAI's continuous batching on the CPU, behind a small HTTP front of ours (openvino_server.py).
#   openvino.sh install                                      0.65 GB beside the torch that vllm.sh uses too
#   openvino.sh start MODEL_DIR PORT SLOTS CORES [more flags of openvino_server.py]    prints the pid
#   openvino.sh run MODEL_DIR PORT SLOTS [more flags]    in the foreground, on the cores that it inherits
#   openvino.sh wave MODEL_DIR CORES [flags of openvino_wave.py]    its engine in process, without HTTP
#   openvino.sh convert MODEL_DIR                           prints the folder of the converted model
#   openvino.sh stop PORT
# The model is converted at its first start, with SACCADE_PEERS_OPENVINO_WEIGHTS (fp16; or int8).
# SACCADE_PEERS_KV_GIB: memory of its KV cache (2).
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
version=2026.4.1.0
venv=$peers/openvino
weights=${SACCADE_PEERS_OPENVINO_WEIGHTS:-fp16}
kv_cache_gib=${SACCADE_PEERS_KV_GIB:-2}
context=${SACCADE_PEERS_CONTEXT:-2048}

install() {
  venv_over_torch "$venv"
  # torch is named so that pip keeps the one that is there.
  "$venv/bin/pip" install --quiet "torch==$torch_version" "openvino-genai==$version" optimum-intel==2.2.0 \
    nncf==3.4.0 aiohttp==3.14.5
  "$venv/bin/pip" freeze >"$peers/openvino-freeze.txt"
  "$venv/bin/python" -c 'import openvino_genai; print(openvino_genai.__version__)'
}

# The converted folder of model folder $1; made where it is missing or older than the weights.
convert() {
  local model out
  model=$(realpath "$1")
  [[ $weights == fp16 || $weights == int8 ]] || die "SACCADE_PEERS_OPENVINO_WEIGHTS: $weights is not fp16 or int8"
  out=$peers/openvino-ir/$(basename "$model")-$(cksum <<<"$model" | cut -d' ' -f1)-$weights
  if [ ! -f "$out/openvino_model.bin" ] || [ "$model/model.safetensors" -nt "$out/openvino_model.bin" ]; then
    rm -rf "$out" "$out.part"
    mkdir -p "$peers/openvino-ir"
    HF_HUB_OFFLINE=1 "$venv/bin/optimum-cli" export openvino --model "$model" --task text-generation-with-past \
      --weight-format "$weights" "$out.part" >"$out.log" 2>&1 ||
      { tail -5 "$out.log" >&2; die "conversion failed; log: $out.log"; }
    mv "$out.part" "$out"
  fi
  echo "$out"
}

start() {
  check_start_arguments "openvino.sh start MODEL_DIR PORT SLOTS CORES [flags]" "$@"
  local model port=$2 slots=$3 cores=$4 folder
  model=$(realpath "$1")
  shift 4
  folder=$(convert "$model")
  start_server openvino "$port" /health taskset -c "$cores" "$venv/bin/python" "$here/openvino_server.py" "$folder" \
    --name "$(basename "$model")" --host 127.0.0.1 --port "$port" --slots "$slots" \
    --threads "$(count_cores "$cores")" --cache-gib "$kv_cache_gib" --context "$context" \
    --max-num-batched-tokens "$batched_tokens" "$@"
}

wave() {
  local model=$1 cores=$2
  exec taskset -c "$cores" "$venv/bin/python" "$here/openvino_wave.py" "$(convert "$model")" \
    --threads "$(count_cores "$cores")" --cache-gib "$kv_cache_gib" "${@:3}"
}

case ${1:-} in
  install) install ;;
  convert) convert "${2:?openvino.sh convert MODEL_DIR}" ;;
  start) shift; start "$@" ;;
  run) foreground=1; start "${@:2:3}" "$(own_cores)" "${@:5}" ;;
  wave) wave "${@:2}" ;;
  stop) stop_server openvino "${2:?openvino.sh stop PORT}" ;;
  *) sed -n '2,10s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
