#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A run that is evaluated every ten steps on two tasks made of its own text: which of two endings is the
# right one, and the perplexity of whole lines. The figures of each checkpoint are those of `orthant
# score --tasks`, to the last digit.
#   examples/09_evaluate.sh [ORTHANT] [FOLDER]
set -euo pipefail
orthant=$(realpath "${1:-build/orthant}")
here=$(cd "$(dirname "$0")" && pwd)
folder=${2:-}
own=
[ -n "$folder" ] || { folder=$(mktemp -d) && own=$folder; }
trap 'rm -rf ${own:+"$own"}' EXIT
"$here/01_train.sh" "$orthant" "$folder" >/dev/null 2>&1
cd "$folder"

# Lines of at least eight words: the second half is the right ending, reversed it is the wrong one.
awk 'NF >= 8 && !/["\\]/ && n++ < 40 { a = $1; b = c = ""
  for (i = 2; i <= NF; i++) if (i <= NF / 2) a = a " " $i; else { b = b " " $i; c = " " $i c }
  printf "{\"context\": \"%s\", \"choices\": [\"%s\", \"%s\"], \"answer\": 0}\n", a, b, c
}' "$here/../LICENSE" >endings.jsonl
awk 'NF >= 8 && !/["\\]/ && n++ >= 40 { $1 = $1; print "{\"text\": \"" $0 "\"}" }' "$here/../LICENSE" >lines.jsonl

cat >>run.yaml <<'YAML'
evaluate:
  every: 10
  tasks: {endings: endings.jsonl, lines: lines.jsonl}
YAML
"$orthant" train run.yaml --set output=evaluated --set checkpoint.every=10 --set checkpoint.keep=0 2>&1 |
  grep "^step .* evaluate"

for step in 10 20 30; do
  "$orthant" score evaluated/checkpoints/step-000000$step --tasks endings.jsonl lines.jsonl | tr , '\n' |
    sed -n 's/^"\([a-z_]*\)":\([^}]*\).*/\1 \2/p' >scored
  sed -n 's/^{"step":'$step',"evaluate\/[a-z]*\/\([a-z_]*\)":\(.*\)}/\1 \2/p' evaluated/metrics.jsonl >told
  cmp scored told && echo "step $step: $(wc -l <told) figures are those of orthant score"
done
