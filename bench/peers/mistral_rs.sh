#!/usr/bin/env bash
# mistral.rs on the CPU, behind a small HTTP front of ours (mistral_rs_server.py): its wheel has an engine and no server.
#   mistral_rs.sh install                                    25 MB
#   mistral_rs.sh start MODEL_DIR PORT SLOTS CORES [more flags of mistral_rs_server.py]    prints the pid
#   mistral_rs.sh run MODEL_DIR PORT SLOTS [more flags]    in the foreground, on the cores that it inherits
#   mistral_rs.sh stop PORT
# SACCADE_PEERS_MISTRAL_DTYPE: what it computes in (F32; or BF16, which its CPU path has no fast products for).
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
version=0.9.5
venv=$peers/mistral-rs
dtype=${SACCADE_PEERS_MISTRAL_DTYPE:-F32}
context=${SACCADE_PEERS_CONTEXT:-2048}

install() {
  [ -x "$venv/bin/python" ] || python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet "mistralrs==$version" aiohttp==3.14.5 tokenizers==0.22.2
  "$venv/bin/pip" freeze >"$peers/mistral-rs-freeze.txt"
  "$venv/bin/python" -c 'import importlib.metadata as m; print(m.version("mistralrs"))'
}

start() {
  check_start_arguments "mistral_rs.sh start MODEL_DIR PORT SLOTS CORES [flags]" "$@"
  local model port=$2 slots=$3 cores=$4
  model=$(realpath "$1")
  start_server mistral_rs "$port" /health env "RAYON_NUM_THREADS=$(count_cores "$cores")" taskset -c "$cores" \
    "$venv/bin/python" "$here/mistral_rs_server.py" "$model" --name "$(basename "$model")" --host 127.0.0.1 \
    --port "$port" --slots "$slots" --context "$context" --dtype "$dtype" "${@:5}"
}

case ${1:-} in
  install) install ;;
  start) shift; start "$@" ;;
  run) foreground=1; start "${@:2:3}" "$(own_cores)" "${@:5}" ;;
  stop) stop_server mistral_rs "${2:?mistral_rs.sh stop PORT}" ;;
  *) sed -n '2,7s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
