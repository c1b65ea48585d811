#!/usr/bin/env bash
# llama.cpp's server, built for this machine from the source that the llama-cpp-python package carries.
#   llama_cpp.sh install                                       11 minutes of two cores, 0.4 GB
#   llama_cpp.sh start MODEL_DIR PORT SLOTS CORES [more flags of llama-server]    prints the pid
#   llama_cpp.sh run MODEL_DIR PORT SLOTS [more flags]    in the foreground, on the cores that it inherits
#   llama_cpp.sh stop PORT
# The model is converted to GGUF at its first start, with SACCADE_PEERS_GGUF_TYPE (bf16; or q8_0 or q4_k_m). CORES also
# says how many threads compute.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
version=0.3.36
source_dir=$peers/src/llama_cpp_python-$version/vendor/llama.cpp
build_dir=$peers/build-llama
context=${SACCADE_PEERS_CONTEXT:-2048}
jobs=${SACCADE_PEERS_JOBS:-2}
gguf_type=${SACCADE_PEERS_GGUF_TYPE:-bf16}

install() {
  if [ ! -f "$source_dir/CMakeLists.txt" ]; then
    python3 -m pip download --quiet --no-deps --no-binary llama-cpp-python \
      --dest "$peers/sdist" "llama-cpp-python==$version"
    mkdir -p "$peers/src"
    tar -xf "$peers/sdist/llama_cpp_python-$version.tar.gz" -C "$peers/src"
    # GCC drops the stores into the tile configuration, which it does not see read; 8-bit products then end in SIGILL.
    sed -i 's/^    _tile_loadconfig(&tc);$/    __asm__ volatile("" : : "r"(\&tc) : "memory");\n&/' \
      "$source_dir/ggml/src/ggml-cpu/amx/mmq.cpp"
  fi
  # No TLS, no web page, no tests: they need libraries or a network, and nothing here uses them.
  cmake -S "$source_dir" -B "$build_dir" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DGGML_NATIVE=ON -DGGML_CCACHE=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_UI=OFF \
    -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF \
    -DLLAMA_BUILD_APP=OFF >"$peers/build-llama.log"
  cmake --build "$build_dir" --target llama-server llama-bench llama-quantize -j "$jobs" >>"$peers/build-llama.log"
  torch_venv >/dev/null
  "$build_dir/bin/llama-server" --version
}

# to_gguf_file MODEL OUT: q4_k_m is made of bf16 by llama.cpp's own quantizer, the others by its converter.
to_gguf_file() {
  local from=$gguf_type
  [ "$gguf_type" != q4_k_m ] || from=bf16
  "$(torch_venv)/bin/python" "$here/to_gguf.py" "$source_dir" "$1" "$2" "$from" || return 1
  [ "$gguf_type" = q4_k_m ] || return 0
  mv "$2" "$2.$from" && "$build_dir/bin/llama-quantize" "$2.$from" "$2" Q4_K_M && rm "$2.$from"
}

# The GGUF file of model folder $1 in $gguf_type; made where it is missing or older than the weights.
gguf() {
  local model=$1 out
  [[ $gguf_type =~ ^(bf16|q8_0|q4_k_m)$ ]] || die "SACCADE_PEERS_GGUF_TYPE: $gguf_type is not bf16, q8_0 or q4_k_m"
  out=$peers/gguf/$(basename "$model")-$(cksum <<<"$model" | cut -d' ' -f1)-$gguf_type.gguf
  if [ ! -f "$out" ] || [ "$model/model.safetensors" -nt "$out" ]; then
    mkdir -p "$peers/gguf"
    to_gguf_file "$model" "$out.part" >"$out.log" 2>&1 || {
      tail -5 "$out.log" >&2
      die "conversion failed; log: $out.log"
    }
    mv "$out.part" "$out"
  fi
  echo "$out"
}

start() {
  check_start_arguments "llama_cpp.sh start MODEL_DIR PORT SLOTS CORES [flags]" "$@"
  local model port=$2 slots=$3 cores=$4 threads file
  model=$(realpath "$1")
  shift 4
  threads=$(count_cores "$cores")
  file=$(gguf "$model")
  # Without --no-cache-prompt and --cache-ram 0 a repeated prompt would not be computed again.
  start_server llama_cpp "$port" /health taskset -c "$cores" "$build_dir/bin/llama-server" \
    --model "$file" --alias "$(basename "$model")" --host 127.0.0.1 --port "$port" \
    --parallel "$slots" --ctx-size "$((context * slots))" --threads "$threads" \
    --threads-batch "$threads" --batch-size "$batched_tokens" --ubatch-size "$batched_tokens" \
    --no-cache-prompt --cache-ram 0 --metrics "$@"
}

case ${1:-} in
  install) install ;;
  start) shift; start "$@" ;;
  run) foreground=1; start "${@:2:3}" "$(own_cores)" "${@:5}" ;;
  stop) stop_server llama_cpp "${2:?llama_cpp.sh stop PORT}" ;;
  *) sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
