#!/usr/bin/env bash
# What a machine with a GPU shows and measures, by two commands of at most nine minutes each. Needs Python,
# PyTorch for the comparison and compute-sanitizer for its part; neither Rust nor a network.
#   bench/gpu/check.sh first         tests, scheduler, rotation, model, adapters, PyTorch for comparison, sanitizer
#   bench/gpu/check.sh second        log probabilities, makespan, interference
#   bench/gpu/check.sh PART...       some parts
#   bench/gpu/check.sh --budgets     seconds of each part and their sums
#   SACCADE_GPU_PACK      what bench/gpu/pack.sh made; empty: none is taken [build/gpu-pack.tar.xz, if there]
#   SACCADE_CUDA_BUILD    folder of the CUDA programs, in place of the archive's [build/cuda]
#   SACCADE_BINARY        the server's program, in place of the archive's [target/release/saccade]
#   SACCADE_GPU_RESULTS   folder of the results [build/gpu-results]; `first` starts a new one, and so does any part
#                         that runs programs other than those of the results there. The old one is moved aside.
#   SACCADE_GPU_ARCHIVE   all results as one tar.gz, at most 16 MiB; rewritten after each part [none]
#   SACCADE_GPU_BUDGET_S  seconds for all parts [540]
# Exit codes: 0 all parts passed, 1 one failed or ran out of time, 2 an error, 3 no GPU.
set -uo pipefail
cd "$(dirname "$0")/../.."
results=${SACCADE_GPU_RESULTS:-build/gpu-results}
archive=${SACCADE_GPU_ARCHIVE:-}
archive_most=$((16 << 20))
log_most=$((1 << 20))
budget_s=${SACCADE_GPU_BUDGET_S:-540}
first=(env test micro rotation model adapters torch sanitizer table)
second=(logprobs makespan interference table)
models=(llama3-8b qwen3-32b qwen3-30b-a3b)
declare -A part_s=([unpack]=15 [env]=10 [test]=60 [micro]=15 [rotation]=15 [model]=140 [adapters]=30
  [torch]=45 [sanitizer]=150 [logprobs]=20 [makespan]=160 [interference]=340 [table]=5)
declare -A model_s=([llama3-8b]=45 [qwen3-32b]=60 [qwen3-30b-a3b]=35)
no_gpu=3
unpacked=""
began=$SECONDS
part_began=$SECONDS

left() { echo $((budget_s - (SECONDS - began))); }

# Seconds left for a part, and for the whole run.
part_left() {
  local seconds=$((part_s[$1] - (SECONDS - part_began)))
  [ "$(left)" -ge $seconds ] || seconds=$(left)
  echo $seconds
}

# within SECONDS COMMAND...: a command and all its children.
within() {
  local seconds=$1
  shift
  [ "$seconds" -gt 0 ] || { echo "no time is left" && return 124; }
  timeout -k 5 "$seconds" "$@"
}

# keep FILE CODE: FILE.partial becomes FILE if it is whole. Exit code 1 is a whole report of a failure. A text
# that ends early is kept and says so; JSON is not.
keep() {
  local file=$results/$1 code=$2
  [ "$code" -ne $no_gpu ] || return $no_gpu
  if [[ $file == *.json ]]; then
    [ "$code" -le 1 ] || return "$code"
    is_json "$file.partial" || { echo "$1 is not whole" && return 2; }
  elif [ "$code" -gt 1 ]; then
    echo "ENDED EARLY: exit code $code" >>"$file.partial"
  fi
  mv "$file.partial" "$file"
  return "$code"
}

is_json() { python3 -c 'import json, sys; json.load(open(sys.argv[1]))' "$1" 2>/dev/null; }

# program SECONDS PROGRAM FILE ARGS...: what a program says, into a file, and its errors into another. Its exit
# code 3 is "no GPU".
program() {
  local seconds=$1 path=$binaries/$2 file=$3 code=0
  local errors=$results/${file%.*}.errors
  shift 3
  rm -f "$results/$file" "$errors"
  [ -x "$path" ] || { echo "no $path" && return 2; }
  within "$seconds" "$path" "$@" >"$results/$file.partial" 2>"$errors" || code=$?
  [ $code -eq 0 ] || tail -qn 3 "$results/$file.partial" "$errors"
  [ -s "$errors" ] || rm "$errors"
  keep "$file" $code
}

# script PART SCRIPT ARGS...: its JSON and its log. Asks for a GPU first, so that no server starts without one.
script() {
  local part=$1 script=$2 code=0
  shift 2
  rm -f "$results/$part.json" "$results/$part.log"
  need_gpu || return
  within "$(part_left "$part")" python3 "bench/gpu/$script" "$@" --json "$results/$part.json.partial" \
    >"$results/$part.log" 2>&1 || code=$?
  tail -3 "$results/$part.log"
  keep "$part.json" $code
}

# The test program knows the CUDA runtime's reason.
need_gpu() {
  local text code=0
  [ -x "$binaries/gpu_test" ] || { echo "no $binaries/gpu_test" && return 2; }
  text=$(within 20 "$binaries/gpu_test" --probe 2>&1) || code=$?
  [ $code -eq 0 ] || echo "$text"
  return $code
}

part_env() {
  {
    date -u +%FT%TZ
    uname -a
    echo "$(nproc) cores,$(grep -m1 'model name' /proc/cpuinfo | cut -d: -f2), $(grep MemTotal /proc/meminfo)"
    echo "programs: $(head -2 "$results/commit.txt" | paste -sd, -)"
    command -v nvcc >/dev/null && nvcc --version | tail -2
    python3 -c 'from importlib.metadata import version; print("torch", version("torch"))' 2>&1 | tail -1
  } >"$results/environment.txt"
  command -v nvidia-smi >/dev/null || { echo "no GPU: there is no nvidia-smi" && return $no_gpu; }
  within "$(part_left env)" nvidia-smi -q >"$results/nvidia-smi.txt" 2>&1 ||
    { echo "no GPU: $(head -1 "$results/nvidia-smi.txt")" && return $no_gpu; }
  nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,pcie.link.gen.current,pcie.link.width.current \
    --format=csv | tee -a "$results/environment.txt"
}

# The scheduler and the rotation against the CPU, then the model's kernels; both report even if one fails.
part_test() {
  local code=0 other=0
  program "$(part_left test)" gpu_test tests.txt || code=$?
  program "$(part_left test)" model_gpu_test model-tests.txt || other=$?
  [ $code -ne 0 ] || code=$other
  return $code
}

part_micro() { program "$(part_left micro)" gpu_test micro.json --bench; }
part_rotation() { program "$(part_left rotation)" gpu_test rotation.json --rotation; }

# Each model separately: if one is cut off, the others are not lost.
part_model() {
  local model seconds code worst=0
  for model in "${models[@]}"; do
    seconds=$(part_left model)
    [ "$seconds" -le "${model_s[$model]}" ] || seconds=${model_s[$model]}
    code=0
    program "$seconds" model_bench "model-$model.json" "$model" || code=$?
    echo "$model: exit code $code"
    [ $code -eq 0 ] || worst=$code
  done
  return $worst
}

# What a LoRA adapter on every row adds to steps.
part_adapters() {
  program "$(part_left adapters)" model_bench adapters.json llama3-8b --adapters 16 \
    --decode 1 --decode 16 --decode 64 --decode 256 --prefill 512 --prefill 4096
}

# Each run gets an even share of the time left. The model's kernels first: they end on their own.
part_sanitizer() {
  need_gpu || return
  local sanitizer tool name log runs=6 code worst=0
  sanitizer=$(PATH=$PATH:/usr/local/cuda/bin command -v compute-sanitizer) ||
    { echo "no compute-sanitizer" && return 2; }
  for name in model_gpu_test gpu_test; do
    for tool in memcheck racecheck synccheck; do
      log=sanitizer-$tool-$name.txt
      code=0
      within $(($(part_left sanitizer) / runs)) "$sanitizer" --tool $tool --error-exitcode 9 \
        "$binaries/$name" --quick >"$results/$log.partial" 2>&1 || code=$?
      runs=$((runs - 1))
      shorten "$results/$log.partial"
      case $code in
        0) ;;
        124 | 137) echo "RAN OUT OF TIME" >>"$results/$log.partial" ;;
        *) echo "FAILED: exit code $code" >>"$results/$log.partial" ;;
      esac
      mv "$results/$log.partial" "$results/$log"
      echo "$tool, $name: $(grep -E 'SUMMARY|RAN OUT OF TIME|^FAILED: exit' "$results/$log" | tail -1)"
      # An error outweighs running out of time.
      if [ $code -ne 0 ] && { [ $worst -eq 0 ] || [ $worst -eq 124 ]; }; then worst=$code; fi
    done
  done
  [ $worst -ne 137 ] || worst=124
  return $worst
}

# shorten FILE: its beginning and its end, if it is large.
shorten() {
  [ "$(stat -c %s "$1")" -gt $log_most ] || return 0
  { head -c $((log_most / 2)) "$1" && printf '\n[...]\n' && tail -c $((log_most / 2)) "$1"; } >"$1.short"
  mv "$1.short" "$1"
}

part_torch() { script torch torch_model.py; }
part_logprobs() { script logprobs logprobs.py; }
# The last seconds are for the servers to stop and for the file.
part_makespan() { script makespan placements.py makespan --within $(($(part_left makespan) - 10)); }
part_interference() { script interference placements.py interference --within $(($(part_left interference) - 10)); }

part_table() {
  need_gpu || return
  within "$(part_left table)" python3 bench/gpu/table.py "$results"
}

budgets() {
  local command part sum
  for command in first second; do
    local -n parts_of=$command
    sum=0
    for part in unpack "${parts_of[@]}"; do
      echo "$command $part ${part_s[$part]}"
      sum=$((sum + part_s[$part]))
    done
    echo "$command sum $sum"
  done
}

die() {
  echo "$*" >&2
  exit 2
}

# Sets `binaries`, and the variables that the Python programs read.
find_programs() {
  local pack=${SACCADE_GPU_PACK-build/gpu-pack.tar.xz} cuda=build/cuda saccade=target/release/saccade
  [ -z "${SACCADE_GPU_PACK:-}" ] || [ -e "$pack" ] || die "SACCADE_GPU_PACK: no $pack"
  if [ -n "$pack" ] && [ -e "$pack" ]; then
    unpacked=$(mktemp -d)
    trap 'rm -rf "$unpacked"' EXIT
    # Neither xz nor its library for tar may be there; Python has its own.
    within "${part_s[unpack]}" python3 -c '
import sys, tarfile
safely = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
with tarfile.open(sys.argv[1], "r:xz") as pack:
    pack.extractall(sys.argv[2], **safely)' "$pack" "$unpacked" || die "$pack cannot be unpacked"
    cuda=$unpacked/cuda saccade=$unpacked/saccade
    echo "programs of $pack: $(head -2 "$unpacked/commit.txt" | paste -sd, -)"
  fi
  export SACCADE_CUDA_BUILD=${SACCADE_CUDA_BUILD:-$cuda} SACCADE_BINARY=${SACCADE_BINARY:-$saccade}
  binaries=$SACCADE_CUDA_BUILD
}

# The commit that the results belong to: the archive's own record if its programs are used.
programs_commit() {
  if [ -n "$unpacked" ] && [ "$binaries" = "$unpacked/cuda" ] && [ "$SACCADE_BINARY" = "$unpacked/saccade" ]; then
    cat "$unpacked/commit.txt"
  else
    bench/gpu/commit.sh "$binaries" "$SACCADE_BINARY"
  fi
}

# find_results ANEW: an empty folder, or one with results of the same programs.
find_results() {
  local anew=$1 commit
  commit=$(programs_commit)
  if [ -n "$(ls -A "$results" 2>/dev/null)" ]; then
    [ -e "$results/commit.txt" ] || die "$results has files that are not results"
    if $anew || [ "$(cat "$results/commit.txt")" != "$commit" ]; then
      rm -rf "$results.previous"
      mv "$results" "$results.previous"
      echo "earlier results are now in $results.previous"
    fi
  fi
  mkdir -p "$results"
  rm -f "$results"/*.partial
  echo "$commit" >"$results/commit.txt"
}

# All results in one file, whole or not at all.
write_archive() {
  [ -n "$archive" ] || return 0
  mkdir -p "$(dirname "$archive")"
  tar -C "$results" --exclude='*.partial' -czf "$archive.partial" . || return 1
  local bytes
  bytes=$(stat -c %s "$archive.partial")
  if [ "$bytes" -gt $archive_most ]; then
    rm "$archive.partial"
    echo "no archive: it would take $bytes bytes of $archive_most"
    return 1
  fi
  mv "$archive.partial" "$archive"
}

[ $# -gt 0 ] || die "usage: bench/gpu/check.sh first | second | PART... | --budgets"
if [ "$1" = --budgets ]; then
  budgets
  exit 0
fi
parts=()
anew=false
for word in "$@"; do
  case $word in
    first) parts+=("${first[@]}") anew=true ;;
    second) parts+=("${second[@]}") ;;
    *)
      declare -F "part_$word" >/dev/null || die "no part is called $word: ${first[*]} ${second[*]}"
      parts+=("$word")
      ;;
  esac
done
find_programs
find_results "$anew"
worst=0
for part in "${parts[@]}"; do
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
  echo "$part: $said, $((SECONDS - part_began)) s" >>"$results/summary.txt"
  summary+="  $part: $said, $((SECONDS - part_began)) s"$'\n'
  write_archive || worst=1
done
printf '== summary\n%s' "$summary"
echo "results in $results, $((SECONDS - began)) s"
exit $worst
