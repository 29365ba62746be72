#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run: any machine. Every example runs and prints what its header promises.
set -euo pipefail
orthant=${1:?usage: test_examples.sh ORTHANT}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
examples/01_train.sh "$orthant" "$work/one" >"$work/01.txt" 2>&1 || { cat "$work/01.txt"; exit 1; }
grep -q "^step 30/30" "$work/01.txt"
examples/02_resume.sh "$orthant" >"$work/02.txt" 2>&1 || { cat "$work/02.txt"; exit 1; }
grep -q "^the same bits" "$work/02.txt"
"$(dirname "$orthant")/examples/03_schedule" >"$work/03.txt"
grep -q "^selective" "$work/03.txt"
examples/04_ranks.sh "$orthant" >"$work/04.txt" 2>&1 || { cat "$work/04.txt"; exit 1; }
grep -q "^losses agree" "$work/04.txt"
grep -q "^four processes: the same bits\|skipped$" "$work/04.txt"

examples/05_plan.sh "$orthant" >"$work/05.txt" 2>&1 || { cat "$work/05.txt"; exit 1; }
grep -q "^why plan 1" "$work/05.txt" && grep -q "^help: fits with " "$work/05.txt"
grep -q "^step 5/5" "$work/05.txt"

examples/06_audit.sh "$orthant" >"$work/06.txt" 2>&1 || { cat "$work/06.txt"; exit 1; }
[ "$(grep -c "^finding 1: " "$work/06.txt")" = 4 ] && [ "$(grep -c ": clean$" "$work/06.txt")" = 4 ]

examples/07_experts.sh "$orthant" >"$work/07.txt" 2>&1 || { cat "$work/07.txt"; exit 1; }
grep -q "^losses agree" "$work/07.txt" && grep -q "^roomy .* rounds 1 " "$work/07.txt"
[ "$(grep -c " dropped 0$" "$work/07.txt")" = 3 ]
examples/08_serve.sh "$orthant" >"$work/08.txt" 2>&1 || [ $? -eq 3 ] || { cat "$work/08.txt"; exit 1; }
grep -q "built without libmicrohttpd" "$work/08.txt" || {
  grep -q "^echo and score agree: -" "$work/08.txt" && grep -q "^texts: 4$" "$work/08.txt"
}
examples/09_evaluate.sh "$orthant" >"$work/09.txt" 2>&1 || { cat "$work/09.txt"; exit 1; }
[ "$(grep -c "^step .*: 6 figures are those of orthant score$" "$work/09.txt")" = 3 ]
examples/10_ledger.sh "$orthant" >"$work/10.txt" 2>&1 || { cat "$work/10.txt"; exit 1; }
grep -q "^longer: better after 4 pairs" "$work/10.txt"
examples/11_distill.sh "$orthant" >"$work/11.txt" 2>&1 || { cat "$work/11.txt"; exit 1; }
grep -q "^a store and a live teacher teach the same$" "$work/11.txt"
grep -q "^error: distill: the store was made for data.sequence_length=64, the run has 32" "$work/11.txt"
# examples/12_rl.sh is run by tests/rl/test_rl_sorting.sh
echo "all passed"
