#!/usr/bin/env bash
# The parts of an engine that its host slows down, each alone, on a machine that does nothing else.
#
#   bench/micro/run.sh OUT_DIR [FLAGS OF TOKENIZE...]
#
# SACCADE names the binary (default: target/release/saccade). Flags of tokenize are those that give
# it a TTFT: --base-url URL --tokenizer PATH, or --prefill-tokens-per-s RATE.
set -euo pipefail

out=${1:?usage: bench/micro/run.sh OUT_DIR [FLAGS OF TOKENIZE...]}
shift
cd "$(dirname "$0")/../.."
saccade=${SACCADE:-target/release/saccade}
mkdir -p "$out"

run() { # NAME FLAGS...: one document, one page, one text
  local name=$1
  shift
  "$saccade" bench micro "$name" "$@" --json "$out/micro-$name.json" --html "$out/micro-$name.html" \
    | tee "$out/micro-$name.txt"
}

run tokenize "$@"
run broadcast --ranks 1-8 --steps 1000 --rounds 4
run straggler --ranks 2,4,8 --delay-us 0,1000
