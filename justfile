# Thin names for the commands that people and CI run. `just` alone lists them.

default:
    @just --list

# Serve the bundled model on port 8000.
serve *flags:
    cargo run --release -- serve {{flags}}

# The tests that need a Rust toolchain and a C++ compiler only.
test:
    cargo test --workspace

# The device plane's own tests (cmake, ninja, doctest), plain and under sanitizers.
test-device:
    tests/device.sh

# End to end against the official clients, HF references and a browser (see tests/README.md).
test-clients:
    tests/clients/run.sh

# Formatters and linters of both languages, warnings are errors.
lint:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets -- -D warnings
    find device abi -name '*.hpp' -o -name '*.cpp' -o -name '*.h' -o -name '*.c' -o -name '*.cu' | xargs clang-format-14 --dry-run -Werror

# Rewrite sources in the project's format.
format:
    cargo fmt --all
    find device abi -name '*.hpp' -o -name '*.cpp' -o -name '*.h' -o -name '*.c' -o -name '*.cu' | xargs clang-format-14 -i

# Build the CUDA device with nvcc, for --device cuda (needs no GPU; fetches the wheels of device/cuda/requirements.txt).
cuda:
    device/cuda/build.sh

# Pack what a machine with a GPU runs: the CUDA programs and a release build, into build/gpu-pack.tar.xz.
gpu-pack:
    bench/gpu/pack.sh

# On a machine with a GPU: `first` (tests, kernels, sanitizer), `second` (servers), or parts; nine minutes each.
gpu-check +parts:
    bench/gpu/check.sh {{parts}}

# Known questions beside attackers and kills of each plane, SECONDS long, into bench/results/.
soak seconds="3600":
    SACCADE_SOAK_SECONDS={{seconds}} bench/soak.sh

# All fuzz targets, SECONDS each.
fuzz seconds="20":
    fuzz/run.sh {{seconds}}

# The parts, measured separately on this machine, into bench/results/.
bench:
    bench/parts.sh

# What CI runs.
ci:
    bash .ci/run

# What CI runs briefly, for longer: kills, seeds, texts, fuzzing; about an hour, or the given parts.
nightly *parts:
    tests/nightly.sh {{parts}}
