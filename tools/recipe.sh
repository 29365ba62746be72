#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The ledger of the demo's own recipe: every change of tools/recipe/changes against the recipe of
# tools/demo.sh, on the demo's text. Prepares text, tokens and ledger, registers all changes before
# any run, then runs and looks until each has a verdict; the same command continues. Hours on quiet
# cores (the forecast is printed first).
#   tools/recipe.sh [FOLDER [JOBS]]      [runs/recipe, one job per core]
#   RECIPE_ONLY=prepare                  stop before the first run
set -euo pipefail
cd "$(dirname "$0")/.."
orthant=$(realpath "${ORTHANT:-build/orthant}")
folder=${1:-runs/recipe}
jobs=${2:-$(nproc)}

if [ ! -e "$folder/run.yaml" ]; then
  DEMO_DIR=$folder DEMO_RANKS=1 DEMO_DEVICE=cpu tools/demo.sh 1
fi
for size in 1024 2048; do
  to=$folder/v$size
  [ ! -e "$to/held-out.idx" ] || continue
  mkdir -p "$to"
  "$orthant" tokenize --train-vocab $size --tokenizer "$to/tokenizer.json" --out "$to/train" "$folder/text/train"
  "$orthant" tokenize --tokenizer "$to/tokenizer.json" --out "$to/held-out" "$folder/text/held-out"
done

# All of the held-out text is measured, so that bits a byte compare over tokenizers.
ledger=$folder/ledger
if [ ! -e "$ledger/policy.yaml" ]; then
  sed -i '/validation_tokens/d' "$folder/run.yaml"
  mkdir -p "$ledger/changes"
  cp tools/recipe/changes/*.yaml "$ledger/changes"
  cp tools/recipe/policy.yaml "$ledger"
fi
for change in tools/recipe/changes/*.yaml; do
  name=$(basename "$change" .yaml)
  grep -q "\"kind\":\"propose\".*\"change\":\"$name\"" "$ledger/ledger.jsonl" 2>/dev/null ||
    "$orthant" ledger add "$name" --ledger "$ledger"
done
[ "${RECIPE_ONLY:-}" != prepare ] || exit 0

"$orthant" ledger fit --ledger "$ledger" --jobs "$jobs"
open() { ! grep -q "\"kind\":\"verdict\".*\"change\":\"$1\"" "$ledger/ledger.jsonl"; }
for look in 1 2 3; do
  for change in tools/recipe/changes/*.yaml; do
    name=$(basename "$change" .yaml)
    ! open "$name" || "$orthant" ledger run "$name" --ledger "$ledger" --jobs "$jobs" || [ $? = 1 ]
    ! open "$name" || "$orthant" ledger look "$name" --ledger "$ledger" || [ $? = 1 ]
  done
done
better=$("$orthant" ledger report --ledger "$ledger" --json | python3 -c '
import json, sys
print(*[c["change"] for c in json.load(sys.stdin)["changes"] if c["verdict"] == "better"])')
set -- $better
[ $# -lt 2 ] || "$orthant" ledger merge "$@" --ledger "$ledger" --jobs "$jobs" --write recipe.yaml
"$orthant" ledger report --ledger "$ledger" --html "$folder/recipe.html"
