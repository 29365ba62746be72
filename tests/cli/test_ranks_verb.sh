#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run: any machine. Training on many ranks, as threads of one process.
set -euo pipefail
orthant=${1:?usage: test_ranks_verb.sh ORTHANT}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
source_dir=$PWD
cd "$work"

fail() { echo "FAILED: $*" >&2; exit 1; }
expect() {  # expect CODE WORDS COMMAND...: the exit code, and words that stderr must hold
  local code=$1 words=$2 got=0
  shift 2
  "$@" >out.txt 2>err.txt || got=$?
  [ "$got" = "$code" ] || { cat err.txt; fail "$* gave $got, expected $code"; }
  grep -qF -- "$words" err.txt || { cat err.txt; fail "$* did not say \"$words\""; }
}

"$orthant" tokenize --tokenizer bytes --out train "$source_dir"/src/base/*.h >/dev/null
cat >run.yaml <<'YAML'
model: {model_type: llama, vocab_size: 257, hidden_size: 32, intermediate_size: 48, num_hidden_layers: 4,
  num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 64, tie_word_embeddings: true}
data: {train: train, tokenizer: bytes, sequence_length: 32}
batch: {global_batch_size: 8, micro_batch_size: 1}
steps: 4
threads: 1
output: a
YAML

# What is wrong is said once and before anything is written.
expect 4 "3 ranks are not a multiple of pp=1 x cp=1 x tp=2" \
  "$orthant" train run.yaml --ranks 3 --set parallel.tp=2
expect 4 "the launcher started 2 processes, and --ranks says 4" \
  env OMPI_COMM_WORLD_SIZE=2 "$orthant" train run.yaml --ranks 4
expect 4 "mesh: 1 ranks are not a multiple" "$orthant" train run.yaml --set parallel.pp=2
expect 2 "global_batch_size=8" "$orthant" train run.yaml --ranks 3
[ "$(grep -c '^error' err.txt)" = 1 ] || fail "an error was said more than once"
[ ! -e a ] || fail "a refused run wrote files"

# A dry run plans for the most loaded rank, and says how to start.
expect 0 ", which has most" "$orthant" train run.yaml --ranks 2 --dry-run --set parallel.pp=2
grep -q "^2 ranks (pp 2)" err.txt || fail "no mesh in the dry run"
grep -qF -- "to start it: orthant train run.yaml --set parallel.pp=2 --ranks 2" err.txt ||
  fail "no launch line"
[ ! -e a ] || fail "a dry run wrote files"

# Schedules of single ranks.
"$orthant" schedule run.yaml --ranks 2 --rank 1 --set parallel.pp=2 >one.txt
grep -q "^region weights.head" one.txt || fail "the last stage holds no head"
"$orthant" schedule run.yaml --ranks 2 --rank 0 --set parallel.pp=2 >zero.txt
! grep -q "^region weights.head" zero.txt || fail "the first stage holds the head"
expect 2 "ranks are 0 to 1" "$orthant" schedule run.yaml --ranks 2 --rank 2
echo "all passed"
