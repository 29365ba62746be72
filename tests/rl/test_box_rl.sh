#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: waits
# run: Linux, with the right to make namespaces, and Open MPI. The real clock on two hosts in a box
# (tools/cluster_box.sh): trainers on host 0, generators by rl.launch on others; a synchronous run has
# the bits of one host; a host that is gone costs its generator.
set -uo pipefail
examples=$PWD/examples
. tests/support/two_hosts.sh "${1:?usage: test_box_rl.sh ORTHANT}" 8M
awk -f "$examples/sorting.awk" -v lines=500 -v seed=2 >prompts.jsonl
cat >rl.yaml <<'YAML'
model: {model_type: llama, vocab_size: 257, hidden_size: 32, intermediate_size: 64, num_hidden_layers: 2,
  num_attention_heads: 4, max_position_embeddings: 64, initializer_range: 0.1}
init: random
data: {tokenizer: bytes, sequence_length: 64}
batch: {micro_batch_size: 8}
learning_rate: {warmup_steps: 0, decay: constant}
steps: 6
rl: {prompts: prompts.jsonl, reward: edit_similarity, max_tokens: 24, clock: real, generators: 2, slots: 8, group: 4, batch: 16}
log: {every: 1}
threads: 1
YAML
# on_host COMMAND...: on host 0, in the shared folder.
on_host() { "$box" on 0 bash -c 'cd /tmp/box/shared && exec "$@"' in_box "$@"; }
on_two=(--set "rl.launch=[$box, on, '{}']")

"$orthant" rl rl.yaml --set rl.updates=synchronous --set output=one >"$work/out.txt" 2>"$work/err.txt" || fail "one host"
on_host mpirun "$orthant" rl rl.yaml --set rl.updates=synchronous --set parallel.tp=1 --set output=two --set "rl.launch=[$box, on, '1']" \
  --set steps=2 >"$work/out.txt" 2>"$work/err.txt" || fail "trainers on two hosts, generators on one"
[ "$(wc -l <two/metrics.jsonl)" = 2 ] || fail "updates of trainers on two hosts"
on_host "$orthant" rl rl.yaml --set rl.updates=synchronous --set output=spread "${on_two[@]}" >"$work/out.txt" 2>"$work/err.txt" ||
  fail "generators on two hosts"
cmp {one,spread}/checkpoints/step-00000006/model.safetensors || fail "weights differ between one host and two"

on_host "$orthant" rl rl.yaml --set steps=200 --set output=hurt "${on_two[@]}" >"$work/out.txt" 2>"$work/err.txt" &
run=$!
until [ "$(cat hurt/metrics.jsonl 2>/dev/null | wc -l)" -ge 5 ]; do sleep 0.05; kill -0 $run || fail "it has ended"; done
"$box" kill 1
wait $run || fail "a host is gone"
grep -q "generator 1 has ended after [0-9]* updates: its responses are lost, 1 of 2 generators go on" "$work/err.txt" || fail "no word of the host"
[ "$(wc -l <hurt/metrics.jsonl)" = 200 ] || fail "updates after the loss of a host"
echo "all passed"
