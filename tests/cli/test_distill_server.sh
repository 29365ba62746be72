#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run: any machine. A student of a teacher on a server (`orthant serve --teach`): the bytes of a
# teacher in the job, on every layout; a server that is away is waited for; one with another model,
# tokenizer or shape is refused, also in the middle of a run.
set -euo pipefail
. tests/support/expect.sh
orthant=$(realpath "${1:?usage: test_distill_server.sh ORTHANT}")
source_dir=$PWD
work=$(mktemp -d)
server=
stop_server() { [ -z "$server" ] || { kill "$server" && wait "$server"; } 2>/dev/null || true; server=; }
trap 'stop_server; rm -rf "$work"' EXIT
cd "$work"
export XDG_CONFIG_HOME=$work/user

cat >teacher.yaml <<'YAML'
model: {model_type: llama, vocab_size: 260, hidden_size: 32, intermediate_size: 64, num_hidden_layers: 2,
  num_attention_heads: 4, max_position_embeddings: 64}
data: {train: train, tokenizer: bytes, sequence_length: 32}
batch: {global_batch_size: 8, micro_batch_size: 4}
optimizer: {lr: 3e-3}
steps: 5
threads: 1
output: teacher
YAML
sed 's/hidden_size: 32/hidden_size: 16/; s/^steps: .*/steps: 3/; s/^output: .*/output: student/
  s/global_batch_size: 8, micro_batch_size: 4/global_batch_size: 8, micro_batch_size: 2/' \
  teacher.yaml >student.yaml
echo 'distill: {objective: sampled, from: live, teacher: teacher, draws: 20, targets: 8, alpha: 0.75,
  server_key: key.txt}' >>student.yaml
echo 'a secret of 1 line' >key.txt
echo another >wrong.txt
chmod 600 key.txt
chmod 644 wrong.txt
: >empty.txt
head -c 3000 "$source_dir/LICENSE" >text
"$orthant" tokenize --tokenizer bytes --out train text >/dev/null
"$orthant" train teacher.yaml 2>/dev/null
"$orthant" train teacher.yaml --set output=other --set seed=2 2>/dev/null

# The port of all servers: none that the system gives to connections, of which one might have it when a server comes back.
port=
address=
# start TEACHER [ARGUMENT...]: with the key of key.txt; false if it ends.
start() {
  rm -f address.txt
  "$orthant" serve "$1" --port "$port" --threads 1 --slots 1 --api-key key.txt "${@:2}" >address.txt 2>serve.txt &
  server=$!
  until [ -s address.txt ]; do
    kill -0 "$server" 2>/dev/null || return
    sleep 0.05
  done
  address=$(cat address.txt)
}
# serve TEACHER [ARGUMENT...]: sets `server` and `address`, at the first time also `port`; skips without libmicrohttpd.
serve() {
  local first=${port:+no}
  for _ in $(seq 20); do
    [ -n "$first" ] || port=$((10000 + RANDOM % 20000))
    start "$@" && return
    grep -q 'without libmicrohttpd' serve.txt && exit 77
    [ -z "$first" ] && grep -q 'is in use' serve.txt || break
  done
  fail "$(cat serve.txt)"
}
losses() { grep -o '"loss":[^,]*,"data_loss":[^,]*,"teacher_kl":[^,]*,"grad_norm":[^,]*' "$1/metrics.jsonl"; }
remote() { "$orthant" train student.yaml --set distill.from=server --set distill.server="$address" "$@"; }
# same NAME ARGUMENT...: trains with the teacher here and over there, with equal bytes.
same() {
  rm -rf here there
  "$orthant" train student.yaml "${@:2}" --set output=here 2>err.txt || fail "$1: $(cat err.txt)"
  remote "${@:2}" --set output=there 2>err.txt || { grep -q 'without libcurl' err.txt && exit 77; fail "$1: $(cat err.txt)"; }
  cmp <(losses here) <(losses there) || fail "$1: a server teaches something else"
}

# ---- the bytes of a live teacher, on layouts, ahead of the step, in float64, of scores ----
serve teacher --teach student.yaml
same sampled
! grep -q warning err.txt || fail "$(cat err.txt)"
[ "$(losses there | wc -l)" = 3 ] && ! losses there | found null || fail "$(losses there)"
same "tp=2" --ranks 2 --set parallel.tp=2
rm -rf there
remote --ranks 3 --set parallel.tp=2 --set distill.teacher_ranks=1 --set output=there 2>err.txt || fail "$(cat err.txt)"
cmp <(losses here) <(losses there) || fail "a rank that asks ahead changes bits"
same "dp=2" --ranks 2 --set parallel.dp=2
rm -rf there
remote --ranks 4 --set parallel.dp=2 --set distill.teacher_ranks=2 --set output=there 2>err.txt || fail "$(cat err.txt)"
cmp <(losses here) <(losses there) || fail "two ranks that ask ahead change bits"
remote --dry-run --set output=dry >dry.txt 2>&1
grep -q "what $address takes to answer is not in the prices" dry.txt || fail "no word of the price"
stop_server
sed 's/^distill: .*/distill: {objective: reverse_kl, from: server, server: "http:\/\/unused", prompt_tokens: 8,/' student.yaml >reverse.yaml
echo 'precision: {compute: fp64}' >>reverse.yaml
serve teacher --teach reverse.yaml
same reverse_kl --set distill.objective=reverse_kl --set distill.prompt_tokens=8 --set precision.compute=fp64
stop_server

# ---- what does not fit is refused by name ----
serve teacher --teach student.yaml
refused() { rm -rf no; expect "$1" "$2" remote --set output=no "${@:3}"; }
refused 2 'status 401' --set distill.server_key=null
refused 2 'status 401' --set distill.server_key=wrong.txt
grep -q '^warning: distill.server_key: other users may read .*/wrong.txt' err.txt || fail "$(cat err.txt)"
refused 2 'the first line does not have 1 to' --set distill.server_key=empty.txt
! grep -rq 'a secret of' student here there 2>/dev/null || fail "the key is in the files of a run"
refused 2 'runs with data.sequence_length=32, this one has 16' --set data.sequence_length=16
refused 2 'batch.micro_batch_size=2, this one has 4' --set batch.micro_batch_size=4
refused 2 'distill.draws=20, this one has 21' --set distill.draws=21
refused 2 'targets for the teacher=7, this one has 8' --set distill.alpha=1
refused 2 'precision.compute, bits=32, this one has 64' --set precision.compute=fp64
refused 2 'that of distill.teacher is' --set distill.teacher=other
"$orthant" tokenize --train-vocab 259 --tokenizer words.json --out words text >/dev/null 2>&1
refused 2 'that of data.tokenizer is' --set data.tokenizer=words.json --set data.train=words
expect 2 'from=server needs server' "$orthant" train student.yaml --set distill.from=server --set output=no
expect 2 'from=server leaves out' "$orthant" distill targets student.yaml --set distill.from=server --set distill.server="$address"
expect 4 'all its weights on one rank' "$orthant" serve teacher --ranks 2 --teach student.yaml
expect 2 'distill.objective is none' "$orthant" serve teacher --teach teacher.yaml
body() { curl -s -H 'Content-Type: application/json' -H "Authorization: Bearer $(cat key.txt)" -d "$1" "$address/v1/teacher/targets"; }
if command -v curl >/dev/null; then
  body '{"tokens": [1]}' | found 'tokens is not a list of 64 whole numbers' || fail "$(body '{"tokens": [1]}')"
  body '{' | found '"code":400' || fail "half a request is taken"
fi
stop_server
expect 3 'the last try: ' remote --set output=no --set distill.server_timeout=0.3
serve teacher
refused 2 'refuses, status 400: this server has no teacher' --set distill.teacher=null
stop_server

# ---- away for a while: the run waits, with the same bits; back with another model: it ends ----
# A run without end, of which each step needs the server: it cannot have ended before the server does.
endless="--set learning_rate.decay=constant --set learning_rate.warmup_steps=0"
count() { cat "$1/metrics.jsonl" 2>/dev/null | wc -l; }
until_steps() {  # OUTPUT N: until the run has done that many
  until [ "$(count "$1")" -ge "$2" ]; do
    kill -0 $run 2>/dev/null || fail "$(cat err.txt)"
    sleep 0.02
  done
}
# begin OUTPUT: a run that has done three steps, whose server is killed.
begin() {
  "$orthant" train student.yaml --set distill.from=server --set distill.server="$address" $endless --set steps=1000000 \
    --set output="$1" --set distill.teacher=null 2>err.txt &
  run=$!
  until_steps "$1" 3
  kill -KILL "$server"
  wait "$server" 2>/dev/null || true
}
serve teacher --teach student.yaml
begin waits
serve teacher --teach student.yaml
until_steps waits $(($(count waits) + 5))
kill -TERM $run
status=0
wait $run || status=$?
[ "$status" = 75 ] || fail "a server that came back, status $status: $(cat err.txt)"
"$orthant" train student.yaml $endless --set steps="$(count waits)" --set output=whole 2>/dev/null
cmp <(losses whole) <(losses waits) || fail "the wait changed bits"
begin swapped
serve other --teach student.yaml
status=0
wait $run || status=$?
[ "$status" = 3 ] && grep -q 'it has another teacher now, hash' err.txt || fail "status $status: $(cat err.txt)"
