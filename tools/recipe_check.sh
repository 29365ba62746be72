#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The recipe of tools/demo.sh against another one, in pairs: the same text, seed, ranks and seconds of
# training. The tokens of a run are those that its recipe's own speed reaches in that time, as in the
# demo. Prints bits per byte of the same held-out files, 200 kB, whatever the tokenizer.
#   tools/recipe_check.sh [SECONDS [PAIRS]]     [180 3]: 20 minutes on quiet cores
#   RECIPE_BEFORE=FILE   the other recipe [tools/recipe/before.yaml]
#   RECIPE_DIR=FOLDER    output [runs/recipe_check]; DEMO_RANKS as in the demo
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-180} pairs=${2:-3}
before=${RECIPE_BEFORE:-tools/recipe/before.yaml}
folder=${RECIPE_DIR:-runs/recipe_check}
orthant=${ORTHANT:-build/orthant}
cores=$(nproc)
ranks=${DEMO_RANKS:-$((cores >= 4 ? 4 : cores >= 2 ? 2 : 1))}

quiet() { "$@" >"$folder/log" 2>&1 || { tail -n 20 "$folder/log" >&2; exit 3; }; }
metrics() { sed -n "s/.*\"$2\":\([0-9.e-]*\).*/\1/p" "$1/metrics.jsonl"; }

mkdir -p "$folder"
for arm in before after; do
  recipe=$before
  [ $arm = before ] || recipe=tools/recipe/demo.yaml
  DEMO_DIR=$folder/$arm DEMO_RANKS=$ranks DEMO_DEVICE=cpu DEMO_RECIPE=$recipe DEMO_ONLY=data \
    quiet tools/demo.sh
  mkdir "$folder/$arm/text/check"
  bytes=0
  for file in "$folder/$arm"/text/held-out/*; do
    bytes=$((bytes + $(stat -c %s "$file")))
    [ $bytes -lt 200000 ] || break
    cp "$file" "$folder/$arm/text/check"
  done
  quiet "$orthant" tokenize --tokenizer "$folder/$arm/tokenizer.json" --out "$folder/$arm/check" "$folder/$arm/text/check"
done

# train ARM NAME SETTINGS...
train() {
  local arm=$1 name=$2 sets=() set
  shift 2
  for set in cluster=this-machine log.tensorboard=false "output=$folder/$arm/$name" "$@"; do sets+=(--set "$set"); done
  quiet "$orthant" train "$folder/$arm/run.yaml" --ranks "$ranks" "${sets[@]}"
}
declare -A speed
for arm in before after; do
  train $arm probe steps=30 'data.validation={}'
  speed[$arm]=$(metrics "$folder/$arm/probe" tokens_per_second | tail -n 20 | sort -n | sed -n 10p)
  printf '%-7s %7.0f tokens a second on %d ranks\n' $arm "${speed[$arm]}" "$ranks"
done
printf '\nseed   recipe      tokens  seconds  bits per byte\n'
for ((pair = 1; pair <= pairs; pair++)); do
  for arm in before after; do
    run=$folder/$arm/$pair
    tokens=$(awk "BEGIN { printf \"%d\", ${speed[$arm]} * $seconds }")
    train $arm $pair steps=0 "tokens=$tokens" "seed=$pair" "data.validation=$folder/$arm/check" data.validation_tokens=0
    loss=$(metrics "$run" val_loss | tail -n 1)
    bits=$(cat "$folder/$arm"/text/check/* | wc -c | awk -v l="$loss" -v t="$(($(stat -c %s "$folder/$arm/check.bin") / 2))" '{ printf "%.4f", l * t / $1 / log(2) }')
    took=$(metrics "$run" step_seconds | awk '{ s += $1 } END { printf "%.1f", s }')
    printf '%4d   %-7s %10d  %7.1f  %.4f\n' "$pair" $arm "$tokens" "$took" "$bits"
    echo "$bits" >>"$folder/$arm/bits"
  done
done
paste "$folder/before/bits" "$folder/after/bits" | awk '
  { d = $1 - $2; sum += d; squares += d * d; n++ }
  END {
    printf "\nbits per byte saved: %.4f on average", sum / n
    if (n > 1) printf ", standard deviation of a pair %.4f", sqrt((squares - sum * sum / n) / (n - 1))
    printf " (%d pairs)\n", n
  }'
