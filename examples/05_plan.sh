#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Plans: for eight GPUs, without having them; changes that make a job fit; and for a machine described
# in nine lines, whose plan is then trained.
#   examples/05_plan.sh [ORTHANT]
set -euo pipefail
orthant=$(realpath "${1:-build/orthant}")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
sources=$PWD
cd "$folder"

echo "== Llama 3 8B on eight H100"
"$orthant" plan --model llama3-8b --cluster h100 --gpus 8 --pp 1 --top 3

echo "== on one H100: exit code 1, and a change that would fit"
"$orthant" plan --model llama3-8b --cluster h100 --gpus 1 2>&1 | tail -n 3 || true

echo "== a small model on a small machine"
cat >model.json <<'JSON'
{"model_type": "llama", "vocab_size": 257, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4,
 "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128, "tie_word_embeddings": true}
JSON
cat >machine.yaml <<'YAML'
name: four cores
num_devices: 4
threads: 1
memory_bytes: 1G
memory_bytes_per_s: 1e10
flops_fp32: 2e10
other_flops_per_s: 2e9
packs: true
levels: [{name: memory, size: 4, bytes_per_s: 2e9, latency_s: 1e-5}]
YAML
"$orthant" plan --model model.json --cluster machine.yaml --global-batch-size 16 --sequence-length 64 \
  --tp 1 --pp 2 --emit run=run.yaml --html plan.html --trace plan.json | sed -n '/^plans/,/^$/p'
"$orthant" tokenize --tokenizer bytes --out train "$sources"/src/core/base/*.h
cat >>run.yaml <<'YAML'
data: {train: train, tokenizer: bytes, sequence_length: 64}
steps: 5
threads: 1
YAML
echo "== training the plan"
"$orthant" train run.yaml --ranks 4
ls -l plan.html plan.json | awk '{ print $5, $NF }'
