#!/usr/bin/env bash
# Says what is measured: the tree's commit and whether the tree is clean, and the programs by their sums.
#   bench/gpu/commit.sh FOLDER SACCADE     the folder of the CUDA programs, and the server's program
set -euo pipefail
cd "$(dirname "$0")/../.."
if commit=$(git rev-parse HEAD 2>/dev/null); then
  changed=$(git status --porcelain | wc -l)
  echo "commit $commit"
  [ "$changed" -eq 0 ] && echo "tree clean" || echo "tree changed: $changed files"
else
  echo "commit unknown: not a clone"
fi
for program in "$1"/{gpu_test,model_gpu_test,model_bench,libsaccade_cuda.so} "$2"; do
  [ ! -e "$program" ] || echo "sha256 $(sha256sum <"$program" | cut -c1-64) $(basename "$program")"
done
