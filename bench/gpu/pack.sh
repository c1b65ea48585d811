#!/usr/bin/env bash
# Packs what a machine with a GPU runs and need not build: the CUDA programs, the library, a stripped
# `saccade`, and the commit. bench/gpu/check.sh takes the archive where it finds it.
#   bench/gpu/pack.sh
#   SACCADE_GPU_PACK      the archive [build/gpu-pack.tar.xz]
#   SACCADE_GPU_PACK_MIB  its largest size [60]
#   SACCADE_CUDA_BUILD    folder of the CUDA programs [build/cuda]
#   SACCADE_BINARY        the server's program [target/release/saccade]
#   XZ_OPT                of xz [-6 -T0]
set -euo pipefail
cd "$(dirname "$0")/../.."
archive=${SACCADE_GPU_PACK:-build/gpu-pack.tar.xz}
most_mib=${SACCADE_GPU_PACK_MIB:-60}
cuda=${SACCADE_CUDA_BUILD:-build/cuda}
saccade=${SACCADE_BINARY:-target/release/saccade}
programs=(gpu_test model_gpu_test model_bench libsaccade_cuda.so)

die() {
  echo "$*" >&2
  exit 1
}

for program in "${programs[@]/#/$cuda/}" "$saccade"; do
  [ -e "$program" ] || die "no $program: build it first"
done
stale=$(find device/cuda device/sched abi -type f -newer "$cuda/gpu_test" | wc -l)
[ "$stale" -eq 0 ] || echo "$stale files of the device are newer than $cuda/gpu_test: is it of this commit?" >&2
folder=$(mktemp -d)
trap 'rm -rf "$folder" "$archive.partial"' EXIT
mkdir "$folder/cuda"
cp "${programs[@]/#/$cuda/}" "$folder/cuda/"
cp "$saccade" "$folder/saccade"
strip "$folder/saccade"
bench/gpu/commit.sh "$folder/cuda" "$folder/saccade" >"$folder/commit.txt"
mkdir -p "$(dirname "$archive")"
rm -f "$archive"
tar -C "$folder" -c . | XZ_OPT=${XZ_OPT:--6 -T0} xz >"$archive.partial"
bytes=$(stat -c %s "$archive.partial")
[ "$bytes" -le $((most_mib << 20)) ] || die "the archive takes $bytes bytes, more than $most_mib MiB"
mv "$archive.partial" "$archive"
cat "$folder/commit.txt"
echo "packed: $archive ($bytes bytes)"
