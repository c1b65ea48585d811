#!/usr/bin/env bash
# Builds the CUDA device with nvcc, tests its code on host threads, checks the machine code, and runs
# what was linked: its checks where there is a GPU, its clean refusal where there is none. An object is
# rebuilt when one of its sources, or a flag, has changed.
#   SACCADE_NVCC        an nvcc to use as it is, with its toolkit around it
#   SACCADE_CUDA_VENV   otherwise: Python environment with device/cuda/requirements.txt; made if missing
#   SACCADE_CUDA_ARCHS  GPUs to build for [90a 80 100a]
#   SACCADE_CUDA_SCHEDULER_ARCHS  of these, the GPUs to build the scheduler's kernels for, which take most of the time;
#                       on others the library has the model's kernels only, and cannot serve [all]
#   SACCADE_CUDA_STEPS  steps to run, in this order [twins compile link model sass run]
# Products: build/cuda/: gpu_test, model_gpu_test, model_bench, libsaccade_cuda.so.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/skip.sh
venv=${SACCADE_CUDA_VENV:-${XDG_CACHE_HOME:-$HOME/.cache}/saccade-ci/cuda}
out=build/cuda
includes=(-I. -Idevice)
# The first is what the target machine has; the others show that nothing prevents them.
read -ra archs <<<"${SACCADE_CUDA_ARCHS:-90a 80 100a}"
read -ra steps <<<"${SACCADE_CUDA_STEPS:-twins compile link model sass run}"
read -ra scheduler_archs <<<"${SACCADE_CUDA_SCHEDULER_ARCHS:-${archs[*]}}"
# The scheduler's kernels. Relocatable: these call the device runtime (graph launch, conditions).
relocatable=" device/cuda/launch/window.cu device/cuda/launch/loop.cu "
cpu=build/device-plain # what tests/device.sh builds plainly
host_sources=(device/cuda/launch/shape_grid.cpp device/ring/open_ring.cpp device/invariants/check.cpp
              device/invariants/check_fetch.cpp device/ring/make_fetch.cpp)
test_sources=(device/tests/test_device.cpp)  # of programs that compare with the device of the tests
warnings=(-Wall -Wextra -Werror)
mkdir -p "$out/obj"

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

find_toolkit() {
  if [ -n "${SACCADE_NVCC:-}" ]; then
    cuda=$(cd "$(dirname "$(readlink -f "$SACCADE_NVCC")")/.." && pwd)
  else
    install_toolkit
  fi
  nvcc=${SACCADE_NVCC:-$cuda/bin/nvcc}
  libs=$cuda/lib64
  local arch
  for arch in "${archs[@]}"; do gencode+=(-gencode "arch=compute_$arch,code=sm_$arch"); done
  for arch in "${scheduler_archs[@]}"; do
    [[ " ${archs[*]} " == *" $arch "* ]] || die "SACCADE_CUDA_SCHEDULER_ARCHS: $arch is not among ${archs[*]}"
    scheduler_gencode+=(-gencode "arch=compute_$arch,code=sm_$arch")
  done
}

# The longest first, so that no core waits for one of them at the end: the scheduler's kernels, then the model's.
cuda_sources() {
  printf '%s\n' $relocatable
  find device/cuda/model -name '*.cu' | sort
  find device/cuda -name '*.cu' -not -path 'device/cuda/model/*' |
    grep -vxF "$(printf '%s\n' $relocatable)" | sort
}
object_of() { echo "$out/obj/$(echo "${1#device/cuda/}" | tr / _).o"; }

# fresh OBJECT COMMAND...: this command made it, and none of its sources is newer.
fresh() {
  local object=$1 source
  shift
  [ -e "$object" ] && [ -e "$object.d" ] && [ "$(cat "$object.command" 2>/dev/null)" = "$*" ] || return 1
  for source in $(sed 's/^[^:]*: *//; s/\\$//' "$object.d"); do
    [ -e "$source" ] && [ ! "$source" -nt "$object" ] || return 1
  done
}

# make_object OBJECT COMMAND...: unless it is fresh. COMMAND leaves OBJECT.d.
make_object() {
  local object=$1
  shift
  fresh "$object" "$@" && return
  rm -f "$object" "$object.command"
  "$@" -MMD -MF "$object.d" -o "$object" >"$object.log" 2>&1 || {
    cat "$object.log" >&2
    rm -f "$object"
    die "$object: does not compile"
  }
  echo "$*" >"$object.command"
}

# compile SOURCE: all warnings are errors, a host function called from device code among them.
compile() {
  local extra=() gpus=("${gencode[@]}")
  if [[ $relocatable == *" $1 "* ]]; then
    extra=(-rdc=true)
    gpus=("${scheduler_gencode[@]}")
  fi
  # The numeric headers that the CPU shares give its bits only without contraction.
  [[ $1 == device/cuda/model/* ]] && extra=(-fmad=false)
  make_object "$(object_of "$1")" "$nvcc" -std=c++20 -O3 "${gpus[@]}" "${extra[@]}" \
    -Werror all-warnings -Xcompiler -Wall,-Wextra,-fPIC -Xptxas -v "${includes[@]}" -c "$1"
}

# Lists each kernel's registers, and what it or a function that it calls spills, in kernels.txt. A spill is
# an error, and so are products of warpgroups that the assembler ran one by one (C7510).
check_spills() {
  awk '
    function bytes_before(word,   i) {
      for (i = 1; i < NF; ++i) if ($(i + 2) == word) return $i
      return 0
    }
    /Compiling entry function/ {
      kernel = $0
      sub(/.*entry function ./, "", kernel)
      arch = kernel
      sub(/. for .*/, "", kernel)
      gsub(/.* for .|.$/, "", arch)
      if (called != "") printf "%s function,%s", arch, called
      called = ""
    }
    /Function properties for/ { function_name = $NF }
    /spill stores/ {
      spill = bytes_before("spill")
      # What a kernel calls out of line comes before it, and has no line of registers.
      if (kernel == "" && spill > 0) called = called sprintf(" %d bytes spilled: %s\n", spill, function_name)
      spills += spill
    }
    /Used [0-9]+ registers/ && kernel != "" {
      for (i = 1; i < NF; ++i) if ($i == "Used") registers = $(i + 1)
      printf "%s %d registers, %d bytes spilled: %s\n", arch, registers, spill, kernel
      ++kernels
      kernel = ""
    }
    END { exit (spills > 0 || kernels == 0) }' "$out"/obj/*.cu.o.log >"$out/kernels.txt" || {
    grep -v ' 0 bytes spilled' "$out/kernels.txt" >&2
    die "registers are spilled, or no kernel was reported"
  }
  ! grep -h 'wgmma.*serialized' "$out"/obj/*.cu.o.log >&2 || die "products of warpgroups do not overlap"
  echo "  $(grep -c registers, "$out/kernels.txt") kernels over sm_{${archs[*]}}, none spills, nor does what they" \
    "call; registers at most $(awk '$3 == "registers," && $2 > most { most = $2 } END { print most }' "$out/kernels.txt")"
}

step_twins() {
  echo "host threads in place of warps, under ThreadSanitizer:"
  # -Wno-tsan: a fence is not modelled; the orders that matter here are those of the words.
  g++ -std=c++20 -O1 -g -DSACCADE_COUNT_ACCESSES -fsanitize=thread -Wno-tsan "${warnings[@]}" "${includes[@]}" \
    device/cuda/twin_test.cpp "${host_sources[@]}" "${test_sources[@]}" -o "$out/twin_test" -pthread
  "$out/twin_test"
}

step_compile() {
  echo "nvcc for sm_{${archs[*]}}:"
  local source
  for source in $(cuda_sources); do
    while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do wait -n || true; done
    compile "$source" &
  done
  wait
  for source in $(cuda_sources); do
    [ -e "$(object_of "$source")" ] || die "$source: no object"
  done
  check_spills
}

# host_objects SOURCE...: compiles host-only code, prints the objects.
host_objects() {
  local source object
  for source in "$@"; do
    object=$out/obj/$(echo "$source" | tr / _).o
    # -ffp-contract=off as everywhere: results must not depend on what was fused where.
    make_object "$object" g++ -std=c++20 -O2 -fPIC -ffp-contract=off "${warnings[@]}" "${includes[@]}" \
      -isystem "$cuda/include" -c "$source"
    echo "$object"
  done
}

step_link() {
  local objects=() source
  for source in $(cuda_sources); do objects+=("$(object_of "$source")"); done
  # The device linker sees the relocatable objects only; the others are whole.
  local linked=()
  for source in $relocatable; do linked+=("$(object_of "$source")"); done
  "$nvcc" "${scheduler_gencode[@]}" -Xcompiler -fPIC -dlink "${linked[@]}" -o "$out/obj/dlink.o" \
    -L"$libs" -lcudadevrt
  local test_host plane_host
  test_host=$(host_objects "${host_sources[@]}" device/cuda/launch/host_launcher.cpp)
  g++ -std=c++20 -O2 "${warnings[@]}" "${includes[@]}" -isystem "$cuda/include" \
    device/cuda/gpu_test.cpp $test_host $(host_objects "${test_sources[@]}") \
    $(printf '%s\n' "${objects[@]}" | grep -v '/model_') "$out/obj/dlink.o" "${runtime[@]}" \
    -o "$out/gpu_test"
  plane_host=$(host_objects device/capi/config_check.cpp device/host/process.cpp device/cpu/adapter_check.cpp \
    device/cpu/tensor_roles.cpp device/cuda/plane.cpp device/cuda/api.cpp device/cuda/model/*.cpp)
  g++ -shared -static-libstdc++ -static-libgcc -Wl,--no-undefined \
    -Wl,--version-script=device/cuda/exports.map $test_host $plane_host "${objects[@]}" "$out/obj/dlink.o" \
    "${runtime[@]}" -o "$out/libsaccade_cuda.so"
  echo "linked: $out/gpu_test, $out/libsaccade_cuda.so ($(stat -c %s "$out/libsaccade_cuda.so") bytes)"
}

# The model's own test and benchmark, with the CPU device that the test compares against.
step_model() {
  local generator=()
  command -v ninja >/dev/null && generator=(-G Ninja)
  [ -f "$cpu/CMakeCache.txt" ] || cmake -S device -B "$cpu" "${generator[@]}" >/dev/null
  cmake --build "$cpu" --target saccade_device -j "$(nproc)" >/dev/null
  local host program source kernels=()
  for source in model/model.cu rotation/rotation.cu cuda_memory.cu; do
    kernels+=("$(object_of "device/cuda/$source")")
  done
  host=$(host_objects device/cuda/model/*.cpp)
  for program in model_gpu_test model_bench; do
    g++ -std=c++20 -O2 $(host_objects "device/cuda/model/tests/$program.cpp") $host \
      "${kernels[@]}" "$cpu/libsaccade_device.a" "${runtime[@]}" -o "$out/$program"
  done
  echo "linked: $out/model_gpu_test, $out/model_bench"
}

# What the kernels became: instructions that must and must not be in them.
step_sass() {
  [ -e "$out/libsaccade_cuda.so" ] || { skip "the check of machine code" "no library was linked" && return; }
  local tools=$out/sass-tools
  if ! command -v cuobjdump >/dev/null && [ ! -x "$tools/cuobjdump" ]; then
    [ -x "$venv/bin/pip" ] || { skip "the check of machine code" "neither cuobjdump nor pip" && return; }
    mkdir -p "$tools"
    # Triton's wheel carries the disassemblers of its CUDA; the toolkit's own wheels have none.
    "$venv/bin/pip" download -q --disable-pip-version-check --no-deps -d "$tools" \
      -r device/cuda/requirements-sass.txt
    (cd "$tools" && python3 -m zipfile -e triton-*.whl all && mv all/triton/backends/nvidia/bin/* . &&
      rm -rf all triton-*.whl && chmod +x cuobjdump nvdisasm)
  fi
  PATH=$tools:$PATH python3 device/cuda/sass_check.py "$out/libsaccade_cuda.so" "${archs[@]/#/sm_}" \
    --scheduler "${scheduler_archs[@]/#/sm_}"
}

# Runs what was linked; sets `ran` to what it showed.
step_run() {
  local program code
  for program in gpu_test model_gpu_test; do
    [ -x "$out/$program" ] || continue
    code=0
    "$out/$program" | tee "$out/$program.log" || code=${PIPESTATUS[0]}
    case $code in
      0) ran="checks passed on this GPU" ;;
      3)
        grep -q '^no CUDA driver or GPU: cudaError' "$out/$program.log" ||
          die "$program: exit 3 without its reason"
        ran="nothing ran on a GPU: there is none here"
        ;;
      *) die "$program: exit code $code" ;;
    esac
  done
}

ran="not run"
gencode=()
scheduler_gencode=()
find_toolkit
runtime=(-L"$libs" -lcudadevrt -lcudart_static -ldl -lrt -pthread)
for step in "${steps[@]}"; do "step_$step"; done
echo "CUDA build is good: ${steps[*]} for sm_{${archs[*]}}, its scheduler for \
sm_{${scheduler_archs[*]}}, in $out; $ran"
say_skipped
