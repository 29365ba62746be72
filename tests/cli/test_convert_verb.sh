#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# run: test_convert_verb.sh PROGRAM. HF directory to checkpoint and back, as a user types it.
set -euo pipefail
orthant=$(realpath "$1")
fixtures=$(realpath tests/fixtures/parity)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
fail() { echo "FAILED: $1" >&2; exit 1; }
# expect_error CODE TEXT COMMAND...: the command ends with CODE and prints TEXT.
expect_error() {
  local code=$1 text=$2 got=0
  shift 2
  "$@" >out 2>err || got=$?
  [ "$got" = "$code" ] || fail "exit $got, not $code: $*"
  grep -qF -- "$text" err || fail "no \"$text\" in: $(cat err)"
  [ "$(grep -c '^error: ' err)" = 1 ] || fail "not one error line: $(cat err)"
}

"$orthant" convert "$fixtures/gpt2" checkpoint >out
grep -q '^checkpoint: checkpoint with 28 tensors, ' out || fail "text: $(cat out)"
"$orthant" convert checkpoint back --json >out.json
grep -q '"made": "hf"' out.json || fail "json: $(cat out.json)"
cmp back/model.safetensors "$fixtures/gpt2/model.safetensors" || fail "decoded bytes differ"
"$orthant" convert checkpoint small --dtype=bf16 --shard-size 10k >out
[ -f small/model.safetensors.index.json ] || fail "no shards: $(ls small)"

expect_error 2 'the output directory already exists (back)' "$orthant" convert checkpoint back
expect_error 3 'there is no checkpoint, run or HF directory of this name (none)' \
  "$orthant" convert none out1
printf 'x' | dd of=checkpoint/model.safetensors bs=1 seek=5000 conv=notrunc status=none
expect_error 3 'checkpoint is damaged' "$orthant" convert checkpoint out2
cp -r "$fixtures/llama" llama
cp "$fixtures/qwen3/model.safetensors" llama/
expect_error 3 'tensor' "$orthant" convert llama out3
[ ! -e out2 ] && [ ! -e out3 ] || fail "a failed conversion left files: $(ls)"
