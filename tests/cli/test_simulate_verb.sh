#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run: any machine. Predictions without data or a machine, from a cluster file alone.
set -euo pipefail
. tests/support/expect.sh
orthant=$(realpath "${1:?usage: test_simulate_verb.sh ORTHANT}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export XDG_CONFIG_HOME=$work/user

cat >run.yaml <<'YAML'
model: {model_type: llama, vocab_size: 257, hidden_size: 32, intermediate_size: 48, num_hidden_layers: 4,
  num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 64, tie_word_embeddings: true}
data: {train: nowhere, tokenizer: bytes, sequence_length: 32}
batch: {global_batch_size: 8, micro_batch_size: 1, ramp: [{from_step: 2, global_batch_size: 16}]}
steps: 4
output: a
YAML
cat >cluster.yaml <<'YAML'
name: paper
num_devices: 4
memory_bytes: 4G
memory_bytes_per_s: 1e10
flops_fp32: 1e10
other_flops_per_s: 1e9
levels: [{name: wire, size: 4, bytes_per_s: 1e9, latency_s: 1e-6}]
YAML

expect 3 "never measured" "$orthant" simulate run.yaml
grep -q "^help: .orthant bench. measures it" err.txt || fail "no help without measurements"
expect 2 "no preset and no file" "$orthant" simulate run.yaml --cluster nope
expect 2 "paper has 4 devices, the run 8 ranks" "$orthant" simulate run.yaml --cluster ./cluster.yaml --ranks 8
expect 4 "3 ranks are not a multiple of pp=1 x cp=1 x tp=2" \
  "$orthant" simulate run.yaml --cluster ./cluster.yaml --ranks 3 --set parallel.tp=2

# The degrees determine the number of ranks.
"$orthant" simulate run.yaml --cluster cluster.yaml --set parallel.pp=2 --set parallel.dp=2 --json \
  --trace trace.json >four.json
for key in '"ranks": 4' '"micro_batches": 4' '"micro_batches": 8' '"bubble_fraction": 0\.' '"pp": [0-9.e-]*[1-9]' \
  '"step_seconds": [0-9.e-]*[1-9]' '"peak": [1-9]' '"capacity": 4000000000' '"fits": true' '"note": null'; do
  grep -q "$key" four.json || { cat four.json; fail "no $key"; }
done
[ ! -e a ] || fail "a simulation wrote a run"

# The trace contains every rank and all kinds of lanes.
for rank in 0 1 2 3; do grep -q "\"name\":\"rank $rank\"" trace.json || fail "no rank $rank in the trace"; done
for what in '"name":"send"' '"name":"receive"' '"name":"reduce_scatter"' '"cat":"F"'; do
  grep -q "$what" trace.json || fail "no $what in the trace"
done

# Twice the work takes twice the time; a pipeline of two stages is less than twice as fast as one
# rank.
seconds() { "$orthant" simulate run.yaml --cluster ./cluster.yaml "$@" | sed -n 's/^step *\([0-9.e-]*\) s.*/\1/p'; }
read -r -d '' eight sixteen < <(seconds; printf '\0') || true
split=$(seconds --ranks 2 --set parallel.pp=2 | head -n 1)
awk -v a="$eight" -v b="$sixteen" -v s="$split" 'BEGIN {
  exit !(b > 1.8 * a && b < 2.01 * a && s < a && s > a / 2) }' || fail "implausible times: $eight $sixteen $split"

# Validations are part of the run: as many forward passes as they have micro-batches.
"$orthant" simulate run.yaml --cluster ./cluster.yaml --set data.validation=nowhere --set data.validation_every=2 \
  --set data.validation_tokens=512 --json >valid.json
grep -q '"validations": 2' valid.json || fail "validations: $(grep validation valid.json)"
figure() { sed -n '/^ *"'"$2"'": /{s/^[^:]*: \([^,]*\),*$/\1/p;q;}' "$1"; }  # figure FILE KEY
"$orthant" simulate run.yaml --cluster ./cluster.yaml --set 'data.validation={a: nowhere, b: there}' \
  --set data.validation_tokens=512 --json >sets.json
awk -v v="$(figure valid.json validation_seconds)" -v two="$(figure sets.json validation_seconds)" \
  -v s="$(figure valid.json step_seconds)" 'BEGIN { exit !(v > 0 && v < s && two > 1.99 * v && two < 2.01 * v) }' ||
  fail "$(grep -hE 'validation|step_sec' valid.json sets.json)"
grep -q '"evaluation_seconds": null' valid.json || fail "evaluations: $(grep evaluation valid.json)"
"$orthant" simulate run.yaml --cluster ./cluster.yaml --set data.validation=nowhere >valid.txt
grep -q '^validation [0-9.e-]* s a micro-batch of each rank (data.validation_tokens: of how many)' valid.txt || fail "$(cat valid.txt)"
"$orthant" simulate run.yaml --cluster ./cluster.yaml --set evaluate.tasks=none.jsonl >tasks.txt
grep -q '^evaluations have no price: .*none.jsonl' tasks.txt || fail "$(cat tasks.txt)"

# A run with other ranks than the measurement reports the measured setup.
{ cat cluster.yaml; echo "threads: 1"; } | sed 's/num_devices: 4/num_devices: 2/' >machine.yaml
"$orthant" simulate run.yaml --cluster ./machine.yaml --ranks 4 >shared.txt
grep -q "measured with 2 ranks of 1 thread at once; scaled to 4 of 1" shared.txt || fail "no note"

# The simulation equals the plan, and a run that does not fit is a finding.
plan=("$orthant" plan --model llama3-8b --cluster h100 --gpus 16 --pp 2 --pipeline zb-v --vpp 2 --top 1 \
  --precision fp8 --set precision.gradients=fp32)
"${plan[@]}" --emit run=planned.yaml --json >planned.json
echo "data: {train: nowhere, tokenizer: bytes, sequence_length: 4096}" >>planned.yaml
"$orthant" simulate planned.yaml --cluster h100 --json >simulated.json
first() { sed -n '/^ *"'"$2"'": /{s/^[^:]*: \([^,]*\),*$/\1/p;q;}' "$1"; }  # first FILE KEY
for key in step_seconds mfu; do
  awk -v a="$(first planned.json "$key")" -v b="$(first simulated.json "$key")" \
    'BEGIN { exit !(a > 0 && a - b < 1e-9 * a && b - a < 1e-9 * a) }' || fail "simulated $key differs"
done
for key in peak context; do
  [ "$(first planned.json "$key")" = "$(first simulated.json "$key")" ] || fail "simulated $key differs"
done
expect 1 "the run needs 574.6 GB a device, h100 has 85.52 GB" \
  "$orthant" simulate planned.yaml --cluster h100 --set batch.micro_batch_size=16
echo "all passed"
