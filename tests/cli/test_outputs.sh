#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run: any machine. Where results go, verb by verb: files that a user names (links stay, what is no
# regular file is written to and never replaced), standard output, pipes that close.
set -euo pipefail
. tests/support/expect.sh
orthant=$(realpath "${1:?usage: test_outputs.sh ORTHANT}")
source_dir=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export XDG_CONFIG_HOME=$work/user

cat >run.yaml <<'YAML'
model: {model_type: llama, vocab_size: 257, hidden_size: 16, intermediate_size: 32, num_hidden_layers: 2,
  num_attention_heads: 2, max_position_embeddings: 64}
data: {train: train, tokenizer: bytes, sequence_length: 32}
batch: {global_batch_size: 4, micro_batch_size: 2}
steps: 3
threads: 1
output: run
YAML
"$orthant" tokenize --tokenizer bytes --out train "$source_dir/src/base" >/dev/null
"$orthant" train run.yaml 2>/dev/null
plan=("$orthant" plan --model gpt2 --cluster h100 --gpus 4 --tp 1 --pp 1 --cp 1 --top 1)

# ---- files that a user names ----
# writes COMMAND...: the command, with FILE in place of an output, through a link, into a FIFO, and
# into devices. These are links, too: a fault here costs no device of the machine.
writes() {
  local here
  rm -rf target link fifo full none
  ln -s target link
  "${@//FILE/link}" >out.txt 2>err.txt || { cat err.txt; fail "$* through a link"; }
  [ -L link ] && [ -s target ] || fail "$* replaced a link"
  mkfifo fifo
  timeout 60 cat fifo >got &
  here=$!
  "${@//FILE/fifo}" >out.txt 2>err.txt || { cat err.txt; fail "$* into a FIFO"; }
  wait "$here" || fail "$* wrote nothing into a FIFO"
  [ -p fifo ] && [ -s got ] || fail "$* replaced a FIFO"
  ln -s /dev/full full
  expect 3 "No space left on device (full)" "${@//FILE/full}"
  [ -L full ] && [ -c /dev/full ] || fail "$* replaced a device"
  ln -s /dev/null none
  "${@//FILE/none}" >out.txt 2>err.txt || { cat err.txt; fail "$* into /dev/null"; }
  [ -L none ] && [ -c /dev/null ] || fail "$* replaced a device"
}
writes "${plan[@]}" --html FILE
writes "${plan[@]}" --trace FILE
writes "${plan[@]}" --emit run=FILE
writes "$orthant" simulate run.yaml --cluster h100 --trace FILE
writes "$orthant" train run.yaml --resume never --set output=traced-FILE --trace FILE:1-2

ln -s shard.bin linked.bin
ln -s shard.idx linked.idx
"$orthant" tokenize --tokenizer bytes --out linked run.yaml >/dev/null
[ -L linked.bin ] && [ -L linked.idx ] && [ -s shard.bin ] && [ -s shard.idx ] || fail "tokenize replaced a link"
"$orthant" tokenize --tokenizer bytes --out linked run.yaml >/dev/null
[ -L linked.idx ] || fail "tokenize replaced a link to an index that was there"
mkfifo fifo.idx
expect 3 "an index is read back" "$orthant" tokenize --tokenizer bytes --out fifo run.yaml
ln -s learned.json tokenizer.json
learn=("$orthant" tokenize --train-vocab 260 --tokenizer)
"${learn[@]}" tokenizer.json --out learned run.yaml >/dev/null
[ -L tokenizer.json ] && [ -s learned.json ] || fail "tokenize replaced a link to a tokenizer"
expect 3 "a trained tokenizer is read back (fifo)" "${learn[@]}" fifo --out learned run.yaml
ln -s exported dangling
"$orthant" convert run dangling >/dev/null 2>&1
[ -L dangling ] && [ -s exported/model.safetensors ] || fail "convert replaced a link"
expect 2 "is there already (fifo)" "$orthant" convert run fifo

# ---- what is sent to standard output by name stands there alone ----
"${plan[@]}" --html /dev/stdout | tail -1 | grep -q '^</html>' || fail "a report behind a page"
"${plan[@]}" --html /dev/stdout >page.html
[ "$(head -c 15 page.html)" = '<!DOCTYPE html>' ] && tail -1 page.html | grep -q '</html>' || fail "no page in a file"
expect 2 "both print on stdout" "${plan[@]}" --html /dev/stdout --json

# ---- a reader that leaves ends a verb without a word; files and training are completed ----
mkfifo gone
exec 4<>gone 5>gone 4>&-  # 5: a pipe that nothing reads
leaves() {  # leaves COMMAND...
  local got=0
  "$@" >&5 2>err.txt || got=$?
  [ "$got" = 141 ] || { cat err.txt; fail "$* ended with $got when its reader had left"; }
  grep '^error\|^help' err.txt && fail "$* spoke when its reader had left"
  return 0
}
leaves "$orthant"
leaves "${plan[@]}" --html late.html
tail -1 late.html | grep -q '^</html>' || fail "a page is not complete"
leaves "$orthant" plan --model llama3-8b --cluster h100 --gpus 1 --tp 1
leaves "$orthant" sample run --prompt a --max-tokens 20000
printf '{"text": "abc"}\n' >lines.jsonl
leaves "$orthant" score run lines.jsonl
"$orthant" train run.yaml --set output=unheard >&5 2>&5 || fail "training ended with $? when its reader had left"
[ "$(wc -l <unheard/metrics.jsonl)" = 3 ] || fail "training stopped when its reader had left"
expect 3 "cannot write the result" sh -c "$orthant presets >/dev/full"
expect 3 "cannot write the result" sh -c "$orthant presets >&-"
