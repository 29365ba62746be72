#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: waits
# run: where the program was built with MPI. Training on the processes of a launcher: the same bits
# as ranks that are threads, one copy of each message, and a stop signal that reaches all ranks.
set -euo pipefail
orthant=${1:?usage: test_train_mpi.sh ORTHANT}
. tests/support/mpi_launch.sh "$orthant"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
source_dir=$PWD
cd "$work"

fail() { echo "FAILED: $*" >&2; exit 1; }
run() { got=0; "$@" >out.txt 2>err.txt || got=$?; }
expect() {  # expect CODE WORDS COMMAND...: exit code, and words of the only error
  local code=$1 words=$2 got=0
  shift 2
  unless_hung run "$@"
  [ "$got" = "$code" ] || { cat err.txt; fail "$* gave $got, expected $code"; }
  grep '^error: ' err.txt | grep -qF -- "$words" || { cat err.txt; fail "$* did not print \"$words\""; }
  [ "$(grep -c '^error: ' err.txt)" = 1 ] || { cat err.txt; fail "$* printed it more than once"; }
}

"$orthant" tokenize --tokenizer bytes --out train "$source_dir"/src/core/base/*.h >/dev/null
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
[ "$(grep -c '^done' err.txt)" = 1 ] || fail "the end was reported more than once"
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

# One process is killed. The launcher names it and ends the others; the same command continues from
# the newest checkpoint and reaches the bits of an undisturbed run.
steady=(--set learning_rate.decay=constant --set learning_rate.warmup_steps=0)
rank_process() {  # RANK: the process of this rank of our run
  local directory
  for directory in /proc/[0-9]*; do
    [ "$(readlink "$directory/cwd" 2>/dev/null)" = "$(realpath "$work")" ] || continue
    [ "$(readlink "$directory/exe" 2>/dev/null)" = "$(realpath "$orthant")" ] || continue
    tr '\0' '\n' <"$directory/environ" 2>/dev/null | grep -qE "^(OMPI_COMM_WORLD_RANK|PMI_RANK)=$1\$" || continue
    basename "$directory"
    return
  done
}
"${launch[@]}" -n 4 "$orthant" train run.yaml "${steady[@]}" --set output=killed --set steps=1000000 \
  --set checkpoint.every=10 --set checkpoint.keep=2 </dev/null >out.txt 2>err.txt &
launched=$!
for _ in $(seq 300); do
  [ "$(cat killed/metrics.jsonl 2>/dev/null | wc -l)" -gt 24 ] && break
  sleep 0.05
done
kill -KILL "$(rank_process 2)"
got=0; wait $launched || got=$?
[ "$got" != 0 ] && [ "$got" != 124 ] || { cat err.txt; fail "a killed process gave $got"; }
! grep -q '^error: ' err.txt || { cat err.txt; fail "a rank blamed itself for the one that was killed"; }
grep -qiE "signal 9|exit code: 9|KILLED" out.txt err.txt || { cat err.txt; fail "no message that a process was killed"; }
steps=$(($(ls killed/checkpoints | sed 's/^step-0*//' | sort -n | tail -n 1) + 3))
"${launch[@]}" -n 4 "$orthant" train run.yaml "${steady[@]}" --set output=killed --set steps=$steps 2>err.txt ||
  { cat err.txt; fail "does not continue after a process was killed"; }
"$orthant" train run.yaml "${steady[@]}" --ranks 4 --set output=whole --set steps=$steps 2>/dev/null
last=step-$(printf %08d $steps)
for file in model optimizer; do
  cmp {killed,whole}/checkpoints/$last/$file.safetensors || fail "bits differ after a process was killed"
done

# One process receives a stop signal: the first, or the one that only runs a teacher.
stop_by_signal() {  # RANKS SIGNAL RANK ARGUMENT...: sets `got` to its exit code
  rm -rf stopped
  "${launch[@]}" -n "$1" "$orthant" train run.yaml --set output=stopped --set steps=1000000 "${@:4}" 2>err.txt &
  local launched=$!
  for _ in $(seq 200); do
    [ -s stopped/metrics.jsonl ] && [ "$(wc -l <stopped/metrics.jsonl)" -gt 2 ] && break
    sleep 0.05
  done
  kill "-$2" "$(rank_process "$3")"
  got=0
  wait $launched || got=$?
}
stops() {
  unless_hung stop_by_signal "$@"
  [ "$got" = 75 ] || { cat err.txt; fail "$2 to rank $3 gave $got, expected 75"; }
  [ "$(grep -c 'stopped by a signal' err.txt)" = 1 ] || fail "a stop was reported more than once"
  ls stopped/checkpoints | grep -q step- || fail "no checkpoint after a signal"
}
stops 4 USR1 0
stops 3 TERM 2 --set parallel.tp=2 --set parallel.pp=1 --set distill.objective=sampled --set distill.from=live \
  --set distill.teacher=threads --set distill.teacher_ranks=1
echo "all passed"
