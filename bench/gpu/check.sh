#!/usr/bin/env bash
# Everything that needs a GPU, within nine minutes: builds the device plane (or takes what was built
# elsewhere), runs its tests and benchmarks, and writes a folder of results with a README of tables.
# Needs CUDA 13.0's compiler or prebuilt binaries, and Python with PyTorch for the comparison; neither
# Rust nor network.
#   bench/gpu/check.sh [PART...]     all parts: env build test logprobs sanitizer micro rotation model
#                                    torch makespan interference table
#   bench/gpu/check.sh --budgets     seconds that each part may take, and their sum
#   SACCADE_GPU_RESULTS   folder of the results [build/gpu-results]
#   SACCADE_CUDA_BUILD    folder of prebuilt binaries; then nothing is built [build/cuda]
#   SACCADE_PREBUILT=1    take the binaries of that folder as they are
#   SACCADE_BINARY        a `saccade` built elsewhere, for the parts that serve [target/release/saccade]
#   SACCADE_GPU_BUDGET_S  seconds for all parts [540]
# Exit codes: 0 all parts passed, 1 one failed or ran out of time, 2 an error, 3 no GPU.
set -uo pipefail
cd "$(dirname "$0")/../.."
results=${SACCADE_GPU_RESULTS:-build/gpu-results}
export SACCADE_CUDA_BUILD=${SACCADE_CUDA_BUILD:-build/cuda}
binaries=$SACCADE_CUDA_BUILD
budget_s=${SACCADE_GPU_BUDGET_S:-540}
all_parts=(env build test logprobs sanitizer micro rotation model torch makespan interference table)
# Seconds of each part. A build is not counted: with it, what comes last may run out of time.
declare -A part_s=([env]=5 [test]=45 [logprobs]=45 [sanitizer]=75 [micro]=30 [rotation]=25 [model]=85
  [torch]=45 [makespan]=90 [interference]=90 [table]=5)
build_s=360
no_gpu=3
began=$SECONDS

left() { echo $((budget_s - (SECONDS - began))); }

# limited SECONDS COMMAND...: no longer than that, nor than what is left of the whole.
limited() {
  local limit=$1
  shift
  [ "$(left)" -lt "$limit" ] && limit=$(left)
  [ "$limit" -gt 0 ] || { echo "no time is left" && return 124; }
  timeout -k 5 "$limit" "$@"
}

# in_part PART COMMAND...: within what is left of the part's seconds.
in_part() {
  local part=$1
  shift
  limited $((part_s[$part] - (SECONDS - part_began))) "$@"
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
    limited $build_s device/cuda/build.sh
}

# run_binary PART PROGRAM OUTPUT ARGS...: a linked program; its exit code 3 is "no GPU".
run_binary() {
  local part=$1 program=$binaries/$2 output=$results/$3
  shift 3
  [ -x "$program" ] || { echo "no $program: run the part build" && return 2; }
  in_part "$part" "$program" "$@" >"$output"
  local code=$?
  [ $code -eq 0 ] || tail -3 "$output"
  return $code
}

# The scheduler and the rotation against the CPU, then the model's kernels.
part_test() {
  run_binary test gpu_test tests.txt && run_binary test model_gpu_test model-tests.txt
}

part_sanitizer() {
  has_gpu || return $no_gpu
  command -v compute-sanitizer >/dev/null || { echo "no compute-sanitizer here" && return 2; }
  local tool program code=0
  for tool in memcheck racecheck synccheck; do
    for program in gpu_test model_gpu_test; do
      in_part sanitizer compute-sanitizer --tool "$tool" --error-exitcode 9 "$binaries/$program" --quick \
        >"$results/sanitizer-$tool-$program.txt" 2>&1 || code=1
      echo "$tool, $program: $(grep -h 'SUMMARY' "$results/sanitizer-$tool-$program.txt" | tail -1)"
    done
  done
  return $code
}

part_micro() { run_binary micro gpu_test micro.json --bench; }
part_rotation() { run_binary rotation gpu_test rotation.json --rotation; }
part_model() { run_binary model model_bench model.json; }

# python_part PART SCRIPT ARGS...: asks for a GPU first, so that no server is started without one.
python_part() {
  local part=$1 script=$2
  shift 2
  has_gpu || return $no_gpu
  in_part "$part" python3 "bench/gpu/$script" "$@" --json "$results/$part.json" >"$results/$part.txt" 2>&1
  local code=$?
  tail -3 "$results/$part.txt"
  return $code
}
part_logprobs() { python_part logprobs logprobs.py; }
part_torch() { python_part torch torch_model.py; }
part_makespan() { python_part makespan placements.py makespan; }
part_interference() { python_part interference placements.py interference; }

part_table() {
  has_gpu || return $no_gpu
  in_part table python3 bench/gpu/table.py "$results"
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

if [ "${1:-}" = --budgets ]; then
  sum=0
  for part in "${all_parts[@]}"; do
    [ "$part" != build ] || continue
    echo "$part ${part_s[$part]}"
    sum=$((sum + part_s[$part]))
  done
  echo "sum $sum"
  exit 0
fi
mkdir -p "$results"
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
