#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: waits
# A kernel that never ends: the run ends by itself and names it, with one rank as with more, in the
# first step, after a stop signal, and under a supervisor, which starts the run again. A run whose
# kernels are short, but whose steps, saves and stopped times are longer than the timeout, does not.
set -uo pipefail
orthant=${1:?usage: test_hung_kernel.sh ORTHANT}
orthant=$(realpath "$orthant")
shim=$(dirname "$orthant")/tests/libbreak_calls.so
[ -f "$shim" ] || { echo "skipped: built without break_calls"; exit 77; }
. tests/support/work_folder.sh
cat >run.yaml <<'YAML'
model: {model_type: llama, vocab_size: 257, hidden_size: 32, intermediate_size: 48, num_hidden_layers: 2,
  num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 64}
data: {train: train, tokenizer: bytes, sequence_length: 32}
batch: {global_batch_size: 4, micro_batch_size: 1}
learning_rate: {decay: constant}
log: {tensorboard: false}
steps: 40
checkpoint: {every: 2}
threads: 1
YAML

train() { timeout -k 1 20 "$orthant" train run.yaml "$@" >out.txt 2>err.txt; }

# Trains with the product number PRODUCT of the process never ending; sets `got`.
hang() {  # PRODUCT ARGUMENTS...
  BREAK_HANG=$1 LD_PRELOAD=$shim train "${@:2}"
  got=$?
}

says() {  # WHAT PATTERN
  [ "$got" = 4 ] || { cat err.txt; fail "$1: exit code $got, expected 4"; }
  grep -qE "$2" err.txt || { cat err.txt; fail "$1: no line with $2"; }
  [ "$(grep -c '^error:' err.txt)" = 1 ] || { cat err.txt; fail "$1: not one error"; }
}

kernel='a kernel has not ended in [0-9.]+ s: task [0-9]+ \([a-z_]+\) of [^ ]+, block'

# A step has more than 100 products.
hang 1000 --set output=one --set parallel.watchdog_seconds=1
says "one rank" "^error: rank 0.*, step ([2-9]|1[0-9]): $kernel"
grep -q '^help: the same command continues' err.txt || fail "no help"
[ -n "$(ls one/checkpoints)" ] || fail "nothing was saved before"
train --set output=one && grep -q '^done: ' err.txt || { cat err.txt; fail "the same command does not continue"; }

hang 5 --set output=first --set parallel.watchdog_seconds=0.3
says "the first step" "^error: rank 0.*, step 1: a kernel has not ended in 0.9 s"

hang 1000 --set output=ranks --ranks 2 --set parallel.watchdog_seconds=1
says "two ranks" "^error: rank [01] on .*, step ([2-9]|1[0-9]): $kernel"

# A kernel that is under way when a stop is requested: it has as long as the timeout, at most 20 s,
# in the first step, too.
BREAK_HANG=5 LD_PRELOAD=$shim "$orthant" train run.yaml --set output=term \
  --set parallel.watchdog_seconds=1 2>err.txt &
run=$!
for _ in $(seq 400); do [ -e term/.heartbeat ] && break; sleep 0.01; done
sleep 0.8
kill -TERM $run
got=0; wait $run || got=$?
says "a stop signal" '^error: stopped by a signal, but rank 0.*, step 1: a kernel has not ended in 1 s.*are lost$'

# A supervisor starts the run again.
BREAK_HANG=1000 BREAK_ONCE=$work/once LD_PRELOAD=$shim train --supervise --set output=again \
  --set parallel.watchdog_seconds=1 || { cat err.txt; fail "the supervised run did not end"; }
grep -q '^supervisor: the job ended with exit code 4 after step' err.txt || { cat err.txt; fail "no restart"; }
echo "all passed"
