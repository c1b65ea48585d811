#!/usr/bin/env bash
# Measures every tokenizer on the same text in the same process.
#   tests/tokenizer/compare/run.sh FOLDER      FOLDER: vocabularies and texts of ../fetch.py
# With LLAMA_CPP (its sources) and LLAMA_CPP_BUILD (where libllama.so is, in bin/) also llama.cpp.
set -euo pipefail
folder=$(realpath "${1:?usage: run.sh FOLDER}")
cd "$(dirname "$0")"
../fetch.py "$folder" --texts
if [ -n "${LLAMA_CPP:-}" ]; then
  lib=$(realpath "${LLAMA_CPP_BUILD:?}/bin")
  export SACCADE_LLAMA_SHIM=$folder/llama_shim.so SACCADE_LLAMA_VOCABULARY=$folder/phi4.gguf
  g++ -std=c++20 -O2 -shared -fPIC -I"$LLAMA_CPP/include" -I"$LLAMA_CPP/ggml/include" shim.cpp \
    -o "$SACCADE_LLAMA_SHIM" -L"$lib" -lllama -Wl,-rpath,"$lib"
  ./vocabulary_gguf.py "$folder/phi4.json" "$SACCADE_LLAMA_VOCABULARY" dbrx
fi
cargo build --release --quiet
exec "${CARGO_TARGET_DIR:-target}/release/saccade-tokenizer-compare" "$folder" "${@:2}"
