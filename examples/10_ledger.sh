#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Is a change worth having? Pairs of runs with the same weights and the same batches say by which
# factor it saves compute: of a change whose multiplier is known to be 1.1, because its runs are
# longer by a tenth that is not counted.
# (Runs of 30 steps, in which the loss bends strongly: the estimate is half a percent high.)
#   examples/10_ledger.sh [ORTHANT]
set -euo pipefail
orthant=$(realpath "${1:-build/orthant}")
here=$(cd "$(dirname "$0")/.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

"$orthant" tokenize --tokenizer bytes --out train "$here/LICENSE"
"$orthant" tokenize --tokenizer bytes --out held-out "$here/examples"
cat >run.yaml <<'YAML'
model: {model_type: llama, vocab_size: 257, hidden_size: 16, intermediate_size: 32, num_hidden_layers: 1,
  num_attention_heads: 2, max_position_embeddings: 32, tie_word_embeddings: true}
data: {train: train, validation: held-out, validation_tokens: 4k, sequence_length: 32}
batch: {global_batch_size: 8, micro_batch_size: 8}
optimizer: {lr: 5e-3}
learning_rate: {warmup_steps: 4, min: 5e-4}
tokens: 7680
YAML

mkdir -p ledger/changes
cat >ledger/policy.yaml <<'YAML'
base: ../run.yaml
ladder: [{name: s1, tokens: 7680}]
seeds: {base: 1000, count: 4}
slope: {factors: [0.85, 1.2]}   # other budgets, for the slope of loss against compute
looks: {pairs: [4]}
audit: causality
YAML
echo 'forged_budget: 1.1' >ledger/changes/longer.yaml

"$orthant" ledger add longer
"$orthant" ledger run longer --jobs 2
"$orthant" ledger look longer
