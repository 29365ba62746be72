#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run: any machine. score and sample on ranks: threads and processes give the same bytes, and the
# numbers of one rank up to rounding, in stages of a pipeline its bytes; a faulty line has the exit code that it has on one rank; several
# texts to stop at.
set -euo pipefail
. tests/support/expect.sh
orthant=${1:?usage: test_inference_verbs.sh ORTHANT}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$PWD
examples/01_train.sh "$orthant" "$work" >/dev/null 2>&1
cd "$work"
printf '%s\n' '{"text": "You may reproduce and distribute copies of the Work"}' \
  '{"context": "The", "continuation": " Licensor grants"}' '{"text": "or Derivative Works"}' >lines.jsonl
printf '{"text": "one"}\n{"text": ""}\n' >faulty.jsonl

# ---- threads ----
for ranks in 1 2 4; do
  "$orthant" score run lines.jsonl --ranks $ranks >score.$ranks
  "$orthant" sample run --prompt "You may" --temperature 0 --max-tokens 20 --ranks $ranks >sample.$ranks
  expect 2 "1 of 2 lines could not be scored" "$orthant" score run faulty.jsonl --ranks $ranks
done
numbers() { grep -o '"logprobs":\[[^]]*\]' "$1" | sed 's/.*\[//; s/\]//' | tr , '\n'; }
[ "$(numbers score.1 | wc -l)" -gt 15 ] || fail "too few scores"
for ranks in 2 4; do
  paste <(numbers score.1) <(numbers score.$ranks) |
    awk '{ d = $1 - $2; if (d < 0) d = -d; if (!(d < 1e-5)) bad = 1 } END { exit bad }' ||
    fail "scores of $ranks ranks are not those of one"
  cmp sample.1 sample.$ranks
done
"$orthant" score run lines.jsonl --ranks 3 --pp 3 | cmp - score.1
"$orthant" score run lines.jsonl --ranks 4 --pp 2 | cmp - score.2
expect 4 "--pp 2 does not divide 3 ranks" "$orthant" score run lines.jsonl --ranks 3 --pp 2
expect 2 "tp=3 does not divide num_attention_heads=4" "$orthant" score run lines.jsonl --ranks 3
expect 3 "cannot open nothing.jsonl" "$orthant" score run nothing.jsonl --ranks 2

# ---- several texts to stop at: the first one ends the text ----
whole=$("$orthant" sample run --prompt "You may" --max-tokens 24 --seed 3 --json | sed -n 's/^  "text": "\(.*\)",$/\1/p')
[ ${#whole} -gt 12 ] || fail "the text is short: $whole"
late=${whole:9:2} early=${whole:4:2}
cut=$("$orthant" sample run --prompt "You may" --max-tokens 24 --seed 3 --json --stop "$late" --stop "$early" |
  sed -n 's/^  "text": "\(.*\)",$/\1/p')
expected=${whole%%"$early"*} other=${whole%%"$late"*}
[ ${#other} -ge ${#expected} ] || expected=$other
[ "$cut" = "$expected" ] || fail "--stop '$late' --stop '$early' of '$whole' gave '$cut'"
expect 2 "--stop is an empty text" "$orthant" sample run --stop ""

# ---- each prompt of a file has draws of its own; the first those of --prompt ----
for _ in 1 2 3; do echo '{"prompt": "You may"}'; done >same.jsonl
"$orthant" sample run --prompts same.jsonl --max-tokens 12 --n 2 >same.txt
[ "$(sort -u same.txt | wc -l)" = 6 ] || { cat same.txt; fail "prompts share draws"; }
"$orthant" sample run --prompts same.jsonl --max-tokens 12 | cmp - <(sed -n '1~2p' same.txt) || fail "texts depend on --n"
"$orthant" sample run --prompt "You may" --max-tokens 12 --n 2 | cmp - <(head -n 2 same.txt) || fail "--prompt and the first of --prompts"

# ---- processes: a build without MPI has none ----
cd "$root"
. tests/support/mpi_launch.sh "$orthant"
cd "$work"
run_score() {
  got=0
  "${launch[@]}" -n 2 "$orthant" score run lines.jsonl --pp "$pp" >score.mpi 2>err.txt || got=$?
}
for pp in 1 2; do
  unless_hung run_score
  [ $got = 0 ] || fail "score on 2 processes, --pp $pp, gave $got: $(cat err.txt)"
  cmp score.$((2 / pp)) score.mpi
done
