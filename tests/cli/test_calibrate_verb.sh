#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run: any machine. orthant plan --calibrate: rows that cannot be are errors that name them, measured
# steps move the plan towards them, and the written cluster plans the same.
set -euo pipefail
. tests/support/expect.sh
orthant=$(realpath "${1:?usage: test_calibrate_verb.sh ORTHANT}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
plan=("$orthant" plan --model llama3-8b --gpus 64)

refuses() {  # refuses MESSAGE CSV
  printf '%b' "$2" >bad.csv
  expect 2 "bad.csv: $1" "${plan[@]}" --cluster h100 --calibrate bad.csv
}

refuses 'no step below' ''
refuses 'no step below' 'gpus,step_seconds\n'
refuses 'line 1: there is no column "seconds"; one of tp, ' 'gpus,seconds\n64,3\n'
refuses 'line 1 names no column step_seconds' 'gpus,tp\n64,1\n'
refuses 'line 1 names column tp twice' 'tp,tp,step_seconds\n1,1,3\n'
refuses 'line 2 has more fields' 'gpus,step_seconds\n64,3,1\n'
refuses 'line 2 has no step_seconds' 'gpus,step_seconds\n64\n'
refuses 'line 3, column step_seconds: "-3"; allowed: a number above 0' 'gpus,step_seconds\n64,3\n64,-3\n'
refuses 'line 2, column step_seconds: "nan"' 'gpus,step_seconds\n64,nan\n'

refuses_value() {  # refuses_value COLUMN VALUE ALLOWED
  printf '%s,step_seconds\n%s,3\n' "$1" "$2" >bad.csv
  expect 2 "(bad.csv: line 2)" "${plan[@]}" --cluster h100 --calibrate bad.csv
  grep -q "^error: $1: \"*$2\"* is .*$3" err.txt || fail "$1 $2: $(cat err.txt)"
}

for value in -1 7; do refuses_value zero "$value" 'one of auto, 0, 1, 2, 3'; done
refuses_value pipeline dual 'one of auto, gpipe, 1f1b, '
for column in tp pp vpp cp ep micro_batch_size gpus global_batch_size sequence_length; do
  for value in 0 -1 x 1.5 1e99; do
    refuses_value "$column" "$value" '; allowed: 1 to 16777216'
  done
done
refuses 'line 2: ' 'tp,pp,cp,step_seconds\n16777216,16777216,16777216,3\n'
# Steps that cannot be of this job, as of milliseconds, change no cluster.
refuses 'line 2, column step_seconds: a step of 3300 s is ' 'gpus,step_seconds\n64,3300\n'
refuses 'line 3, column step_seconds: a step of 0.0033 s is ' 'gpus,step_seconds\n64,3.3\n64,0.0033\n'
refuses 'line 2: plan: tp=3 does not divide' 'tp,step_seconds\n3,3\n'
{ echo step_seconds; seq 51 | sed 's:.*:3:'; } >bad.csv
expect 2 "more than 50 steps" "${plan[@]}" --cluster h100 --calibrate bad.csv
expect 3 "none.csv" "${plan[@]}" --cluster h100 --calibrate none.csv
[ ! -e bad.cluster.yaml ] || fail "a cluster is written from rows that were refused"

# What was corrected is not what was measured here, and one step contradicts no other.
printf 'gpus,step_seconds\n64,12\n' >one.csv
"${plan[@]}" --cluster h100 --top 1 --calibrate one.csv >one.txt
grep -q '^basis: calibrated: constants were corrected by measured steps' one.txt || fail "basis: $(grep basis one.txt)"
grep -q 'contradicts' one.txt && fail "the only step contradicts others"
grep -q '^basis: calibrated$' one.cluster.yaml || fail "basis of the file: $(grep basis one.cluster.yaml)"

step() { sed -n '/"plans"/,$s/^ *"step_seconds": \([0-9.e-]*\),*$/\1/p' | head -1; }

fixed=(--tp 1 --pp 1 --zero 1 --micro-batch-size 2 --recompute none)
before=$("${plan[@]}" "${fixed[@]}" --cluster h100 --json | step)
slower=$(awk "BEGIN { print 1.2 * $before }")
printf 'tp,zero,micro_batch_size,step_seconds\n1,1,2,%s\n' "$slower" >steps.csv
during=$("${plan[@]}" "${fixed[@]}" --cluster h100 --calibrate steps.csv --json | step)
after=$("${plan[@]}" "${fixed[@]}" --cluster steps.cluster.yaml --json | step)
awk "BEGIN { exit !($before < $during && $during < $slower) }" ||
  fail "$before s, measured $slower s, calibrated $during s"
# The cluster file has the corrected rates, not the correction of this configuration.
awk "BEGIN { exit !($before < $after && $after < $during) }" ||
  fail "$during s when calibrated, $after s with the written cluster"

# The interval shrinks, and a search finds the plan that the steps of others make faster.
width() { "${plan[@]}" "${fixed[@]}" --cluster h100 "$@" --json | sed -n '/"interval80"/,/]/p' | grep -Eo '[0-9.]{5,}' | paste -sd' ' |
  awk '{ print $2 / $1 }'; }
awk "BEGIN { exit !($(width --calibrate steps.csv) < $(width)) }" || fail "a measured step does not narrow the interval"
"${plan[@]}" --cluster h100 --top 1 --json >plain.json
first() { sed -n '/"plans"/,$s/^ *"'"$2"'": "*\([a-z0-9-]*\)"*,$/\1/p' "$1" | head -1; }
columns=$(for key in tp pp vpp zero micro_batch_size pipeline recompute; do echo "$key"; done | paste -sd,)
values=$(for key in tp pp vpp zero micro_batch_size pipeline recompute; do first plain.json $key; done | paste -sd,)
printf '%s,step_seconds\n%s,%s\n' "$columns" "$values" "$(awk "BEGIN { print 2 * $(step <plain.json) }")" >slow.csv
"${plan[@]}" --cluster h100 --top 1 --calibrate slow.csv --json >other.json
[ "$(for key in tp pp zero; do first other.json $key; done)" != "$(for key in tp pp zero; do first plain.json $key; done)" ] ||
  fail "a plan measured at twice its time stays the first"
# A row that contradicts the others is named.
{ echo tp,zero,micro_batch_size,step_seconds; for _ in 1 2 3 4; do echo "1,1,2,$before"; done; echo "1,1,2,$(awk "BEGIN { print 2 * $before }")"; } >odd.csv
"${plan[@]}" "${fixed[@]}" --cluster h100 --calibrate odd.csv >odd.txt
grep -q '^  line 6 .*contradicts the others' odd.txt || fail "no row is named as contradicting"
[ "$(grep -c contradicts odd.txt)" = 1 ] || fail "other rows contradict, too"
echo "all passed"
