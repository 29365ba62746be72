#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run: any machine. A model with Attention Residuals from its keys to generated text: the same bits
# on pipeline stages as on one rank; resumed on another mesh, scored, sampled and audited; planned,
# and trained as planned; never exported to software that does not support it.
set -euo pipefail
. tests/support/expect.sh
orthant=${1:?usage: test_residuals_verb.sh ORTHANT}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
source_dir=$PWD
cd "$work"

"$orthant" tokenize --tokenizer bytes --out train "$source_dir"/src/core/base/*.h >/dev/null
cat >run.yaml <<'YAML'
model: {model_type: llama, vocab_size: 257, hidden_size: 32, intermediate_size: 48, num_hidden_layers: 6,
  num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 64, tie_word_embeddings: true,
  attention_residuals: block, attention_residual_block_size: 3}
data: {train: train, validation: train, validation_tokens: 300, tokenizer: bytes, sequence_length: 32}
batch: {global_batch_size: 8, micro_batch_size: 1}
optimizer: {lr: 1e-2}
steps: 4
checkpoint: {every: 2}
threads: 1
output: a
YAML

losses() { sed -n 's/.*"step":\([0-9]*\),"loss":\([^,]*\),.*/\1 \2/p' "$1/metrics.jsonl"; }
validations() { sed -n 's/.*"val_loss":\([^,}]*\).*/\1/p' "$1/metrics.jsonl"; }
train() {  # train NAME RANKS SETTING...
  local name=$1 ranks=$2
  shift 2
  "$orthant" train run.yaml --ranks "$ranks" --set output="$name" "${@/#/--set=}" 2>"$name.err" ||
    { cat "$name.err"; fail "$name did not train"; }
}

# Stages, chunks and recompute change no bit.
train one 1
train two 2 parallel.pp=2 parallel.vpp=2 parallel.pipeline=interleaved
train four 4 parallel.pp=2 parallel.zero=3 parallel.pipeline=zb-h1 parallel.recompute=full
train half 2 parallel.pp=2 parallel.pipeline=zb-v parallel.recompute=selective
for name in two half; do
  diff <(losses one) <(losses $name) || fail "$name: losses differ"
  diff <(validations one) <(validations $name) || fail "$name: validation losses differ"
  cmp one/checkpoints/step-00000004/model.safetensors $name/checkpoints/step-00000004/model.safetensors
done
train plain 1 model.attention_residuals=none model.attention_residual_block_size=null
diff <(losses one) <(losses plain) >/dev/null && fail "residuals change nothing"

# Any checkpoint continues on any mesh.
"$orthant" train run.yaml --ranks 2 --set output=tensor --set parallel.tp=2 \
  --resume four/checkpoints/step-00000002 2>tensor.err || { cat tensor.err; fail "not resumed"; }
near=$(join <(losses one) <(losses tensor) |
  awk '{ d = $2 / $3 - 1; if (d < 0) d = -d; if (d > 1e-5) bad = 1 } END { print NR == 2 && !bad ? "yes" : "no" }')
[ "$near" = yes ] || fail "the resumed run: losses differ"

# Decoding equals training: scores, text and the audit of both.
printf '{"text":"typedef struct"}\n' >q.jsonl
"$orthant" score one q.jsonl >score.json
grep -q '"logprobs":\[-' score.json || fail "no scores"
"$orthant" sample one --prompt "typedef" --max-tokens 20 --temperature 0 >one.txt
"$orthant" sample two --prompt "typedef" --max-tokens 20 --temperature 0 >two.txt
cmp one.txt two.txt
"$orthant" audit drift run.yaml >drift.txt || { cat drift.txt; fail "decoding drifts"; }
for audit in causality ranks; do
  "$orthant" audit $audit run.yaml --ranks 2 --set parallel.pp=2 >audit.txt || { cat audit.txt; fail "$audit: a finding"; }
done

# No other software knows these tensors.
expect 2 "no HF model has attention_residuals" "$orthant" convert one out
[ ! -e out ] || fail "a rejected conversion wrote files"
expect 2 "attention_residual_block_size=13" \
  "$orthant" train run.yaml --set output=b --set model.attention_residual_block_size=13

# A plan for such a model trains unchanged, in the planned memory.
cat >machine.yaml <<'YAML'
name: four cores
num_devices: 4
threads: 1
memory_bytes: 1G
memory_bytes_per_s: 1e10
flops_fp32: 2e10
other_flops_per_s: 2e9
packs: true
levels: [{name: memory, size: 4, bytes_per_s: 2e9, latency_s: 1e-5}]
YAML
cat >model.json <<'JSON'
{"model_type": "llama", "vocab_size": 258, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 6,
 "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64, "tie_word_embeddings": true,
 "attention_residuals": "block", "attention_residual_block_size": 3}
JSON
first() { sed -n '/^ *"'"$2"'": /{s/^[^:]*: \([^,]*\),*$/\1/p;q;}' "$1"; }  # first FILE KEY
for degrees in "--pp 2 --vpp 2 --pipeline interleaved --zero 1" "--pp 2 --tp 2 --pipeline zb-h1 --recompute full"; do
  # shellcheck disable=SC2086
  "$orthant" plan --model model.json --cluster machine.yaml --global-batch-size 8 --sequence-length 32 $degrees \
    --precision fp32 --json --emit run=planned.yaml >plan.json
  cat >>planned.yaml <<'YAML'
data: {train: train, tokenizer: bytes, sequence_length: 32}
steps: 2
threads: 1
output: planned
YAML
  "$orthant" train planned.yaml --ranks 4 --dry-run >dry.txt 2>&1 || { cat dry.txt; fail "training rejects a plan"; }
  grep -qF "($(first plan.json peak) bytes)" dry.txt || { cat dry.txt; fail "$degrees: memory differs from the plan"; }
  "$orthant" simulate planned.yaml --cluster ./machine.yaml --json >step.json
  awk -v a="$(first plan.json step_seconds)" -v b="$(first step.json step_seconds)" \
    'BEGIN { exit !(a > 0 && a < b * 1.000001 && b < a * 1.000001) }' || fail "$degrees: simulated step differs from the plan"
done
"$orthant" train planned.yaml --ranks 4 2>planned.err || { cat planned.err; fail "a plan did not train"; }
expect 2 "does not support attention_residuals" "$orthant" plan --model model.json --cluster machine.yaml \
  --engine megatron-core --global-batch-size 8 --sequence-length 32
echo "residuals: keys, stages, meshes, text and plans"
