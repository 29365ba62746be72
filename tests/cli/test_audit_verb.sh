#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run: any machine. `orthant audit`, and audits during `orthant train`.
set -euo pipefail
orthant=${1:?usage: test_audit_verb.sh ORTHANT}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
source_dir=$PWD
cd "$work"

fail() { echo "FAILED: $*" >&2; exit 1; }
expect() {  # expect CODE WORDS COMMAND...: exit code, and words that the output must contain
  local code=$1 words=$2 got=0
  shift 2
  "$@" >out.txt 2>err.txt || got=$?
  [ "$got" = "$code" ] || { cat out.txt err.txt; fail "$* gave $got, expected $code"; }
  cat out.txt err.txt | grep -qF -- "$words" || { cat out.txt err.txt; fail "$* did not print \"$words\""; }
}

"$orthant" tokenize --tokenizer bytes --out train "$source_dir"/src/core/base/*.h >/dev/null 2>&1
cat >run.yaml <<'YAML'
model: {model_type: llama, vocab_size: 257, hidden_size: 32, intermediate_size: 48, num_hidden_layers: 4,
  num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 64, tie_word_embeddings: true}
data: {train: train, tokenizer: bytes, sequence_length: 32}
batch: {global_batch_size: 8, micro_batch_size: 1}
steps: 4
threads: 1
output: a
YAML

# Invalid requests are rejected before anything runs.
expect 2 'there is no audit "foo"' "$orthant" audit foo run.yaml
expect 4 "pp=2 x cp=1 x tp=1 (--set parallel.pp)" "$orthant" audit ranks run.yaml --set parallel.pp=2
expect 2 "overlap runs its own steps" \
  "$orthant" train run.yaml --set 'audit={every: 2, checks: [overlap]}'
expect 2 "audit.checks is empty" "$orthant" train run.yaml --set audit.every=2
[ ! -e a ] || fail "a rejected run wrote files"

# Clean runs, on every axis.
for settings in "2 parallel.zero=0" "4 parallel.zero=2" "2 parallel.tp=2" "2 parallel.cp=2" "2 parallel.pp=2" \
  "8 parallel.tp=2 --set parallel.pp=2 --set parallel.zero=1"; do
  # shellcheck disable=SC2086
  expect 0 "ranks: clean" "$orthant" audit ranks run.yaml --ranks ${settings%% *} --set ${settings#* }
done
expect 0 "ranks: inconclusive" "$orthant" audit ranks run.yaml
expect 0 "ranks: inconclusive" "$orthant" audit ranks run.yaml --ranks 2 --set parallel.zero=3
[ ! -e a ] || fail "an audit wrote files"

# The JSON document.
holds() {  # holds FILE REGEX...
  local file=$1 pattern
  shift
  for pattern in "$@"; do
    tr -d ' \n' <"$file" | grep -qE -- "$pattern" || { cat "$file"; fail "no $pattern in $file"; }
  done
}
"$orthant" audit ranks run.yaml --ranks 2 --steps 1 --seed 7 --json >ranks.json
holds ranks.json '^\{"audit":"ranks","verdict":"clean","summary":".*","findings":\[\],"figures":\{' \
  '"last_step":1,"compared_bytes":[1-9][0-9]*,"single_bytes":[1-9][0-9]*,"seconds_per_look":'
got=0
"$orthant" audit overlap run.yaml --ranks 2 --set parallel.tp=2 --steps 2 --json >overlap.json || got=$?
holds overlap.json '^\{"audit":"overlap","verdict":"(clean|finding|inconclusive)",' \
  '"exposed_seconds":\{"tp":[0-9.e-]+,"cp":0,"ep":0,"pp":0,"dp":0,"world":' \
  '\{"axis":"tp","op":"all_gather","calls":[1-9][0-9.]*,"bytes":[1-9][0-9.]*,"busy_seconds":'
if [ "$got" = 1 ]; then holds overlap.json '"verdict":"finding".*"findings":\[\{"what":"[a-z_]+","where":"[^"]+","evidence":"'
else [ "$got" = 0 ] || fail "an audit gave $got"; fi

# With four ranks on one core, waits show the shared core, not communication.
first=$(taskset -pc $$ | sed 's/.*: //; s/[-,].*//')
expect 0 "overlap: inconclusive" taskset -c "$first" "$orthant" audit overlap run.yaml --ranks 4 --steps 1

# A run with audits, and an audit of its checkpoint on another mesh.
"$orthant" train run.yaml --ranks 4 --set parallel.tp=2 --set 'audit={every: 2, checks: [ranks]}' 2>/dev/null
[ "$(grep -c '"audit_findings/ranks":0' a/metrics.jsonl)" = 2 ] || fail "a run was not audited"
expect 0 "after steps 4 to 6" "$orthant" audit ranks a --ranks 2 --set parallel.tp=1 --set parallel.pp=2
expect 0 "after steps 4 to 5" "$orthant" audit ranks a/checkpoints/step-00000004 --ranks 2 --steps 1

# Log-probabilities by other software: those of the same weights, of others, and what is refused.
printf '%s\n' '{"text":"static ot_status check_"}' '{"context":"for (int","continuation":" i = 0; i < n"}' >lines.jsonl
"$orthant" score a lines.jsonl >scores.jsonl
expect 0 "drift: clean" "$orthant" audit drift a --set parallel.tp=1 --against scores.jsonl
"$orthant" audit drift a --against scores.jsonl --ranks 2 --json >against.json
holds against.json '"verdict":"clean".*"figures":\{"against":"scores.jsonl","tokens":35,"sequences":2,"rms_nats":'
expect 1 "finding 1: other_weights  scores.jsonl" "$orthant" audit drift run.yaml --against scores.jsonl
expect 2 "audit ranks: --against is for drift" "$orthant" audit ranks a --against scores.jsonl
expect 2 "the text has 23 tokens; allowed: up to data.sequence_length=16" \
  "$orthant" audit drift run.yaml --set data.sequence_length=16 --against scores.jsonl
expect 3 "absent.jsonl" "$orthant" audit drift run.yaml --against absent.jsonl
# Files of transformers, in the form of vLLM, against a run from the same weights (tests/fixtures/judge/make_logprobs.py).
fixtures=$source_dir/tests/fixtures/judge/logprobs
python3 -c 'import struct; open("tokens.bin", "wb").write(
  struct.pack("<256i", 20240520, 1, 900, *[0] * 253) + struct.pack("<900H", *[i * i % 96 for i in range(900)]))'
cat >hf.yaml <<YAML
model: $fixtures/config.json
init: $fixtures
data: {train: tokens.bin, sequence_length: 64}
batch: {global_batch_size: 1, micro_batch_size: 1}
steps: 1
threads: 1
YAML
for compute in fp32 bf16; do
  against() { expect "$1" "$2" "$orthant" audit drift hf.yaml --set precision.compute=$compute --against "$fixtures/$3.jsonl"; }
  against 0 "against the training forward in $compute" vllm_fp32
  against 0 "own error in bf16" bf16
  against 1 "factor top-p 0.9" vllm_top_p
  against 1 "finding 1: padding_attended" padded
  against 1 "the training forward in $compute agrees with the checkpoint" stale
done

"$orthant" convert a hf >/dev/null 2>&1
expect 2 "it is not a checkpoint of a run" "$orthant" audit ranks hf --ranks 2
echo "all passed"
