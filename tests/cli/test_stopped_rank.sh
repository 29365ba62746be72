#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: waits
# run: a machine with MPI. A process of `orthant train` is stopped, as on a hanging machine, during
# steps and while a checkpoint is written: the others name it and the operation that it missed, and
# all end within seconds, with exit code 4.
set -uo pipefail
orthant=${1:?usage: test_stopped_rank.sh ORTHANT}
. tests/support/mpi_launch.sh "$orthant"
work=$(mktemp -d)
stopped=
trap 'kill -KILL $stopped 2>/dev/null; rm -rf "$work"' EXIT
source_dir=$PWD
cd "$work" || exit 1

fail() { echo "FAILED: $*" >&2; sed 's/^/  | /' err.txt >&2; exit 1; }

"$orthant" tokenize --tokenizer bytes --out train "$source_dir"/src/core/base/*.h >/dev/null 2>&1
cat >run.yaml <<'YAML'
model: {model_type: llama, vocab_size: 257, hidden_size: 32, intermediate_size: 48, num_hidden_layers: 4,
  num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 64}
data: {train: train, tokenizer: bytes, sequence_length: 32}
batch: {global_batch_size: 8, micro_batch_size: 1}
steps: 1000000
threads: 1
YAML

rank_process() {  # RANK: the process of this rank of our run
  local file
  for file in /proc/[0-9]*/environ; do
    [ "$(readlink "${file%/environ}/cwd" 2>/dev/null)" = "$(realpath "$work")" ] || continue
    [ "$(readlink "${file%/environ}/exe" 2>/dev/null)" = "$(realpath "$orthant")" ] || continue
    tr '\0' '\n' <"$file" 2>/dev/null | grep -qE "^(OMPI_COMM_WORLD_RANK|PMI_RANK)=$1\$" || continue
    basename "${file%/environ}"
    return
  done
}

stop_in_save() {  # NAME: stops the process $stopped while rank 0 writes a checkpoint
  for _ in $(seq 200); do
    while ! compgen -G "$1/checkpoints/.step-*.partial" >partial.txt; do kill -0 "$stopped" || return 1; done
    kill -STOP "$stopped"
    # It stopped after that save: retry.
    [ -e "$(head -1 partial.txt)" ] && return
    kill -CONT "$stopped"
  done
  return 1
}

# Trains NAME until its victim is stopped; sets `got` to the exit code and `took` to the time.
run_until_stopped() {  # NAME VICTIM SETTINGS
  local name=$1 victim=$2 settings=$3 run start
  rm -rf "$name"
  # shellcheck disable=SC2086
  "${launch[@]}" -n 4 "$orthant" train run.yaml --set output="$name" --set parallel.watchdog_seconds=2 \
    --set ${settings// / --set } </dev/null >out.txt 2>err.txt &
  run=$!
  for _ in $(seq 300); do [ "$(cat "$name/metrics.jsonl" 2>/dev/null | wc -l)" -gt 3 ] && break; sleep 0.05; done
  stopped=$(rank_process "$victim")
  [ -n "$stopped" ] || fail "no process of rank $victim"
  case $name in
    save*) stop_in_save "$name" || fail "$name: no save to stop in" ;;
    *) kill -STOP "$stopped" ;;
  esac
  start=$(date +%s%N)
  got=0
  wait $run || got=$?
  took=$((($(date +%s%N) - start) / 1000000))
  kill -KILL "$stopped" 2>/dev/null
}

# A mesh, the stopped rank, and the operation in which the others then wait.
while read -r name victim settings; do
  unless_hung run_until_stopped "$name" "$victim" "$settings"
  [ "$got" = 4 ] || fail "$name: exit code $got, expected 4"
  [ $took -lt 12000 ] || fail "$name: took $took ms"
  [ "$(grep -c '^error: ' err.txt)" = 1 ] || fail "$name: not exactly one error line"
  grep -qE "^error: (rank [0-9] .*|.*saving step .*)waits in '.+' \([a-z_]+ [0-9]+ (from|to|of) .*for ranks? .*which ha(s|ve) not arrived in 2 s" \
    err.txt || fail "$name: the missed operation is not named"
  # A rank that waits itself is not named, or the one that does not wait is named, too.
  grep -qE "(for rank $victim, which has not arrived in 2 s|and waits? .*; rank $victim does not respond)\$" err.txt ||
    fail "$name: names other ranks than $victim"
  case $name in save*)
    grep -qE "saving step [0-9]+: rank [0-9] waits .* for rank $victim, which has not arrived" err.txt ||
      fail "$name: does not name the save, or names other ranks"
  esac
  echo "$name: $took ms: $(grep '^error: ' err.txt)"
done <<'RUNS'
zero1 2 parallel.zero=1
zero3 1 parallel.zero=3
tp 3 parallel.tp=4
pp 2 parallel.pp=4
save0 0 parallel.pp=2 checkpoint.every=1
save2 2 parallel.pp=2 checkpoint.every=1
RUNS
echo "all passed"
