#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run: any machine. What `orthant serve` says when it starts, which options it refuses, and that two servers do
# not share a port. Requests are those of tests/serve.
set -euo pipefail
. tests/support/expect.sh
orthant=$(realpath "${1:?usage: test_serve_verb.sh ORTHANT}")
source_dir=$PWD
work=$(mktemp -d)
server=
stop_server() { [ -z "$server" ] || { kill -"${1:-TERM}" "$server" && wait "$server"; } 2>/dev/null || true; server=; }
trap 'stop_server; rm -rf "$work"' EXIT
cd "$work"
export XDG_CONFIG_HOME=$work/user
cat >run.yaml <<'YAML'
model: {model_type: llama, vocab_size: 260, hidden_size: 32, intermediate_size: 64, num_hidden_layers: 1,
  num_attention_heads: 4, max_position_embeddings: 64}
data: {train: train, tokenizer: bytes, sequence_length: 32}
batch: {global_batch_size: 2, micro_batch_size: 2}
steps: 1
threads: 1
output: run
YAML
head -c 1000 "$source_dir/LICENSE" >text
"$orthant" tokenize --tokenizer bytes --out train text >/dev/null
"$orthant" train run.yaml 2>/dev/null
(umask 077 && echo secret >key.txt)

# start ARGUMENT...: sets `server` and `first`, its first line; skips without libmicrohttpd.
start() {
  rm -f out.txt
  "$orthant" serve run --port 0 --threads 1 --slots 1 "$@" >out.txt 2>err.txt &
  server=$!
  until [ -s out.txt ]; do
    kill -0 "$server" 2>/dev/null || { grep -q 'without libmicrohttpd' err.txt && exit 77; fail "$(cat err.txt)"; }
    sleep 0.05
  done
  first=$(cat out.txt)
}
said() { grep -q -- "$1" err.txt || fail "serve did not say \"$1\": $(cat err.txt)"; }

# ---- the start: the address alone on stdout; what is served, memory, how to end it ----
start --name small
[[ $first =~ ^http://127\.0\.0\.1:[0-9]+$ ]] || fail "the first line is $first"
said "^serving small at $first; Ctrl-C ends it"
said '^memory: .* for the model and its cache, at most 268.4 MB for requests and answers (--request-memory)'
! grep -q warning err.txt || fail "$(cat err.txt)"
port=${first##*:}
cp err.txt began.txt
expect 3 "port $port of 127.0.0.1 is in use" "$orthant" serve run --port "$port"
grep -q '^help: .*another port with --port' err.txt || fail "$(cat err.txt)"
cp began.txt err.txt
kill -0 "$server" || fail "the first server has gone"
# All addresses contain this one, so that does not listen either, but warns before.
expect 3 "port $port of 0.0.0.0 is in use" "$orthant" serve run --port "$port" --host 0.0.0.0
said '^warning: --host 0.0.0.0 without --api-key'
expect 3 "port $port of :: is in use" "$orthant" serve run --port "$port" --host :: --api-key key.txt
! grep -q warning err.txt || fail "$(cat err.txt)"
status=0
kill -INT "$server"
wait "$server" || status=$?
server=
[ "$status" = 0 ] || fail "Ctrl-C gave $status"
start --json --request-memory 64MiB
[[ $first == *'"model":"step-00000001","step":1,'* && $first == *'"request_bytes":67108864'* ]] || fail "$first"
stop_server

# ---- keys ----
start --api-key key.txt
! grep -q warning err.txt || fail "$(cat err.txt)"
stop_server
chmod 644 key.txt
start --api-key key.txt
said '^warning: --api-key: other users may read key.txt (mode 644); `chmod 600 key.txt` ends that'
stop_server
chmod 666 key.txt
start --api-key key.txt
said '^warning: --api-key: other users may write key.txt'
stop_server

# ---- values that are no use ----
expect 2 '--timeout: -1 is out of range; allowed: 1 to' "$orthant" serve run --timeout -1
expect 2 '--timeout: "nan" is not a number' "$orthant" serve run --timeout nan
expect 2 '--max-length: 1000 is out of range; allowed: 1 to 64' "$orthant" serve run --port 0 --max-length 1000
expect 2 '--request-memory: 1 is out of range' "$orthant" serve run --request-memory 1
expect 2 'nowhere is not an address' "$orthant" serve run --host nowhere
