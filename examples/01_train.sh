#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# From text to a trained model and back to text, in a folder of its own.
#   examples/01_train.sh [ORTHANT] [FOLDER]
set -euo pipefail
orthant=$(realpath "${1:-build/orthant}")
folder=${2:-$(mktemp -d)}
here=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$folder" && cd "$folder"

"$orthant" tokenize --train-vocab 600 --tokenizer tokenizer.json --out train "$here/LICENSE"

cat >run.yaml <<'YAML'
model:                       # HF keys, a preset's name, or a config.json
  model_type: llama
  vocab_size: 600
  hidden_size: 48
  intermediate_size: 128
  num_hidden_layers: 2
  num_attention_heads: 4
  max_position_embeddings: 256
  tie_word_embeddings: true
data: {train: train, tokenizer: tokenizer.json, sequence_length: 64}
batch: {global_batch_size: 8, micro_batch_size: 8}
optimizer: {lr: 5e-3}
learning_rate: {warmup_steps: 5, min: 5e-4}
steps: 30
threads: 1                   # a model this small gains nothing from more
output: run
YAML

"$orthant" train run.yaml
"$orthant" sample run --prompt "the " --max-tokens 24
