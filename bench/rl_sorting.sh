#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The reference task of docs/rl.md: the runs of examples/12_rl.sh (sorting digits, with answers of
# heavy-tailed length), larger. A base model from poor demonstrations, then updates in flight and
# synchronous ones with the same prices and seeds; validations by 2,000 responses about every 50
# units of simulated time. Prints the simulated time to an accuracy of 0.5 and the ratio of the
# medians. All but the wall time repeats exactly.
#   bench/rl_sorting.sh ORTHANT FOLDER [SEEDS]
set -euo pipefail
orthant=$(realpath "${1:?usage: rl_sorting.sh ORTHANT FOLDER [SEEDS]}")
examples=$(realpath "$(dirname "$0")/../examples")
seeds=${3:-1 2 3}
"$examples/12_rl.sh" "$orthant" "$2/example" >/dev/null 2>&1
cd "$2"

awk -f "$examples/sorting.awk" -v lines=30000 -v seed=1 -v noise=0.5 >demonstrations.jsonl
awk -f "$examples/sorting.awk" -v lines=20000 -v seed=2 >prompts.jsonl
awk -f "$examples/sorting.awk" -v lines=2000 -v seed=3 >validation.jsonl
"$orthant" tokenize --tokenizer bytes --out demonstrations demonstrations.jsonl >/dev/null 2>&1
cp example/*.yaml .
larger=(--set model.hidden_size=64 --set model.intermediate_size=256)
[ -d base ] || "$orthant" train base.yaml "${larger[@]}" --set optimizer.lr=2e-3 --set learning_rate.warmup_steps=50 \
  --set steps=500 >/dev/null 2>&1

# The simulated time at which the accuracy reaches 0.5, between two validations; "never".
reached() {
  awk -F'[:,}]' '/val_reward/ {
    if ($6 >= 0.5) { print (n > 0 ? q + ($4 - q) * (0.5 - p) / ($6 - p) : $4); found = 1; exit }
    p = $6; q = $4; n++
  } END { if (!found) print "never" }' "$1/metrics.jsonl"
}
run() { # MODE SEED UPDATES EVERY
  rm -rf "${1:?}-$2"
  "$orthant" rl rl.yaml "${larger[@]}" --set output="$1-$2" --set rl.updates="$1" --set seed="$2" --set steps="$3" \
    --set rl.validation_every="$4" --set rl.reward=exact_match --set optimizer.lr=2e-4 --set threads=1 --set log.every=1000000 \
    >"$1-$2.txt" 2>"$1-$2.log"
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
