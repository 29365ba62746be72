#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# run: test_data_verbs.sh PROGRAM. From text to a shard and back with a user's commands.
set -euo pipefail
orthant=$(realpath "$1")
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

mkdir text
for i in 1 2 3; do seq -f "line %g of file $i, and it isn't the last one" 200 >text/$i.txt; done
printf 'caf\xc3\xa9 \xff\x00 end' >text/0.bin.txt

# A trained tokenizer, and bytes: every document round-trips byte for byte.
"$orthant" tokenize --tokenizer bpe.json --train-vocab 400 --out trained text >summary
grep -q 'in 4 documents from 4 files' summary || fail "summary: $(cat summary)"
"$orthant" tokenize --tokenizer bytes --out plain --threads 2 text --json >plain.json 2>note
grep -q '"documents":4' plain.json || fail "json: $(cat plain.json)"
grep -q '"invalid_utf8_bytes":1,' plain.json || fail "json: $(cat plain.json)"
grep -q '^note: 1 byte is not valid UTF-8' note || fail "no note of bytes: $(cat note)"
for shard in trained plain.bin; do
  for i in 0 1 2 3; do
    "$orthant" data decode $shard --document $i >back
    cmp back "$(printf '%s\n' text/* | sed -n $((i + 1))p)" || fail "$shard: document $i differs"
  done
  "$orthant" data decode $shard | cmp - <(cat text/*) || fail "$shard: not all documents"
done
"$orthant" data inspect trained | grep -q '^documents  4$' || fail "inspect"
"$orthant" data inspect plain --json | grep -q '"max_id":256' || fail "inspect --json"
"$orthant" data decode plain --document 0 --json | grep -q '"text":"café ' || fail "decode --json"

# The same tokens, with an id before each document as llm.c writes them, or after it.
{ printf '\210\330\064\001\001\000\000\000\005\000\000\000' && head -c 1012 /dev/zero &&
  printf '\000\001a\000b\000\000\001c\000'; } >c.bin
decode_c() { "$orthant" data decode c --tokenizer bytes --eod-id 256 --document "$@"; }
"$orthant" data inspect c --eod-id 256 | grep -q 'each begins with id 256' || fail "inspect of llm.c tokens"
[ "$(decode_c 0)$(decode_c 1)" = abc ] || fail "documents that begin with the id"
[ "$(decode_c 1 --document-boundary end)" = ab ] || fail "documents that end with the id"

# Errors give a remedy and leave existing files unchanged.
cp plain.bin before.bin
expect_error 3 'nowhere' "$orthant" tokenize --tokenizer bytes --out plain nowhere
cmp plain.bin before.bin || fail "a failed run touched the shard"
expect_error 2 'unknown action "list"' "$orthant" data list plain
expect_error 2 'has no document 9' "$orthant" data decode plain --document 9
expect_error 3 'does not exist' "$orthant" data inspect absent
printf 'x' >>plain.bin
expect_error 3 'plain.bin: 5' "$orthant" data inspect plain
sed -i 's/"ignore_merges":false/"ignore_merges":true/' bpe.json
expect_error 3 'has changed since it made' "$orthant" data decode trained
echo passed
