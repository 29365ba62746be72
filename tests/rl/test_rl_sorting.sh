#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run: any machine. The reference task of docs/rl.md with OT_TESTS=full: with updates in flight an
# accuracy of 0.5 takes at most 0.7 of the synchronous mode's simulated time, median of three seeds;
# tokens a second and the mean lag are as predicted; reasoning is recovered from answers (parity).
# Otherwise one seed and few updates: predictions.
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
  # Reasoning that is not written down is found, and shuffled answers teach nothing.
  bench/rl_parity.sh "$orthant" "$work/parity" >"$work/table" || { cat "$work/table"; fail "the bench of parity"; }
  cat "$work/table"
  awk '{ bits[$1 " " $2] = $3; error[$1 " " $2] = $5 }
    END {
      chance = bits["noise, true"]; found = bits["after, true"]; none = bits["after, shuffled"]; e = error["after, shuffled"]
      exit !(chance < 0.05 && found > 0.5 && none <= 2 * e && none >= -2 * e)
    }' "$work/table" || fail "the bits that reasoning tells"
  echo "all passed"
  exit
fi
examples/12_rl.sh "$orthant" "$work/out" >"$work/example.txt" 2>&1 || { cat "$work/example.txt"; exit 1; }
[ "$(grep -c "^[a-z_]*: 8 updates on 512 responses" "$work/example.txt")" = 2 ] || fail "the example"
grep -q "^on policy: ESS 1.0000$" "$work/example.txt" || fail "on-policy ratios"
agrees "$work/out/in_flight.txt" 2 0.1
agrees "$work/out/in_flight.txt" 6 0.05
agrees "$work/out/synchronous.txt" 2 0.1
# A run that is complete goes on to nothing; one with other settings is another run.
"$orthant" rl "$work/out/rl.yaml" --set output="$work/out/in_flight" >"$work/same.txt" 2>"$work/again.txt" || fail "$(cat "$work/again.txt")"
grep -q 'continuing after update 8' "$work/again.txt" || fail "$(cat "$work/again.txt")"
cmp <(grep -o "^8 updates.*time [0-9.]*" "$work/out/in_flight.txt") <(grep -o "^8 updates.*time [0-9.]*" "$work/same.txt") || fail "figures of a complete run"
sed 's/queue: 64/queue: 80/' "$work/out/rl.yaml" >"$work/out/other.yaml"
"$orthant" rl "$work/out/other.yaml" --set output="$work/out/in_flight" 2>"$work/again.txt" && fail "another run is continued"
grep -q 'rl.queue: 64 -> 80' "$work/again.txt" || fail "$(cat "$work/again.txt")"
"$orthant" train "$work/out/rl.yaml" 2>"$work/train.txt" && fail "train takes a run of rl"
grep -q '`orthant rl` trains on rewards' "$work/train.txt" || fail "$(cat "$work/train.txt")"

# ---- prices of a cluster: bounds by its data sheet ----
cat >"$work/big.yaml" <<'YAML'
model: llama3-8b
data: {tokenizer: bytes, sequence_length: 2048}
steps: 10
precision: {compute: bf16}
rl: {prompts: prompts.jsonl, max_tokens: 1024, length_mean: 200, workers: 4, max_lag: 8}
YAML
timeout 100 "$orthant" rl "$work/big.yaml" --dry-run --cluster h100 --prompt-tokens 50 --price 3 >"$work/big.txt"
# 8.03e9 parameters of 2 bytes at 3.35e12 bytes/s and 989e12 FLOP/s; a token of a response is scored (2 N) and
# trained on (6 N), with a quarter of a token of its prompt; weights go over 450e9 bytes/s at most.
awk '/^costs:/ { n = 8.03e9; gsub(/[{},]/, "")
    decode = 2 * n / 3.35e12; row = 2 * n / 989e12; train = 1.25 * 8 * n / 989e12
    good = $3 > decode && $3 < 2 * decode && $5 > row / 4 && $5 < 20 * row && $7 > train && $7 < 4 * train &&
      $9 > 2 * n / 450e9 && $9 < 1 }
  /^1000 updates cost \$/ { priced = 1 } END { exit !(good && priced) }' "$work/big.txt" || { cat "$work/big.txt"; fail "prices"; }
echo "all passed"
