#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run: where the program was built with MPI. Training on the processes of a launcher: the bits of
# ranks as threads, one voice, and a stop that all hear.
set -euo pipefail
orthant=${1:?usage: test_train_mpi.sh ORTHANT}
. tests/support/mpi_launch.sh "$orthant"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
source_dir=$PWD
cd "$work"

fail() { echo "FAILED: $*" >&2; exit 1; }
expect() {  # expect CODE WORDS COMMAND...: the exit code, and the words of the only error
  local code=$1 words=$2 got=0
  shift 2
  "$@" >out.txt 2>err.txt || got=$?
  [ "$got" = "$code" ] || { cat err.txt; fail "$* gave $got, expected $code"; }
  grep '^error: ' err.txt | grep -qF -- "$words" || { cat err.txt; fail "$* did not say \"$words\""; }
  [ "$(grep -c '^error: ' err.txt)" = 1 ] || { cat err.txt; fail "$* said it more than once"; }
}

"$orthant" tokenize --tokenizer bytes --out train "$source_dir"/src/base/*.h >/dev/null
cat >run.yaml <<'YAML'
model: {model_type: llama, vocab_size: 257, hidden_size: 32, intermediate_size: 48, num_hidden_layers: 2,
  num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 64, tie_word_embeddings: true}
data: {train: train, tokenizer: bytes, sequence_length: 32}
batch: {global_batch_size: 4, micro_batch_size: 1}
parallel: {tp: 2, pp: 2}
steps: 3
threads: 1
output: processes
YAML

"${launch[@]}" -n 4 "$orthant" train run.yaml 2>err.txt || { cat err.txt; fail "did not train"; }
[ "$(grep -c '^done' err.txt)" = 1 ] || fail "the end was said more than once"
"$orthant" train run.yaml --ranks 4 --set output=threads 2>/dev/null
for file in model optimizer; do
  cmp processes/checkpoints/step-00000003/$file.safetensors \
    threads/checkpoints/step-00000003/$file.safetensors
done

expect 4 "rank 0 on" "${launch[@]}" -n 3 "$orthant" train run.yaml
expect 4 "the launcher started 2 processes, and --ranks says 4" \
  "${launch[@]}" -n 2 "$orthant" train run.yaml --ranks 4
expect 3 "missing.yaml" "${launch[@]}" -n 2 "$orthant" train missing.yaml
"${launch[@]}" -n 4 "$orthant" train run.yaml --dry-run --set output=dry 2>err.txt
[ "$(grep -c 'mpirun -n 4 orthant train run.yaml' err.txt)" = 1 ] || fail "no launch line"
[ ! -e dry ] || fail "a dry run wrote files"

# One process is told to stop.
"${launch[@]}" -n 4 "$orthant" train run.yaml --set output=stopped --set steps=1000000 2>err.txt &
launched=$!
for _ in $(seq 200); do
  [ -s stopped/metrics.jsonl ] && [ "$(wc -l <stopped/metrics.jsonl)" -gt 2 ] && break
  sleep 0.05
done
for directory in /proc/[0-9]*; do
  [ "$(readlink "$directory/cwd" 2>/dev/null)" = "$work" ] || continue
  [ "$(readlink "$directory/exe" 2>/dev/null)" = "$(readlink -f "$orthant")" ] || continue
  kill -USR1 "${directory#/proc/}"
  break
done
got=0; wait $launched || got=$?
[ "$got" = 75 ] || { cat err.txt; fail "a signal gave $got, expected 75"; }
[ "$(grep -c 'stopped by a signal' err.txt)" = 1 ] || fail "a stop was said more than once"
ls stopped/checkpoints | grep -q step- || fail "no checkpoint after a signal"
echo "all passed"
