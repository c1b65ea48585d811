#!/usr/bin/env bash
# Everything that needs a GPU, within nine minutes: builds the device plane (or takes what was built
# elsewhere), runs its tests and benchmarks, and writes a folder of results. Needs CUDA 13.0's
# compiler or prebuilt binaries, and Python with PyTorch for the comparison; neither Rust nor network.
#   bench/gpu/check.sh [PART...]     all parts: env build test sanitizer micro rotation model energy
#   SACCADE_GPU_RESULTS   folder of the results [build/gpu-results]
#   SACCADE_CUDA_BUILD    folder of prebuilt binaries; then nothing is built [build/cuda]
#   SACCADE_PREBUILT=1    take the binaries of that folder as they are
#   SACCADE_GPU_BUDGET_S  seconds for all parts [540]
# Exit codes: 0 all parts passed, 1 one failed or ran out of time, 2 an error, 3 no GPU.
set -uo pipefail
cd "$(dirname "$0")/../.."
results=${SACCADE_GPU_RESULTS:-build/gpu-results}
binaries=${SACCADE_CUDA_BUILD:-build/cuda}
budget_s=${SACCADE_GPU_BUDGET_S:-540}
all_parts=(env build test sanitizer micro rotation model energy)
no_gpu=3
began=$SECONDS
mkdir -p "$results"

left() { echo $((budget_s - (SECONDS - began))); }

# limited SECONDS COMMAND...: no longer than that, nor than what is left of the whole.
limited() {
  local limit=$1
  shift
  [ "$(left)" -lt "$limit" ] && limit=$(left)
  [ "$limit" -gt 0 ] || { echo "no time is left" && return 124; }
  timeout -k 5 "$limit" "$@"
}

part_env() {
  {
    date -u +%FT%TZ
    uname -a
    nproc
    grep -m1 'model name' /proc/cpuinfo
    git rev-parse HEAD 2>/dev/null || echo "no commit: not a clone"
    git status --short 2>/dev/null | head -20
    command -v nvcc >/dev/null && nvcc --version | tail -2
    python3 -c 'import torch; print("torch", torch.__version__)' 2>&1 | tail -1
  } >"$results/environment.txt"
  command -v nvidia-smi >/dev/null || { echo "no GPU: there is no nvidia-smi" && return $no_gpu; }
  nvidia-smi -q >"$results/nvidia-smi.txt" 2>&1 ||
    { echo "no GPU: $(head -1 "$results/nvidia-smi.txt")" && return $no_gpu; }
  nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,pcie.link.gen.current,pcie.link.width.current \
    --format=csv | tee -a "$results/environment.txt"
}

part_build() {
  if [ -n "${SACCADE_PREBUILT:-}" ]; then
    [ -x "$binaries/gpu_test" ] || { echo "no $binaries/gpu_test" && return 2; }
    echo "taken as built: $(sha256sum "$binaries/gpu_test" | cut -c1-16)"
    return 0
  fi
  local nvcc
  nvcc=$(command -v nvcc) || { echo "no nvcc, and SACCADE_PREBUILT is not set" && return 2; }
  SACCADE_NVCC=$nvcc SACCADE_CUDA_ARCHS=90a SACCADE_CUDA_STEPS="compile link model" \
    limited 360 device/cuda/build.sh
}

# run_binary SECONDS OUTPUT ARGS...: the test program; its exit code 3 is "no GPU".
run_binary() {
  local limit=$1 output=$2
  shift 2
  [ -x "$binaries/gpu_test" ] || { echo "no $binaries/gpu_test: run the part build" && return 2; }
  limited "$limit" "$binaries/gpu_test" "$@" >"$results/$output"
  local code=$?
  [ $code -eq 0 ] || tail -3 "$results/$output"
  return $code
}

part_test() { run_binary 90 tests.txt; }

part_sanitizer() {
  has_gpu || return $no_gpu
  command -v compute-sanitizer >/dev/null || { echo "no compute-sanitizer here" && return 2; }
  local tool code=0
  for tool in memcheck racecheck synccheck; do
    limited 60 compute-sanitizer --tool "$tool" --error-exitcode 9 "$binaries/gpu_test" --quick \
      >"$results/sanitizer-$tool.txt" 2>&1 || code=1
    echo "$tool: $(grep -h 'ERROR SUMMARY\|RACECHECK SUMMARY' "$results/sanitizer-$tool.txt" | tail -1)"
  done
  return $code
}

part_micro() { run_binary 60 micro.json --bench; }
part_rotation() { run_binary 60 rotation.json --rotation; }

# The kernels' own programs, if they were built: tests against references, then benchmarks.
part_model() {
  has_gpu || return $no_gpu
  local program found=0 code=0
  for program in "$binaries"/model/model_gpu_test "$binaries"/model/model_bench; do
    [ -x "$program" ] || continue
    found=1
    limited 120 "$program" >"$results/$(basename "$program").txt" 2>&1 || code=1
    tail -3 "$results/$(basename "$program").txt"
  done
  [ $found -eq 1 ] || { echo "no program of the model's kernels in $binaries" && return 2; }
  return $code
}

part_energy() {
  has_gpu || return $no_gpu
  limited 60 python3 bench/gpu/energy.py --json "$results/energy.json" -- \
    "$binaries/gpu_test" --bench
}

# Asks the test program, which knows the CUDA runtime's reason.
has_gpu() {
  local text code=0
  [ -x "$binaries/gpu_test" ] || { echo "no GPU is known: no $binaries/gpu_test" && return 1; }
  text=$("$binaries/gpu_test" --probe 2>&1) || code=$?
  [ $code -ne 0 ] || return 0
  echo "$text"
  return 1
}

parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=("${all_parts[@]}")
worst=0
summary=""
for part in "${parts[@]}"; do
  if ! declare -F "part_$part" >/dev/null; then
    echo "no part is called $part: ${all_parts[*]}" >&2
    exit 2
  fi
  echo "== $part"
  part_began=$SECONDS
  "part_$part"
  code=$?
  case $code in
    0) said="passed" ;;
    "$no_gpu") said="no GPU" ;;
    124 | 137) said="ran out of time" code=1 ;;
    *) said="FAILED ($code)" code=1 ;;
  esac
  # A failure outweighs a missing GPU.
  if [ $code -eq 1 ] || { [ $code -ne 0 ] && [ $worst -eq 0 ]; }; then worst=$code; fi
  summary+="  $part: $said, $((SECONDS - part_began)) s"$'\n'
done
printf '== summary\n%s' "$summary" | tee "$results/summary.txt"
echo "results in $results, $((SECONDS - began)) s"
exit $worst
