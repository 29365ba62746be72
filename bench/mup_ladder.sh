#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Does the best learning rate transfer? Trains models of several widths with several rates, with the
# standard parametrization and with mup from the narrowest, and prints final losses on a text.
#   bench/mup_ladder.sh [ORTHANT] [FOLDER] [TEXT]
# In the environment: WIDTHS (multiples of the first), RATES, STEPS, LAYERS, INIT (initializer_range).
set -euo pipefail
orthant=$(realpath "${1:-build/orthant}")
folder=${2:-$(mktemp -d)}
text=$(realpath "${3:-LICENSE}")
read -ra widths <<<"${WIDTHS:-32 64 128 256}"
read -ra rates <<<"${RATES:-1e-3 2e-3 4e-3 8e-3 16e-3 32e-3}"
mkdir -p "$folder" && cd "$folder"
[ -e train.bin ] || "$orthant" tokenize --tokenizer bytes --out train "$text" >/dev/null 2>&1

for width in "${widths[@]}"; do
  cat >"$width.yaml" <<YAML
model:
  model_type: llama
  vocab_size: 260
  hidden_size: $width
  intermediate_size: $((4 * width))
  num_hidden_layers: ${LAYERS:-2}
  num_attention_heads: $((width / 16))
  max_position_embeddings: 64
  initializer_range: ${INIT:-0.1}
data: {train: train, tokenizer: bytes, sequence_length: 64, validation: train, validation_tokens: 16384}
batch: {global_batch_size: 8, micro_batch_size: 8}
optimizer: {lr: 1e-3}
learning_rate: {warmup_steps: 10, decay: linear, min: 0}
parametrization: {name: standard, base_hidden_size: ${widths[0]}}
log: {tensorboard: false, health_every: 0}
checkpoint: {every: 0}
steps: ${STEPS:-150}
threads: 1
YAML
done

loss() { # WIDTH RATE PARAMETRIZATION
  local run=runs/$3-$1-$2
  rm -rf "$run"
  "$orthant" train "$1.yaml" --set "output=$run" --set "optimizer.lr=$2" --set "parametrization.name=$3" \
    >"$3-$1-$2.log" 2>&1 || { echo diverged; return; }
  sed -n 's/.*"val_loss": *\([0-9.]*\).*/\1/p' "$run/metrics.jsonl" | tail -1 | cut -c1-5
  rm -rf "$run"
}

for name in standard mup; do
  printf '%-10s' "$name"
  printf '%8s' "${rates[@]}"
  printf '%10s\n' best
  for width in "${widths[@]}"; do
    printf '%-10s' "width $width"
    best= least=
    for rate in "${rates[@]}"; do
      value=$(loss "$width" "$rate" "$name")
      printf '%8s' "$value"
      if [ "$value" != diverged ] && { [ -z "$least" ] || awk "BEGIN {exit !($value < $least)}"; }; then
        least=$value best=$rate
      fi
    done
    printf '%10s\n' "$best"
  done
done
