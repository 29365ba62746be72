#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run: any machine. The verbs with SentencePiece tokenizers: text to shards and back, training with
# a copy of the tokenizer in the checkpoint, streamed and whole text.
set -euo pipefail
. tests/support/expect.sh
orthant=${1:?usage: test_sentencepiece_verbs.sh ORTHANT}
tokenizers=$PWD/tests/fixtures/tokenizers
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

mkdir text
printf 'The miller said:  "they will not mind".\n\n\tnoise 12345' >text/a.txt
printf 'two  spaces, caf\303\251, \346\262\263 \360\237\230\200 and \342\200\231\n' >text/b.txt
for i in $(seq 60); do echo "the river runs past the old mill number $i, and the noise of it"; done >text/c.txt

# Every document round-trips byte for byte; a character map turns line breaks into spaces.
for kind in llama2 mistral gemma; do
  "$orthant" tokenize --tokenizer "$tokenizers/$kind.json" --out $kind text >/dev/null
  "$orthant" data decode $kind | cmp - <(cat text/*) || fail "$kind: text differs"
done
for kind in t5 xlmr; do
  "$orthant" tokenize --tokenizer "$tokenizers/$kind.json" --out $kind text/c.txt >/dev/null
  "$orthant" data decode $kind | cmp - <(tr '\n' ' ' <text/c.txt | sed 's/ $//') || fail "$kind: text differs"
done

cat >run.yaml <<YAML
model: {model_type: llama, vocab_size: 700, hidden_size: 24, intermediate_size: 40, num_hidden_layers: 1,
  num_attention_heads: 3, num_key_value_heads: 1, max_position_embeddings: 64, tie_word_embeddings: false}
data: {train: llama2, tokenizer: $tokenizers/llama2.json, sequence_length: 32}
batch: {global_batch_size: 2, micro_batch_size: 1}
steps: 60
optimizer: {lr: 1e-2}
learning_rate: {decay: constant}
threads: 1
output: run
YAML
"$orthant" train run.yaml 2>/dev/null
cmp run/checkpoints/step-00000060/tokenizer.json "$tokenizers/llama2.json" || fail "the tokenizer in the checkpoint differs"
expect 2 "was tokenized with" "$orthant" train run.yaml --set output=other \
  --set "data.tokenizer=$tokenizers/mistral.json"
"$orthant" train run.yaml --set output=shown --set steps=1 --show-batch 2>&1 | found "the river runs past" || fail "no text of a batch"

# Streamed text equals the whole text, after a prompt and from the start.
for prompt in "the mill" ""; do
  "$orthant" sample run --prompt "$prompt" --max-tokens 12 --temperature 0 >stream
  "$orthant" sample run --prompt "$prompt" --max-tokens 12 --temperature 0 --json >whole.json
  { printf '%s' "$prompt" && sed -n 's/^  "text": "\(.*\)",$/\1/p' whole.json; } >whole
  cmp stream whole || fail "JSON text differs after \"$prompt\""
  [ "$(head -c 1 stream)" != " " ] || fail "a space before the text"
done
printf '{"context":"the old","continuation":" mill"}\n' >q.jsonl
"$orthant" score run q.jsonl | found '"logprobs":\[-' || fail "no scores"
"$orthant" convert run exported >/dev/null 2>&1
cmp exported/tokenizer.json "$tokenizers/llama2.json" || fail "the tokenizer in the export differs"
grep -q '"eos_token": "</s>"' exported/tokenizer_config.json || fail "no eos token: $(cat exported/tokenizer_config.json)"

# Unknown kinds are rejected with a list of known ones.
sed 's/"type":"BPE"/"type":"WordPiece"/' "$tokenizers/llama2.json" >wordpiece.json
expect 2 "wordpiece.json: model: WordPiece is not supported" "$orthant" tokenize --tokenizer wordpiece.json --out w text
expect 2 "supported: BPE, Unigram" "$orthant" tokenize --tokenizer wordpiece.json --out w text
echo "all passed"
