#!/usr/bin/env bash
# Compiles the scheduler and its persistent kernel with nvcc, tests the same code on host threads,
# and runs what was linked: its checks where there is a GPU, its clean refusal where there is none.
#   SACCADE_CUDA_VENV   Python environment with device/cuda/requirements.txt; made if it is missing
# Products: build/cuda/.
set -euo pipefail
cd "$(dirname "$0")/../.."
venv=${SACCADE_CUDA_VENV:-${XDG_CACHE_HOME:-$HOME/.cache}/saccade-ci/cuda}
out=build/cuda
includes=(-I. -Idevice)
# A kernel of one block may use 255 registers a thread; what does not fit is spilled to memory.
max_spill_bytes=0
# The first runs; the others show that the code compiles for GPUs before and after it.
run_arch=sm_90a
other_archs=(sm_80 sm_100a)
mkdir -p "$out"

die() {
  echo "$*" >&2
  exit 1
}

toolkit() {
  "$venv/bin/python" -c \
    'import sysconfig; print(sysconfig.get_paths()["purelib"] + "/nvidia/cu13")'
}

install_toolkit() {
  [ -x "$venv/bin/python" ] || python3 -m venv "$venv"
  [ -x "$(toolkit)/bin/nvcc" ] ||
    "$venv/bin/pip" install -q --disable-pip-version-check -r device/cuda/requirements.txt
  cuda=$(toolkit)
  # The wheels have neither lib64/ nor an unversioned libcudart.so.
  ln -sfn lib "$cuda/lib64"
  ln -sfn libcudart.so.13 "$cuda/lib/libcudart.so"
}

# compile SOURCE ARCH: all warnings are errors, a host function called from device code among them.
compile() {
  local object
  object=$out/$(basename "$1" .cu).$2.o
  "$cuda/bin/nvcc" -std=c++20 -O3 -arch="$2" -Werror all-warnings -Xcompiler -Wall,-Wextra \
    -Xptxas -v "${includes[@]}" -c "$1" -o "$object" >"$object.log" 2>&1 || {
    cat "$object.log" >&2
    die "$1 does not compile for $2"
  }
}

# check_spills ARCH: prints each kernel's registers and spills; too many spills are an error.
check_spills() {
  awk -v arch="$1" -v max="$max_spill_bytes" '
    /Compiling entry function/ {
      kernel = $0
      sub(/.*entry function ./, "", kernel)
      sub(/. for .*/, "", kernel)
    }
    /spill stores/ { for (i = 1; i < NF; ++i) if ($(i + 2) == "spill") spill = $i }
    /Used [0-9]+ registers/ {
      for (i = 1; i < NF; ++i) if ($i == "Used") registers = $(i + 1)
      printf "  %s: %d registers, %d bytes spilled: %s\n", arch, registers, spill, kernel
      if (spill > max) bad = 1
      ++kernels
    }
    END { exit (bad || kernels == 0) }' "$out/persistent.$1.o.log" ||
    die "a kernel spills more than $max_spill_bytes bytes for $1, or none was reported"
}

test_twin() {
  # -Wno-tsan: a fence is not modelled; the orders that matter here are those of the words.
  g++ -std=c++20 -O1 -g -fsanitize=thread -Wno-tsan -Wall -Wextra -Werror "${includes[@]}" \
    device/cuda/scan_twin_test.cpp device/ring/open_ring.cpp device/host/check.cpp \
    -o "$out/scan_twin_test" -pthread
  "$out/scan_twin_test"
}

link_gpu_test() {
  g++ -std=c++20 -O2 -Wall -Wextra -Werror "${includes[@]}" device/cuda/gpu_test.cpp \
    device/ring/open_ring.cpp device/host/check.cpp "$out"/*."$run_arch".o \
    -L"$cuda/lib" -lcudart_static -ldl -lrt -pthread -o "$out/gpu_test"
}

# Sets `ran` to what the linked program showed.
run_gpu_test() {
  local code=0
  "$out/gpu_test" | tee "$out/gpu_test.log" || code=${PIPESTATUS[0]}
  case $code in
    0) ran="its checks passed on this GPU" ;;
    3)
      grep -q '^no CUDA driver or GPU: cudaError' "$out/gpu_test.log" ||
        die "gpu_test: exit 3 without its reason"
      ran="nothing ran on a GPU: there is none here"
      ;;
    *) die "gpu_test: exit code $code" ;;
  esac
}

install_toolkit
echo "host threads in place of warps, under ThreadSanitizer:"
test_twin
echo "nvcc:"
for arch in "$run_arch" "${other_archs[@]}"; do
  for source in device/cuda/*.cu; do compile "$source" "$arch"; done
  check_spills "$arch"
done
link_gpu_test
run_gpu_test
echo "CUDA build is good: compiled for $run_arch ${other_archs[*]}, linked, in $out; $ran"
