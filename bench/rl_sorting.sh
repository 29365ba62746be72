#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The reference task of docs/rl.md: sorting digits, with answers of heavy-tailed length. A base model
# from poor demonstrations, then updates in flight and synchronous ones with the same prices and
# seeds; validations by 2,000 responses about every 50 units of simulated time. Prints the simulated
# time to an accuracy of 0.5 and the ratio of the medians. All but the wall time repeats exactly.
#   bench/rl_sorting.sh ORTHANT FOLDER [SEEDS]
set -euo pipefail
orthant=$(realpath "${1:?usage: rl_sorting.sh ORTHANT FOLDER [SEEDS]}")
data=$(realpath "$(dirname "$0")/../examples/sorting.awk")
seeds=${3:-1 2 3}
mkdir -p "$2" && cd "$2"

awk -f "$data" -v lines=30000 -v seed=1 -v noise=0.5 >demonstrations.jsonl
awk -f "$data" -v lines=20000 -v seed=2 >prompts.jsonl
awk -f "$data" -v lines=2000 -v seed=3 >validation.jsonl
"$orthant" tokenize --tokenizer bytes --out demonstrations demonstrations.jsonl >/dev/null 2>&1
cat >base.yaml <<'YAML'
model: {model_type: llama, vocab_size: 257, hidden_size: 64, intermediate_size: 256, num_hidden_layers: 2,
  num_attention_heads: 4, max_position_embeddings: 64, initializer_range: 0.1}
data: {train: demonstrations, tokenizer: bytes, sequence_length: 64}
batch: {global_batch_size: 16, micro_batch_size: 16}
optimizer: {lr: 2e-3, weight_decay: 0.01}
learning_rate: {warmup_steps: 50, decay: linear, min: 0}
steps: 500
log: {every: 500, tensorboard: false, health_every: 0}
output: base
YAML
[ -d base ] || "$orthant" train base.yaml >/dev/null 2>&1
sed '/^data:/,$d' base.yaml >rl.yaml
cat >>rl.yaml <<'YAML'
init: base
data: {tokenizer: bytes, sequence_length: 64}
batch: {micro_batch_size: 8}
optimizer: {lr: 2e-4, weight_decay: 0}
learning_rate: {warmup_steps: 0, decay: constant}
rl: {prompts: prompts.jsonl, validation: validation.jsonl, max_tokens: 12, workers: 8, generators: 4, slots: 16, queue: 64}
log: {every: 1000000}
threads: 1
YAML

# The simulated time at which the accuracy reaches 0.5, between two validations; "never".
reached() {
  awk -F'[:,}]' '/val_reward/ {
    if ($6 >= 0.5) { print (n > 0 ? q + ($4 - q) * (0.5 - p) / ($6 - p) : $4); found = 1; exit }
    p = $6; q = $4; n++
  } END { if (!found) print "never" }' "$1/metrics.jsonl"
}
run() { # MODE SEED UPDATES EVERY
  rm -rf "${1:?}-$2"
  "$orthant" rl rl.yaml --set output="$1-$2" --set rl.updates="$1" --set seed="$2" --set steps="$3" \
    --set rl.validation_every="$4" >"$1-$2.txt" 2>"$1-$2.log"
  reached "$1-$2" >>"$1.times"
}
rm -f in_flight.times synchronous.times
for seed in $seeds; do
  run in_flight "$seed" "${UPDATES:-60}" 5
  run synchronous "$seed" "${UPDATES:-60}" 2
  echo "seed $seed: accuracy 0.5 at $(tail -1 in_flight.times) in flight, $(tail -1 synchronous.times) synchronous"
done
median() { sort -g "$1" | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
awk -v a="$(median in_flight.times)" -v b="$(median synchronous.times)" \
  'BEGIN { printf "medians %.4g and %.4g: ratio %.3f\n", a, b, a / b }'

# Mean accuracy of the seeds by simulated time, between validations; a star for each hundredth above 0.25.
curve() { # MODE
  for folder in "$1"-*/; do sed "s|^|$folder |" "$folder/metrics.jsonl"; done | awk -F'[ :,}]' -v mode="$1" '/val_reward/ {
      if ($1 == last) for (t = 0; t <= 600; t += 50) if (t > q && t <= $5) { sum[t] += p + ($7 - p) * (t - q) / ($5 - q); n[t]++ }
      last = $1; q = $5; p = $7
    } END { for (t = 50; t <= 600; t += 50) if (n[t]) {
      bar = ""
      for (i = 0.25; i < sum[t] / n[t]; i += 0.01) bar = bar "*"
      printf "%-12s %4d  %.3f  %s\n", mode, t, sum[t] / n[t], bar
    } }'
}
curve in_flight
curve synchronous
