#!/usr/bin/env bash
# Repeats on this machine all that the README's section "Measured" reports for machines without a GPU, each campaign
# into its folder of bench/results: three to four hours of two cores with nothing else running.
#   bench/measured.sh                  all of it: parts cpu rotation emulated tokenizer plan
#   bench/measured.sh parts rotation   only those
# cpu needs the engines of bench/peers. Each script describes its campaign; SACCADE_BENCH_MACHINE names the machine.
# Then name the new folders in bench/figures/runs.py and in the documents' links, and run `python3 bench/figures write`.
set -euo pipefail
cd "$(dirname "$0")/.."
campaign_tokenizer() {
  local vocabularies=${XDG_CACHE_HOME:-$HOME/.cache}/saccade-tokenizer out run
  out=bench/results/$(date +%F)-${SACCADE_BENCH_MACHINE:-$(uname -m)-$(nproc)c}-$(git rev-parse --short HEAD)-tokenizer
  mkdir -p "$out"
  tests/tokenizer/fetch.py "$vocabularies"
  for run in 1 2 3; do tests/tokenizer/compare/run.sh "$vocabularies" text >"$out/text-$run.txt"; done
  tests/tokenizer/compare/run.sh "$vocabularies" worst >"$out/worst.txt"
  tests/tokenizer/compare/instructions.py "$vocabularies" >"$out/instructions.txt"
}
campaign_parts() { bench/parts.sh; }
campaign_cpu() { bench/cpu.sh; }
campaign_rotation() { bench/rotation.sh; }
campaign_emulated() { SACCADE_BENCH_CELL_S=20 bench/emulated.sh; }
campaign_plan() { bench/plan.sh; }

campaigns=(parts cpu rotation emulated tokenizer plan)
[ $# -eq 0 ] || campaigns=("$@")
for campaign in "${campaigns[@]}"; do
  echo "=== $campaign"
  "campaign_$campaign"
done
