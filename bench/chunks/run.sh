#!/usr/bin/env bash
# What each codec of KV chunks makes of real KV, and how fast one core decodes it: one JSON object per codec.
#   bench/chunks/run.sh MODEL_FOLDER [TEXT]     TEXT: by default the documents of this repository
# The KV is what the model computes of the text, in bfloat16. Rates are Gbit/s of KV (decode_gbps) and of the bytes that
# come out of the coder (coder_gbps). Needs Python with torch and transformers.
#   SACCADE_BENCH_PYTHON    a Python that has them
#   SACCADE_BENCH_CHUNKS    chunks of 256 tokens, by default 8
set -euo pipefail
model=$(realpath "${1:?usage: bench/chunks/run.sh MODEL_FOLDER [TEXT]}")
text=$([ $# -lt 2 ] || realpath "$2")
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ -z "$text" ]; then
  text=$work/text
  cat docs/*.md >"$text"
fi
cargo build --release --quiet -p saccade-chunk --example codec_table
shape=$("${SACCADE_BENCH_PYTHON:-python3}" bench/chunks/real_kv.py "$model" "$text" "$work/kv" \
  --chunks "${SACCADE_BENCH_CHUNKS:-8}" 2>"$work/log") || {
  cat "$work/log" >&2
  exit 1
}
# shellcheck disable=SC2086 # the shape is flags
"${CARGO_TARGET_DIR:-target}/release/examples/codec_table" "$work/kv" $shape
