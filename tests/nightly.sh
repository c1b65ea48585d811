#!/usr/bin/env bash
# What CI runs briefly, for longer: about an hour and a half on two cores. A seed or an input that fails is printed.
#   tests/nightly.sh [PART...]     parts: dependencies variants cuda faults fetch tokenizer seeds soak fuzz [all]
set -euo pipefail
cd "$(dirname "$0")/.."
parts=("$@")
[ $# -gt 0 ] || parts=(dependencies variants cuda faults fetch tokenizer seeds soak fuzz)
. tests/skip.sh
tools=${SACCADE_CI_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/saccade-ci}

# deny.toml by cargo-deny itself, and, where their database on GitHub can be reached, advisories.
dependencies() {
  local deny=$tools/cargo-deny/bin/cargo-deny version=0.20.2 checks
  [ "$("$deny" --version 2>/dev/null)" = "cargo-deny $version" ] ||
    cargo install --quiet --locked --version $version --root "$tools/cargo-deny" cargo-deny
  checks=(bans licenses sources)
  if "$deny" fetch db >/dev/null 2>&1; then
    checks+=(advisories)
  else
    skip advisories "their database cannot be reached"
  fi
  "$deny" --locked check --config deny.toml "${checks[@]}"
}

# A frontend plane alone, as a DPU runs it, without and with UCX. CI builds it with the fetch plane.
variants() {
  cargo clippy -p saccade --no-default-features -- -D warnings
  cargo clippy -p saccade --no-default-features --features ucx -- -D warnings
}

# All kernels for all GPUs; CI compiles the scheduler's for one.
cuda() { SACCADE_CUDA_VENV=$tools/cuda device/cuda/build.sh; }

# Each plane killed a hundred times under load.
faults() { SACCADE_KILLS=${SACCADE_KILLS:-100} cargo test --workspace --test faults -- --nocapture; }

# A hundred thousand faults of a store before the fetch plane alone; then before whole servers, whose planes die more
# often than in CI.
fetch() {
  export SACCADE_S3_SERVER=${SACCADE_S3_SERVER:-$tools/s3/bin/moto_server}
  export SACCADE_FETCH_FAULTS=${SACCADE_FETCH_FAULTS:-100000}
  cargo test --workspace --test trouble -- --nocapture --test-threads 1
  SACCADE_KILLS=${SACCADE_KILLS:-20} SACCADE_FETCH_ROUNDS=${SACCADE_FETCH_ROUNDS:-20} \
    cargo test --workspace --test fetch -- --nocapture --test-threads 1
}

# Twenty times as many texts for each real-world vocabulary.
tokenizer() {
  local vocabularies=$tools/vocabularies
  tests/tokenizer/fetch.py "$vocabularies"
  SACCADE_TOKENIZER_VOCABULARIES=$vocabularies SACCADE_TOKENIZER_TEXTS=${SACCADE_TOKENIZER_TEXTS:-100000} \
    cargo test --workspace --test equality
}

# The device plane's random tests with other seeds than CI's, twenty times as many; under ASan and UBSan too, with
# more than CI, which runs a quarter of some tests' seeds there.
seeds() {
  cmake -S device -B build/device-plain -G Ninja -DSACCADE_SANITIZER=plain >/dev/null
  cmake --build build/device-plain --target all
  build/device-plain/tests/fault_sim --seeds 1-1000 --ticks 10000
  SACCADE_SEEDS=${SACCADE_SEEDS:-2000} ctest --test-dir build/device-plain --no-tests=error --output-on-failure \
    --timeout 3600 -j "$(nproc)"
  local clang
  clang=$(command -v clang++-14 || command -v clang++ || command -v g++)
  cmake -S device -B build/device-asan -G Ninja -DSACCADE_SANITIZER=asan -DCMAKE_CXX_COMPILER="$clang" >/dev/null
  cmake --build build/device-asan --target all
  build/device-asan/tests/fault_sim --seeds 26-200 --ticks 3000
  SACCADE_SEEDS=400 ctest --test-dir build/device-asan --no-tests=error --output-on-failure --timeout 3600 \
    -j "$(nproc)" -R '^(adapters|cpu_step|cuda_sampler|hostile|overlap|prefix_step|sim|tiers)_test$'
  cmake -S device -B build/device-tsan -G Ninja -DSACCADE_SANITIZER=tsan >/dev/null
  cmake --build build/device-tsan --target adapters_test cpu_step_test
  SACCADE_SEEDS=400 ctest --test-dir build/device-tsan --no-tests=error --output-on-failure --timeout 3600 \
    -j "$(nproc)" -R '^(adapters|cpu_step)_test$'
}

# Five minutes of known questions beside attackers and kills of each plane; the page and the record are in build/soak.
soak() {
  SACCADE_SOAK_SECONDS=${SACCADE_SOAK_SECONDS:-300} SACCADE_BENCH_OUT=${SACCADE_BENCH_OUT:-build/soak} bench/soak.sh
}

fuzz() { fuzz/run.sh "${SACCADE_FUZZ_SECONDS:-300}"; }

for part in "${parts[@]}"; do
  echo "== $part"
  "$part"
done
say_skipped
