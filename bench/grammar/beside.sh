#!/usr/bin/env bash
# Time per token with and without a grammar, alone and beside pbzip2 at equal priority, of ours and of vLLM with each of
# its two grammar back ends (bench/peers/vllm.sh installs it).
#   bench/grammar/beside.sh TOKENIZER     a tokenizer.json of Qwen's: masks take longer the more tokens there are
# Into bench/results/<date>-<machine>-<commit>-grammars-beside. The model is Qwen3-0.6B's shape with random weights.
# Answers are strings of JSON of at least 4,000 characters: none can end before it has as many tokens as are asked for.
#   SACCADE_BENCH_STREAMS (1 8)    SACCADE_BENCH_REPEATS (1)    SACCADE_BENCH_CELL_S (20): seconds of a cell
#   SACCADE_BENCH_OUTPUT_LEN (32): tokens of an answer; beside pbzip2 vLLM takes more than a second for one
#   SACCADE_BENCH_BINARY, SACCADE_BENCH_MACHINE, SACCADE_BENCH_OUT: as in bench/cpu.sh
source "$(dirname "$0")/../peers/common.sh"
cd "$(dirname "$0")/../.."
. bench/machine.sh
tokenizer=${1:?beside.sh TOKENIZER}
machine=${SACCADE_BENCH_MACHINE:-$(uname -m)-$(nproc)c}
out=${SACCADE_BENCH_OUT:-bench/results/$(date +%F)-$machine-$(git rev-parse --short HEAD)-grammars-beside}
saccade=${SACCADE_BENCH_BINARY:-${CARGO_TARGET_DIR:-target}/release/saccade}
[ -n "${SACCADE_BENCH_BINARY:-}" ] || cargo build --release --quiet -p saccade
read -ra streams <<<"${SACCADE_BENCH_STREAMS:-1 8}"
slots=8
export SACCADE_PEERS_CONTEXT=1024 SACCADE_PEERS_KV_GIB=2
mkdir -p "$out"
describe_machine "vocabulary $(basename "$tokenizer")" >"$out/machine.txt"

model=$(mktemp -d)/qwen3-0.6b
trap 'rm -rf "$(dirname "$model")" "$out"/*.log' EXIT
mkdir "$model"
cp bench/models/qwen3-0.6b-shape/config.json "$model"
cp "$tokenizer" "$model/tokenizer.json"
echo '{"tokenizer_class": "PreTrainedTokenizerFast"}' >"$model/tokenizer_config.json"

ours="$saccade serve $model --load-format dummy --dtype bfloat16 --max-model-len $SACCADE_PEERS_CONTEXT --log warn"
ours+=" --max-num-seqs $slots --max-num-batched-tokens $batched_tokens --no-enable-prefix-caching --port"
vllm() { echo "bench/peers/vllm.sh run $model $1 $slots --load-format dummy --structured-outputs-config.backend $2"; }
grammar='{"temperature": 1, "structured_outputs": {"json": {"type": "string", "minLength": 4000, "maxLength": 9000}}}'
free='{"temperature": 1}'

for n in "${streams[@]}"; do
  "$saccade" bench interference --log-dir "$out" --neighbour pbzip2 --neighbour-threads 2 --settle 1 \
    --server saccade=http://127.0.0.1:18300 --start "saccade=$ours 18300" --extra-body "saccade=$free" \
    --server saccade-grammar=http://127.0.0.1:18301 --start "saccade-grammar=$ours 18301" \
    --extra-body "saccade-grammar=$grammar" \
    --server vllm=http://127.0.0.1:18302 --start "vllm=$(vllm 18302 xgrammar)" --extra-body "vllm=$free" \
    --server vllm-xgrammar=http://127.0.0.1:18303 --start "vllm-xgrammar=$(vllm 18303 xgrammar)" \
    --extra-body "vllm-xgrammar=$grammar" \
    --server vllm-guidance=http://127.0.0.1:18304 --start "vllm-guidance=$(vllm 18304 guidance)" \
    --extra-body "vllm-guidance=$grammar" \
    --max-concurrency "$n" --random-input-len 32 --random-output-len "${SACCADE_BENCH_OUTPUT_LEN:-32}" --vocab 4096 \
    --duration "${SACCADE_BENCH_CELL_S:-20}" \
    --num-warmups "$n" --request-timeout 600 --repeats "${SACCADE_BENCH_REPEATS:-1}" \
    --json "$out/streams-$n.json" | tee "$out/streams-$n.txt"
done
sed -i "s|$(dirname "$saccade")/|target/release/|g; s|$(dirname "$model")|MODEL|g; s|$PWD/||g; s|$HOME/|~/|g" "$out"/*.json
