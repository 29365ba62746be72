#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The ledger of docs/recipe.md again, from nothing: text, tokens, the changes of tools/recipe/ledger in
# their order, each run and looked at; the same command continues. About 150 runs of 5 to 15 seconds of a core.
#   tools/recipe.sh [FOLDER [JOBS]]      [runs/recipe, one job per core]
#   RECIPE_ONLY=prepare                  stop before the first run
set -euo pipefail
cd "$(dirname "$0")/.."
orthant=$(realpath "${ORTHANT:-build/orthant}")
folder=${1:-runs/recipe}
jobs=${2:-$(nproc)}
ledger=$folder/ledger
optimizers="muon hot"  # against before.yaml; the rest against base-2.yaml, which has Muon
rest="half-batch vocabulary-2048 smaller cool-matrices to-zero qk-norm deeper wider no-decay short hot-embedding
  untied large-init gelu ramp vocabulary-512 post-norm small-init qk-norm-32 hot-matrices"
stack="half-batch vocabulary-2048 smaller to-zero hot-embedding untied"

# ---- text, and what is measured: held-out files of at most 30 kB, 150 kB together ----
if [ ! -e "$folder/run.yaml" ]; then
  DEMO_ONLY=data DEMO_DIR=$folder DEMO_RECIPE=tools/recipe/before.yaml DEMO_RANKS=1 DEMO_DEVICE=cpu tools/demo.sh
  mkdir -p "$folder/text/metric"
  bytes=0
  for file in "$folder"/text/held-out/*; do
    size=$(stat -c %s "$file")
    [ "$size" -le 30000 ] && [ $((bytes + size)) -le 150000 ] || continue
    bytes=$((bytes + size))
    cp "$file" "$folder/text/metric"
  done
fi
for size in 512 1024 2048; do
  to=$folder/v$size
  [ ! -e "$to/metric.idx" ] || continue
  mkdir -p "$to"
  "$orthant" tokenize --train-vocab $size --tokenizer "$to/tokenizer.json" --out "$to/train" "$folder/text/train"
  "$orthant" tokenize --tokenizer "$to/tokenizer.json" --out "$to/metric" "$folder/text/metric"
done

# ---- the ledger ----
act() { local action=$1; shift; "$orthant" ledger "$action" "$@" --ledger "$ledger" || [ $? = 1 ]; }
registered() { grep -q "\"kind\":\"propose\".*\"change\":\"$1\"" "$ledger/ledger.jsonl" 2>/dev/null; }
decided() { grep -q "\"kind\":\"verdict\".*\"change\":\"$1\"" "$ledger/ledger.jsonl" 2>/dev/null; }
if [ ! -e "$ledger/policy.yaml" ]; then
  mkdir -p "$ledger"
  cp tools/recipe/before.yaml "$folder"
  cp -r tools/recipe/ledger/changes "$ledger"
  sed 's|^base: .*|base: ../before.yaml|' tools/recipe/ledger/policy.yaml >"$ledger/policy.yaml"
fi
for change in $optimizers; do registered "$change" || act add "$change"; done
[ "${RECIPE_ONLY:-}" != prepare ] || exit 0
claim() { decided "$1" || { act run "$1" --jobs "$jobs"; act look "$1"; }; }
for change in $optimizers; do claim "$change"; done
if [ ! -e "$folder/base-2.yaml" ]; then
  act merge muon --write base-2.yaml
  sed -i 's|^base: .*|base: ../base-2.yaml|' "$ledger/policy.yaml"
fi
for change in $rest; do registered "$change" || act add "$change"; done
for change in $rest; do claim "$change"; done
# shellcheck disable=SC2086
[ -e "$folder/base-3.yaml" ] || act merge $stack --jobs "$jobs" --write base-3.yaml
act report --html "$folder/recipe.html"
