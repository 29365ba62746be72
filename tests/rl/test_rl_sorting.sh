#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run: any machine. The reference task of docs/rl.md with OT_TESTS=full: with updates in flight an
# accuracy of 0.5 takes at most 0.7 of the synchronous mode's simulated time, median of three seeds;
# tokens a second and the mean lag are as predicted. Otherwise one seed and few updates: predictions.
set -euo pipefail
orthant=$(realpath "${1:?usage: test_rl_sorting.sh ORTHANT}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*"; exit 1; }

# Column COLUMN of the rows "predicted" and "measured" differ by at most SHARE.
agrees() { # FILE COLUMN SHARE
  awk -v c="$2" -v share="$3" '/^predicted/ { p = $c } /^measured/ { m = $c }
    END { d = m - p; exit !(p > 0 && (d < 0 ? -d : d) <= share * p) }' "$1" || { cat "$1"; fail "$1: column $2"; }
}
if [ "${OT_TESTS:-}" = full ]; then
  bench/rl_sorting.sh "$orthant" "$work/out" >"$work/table" || { cat "$work/table"; fail "the bench"; }
  cat "$work/table"
  awk '/^medians/ { ratio = $NF } END { exit !(ratio > 0 && ratio <= 0.7) }' "$work/table" || fail "the ratio"
  for seed in 1 2 3; do
    agrees "$work/out/in_flight-$seed.txt" 2 0.1
    agrees "$work/out/in_flight-$seed.txt" 6 0.05
    agrees "$work/out/synchronous-$seed.txt" 2 0.1
  done
  echo "all passed"
  exit
fi
examples/12_rl.sh "$orthant" "$work/out" >"$work/example.txt" 2>&1 || { cat "$work/example.txt"; exit 1; }
[ "$(grep -c "^[a-z_]*: 8 updates on 512 responses" "$work/example.txt")" = 2 ] || fail "the example"
grep -q "^on policy: ESS 1.0000$" "$work/example.txt" || fail "on-policy ratios"
agrees "$work/out/in_flight.txt" 2 0.1
agrees "$work/out/in_flight.txt" 6 0.05
agrees "$work/out/synchronous.txt" 2 0.1
"$orthant" rl "$work/out/rl.yaml" --set output="$work/out/in_flight" 2>"$work/again.txt" && fail "a run is continued"
grep -q 'is not empty, and runs of orthant rl are not continued' "$work/again.txt" || fail "$(cat "$work/again.txt")"
"$orthant" train "$work/out/rl.yaml" 2>"$work/train.txt" && fail "train takes a run of rl"
grep -q '`orthant rl` trains on rewards' "$work/train.txt" || fail "$(cat "$work/train.txt")"
echo "all passed"
