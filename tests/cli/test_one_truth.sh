#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run: any machine. One run, one prediction: plan, its page, the run that it emits, simulate,
# schedule and train give the same step, MFU and memory.
set -euo pipefail
. tests/support/expect.sh
orthant=$(realpath "${1:?usage: test_one_truth.sh ORTHANT}")
source_dir=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export XDG_CONFIG_HOME=$work/user OMP_WAIT_POLICY=passive

cat >tiny.json <<'JSON'
{"model_type": "llama", "vocab_size": 257, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4,
 "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64, "tie_word_embeddings": true}
JSON
cat >machine.yaml <<'YAML'
name: paper
num_devices: 4
memory_bytes: 1G
memory_bytes_per_s: 1e10
flops_fp32: 1e10
other_flops_per_s: 1e9
threads: 1
packs: true
levels: [{name: wire, size: 4, bytes_per_s: 1e9, latency_s: 1e-6}]
YAML
"$orthant" tokenize --tokenizer bytes --out train "$source_dir"/src/core/base/*.h >/dev/null

first() { sed -n 's/.*"'"$2"'": *\([0-9.e+-]*\).*/\1/p' "$1" | head -n 1; }  # first FILE KEY
same() {  # same WHAT A B: within 1e-9
  awk -v a="$2" -v b="$3" 'BEGIN { exit !(a > 0 && a <= b * (1 + 1e-9) && b <= a * (1 + 1e-9)) }' ||
    fail "$1: $2 and $3"
}

# A run on this machine: every verb.
for degrees in "--tp 2 --pp 2 --zero 0" "--tp 1 --pp 1 --zero 3" "--tp 1 --pp 2 --vpp 2 --recompute full"; do
  # shellcheck disable=SC2086
  plan=("$orthant" plan --model tiny.json --cluster machine.yaml --global-batch-size 8 --sequence-length 32 --top 1 $degrees)
  "${plan[@]}" --emit run=run.yaml --json >plan.json
  "${plan[@]}" --html page.html >plan.txt
  cat >>run.yaml <<'YAML'
data: {train: train, tokenizer: bytes, sequence_length: 32}
steps: 1
threads: 1
cluster: ./machine.yaml
output: out
YAML
  step=$(first plan.json step_seconds) peak=$(first plan.json peak)
  "$orthant" simulate run.yaml --json >step.json
  same "$degrees: simulated step" "$step" "$(first step.json step_seconds)"
  same "$degrees: simulated MFU" "$(first plan.json mfu)" "$(first step.json mfu)"
  same "$degrees: simulated memory" "$peak" "$(first step.json peak)"
  most=0
  for rank in 0 1 2 3; do
    "$orthant" schedule run.yaml --rank $rank --ranks 4 --json >schedule.json
    bytes=$(first schedule.json arena_bytes)
    [ "$bytes" -le "$most" ] || most=$bytes
  done
  same "$degrees: memory of schedules" "$peak" "$most"
  rm -rf out
  "$orthant" train run.yaml --ranks 4 >train.txt 2>&1 || { cat train.txt; fail "$degrees: training"; }
  same "$degrees: prediction of training" "$step" "$(first out/metrics.jsonl predicted_step_seconds)"
  "$orthant" train run.yaml --ranks 4 --dry-run >dry.txt 2>&1 || { cat dry.txt; fail "$degrees: dry run"; }
  grep -qF "($peak bytes)" dry.txt || { cat dry.txt; fail "$degrees: training plans other memory than $peak"; }
  shown=$(sed -n 's/^  - step \([0-9.]* [a-z]*\) at MFU.*/\1/p' plan.txt)
  [ -n "$shown" ] || { cat plan.txt; fail "$degrees: the report names no step"; }
  grep -qF ">$shown<" page.html || fail "$degrees: the page does not show the step of the report, $shown"
done

# A run on a described cluster: the verbs that need none of its devices.
plan=("$orthant" plan --model llama3-8b --cluster h100 --gpus 8 --tp 2 --pp 2 --global-batch-size 64 --top 1)
"${plan[@]}" --emit run=far.yaml --json >plan.json
cat >>far.yaml <<'YAML'
data: {train: train, tokenizer: bytes, sequence_length: 4096}
steps: 1
YAML
"$orthant" simulate far.yaml --cluster h100 --json >step.json
same "8B: simulated step" "$(first plan.json step_seconds)" "$(first step.json step_seconds)"
same "8B: simulated MFU" "$(first plan.json mfu)" "$(first step.json mfu)"
same "8B: simulated memory" "$(first plan.json peak)" "$(first step.json peak)"
