#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The whole pipeline on text that every machine with a compiler has: the C headers in /usr/include.
# Trains a byte-level BPE, measures this machine, trains a small Llama model for about three minutes, with
# one rank per core up to four, or a model of 124 million parameters where there is a GPU, and prints
# losses, a sample and the predictions. Every step is a public verb, echoed before it runs.
#   tools/demo.sh [SECONDS]      seconds of training by the clock [180]
#   DEMO_RANKS=N                 ranks; from 2 on two pipeline stages, the rest data-parallel
#   DEMO_DEVICE=cpu|cuda         [cuda where there is a GPU]
#   DEMO_SIZE=tiny               a model that takes seconds, for tests
#   DEMO_RECIPE=FILE             model, optimizer and rates [of tools/recipe: demo.yaml, on a GPU gpu.yaml]
#   DEMO_ONLY=data               stop with text, tokens and run.yaml
#   DEMO_TEXT=BYTES              of the text [24000000]
#   DEMO_DIR=FOLDER              output folder [runs/demo]
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-${DEMO_SECONDS:-180}}
orthant=${ORTHANT:-build/orthant}
run=${DEMO_DIR:-runs/demo}
text_bytes=${DEMO_TEXT:-24000000}
headers=/usr/include

[ -x "$orthant" ] || { echo "error: $orthant is not built (run make first)" >&2; exit 3; }
# A GPU that runs can use is listed with its capability.
device=${DEMO_DEVICE:-cpu}
if [ -z "${DEMO_DEVICE:-}" ] && "$orthant" doctor --json | grep -q '"capability": "\(9\|[1-9][0-9]\)\.'; then
  device=cuda
fi

cores=$(nproc 2>/dev/null || getconf _NPROCESSORS_ONLN)
ranks=${DEMO_RANKS:-$((cores >= 4 ? 4 : cores >= 2 ? 2 : 1))}
[ "$device" = cpu ] || ranks=1
case $ranks in
  1) stages=1 micro_batch='&' pipeline=1f1b ;;
  2 | 4 | 8 | 16) stages=2 micro_batch='micro_batch_size: 1' pipeline=zb-h1 ;;
  *) echo "error: DEMO_RANKS=$ranks; allowed: 1, 2, 4, 8 and 16" >&2; exit 2 ;;
esac

recipe=tools/recipe/demo.yaml quick=() probe_steps=10
[ "$device" = cpu ] || recipe=tools/recipe/gpu.yaml
[ "${DEMO_SIZE:-}" != tiny ] || recipe=tools/recipe/tiny.yaml quick=(--quick) probe_steps=3
recipe=${DEMO_RECIPE:-$recipe}
vocabulary=$(sed -n 's/^ *vocab_size: *//p' "$recipe")

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
[ -t 1 ] && [ -z "${NO_COLOR:-}" ] || say() { printf '\n%s\n' "$*"; }
# Prints a command in a form that can be pasted, and runs it.
do_() {
  local word line='$'
  for word; do [[ $word == *[!A-Za-z0-9_./:,=+-]* ]] && line+=" '$word'" || line+=" $word"; done
  printf '%s\n' "$line"
  "$@"
}

rm -rf "$run"
mkdir -p "$run/text/train" "$run/text/held-out"

# ---- the text: regular .h files in the order of their content hash, without duplicates, at most
# 24 MB; one file in twenty, by its hash, is held out ----
say "Text: C headers under $headers"
find "$headers" -type f -name '*.h' -print0 | xargs -0 sha256sum | LC_ALL=C sort |
  awk -v limit="$text_bytes" -v run="$run" '
    { hash = $1; file = substr($0, 67) }
    hash == last { next }
    {
      last = hash
      quoted = file; gsub(/\047/, "\047\\\047\047", quoted)
      command = "stat -c %s \047" quoted "\047"; command | getline size; close(command)
      if (total + size > limit) next
      total += size
      part = index("0123456789abcdef", substr(hash, 63, 1)) - 1
      part = part * 16 + index("0123456789abcdef", substr(hash, 64, 1)) - 1
      kind = part % 20 == 0 ? "held-out" : "train"
      printf "%s%c%s/text/%s/%s.h%c", file, 0, run, kind, hash, 0
    }' | xargs -0 -n 2 cp --
for kind in train held-out; do
  printf '%-9s %6d files %10d bytes\n' "$kind" "$(find "$run/text/$kind" -type f | wc -l)" \
    "$(cat "$run/text/$kind"/*.h | wc -c)"
done

say "Tokenizer and tokens"
do_ "$orthant" tokenize --train-vocab "$vocabulary" --tokenizer "$run/tokenizer.json" --out "$run/train" "$run/text/train"
do_ "$orthant" tokenize --tokenizer "$run/tokenizer.json" --out "$run/held-out" "$run/text/held-out"

# Muon needs whole matrices on each rank: nothing is sharded over data-parallel ranks.
sed "s/micro_batch_size: [0-9]*/$micro_batch/" "$recipe" - >"$run/run.yaml" <<YAML
checkpoint: {every: 0}
cluster: ./cluster.yaml
device: $device
log: {every: 10, health_every: 50}
output: run
parallel: {pp: $stages, pipeline: $pipeline, zero: 0}
steps: $probe_steps
YAML
[ -z "${DEMO_ONLY:-}" ] || exit 0

if [ "$device" = cpu ]; then
  say "Measuring this machine with $ranks concurrent ranks"
  do_ "$orthant" bench "${quick[@]}" --device cpu --ranks "$ranks" --out "$run/cluster.yaml"
else
  say "Measuring the GPU"
  do_ "$orthant" bench "${quick[@]}" --device cuda --out "$run/cluster.yaml"
fi

# ---- a few steps measure the speed, from which the length of the run is derived ----
say "A few steps to measure the speed"
do_ "$orthant" train "$run/run.yaml" --ranks "$ranks" --set "output=$run/probe" --set data.validation={}
speed=$(tail -n 6 "$run/probe/metrics.jsonl" | sed -n 's/.*"tokens_per_second":\([0-9.]*\).*/\1/p' |
  sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }')
tokens=$(awk -v r="$speed" -v s="$seconds" 'BEGIN { printf "%d", r * s }')
printf '%.0f tokens a second: %d tokens take %s seconds\n' "$speed" "$tokens" "$seconds"

say "Training"
do_ "$orthant" train "$run/run.yaml" --ranks "$ranks" --set steps=0 --set "tokens=$tokens"

# ---- results ----
say "Result"
metrics=$run/run/metrics.jsonl
before=$(grep val_loss "$metrics" | head -n 1 | sed 's/.*"val_loss":\([0-9.]*\).*/\1/')
after=$(grep val_loss "$metrics" | tail -n 1 | sed 's/.*"val_loss":\([0-9.]*\).*/\1/')
held_bytes=$(cat "$run/text/held-out"/*.h | wc -c)
held_tokens=$("$orthant" data inspect "$run/held-out" --json | sed -n 's/.*"tokens": *\([0-9]*\).*/\1/p' | head -n 1)
xz_bytes=$(cat "$run/text/held-out"/*.h | xz -9 --format=xz | wc -c)
awk -v b="$before" -v a="$after" -v n="$held_bytes" -v t="$held_tokens" -v x="$xz_bytes" 'BEGIN {
  printf "validation loss, nats a token    before %.3f   after %.3f\n", b, a
  per_byte = t / n / log(2)
  printf "bits per byte of held-out text   before %.3f   after %.3f   xz -9 %.3f\n", b * per_byte, a * per_byte, 8 * x / n
  print  "(the size of the model itself is not counted, and after three minutes it may lose to xz)"
}'
say "A generated sample"
do_ "$orthant" sample "$run/run" --prompt "#include <" --max-tokens 160 --temperature 0.7
say "The run is in $run/run (config.yaml, metrics.jsonl, tensorboard/, checkpoints/)"
