#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run: any machine. `orthant bench` writes a cluster file that parses again, here and by default in
# the user's folder; figures are positive.
set -euo pipefail
orthant=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

ln -s target.yaml two.yaml
"$orthant" bench --quick --ranks 2 --out two.yaml --json >two.json
[ -L two.yaml ] && [ -s target.yaml ] || { echo "a link was replaced"; exit 1; }
grep -q '"ranks": 2' two.json
grep -q 'name: this-machine' two.yaml
grep -q 'basis: quick' two.yaml
for key in flops_fp32 flops_fp64 memory_bytes_per_s other_flops_per_s; do
  awk -v key="$key:" '$1 == key { found = $2 > 0 } END { exit !found }' two.yaml ||
    { echo "$key is missing or not positive"; cat two.yaml; exit 1; }
done
# No product that was timed is faster than the peak by which MFU is counted.
awk '$1 == "flops_fp32:" { peak = $2 }
  { while (match($0, /dtype: fp32}|flops_per_s: [0-9.e+]+, spread/)) {
      if (substr($0, RSTART, 5) == "flops") rate = substr($0, RSTART + 13) + 0; else if (rate > peak) exit 1
      $0 = substr($0, RSTART + RLENGTH) } }' two.yaml || { echo "a product is faster than the peak"; cat two.yaml; exit 1; }
# Measured kernels, the fit error of their formulas, and the spread of repetitions.
for what in 'cores: [1-9]' 'disk_bytes_per_s: [1-9]' 'op: linear, threads: 1' 'op: attention_grad, ' 'op: adamw, ' \
  'op: all_reduce, ranks: 2' 'op: reduce_scatter, ranks: 4' 'op: message, ranks: 2' 'residual: ' 'spread: ' \
  'rows: 256, columns: 768, depth: 256, flops_per_s: [1-9]' 'bytes: 6291456, bytes_per_s: [1-9]'; do
  grep -q "$what" two.yaml || { echo "no $what"; cat two.yaml; exit 1; }
done
grep -q '"residual": ' two.json
[ ! -e target.yaml.disk ] || { echo "the file that timed the disk is still there"; exit 1; }
# The file parses again and predicts.
cat >run.yaml <<'YAML'
model: {model_type: llama, vocab_size: 257, hidden_size: 32, intermediate_size: 48, num_hidden_layers: 2,
  num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 64}
data: {train: nowhere, tokenizer: bytes, sequence_length: 32}
batch: {global_batch_size: 8, micro_batch_size: 1}
steps: 4
output: a
YAML
"$orthant" simulate run.yaml --cluster ./two.yaml --ranks 2 --json >step.json
grep -q '"step_seconds": [0-9.e-]*[1-9]' step.json || { cat step.json; exit 1; }
"$orthant" simulate run.yaml --cluster ./two.yaml --ranks 8 >/dev/null
# Plans say that it was quick, and large jobs are not planned by it.
"$orthant" plan --model gpt2 --cluster ./two.yaml --global-batch-size 8 --top 1 --json >plan.json
grep -q '"basis": "quick"' plan.json && grep -q 'measured in seconds (bench --quick)' plan.json || { cat plan.json; exit 1; }
awk '/"mfu":/ { found = 1; if ($2 + 0 > 1) exit 1 } END { exit !found }' plan.json || { echo "MFU above 1"; exit 1; }
if "$orthant" plan --model llama3-8b --cluster ./two.yaml >/dev/null 2>said.txt; then echo "8B planned by a quick file"; exit 1; fi
grep -q 'measured products up to' said.txt && grep -q '^help: run `orthant bench` again, without --quick' said.txt || { cat said.txt; exit 1; }
# A file without kernel rates, as earlier versions wrote it, is also accepted.
sed '/^measured:/,/^levels:/{/^levels:/!d}' two.yaml >before.yaml
"$orthant" simulate run.yaml --cluster ./before.yaml --ranks 2 >/dev/null
XDG_CONFIG_HOME=$work/user "$orthant" bench --quick --ranks 1 >said.txt
test -f user/orthant/clusters/this-machine.yaml
grep -q 'this-machine.yaml' said.txt
