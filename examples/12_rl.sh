#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Learning from rewards: a small model that has seen poor demonstrations of sorting digits writes
# answers, and learns from their similarity to the right ones. Generators take new weights while
# answers are written (in flight), or between batches (synchronous): the clock is simulated, so both
# runs have the same bits under any load.
#   examples/12_rl.sh [ORTHANT] [FOLDER]
set -euo pipefail
orthant=$(realpath "${1:-build/orthant}")
here=$(cd "$(dirname "$0")" && pwd)
folder=${2:-}
[ -n "$folder" ] || { folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT; }
mkdir -p "$folder" && cd "$folder"

awk -f "$here/sorting.awk" -v lines=4000 -v seed=1 -v noise=0.5 >demonstrations.jsonl
awk -f "$here/sorting.awk" -v lines=1000 -v seed=2 >prompts.jsonl
awk -f "$here/sorting.awk" -v lines=100 -v seed=3 >validation.jsonl
"$orthant" tokenize --tokenizer bytes --out demonstrations demonstrations.jsonl 2>/dev/null

cat >base.yaml <<'YAML'
model: {model_type: llama, vocab_size: 257, hidden_size: 48, intermediate_size: 128, num_hidden_layers: 2,
  num_attention_heads: 4, max_position_embeddings: 64, initializer_range: 0.1}
data: {train: demonstrations, tokenizer: bytes, sequence_length: 64}
batch: {global_batch_size: 16, micro_batch_size: 16}
optimizer: {lr: 3e-3, weight_decay: 0.01}
learning_rate: {warmup_steps: 10, decay: linear, min: 0}
steps: 80
log: {every: 40, tensorboard: false, health_every: 0}
output: base
YAML
"$orthant" train base.yaml >/dev/null 2>&1

sed '/^data:/,$d' base.yaml >rl.yaml
cat >>rl.yaml <<'YAML'
init: base
data: {tokenizer: bytes, sequence_length: 64}
batch: {micro_batch_size: 8}
optimizer: {lr: 3e-4, weight_decay: 0}
learning_rate: {warmup_steps: 0, decay: constant}
steps: 8
rl: {prompts: prompts.jsonl, validation: validation.jsonl, reward: edit_similarity, max_tokens: 12,
  workers: 8, generators: 4, slots: 16, queue: 64}
log: {every: 4}
YAML
for updates in in_flight synchronous; do
  "$orthant" rl rl.yaml --set rl.updates=$updates --set output=$updates >$updates.txt 2>$updates.log
  echo "$updates: $(grep -o '8 updates.*' $updates.txt)"
done
echo "on policy: ESS $(grep -o 'ESS [0-9.]*' synchronous.log | tail -1 | cut -d' ' -f2)"
