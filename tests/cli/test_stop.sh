#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Stop signals: a long step is left, before the first step the process ends at once, both with exit
# code 75; a second SIGTERM ends the process; what continues has the bits of a run never stopped.
set -uo pipefail
orthant=${1:?usage: test_stop.sh ORTHANT}
. tests/support/work_folder.sh
cat >run.yaml <<'YAML'
model: {model_type: llama, vocab_size: 257, hidden_size: 128, intermediate_size: 256, num_hidden_layers: 2,
  num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 128}
data: {train: train, tokenizer: bytes, sequence_length: 128}
batch: {global_batch_size: 4, micro_batch_size: 1, ramp: [{from_step: 2, global_batch_size: 4000}]}
learning_rate: {warmup_steps: 0, decay: constant}
steps: 3
threads: 1
YAML

milliseconds() { echo $(($(date +%s%N) / 1000000)); }

catches_term() {  # PID
  local mask
  mask=$(sed -n 's/^SigCgt:\t*//p' "/proc/$1/status" 2>/dev/null)
  [ -n "$mask" ] && (((16#$mask >> 14) & 1))
}

# Starts a run, calls WHEN until it holds, sends SIGTERM; sets `got` and `took`, and leaves err.txt.
stop_when() {  # WHEN ARGUMENTS...
  local when=$1 start
  shift
  "$orthant" train run.yaml "$@" >out.txt 2>err.txt &
  pid=$!
  for _ in $(seq 2000); do $when && break; sleep 0.005; done
  kill -TERM $pid
  [ "$second" = no ] || { sleep 0.2; kill -TERM $pid; }
  start=$(milliseconds)
  got=0; wait $pid || got=$?
  took=$(($(milliseconds) - start))
}
loading() { catches_term $pid; }
in_step_3() { [ "$(cat "$run/metrics.jsonl" 2>/dev/null | wc -l)" -ge 2 ]; }

"$orthant" train run.yaml --set output=two --set steps=2 2>err.txt || { cat err.txt; fail "two steps"; }

for ranks in 1 2; do
  run=long$ranks second=no
  stop_when in_step_3 --set output=$run --ranks $ranks
  [ "$got" = 75 ] || { cat err.txt; fail "$run: a signal in a long step gave $got, expected 75"; }
  [ $took -lt 2500 ] || fail "$run: stopped after $took ms"
  grep -qF "stopped by a signal in step 3" err.txt || { cat err.txt; fail "$run: the step is not named"; }
  [ "$(ls $run/checkpoints)" = step-00000002 ] || fail "$run: the step before was not saved"
done
cmp two/checkpoints/step-00000002/optimizer.safetensors long1/checkpoints/step-00000002/optimizer.safetensors &&
  cmp two/checkpoints/step-00000002/model.safetensors long1/checkpoints/step-00000002/model.safetensors ||
  fail "the state after a step that was left is not that before it"

run=twice second=yes
stop_when in_step_3 --set output=$run
[ "$got" = 143 ] || { cat err.txt; fail "a second SIGTERM gave $got, expected 143"; }

run=load second=no
stop_when loading --set output=$run
[ "$got" = 75 ] || { cat err.txt; fail "a signal at the start gave $got, expected 75"; }
grep -qF "before the first step" err.txt || { cat err.txt; fail "a signal at the start says nothing"; }
echo "all passed"
