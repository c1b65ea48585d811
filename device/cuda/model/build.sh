#!/usr/bin/env bash
# Compiles the model's kernels with nvcc, checks that no kernel spills, links their test and their
# benchmark, and runs the test: it says clearly when there is no GPU.
#   build.sh TOOLKIT OUT ARCH...    called by device/cuda/build.sh; the first ARCH is linked
set -euo pipefail
cd "$(dirname "$0")/../../.."
cuda=$1
out=$2/model
archs=("${@:3}")
cpu=build/device-plain # the reference: the CPU device's library
includes=(-I. -Idevice -I"$cuda/include")
mkdir -p "$out"

die() {
  echo "$*" >&2
  exit 1
}

# -fmad=false: the shared numeric headers give the CPU's bits only without contraction.
compile() {
  "$cuda/bin/nvcc" -std=c++20 -O3 -arch="$1" -fmad=false -Werror all-warnings \
    -Xcompiler -Wall,-Wextra -Xptxas -v "${includes[@]}" -c device/cuda/model/model.cu \
    -o "$out/model.$1.o" >"$out/model.$1.log" 2>&1 || {
    cat "$out/model.$1.log" >&2
    die "device/cuda/model/model.cu does not compile for $1"
  }
}

# Prints each kernel's registers and spills. For the first ARCH any spill is an error; for the others,
# which are compiled but not tuned for, more than 256 bytes.
check_spills() {
  local most=256
  [ "$1" = "${archs[0]}" ] && most=0
  awk -v arch="$1" -v most="$most" '
    /Compiling entry function/ {
      kernel = $0
      sub(/.*entry function ./, "", kernel)
      sub(/. for .*/, "", kernel)
    }
    /spill stores/ { for (i = 1; i < NF; ++i) if ($(i + 2) == "spill") spill = $i }
    /Used [0-9]+ registers/ {
      for (i = 1; i < NF; ++i) if ($i == "Used") registers = $(i + 1)
      printf "  %s: %d registers, %d bytes spilled: %s\n", arch, registers, spill, kernel
      if (spill > most) bad = 1
      ++kernels
    }
    END { exit (bad || kernels == 0) }' "$out/model.$1.log" | c++filt ||
    die "a kernel of the model spills registers for $1, or none was reported"
}

build_cpu_library() {
  [ -f "$cpu/CMakeCache.txt" ] || cmake -S device -B "$cpu" -G Ninja >/dev/null
  cmake --build "$cpu" --target saccade_device >/dev/null
}

link_program() {
  g++ -std=c++20 -O2 -ffp-contract=off -Wall -Wextra -Werror "${includes[@]}" \
    "device/cuda/model/tests/$1.cpp" device/cuda/model/layout.cpp device/cuda/model/load.cpp \
    "$out/model.${archs[0]}.o" "$cpu/libsaccade_device.a" \
    -L"$cuda/lib" -lcudart_static -ldl -lrt -pthread -o "$out/$1"
}

run_test() {
  local code=0
  "$out/model_gpu_test" | tee "$out/model_gpu_test.log" || code=${PIPESTATUS[0]}
  case $code in
    0) echo "the model's checks passed on this GPU" ;;
    3)
      grep -q '^no CUDA driver or GPU: cudaError' "$out/model_gpu_test.log" ||
        die "model_gpu_test: exit 3 without its reason"
      echo "the model did not run on a GPU: there is none here"
      ;;
    *) die "model_gpu_test: exit code $code" ;;
  esac
}

for arch in "${archs[@]}"; do
  compile "$arch"
  check_spills "$arch"
done
build_cpu_library
link_program model_gpu_test
link_program model_bench
run_test
