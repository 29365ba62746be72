#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: waits
# run: a machine with MPI. A process of a supervised mpirun is killed: it is named, the run starts
# again and has the bits of one never broken. A signal to the supervisor reaches the ranks.
set -uo pipefail
orthant=${1:?usage: test_supervise_mpi.sh ORTHANT}
. tests/support/mpi_launch.sh "$orthant"
. tests/support/expect.sh
work=$(mktemp -d)
supervisor=
trap 'kill -TERM $supervisor 2>/dev/null; rm -rf "$work"' EXIT
source_dir=$PWD
cd "$work" || exit 1

"$orthant" tokenize --tokenizer bytes --out train "$source_dir"/src/core/base/*.h >/dev/null 2>&1
cat >run.yaml <<'YAML'
model: {model_type: llama, vocab_size: 257, hidden_size: 32, intermediate_size: 48, num_hidden_layers: 2,
  num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 32}
data: {train: train, tokenizer: bytes, sequence_length: 32}
batch: {global_batch_size: 4, micro_batch_size: 1}
learning_rate: {warmup_steps: 2, decay: constant}
parallel: {tp: 2}
steps: 200
checkpoint: {every: 20}
threads: 1
YAML
launch=("$launcher" "${launch[@]:2}" -n '{ranks}')

wait_for_steps() {  # NAME LINES
  for _ in $(seq 1000); do [ "$(cat $1/metrics.jsonl 2>/dev/null | wc -l)" -gt "$2" ] && return; sleep 0.02; done
  cat err.txt; fail "$1: no step $2"
}

rank_process() {  # RANK: the process of this rank of our run
  local directory
  for directory in /proc/[0-9]*; do
    [ "$(readlink "$directory/cwd" 2>/dev/null)" = "$(realpath "$work")" ] || continue
    tr '\0' '\n' <"$directory/environ" 2>/dev/null | found -E "^(OMPI_COMM_WORLD_RANK|PMI_RANK)=$1\$" || continue
    basename "$directory"
    return
  done
}

"$orthant" train run.yaml --set output=whole --ranks 4 2>/dev/null || fail "the unbroken run"
"$orthant" train run.yaml --set output=killed --supervise --ranks 4 -- "${launch[@]}" >out.txt 2>err.txt &
supervisor=$!
wait_for_steps killed 30
kill -KILL "$(rank_process 2)"
got=0; wait $supervisor || got=$?
[ "$got" = 0 ] || { cat err.txt; fail "after a kill: exit code $got"; }
grep -qE '^supervisor: the job .*; restart 1 of 10 in 0 s on 4 ranks$' err.txt || { cat err.txt; fail "no restart"; }
[ "$family" = mpich ] || grep -q '"event":"failure".*"rank":2' killed/events.jsonl || fail "the rank is not named"
for file in model optimizer; do
  cmp {whole,killed}/checkpoints/step-00000200/$file.safetensors || fail "$file differs after a kill"
done

"$orthant" train run.yaml --set output=stopped --set steps=1000000 --supervise --ranks 2 -- "${launch[@]}" \
  >out.txt 2>err.txt &
supervisor=$!
wait_for_steps stopped 5
kill -TERM $supervisor
got=0; wait $supervisor || got=$?
[ "$got" = 75 ] || { cat err.txt; fail "a stop gave $got, expected 75"; }
ls stopped/checkpoints | found step- || fail "no checkpoint after a stop"
echo "all passed"
