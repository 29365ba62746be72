#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run: any machine. Every benchmark program answers --help and rejects unknown options immediately.
set -euo pipefail
orthant=${1:?usage: test_bench_programs.sh ORTHANT}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() { echo "FAILED: $*" >&2; cat "$work"/*.txt >&2; exit 1; }
run() {  # run CODE COMMAND...
  local code=$1 got=0
  shift
  timeout 10 "$@" >"$work/out.txt" 2>"$work/err.txt" || got=$?
  [ "$got" = "$code" ] || fail "$* gave $got, expected $code"
}

count=0
for program in "$(dirname "$orthant")"/bench/*; do
  [ -f "$program" ] || continue
  name=$(basename "$program")
  run 0 "$program" --help
  grep -q "^usage: bench/$name" "$work/out.txt" || fail "$name --help shows no usage"
  [ ! -s "$work/err.txt" ] || fail "$name --help writes to stderr"
  run 2 "$program" --no-such-option
  [ "$(grep -c '^error: unknown option --no-such-option (bench/' "$work/err.txt")" = 1 ] || fail "$name: other error"
  [ "$(wc -l <"$work/err.txt")" = 2 ] && grep -q '^help: ' "$work/err.txt" || fail "$name: no help line"
  [ ! -s "$work/out.txt" ] || fail "$name ran despite the error"
  count=$((count + 1))
done
[ "$count" -gt 5 ] || fail "only $count programs"

step=$(dirname "$orthant")/bench/step
run 2 "$step" --batch none
run 2 "$step" --batch 3 --micro-batch 2
grep -q "^error: --micro-batch 2 does not divide --batch 3" "$work/err.txt" || fail "no reason"
run 2 "$step" --recompute all
run 2 "$step" 4
echo "all passed"
