#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A model with eight experts, on one rank and with expert parallelism over four: the same losses.
# Tokens that overflow the receive buffer are processed in further passes, so none is dropped; with a
# buffer for the worst case there is one pass.
#   examples/07_experts.sh [ORTHANT] [FOLDER]
set -euo pipefail
orthant=$(realpath "${1:-build/orthant}")
here=$(cd "$(dirname "$0")/.." && pwd)
folder=${2:-}
[ -n "$folder" ] || { folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT; }
mkdir -p "$folder" && cd "$folder"
"$orthant" tokenize --train-vocab 600 --tokenizer tokenizer.json --out train "$here/LICENSE" >/dev/null

cat >run.yaml <<'YAML'
model:
  model_type: mixtral
  vocab_size: 600
  hidden_size: 48
  intermediate_size: 64          # of one expert
  num_hidden_layers: 2
  num_attention_heads: 4
  num_key_value_heads: 2
  max_position_embeddings: 256
  num_local_experts: 8
  num_experts_per_tok: 2
data: {train: train, tokenizer: tokenizer.json, sequence_length: 64}
batch: {global_batch_size: 8, micro_batch_size: 1}
optimizer: {lr: 5e-3}
steps: 20
threads: 1
log: {every: 5}
YAML

# In float32, rounding may change the choice between experts of nearly equal scores, and the losses
# then differ.
wide=(--set precision.compute=fp64)
"$orthant" train run.yaml "${wide[@]}" --set output=one
"$orthant" train run.yaml "${wide[@]}" --set output=four --ranks 4 --set parallel.ep=4
"$orthant" train run.yaml "${wide[@]}" --set output=roomy --ranks 4 --set parallel.ep=4 --set parallel.expert_buffer=4

last() { tail -n 1 "$1/metrics.jsonl" | sed -n "s/.*\"$2\":\([^,}]*\).*/\1/p"; }
for run in one four roomy; do
  printf '%-7s loss %s  rounds %s  dropped %s\n' "$run" "$(last $run loss)" "$(last $run moe_rounds)" "$(last $run moe_drop_share)"
done
awk -v a="$(last one loss)" -v b="$(last four loss)" -v c="$(last roomy loss)" \
  'BEGIN { d = a - b; e = a - c; if (d*d > 1e-20 || e*e > 1e-20) exit 1; print "losses agree" }'
