#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run: any machine. Files that are none (pipes, devices, directories), links and names that lead out
# of a checkpoint, deep nesting, huge declared sizes: each verb refuses them at once with one
# message. A token shard that changes under a running training stops it, with its name and the byte.
set -euo pipefail
. tests/support/expect.sh
orthant=${1:?usage: test_untrusted_files.sh ORTHANT}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# A refusal of a file, at most ten seconds even on a busy machine.
refused() {  # refused CODE WORDS COMMAND...
  local code=$1 words=$2
  shift 2
  expect "$code" "$words" timeout 10 "$@"
  [ "$(grep -c '^error:' err.txt)" = 1 ] || { cat err.txt; fail "$* did not print one error"; }
}

for i in $(seq 400); do echo "line $i of a text to learn from, $((i * i))"; done >text.txt
"$orthant" tokenize --tokenizer bytes --out train text.txt 2>/dev/null >&2
cat >run.yaml <<'YAML'
model: {model_type: llama, vocab_size: 257, hidden_size: 16, intermediate_size: 24, num_hidden_layers: 1,
  num_attention_heads: 2, num_key_value_heads: 1, max_position_embeddings: 64}
data: {train: train, tokenizer: bytes, sequence_length: 32}
batch: {global_batch_size: 2, micro_batch_size: 2}
optimizer: {lr: 1e-3}
learning_rate: {decay: constant}
steps: 3
checkpoint: {every: 2}
log: {tensorboard: false}
threads: 1
output: a
YAML
"$orthant" train run.yaml 2>/dev/null

# ---- what is no file ----
mkfifo pipe.yaml pipe.bin pipe.json
mkdir directory.yaml
ln -s /dev/zero zero.yaml
ln -s /dev/zero zero.json
ln -s /dev/zero zero.txt
for file in pipe directory zero; do
  refused 3 'not a regular file' "$orthant" config $file.yaml
  refused 3 "$file.yaml" "$orthant" plan --from $file.yaml
done
refused 3 'pipe.bin' "$orthant" train run.yaml --set output=c --set data.train=pipe.bin
refused 3 'not a regular file' "$orthant" tokenize --tokenizer pipe.json --out x text.txt
refused 3 'not a regular file' "$orthant" tokenize --tokenizer zero.json --out x text.txt
refused 3 'it is a device' "$orthant" tokenize --tokenizer bytes --out x zero.txt
refused 3 'cannot read' "$orthant" score a directory.yaml
"$orthant" tokenize --tokenizer bytes --out piped <(cat text.txt) 2>/dev/null >&2
cmp piped.bin train.bin || fail "a text from a pipe gives other tokens"

# ---- links and names that lead out of a checkpoint ----
newest=a/checkpoints/step-00000003
damaged() {  # damaged WORDS: the newest checkpoint is passed over or refused
  refused 3 "$1" "$orthant" score b/checkpoints/step-00000003 one.jsonl
  rm -rf b
}
echo '{"text": "line"}' >one.jsonl
for name in manifest.json model.safetensors; do
  cp -r a b
  mv b/checkpoints/step-00000003/$name elsewhere
  ln -s "$work/elsewhere" b/checkpoints/step-00000003/$name
  damaged 'not a regular file'
done
cp -r a b
rm b/checkpoints/step-00000003/manifest.json
mkfifo b/checkpoints/step-00000003/manifest.json
damaged 'not a regular file'
cp -r a b
sed -i 's|"model.safetensors"|"../model.safetensors"|' b/checkpoints/step-00000003/manifest.json
damaged 'checksum'
# A secret beside a checkpoint is not copied through a link in it.
cp -r a b
rm -f b/checkpoints/step-00000003/chat_template.jinja
echo secret >elsewhere
ln -s "$work/elsewhere" b/checkpoints/step-00000003/chat_template.jinja
"$orthant" convert b/checkpoints/step-00000003 hf 2>/dev/null >&2
! grep -rqs secret hf || fail "a link in a checkpoint was followed"
rm -rf b hf

# ---- sizes and nesting ----
truncate -s 1T huge.yaml
truncate -s 1T huge.json
ln -s huge.yaml huge.toml
refused 3 'allowed: up to' "$orthant" config huge.yaml
refused 3 'allowed: up to' "$orthant" plan --from huge.toml
refused 3 'allowed: up to' "$orthant" tokenize --tokenizer huge.json --out x text.txt
printf '%200000s' '' | tr ' ' '[' >deep.yaml
cp deep.yaml deep.json
refused 2 'nest more than 64 deep (deep.yaml:1:65)' "$orthant" config deep.yaml
refused 3 'deep.json:1:2049' "$orthant" tokenize --tokenizer deep.json --out x text.txt
{ for i in $(seq 5000); do echo "v$i=1"; done; echo 'python train.py --num-layers 2'; } >many.sh
refused 2 'too many words or variables' "$orthant" plan --from many.sh
{ printf '{"weight_map": {'; for i in $(seq 10001); do printf '"t%d": "%d.safetensors", ' $i $i; done
  printf '"w": "w.safetensors"}}'; } >directory.yaml/model.safetensors.index.json
cp $newest/config.json directory.yaml/
refused 3 'names more than 10000 files' "$orthant" convert directory.yaml out
echo 'model: "\e[2Jname\x7f"' >terminal.yaml
refused 2 'called "?[2Jname?"' "$orthant" config terminal.yaml
mkdir hf
printf '\377\377\377\377\377\377\377\177{}' >hf/model.safetensors
cp $newest/config.json hf/
refused 3 'its header has 9223372036854775807 bytes' "$orthant" convert hf out
{ printf '\020\0\0\0\0\0\0\0{"a":'; printf '%20s' '' | tr ' ' '['; } >hf/model.safetensors
refused 3 'tensor a: its entry is not an object' "$orthant" convert hf out

# ---- a shard that changes under a training ----
change() {  # change WORDS COMMAND...: begins a long training, runs COMMAND after its first step
  local words=$1 pid got=0
  shift
  rm -rf b
  cp train.bin live.bin
  cp train.idx live.idx
  timeout -s KILL 60 "$orthant" train run.yaml --set output=b --set data.train=live \
    --set steps=100000000 --set checkpoint.every=0 >out.txt 2>err.txt &
  pid=$!
  for _ in $(seq 300); do
    [ -s b/metrics.jsonl ] && break
    sleep 0.05
  done
  "$@"
  wait $pid || got=$?
  [ $got = 3 ] || { tail -5 err.txt; fail "$* under a training gave $got, expected 3"; }
  grep -q "live.bin: $words after it was opened, noticed at byte [0-9]" err.txt ||
    { tail -5 err.txt; fail "$* did not say $words"; }
}
other() { cp train.bin other.bin && mv other.bin live.bin; }
change 'was cut' truncate -s 100 live.bin
change 'was removed or replaced' rm live.bin
change 'was removed or replaced' other
change 'was written to' dd if=/dev/zero of=live.bin bs=1 count=2 conv=notrunc status=none
