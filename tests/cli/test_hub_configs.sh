#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run: any machine. Directories whose config.json has keys that this program does not use: every
# verb ignores keys that transformers never reads, reports them once, and accepts --set
# model.KEY=ignore.
set -euo pipefail
. tests/support/expect.sh
fp8=$(realpath tests/fixtures/fp8)
orthant=$(realpath "${1:?usage: test_hub_configs.sh ORTHANT}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# with DIR KEYS: a copy of hub/ whose config.json also has these keys.
with() {
  cp -r hub "$1"
  sed -i "0,/{/s//{$2,/" "$1/config.json"
}

head -c 4000 /dev/zero | tr '\0' 'a' >text
"$orthant" tokenize --tokenizer bytes --out train text >/dev/null
cat >run.yaml <<'YAML'
model: {model_type: qwen3_moe, vocab_size: 257, hidden_size: 16, num_hidden_layers: 1, head_dim: 8,
  num_attention_heads: 2, num_key_value_heads: 1, max_position_embeddings: 32, num_experts: 2,
  num_experts_per_tok: 1, moe_intermediate_size: 8, tie_word_embeddings: true}
data: {train: train, tokenizer: bytes, sequence_length: 16}
batch: {global_batch_size: 2, micro_batch_size: 1}
steps: 1
threads: 1
log: {health_every: 0}
output: first
YAML
"$orthant" train run.yaml 2>err || fail "train: $(cat err)"
"$orthant" convert first hub >/dev/null 2>&1
with public '"max_window_layers": 48, "qkv_bias": false, "use_qk_norm": true, "auto_map": {"a": "b"}'
with strange '"logits_scaling": 8'
printf '{"tokens": [1, 2, 3]}\n' >lines.jsonl
"$orthant" score hub lines.jsonl >expected
sed 's/^output: .*/output: OUT/' run.yaml >from.yaml

# VERB and its arguments; DIR is replaced by the directory.
verbs=('score DIR lines.jsonl' 'sample DIR --prompt a --max-tokens 2' 'convert DIR OUT'
  'config --set model=DIR' 'presets DIR' 'plan --model DIR --cluster h100 --gpus 8'
  'train from.yaml --set init=DIR --set output=OUT' 'schedule from.yaml --set model=DIR'
  'simulate from.yaml --set model=DIR --cluster h100'
  'audit causality from.yaml --set init=DIR')
for verb in "${verbs[@]}"; do
  words=${verb//DIR/public}
  "$orthant" ${words//OUT/out} >out.txt 2>err || fail "$verb: $(cat err)"
  [ "$(grep -c '^note: .*public/config.json: ' err)" = 1 ] || fail "$verb: not exactly one note: $(cat err)"
  grep -qF 'ignored: max_window_layers, qkv_bias, use_qk_norm, auto_map' err || fail "$verb: $(cat err)"
  words=${verb//DIR/strange}
  words=${words//OUT/out2}
  expect 2 'strange/config.json:1:' "$orthant" $words
  expect 2 '--set model.logits_scaling=ignore' "$orthant" $words
  "$orthant" $words --set model.logits_scaling=ignore >out.txt 2>err || fail "$verb: $(cat err)"
  rm -rf out out2
done
"$orthant" score public lines.jsonl 2>/dev/null | cmp - expected || fail 'other scores'
expect 2 'only keys of the model can be set here' "$orthant" score public lines.jsonl --set seed=1

# Keys that change the mathematics cannot be ignored, even on request.
expect 2 'model.num_experts changes the mathematics' "$orthant" score hub lines.jsonl \
  --set model.num_experts=ignore
for value in ignore expert_choice; do
  expect 2 'help: this model has no experts: leave the key out' "$orthant" config \
    --set model=gpt2 --set model.moe_routing=$value
done

# The configuration is checked before the weights.
rm strange/model.safetensors
expect 2 'unknown key "logits_scaling"' "$orthant" convert strange out

# fp8 weights equal their dequantized values wherever they are read.
"$orthant" convert "$fp8" wide --dtype fp32 >out.txt 2>err
grep -qF 'dequantised: 14 tensors of fp8' err || fail "convert: $(cat err)"
"$orthant" score wide lines.jsonl >expected
"$orthant" score "$fp8" lines.jsonl 2>err | cmp - expected || fail 'fp8 has other scores'
grep -q '^note: .*the weights are fp8 with a scale per block of 16 x 8' err || fail "$(cat err)"
"$orthant" plan --model "$fp8" --cluster h100 --gpus 8 >out.txt 2>err || fail "plan: $(cat err)"
