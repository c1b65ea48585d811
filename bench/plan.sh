#!/usr/bin/env bash
# What the policies achieve on named devices, SIMULATED (docs/plan.md): tables and JSON of `saccade plan`.
#   bench/plan.sh             all of it, into bench/results/<date>-<commit>-plan-simulated
#   bench/plan.sh qwen xfer   only those: qwen bursts naive xfer capacity one_tier models sustained seeds fleet
# qwen: Qwen2.5-32B on GH200 at 5 to 20 requests/s; bursts: the same with bursty arrivals; naive: the same with copies
# segment by segment; xfer: LVF by blocks that may change hands per step, with both engines; capacity: by multiples of
# the capacity, for two minutes; one_tier: for ten minutes, without host memory for KV; models: Qwen2.5-32B, Llama-3-8B
# and Mixtral-8x7B, ShareGPT-like and LMSYS-like, below the capacity for five minutes; sustained: the same beyond it, for
# ten and for twenty minutes; seeds: the spread over five seeds; fleet: devices needed.
#   SACCADE_BENCH_BINARY    a `saccade` that is built already
#   SACCADE_BENCH_OUT       the folder
#   SACCADE_PLAN_POLICIES   (fcfs,wf,sf,lvf,goodput)
set -euo pipefail
cd "$(dirname "$0")/.."
out=${SACCADE_BENCH_OUT:-bench/results/$(date +%F)-$(git rev-parse --short HEAD)-plan-simulated}
policies=${SACCADE_PLAN_POLICIES:-fcfs,wf,sf,lvf,goodput}
saccade=${SACCADE_BENCH_BINARY:-${CARGO_TARGET_DIR:-target}/release/saccade}
[ -n "${SACCADE_BENCH_BINARY:-}" ] || cargo build --release --quiet -p saccade
mkdir -p "$out"
host=(--kv-offloading-size 400)
ladder=0.8x,0.95x,1.05x,1.15x,1.3x

# plan NAME FLAGS...: one table, and its JSON without what only plots over time need.
plan() {
  local name=$1
  shift
  echo "== $name: saccade plan $*"
  "$saccade" plan "${host[@]}" "$@" --json "$out/$name.json"
  python3 bench/plan_table.py --thin "$out/$name.json"
}

step_qwen() { plan qwen-sharegpt --scheduling-policy "$policies"; }
step_bursts() { plan qwen-sharegpt-bursts --scheduling-policy "$policies" --burstiness 0.25; }
step_naive() { plan qwen-sharegpt-naive --scheduling-policy "$policies" --copies naive; }
step_xfer() {
  for copies in duplex naive; do
    for blocks in 300 600 1200 2400 4800; do
      plan "qwen-xfer-$copies-$blocks" --scheduling-policy lvf --copies $copies --b-xfer-blocks $blocks \
        --request-rate 1x,1.15x,1.3x
    done
  done
}
step_capacity() {
  plan qwen-capacity --scheduling-policy "$policies" --request-rate $ladder
  plan qwen-capacity-bursts --scheduling-policy "$policies" --request-rate $ladder --burstiness 0.25
}
# A device without host memory: requests that give up blocks are computed again.
step_one_tier() {
  local host=(--kv-offloading-size 0)
  plan qwen-one-tier --scheduling-policy "$policies" --request-rate $ladder --duration 600
}
# each_model SUFFIX FLAGS...: every model with both kinds of lengths.
each_model() {
  local suffix=$1 model workload rows
  shift
  for workload in sharegpt lmsys; do
    for model in Llama-3-8B Mixtral-8x7B Qwen2.5-32B; do
      # A step of Llama-3-8B with 4,096 rows and as many sequences as fit takes longer than the target of 100 ms: that
      # would penalise a policy that fills more steps. With 2,560 rows a full step meets it.
      rows=$([ "$model" = Llama-3-8B ] && echo 2560 || echo 4096)
      plan "$model-$workload-$suffix" --model $model --workload $workload --scheduling-policy "$policies" \
        --max-num-seqs $((rows < 3072 ? rows : 3072)) --max-num-batched-tokens "$rows" "$@"
    done
  done
}
step_models() { each_model below --request-rate 0.8x,0.95x --duration 300; }
step_sustained() {
  local seconds
  for seconds in 600 1200; do
    each_model "$seconds" --request-rate 1.05x,1.15x,1.3x --duration "$seconds"
  done
}
step_seeds() {
  for seed in 1 2 3 4 5; do
    plan "qwen-seed-$seed" --scheduling-policy "$policies" --seed $seed --request-rate 0.95x,1.05x,1.15x,1.3x
  done
}
step_fleet() {
  plan fleet --scheduling-policy "$policies" --request-rate 50,100 --find-devices
  plan fleet-h100 --model Llama-3-8B --device H100 --scheduling-policy "$policies" --find-devices \
    --request-rate 100,400
}

steps=(qwen bursts naive xfer capacity one_tier models sustained seeds fleet)
[ $# -eq 0 ] || steps=("$@")
for step in "${steps[@]}"; do "step_$step"; done
