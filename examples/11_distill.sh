#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A small model learns from a larger one: the teacher reads the training data once and leaves draws
# from its distribution next to them; the student learns from these as from data. A live teacher
# teaches the same, bit for bit, and other data are refused.
#   examples/11_distill.sh [ORTHANT] [FOLDER]
set -euo pipefail
orthant=$(realpath "${1:-build/orthant}")
here=$(cd "$(dirname "$0")" && pwd)
folder=${2:-}
own=
[ -n "$folder" ] || { folder=$(mktemp -d) && own=$folder; }
trap 'rm -rf ${own:+"$own"}' EXIT
"$here/01_train.sh" "$orthant" "$folder" >/dev/null 2>&1
cd "$folder"

# The student is smaller than the teacher, the run of the first example, and reads the same data.
cat >student.yaml <<'YAML'
model: {model_type: llama, vocab_size: 600, hidden_size: 32, intermediate_size: 64, num_hidden_layers: 1,
  num_attention_heads: 2, max_position_embeddings: 64}
data: {train: train, tokenizer: tokenizer.json, sequence_length: 64}
batch: {global_batch_size: 8, micro_batch_size: 8}
optimizer: {lr: 5e-3}
steps: 10
threads: 1
distill: {objective: sampled, teacher: run, draws: 50, targets: 24}
output: student
YAML
"$orthant" distill targets student.yaml 2>/dev/null
"$orthant" train student.yaml 2>/dev/null
"$orthant" train student.yaml --set distill.from=live --set output=live 2>/dev/null

losses() { grep -o '"loss":[^,]*,"data_loss":[^,]*' "$1/metrics.jsonl"; }
[ "$(losses student)" = "$(losses live)" ] && echo "a store and a live teacher teach the same"
"$orthant" train student.yaml --set data.sequence_length=32 --set output=other 2>error.txt || grep '^error: distill' error.txt
