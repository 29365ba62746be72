#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: waits
# run: Linux, with the right to make namespaces, and Open MPI. Two hosts with two ranks each, in a box
# (tools/cluster_box.sh): training gives the bits of one machine, ranks on the wrong host are
# refused, a killed host ends the job. OT_TESTS=full: links that are cut or slow are named within the
# watchdog, a full disk under the metrics does not end a run, and `bench` measures what goes between
# hosts.
set -uo pipefail
. tests/support/two_hosts.sh "${1:?usage: test_box_verbs.sh ORTHANT}" 2M
cat >run.yaml <<'YAML'
model: {model_type: llama, vocab_size: 257, hidden_size: 32, intermediate_size: 48, num_hidden_layers: 2,
  num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 64, tie_word_embeddings: true}
data: {train: train, tokenizer: bytes, sequence_length: 32}
batch: {global_batch_size: 4, micro_batch_size: 1}
parallel: {tp: 2, pp: 2, watchdog_seconds: 2}
learning_rate: {decay: constant, warmup_steps: 0}
steps: 3
threads: 1
output: processes
YAML

# on_hosts COMMAND...: what mpirun on host 0 starts in the shared folder. Sets `got`.
on_hosts() {
  "$box" on 0 bash -c 'cd /tmp/box/shared && exec "$@"' in_box mpirun "$@" >"$work/out.txt" 2>"$work/err.txt"
  got=$?
}

# begin NAME SETTINGS...: a long run, until its third step. Sets `job`.
begin() {
  local name=$1
  shift
  "$box" on 0 bash -c 'cd /tmp/box/shared && exec "$@"' in_box mpirun "$orthant" train run.yaml \
    --set "output=$name" --set steps=1000000 "$@" >"$work/out.txt" 2>"$work/err.txt" &
  job=$!
  for _ in {1..200}; do
    [ "$(metrics "$name")" -lt 3 ] || return 0
    sleep 0.1
  done
  fail "$name: no third step"
}
# shellcheck disable=SC2016  # expanded on the host
metrics() { "$box" on 0 bash -c 'cd /tmp/box/shared && cat "$1/metrics.jsonl"' in_box "$1" 2>/dev/null | wc -l; }

# named WORDS SECONDS [MOST]: an error has the words, in time; at most MOST [1] errors.
named() {
  for ((i = 0; i < $2 * 10; i++)); do
    grep -qE "^error: .*$1" "$work/err.txt" && break
    sleep 0.1
  done
  grep -qE "^error: .*$1" "$work/err.txt" || fail "no \"$1\" within $2 s"
  [ "$(grep -c '^error: ' "$work/err.txt")" -le "${3:-1}" ] || fail "more than ${3:-1} errors"
}

# warned WORDS SECONDS: a warning has the words, in time.
warned() {
  for ((i = 0; i < $2 * 10; i++)); do
    grep -qE "^warning: .*$1" "$work/err.txt" && return 0
    sleep 0.1
  done
  fail "no \"$1\" within $2 s"
}
progress() { grep -c '^step ' "$work/err.txt"; }

# The box was left with a job whose launcher may hang: a new one. Hosts see the folder in which it is
# made, which has the program.
renew() {
  local old=$CLUSTER_BOX
  cp -r run.yaml train.* "$work"
  cd "$work" || exit 1
  "$box" down
  { wait "$job"; } 2>/dev/null
  CLUSTER_BOX=$(cd "$root" && "$box" up --ranks-per-host 2 --disk 2M) || fail "no box after $old"
  cd "$CLUSTER_BOX/shared" && cp "$work"/{run.yaml,train.*} .
}

on_hosts "$orthant" train run.yaml
[ $got = 0 ] || fail "training on two hosts gave $got"
"$orthant" train run.yaml --ranks 4 --set output=threads 2>"$work/err.txt" || fail "training on threads"
for file in model optimizer; do
  cmp {processes,threads}/checkpoints/step-00000003/$file.safetensors || fail "$file differs between hosts and threads"
done

# Two ranks on each host were measured.
cat >hosts.yaml <<'YAML'
name: hosts
num_devices: 4
host_devices: 2
device: cpu
flops_fp32: 1e10
other_flops_per_s: 1e9
memory_bytes_per_s: 1e10
memory_bytes: 1000000000
threads: 1
levels: [{name: host, size: 2, bytes_per_s: 1e9}, {name: network, size: 4, bytes_per_s: 1e8, latency_s: 1e-4}]
YAML
on_hosts --map-by node "$orthant" train run.yaml --set output=wrong --set cluster=hosts.yaml
[ $got = 4 ] || fail "ranks on the wrong hosts gave $got"
named 'rank 1 is on host1, but .*hosts.yaml has it on the host of rank 0, which is on host0' 1
[ ! -e wrong ] || fail "a run with ranks on the wrong hosts wrote files"

begin killed
"$box" kill 1
for _ in {1..100}; do kill -0 $job 2>/dev/null || break; sleep 0.1; done
kill -0 $job 2>/dev/null && fail "the job goes on without host1"
wait $job && fail "the job succeeded without host1"
grep -q host1 "$work/err.txt" || fail "host1 is not named"
[ "${OT_TESTS:-}" = full ] || exit 0

# ---- faults of links and disks ----

# Each side of the cut misses the other.
renew
begin cut
"$box" cut 1
named 'for (rank [23],|ranks 2 3,)' 10 2
renew
begin slow
"$box" slow 1 5kbit
named 'waits in .* for rank' 15 2
renew
# A full disk under the metrics does not end a run; they go on when there is room again.
begin /tmp/box/local/full --set checkpoint.every=1000000
"$box" fill 0
warned 'cannot write: No space left on device \(/tmp/box/local/full/metrics.jsonl\)' 10
steps=$(progress)
for _ in {1..100}; do [ "$(progress)" -gt $((steps + 3)) ] && break; sleep 0.1; done
[ "$(progress)" -gt $((steps + 3)) ] || fail "a full disk stopped the run"
"$box" empty 0
before=$(metrics /tmp/box/local/full)
for _ in {1..100}; do [ "$(metrics /tmp/box/local/full)" -gt $((before + 3)) ] && break; sleep 0.1; done
[ "$(metrics /tmp/box/local/full)" -gt $((before + 3)) ] || fail "no metrics after there was room again"
renew
begin healed --set parallel.watchdog_seconds=20
"$box" cut 1
sleep 1
"$box" heal 1
before=$(metrics healed)
for _ in {1..150}; do [ "$(metrics healed)" -gt $((before + 3)) ] && break; sleep 0.1; done
[ "$(metrics healed)" -gt $((before + 3)) ] || fail "no steps after the link was healed"

# A supervised job starts again when the link is back.
renew
"$box" on 0 bash -c 'cd /tmp/box/shared && exec "$@"' in_box "$orthant" train run.yaml --supervise --ranks 4 \
  --set output=watched --set steps=1000000 --set checkpoint.every=5 -- mpirun -n '{ranks}' >"$work/out.txt" 2>"$work/err.txt" &
job=$!
for _ in {1..200}; do [ "$(metrics watched)" -gt 6 ] && break; sleep 0.1; done
"$box" cut 1
for _ in {1..200}; do grep -q '"event":"failure"' watched/events.jsonl && break; sleep 0.1; done
grep -q '"event":"failure"' watched/events.jsonl || fail "the supervisor saw no failure"
"$box" heal 1
before=$(metrics watched)
for _ in {1..400}; do [ "$(metrics watched)" -gt $((before + 6)) ] && break; sleep 0.1; done
[ "$(metrics watched)" -gt $((before + 6)) ] || fail "no steps after the restart"

# ---- bench ----

renew
on_hosts "$orthant" bench --device cpu --quick --out cluster.yaml
[ $got = 0 ] || fail "bench gave $got"
for what in 'num_devices: 4' 'host_devices: 2' 'op: all_reduce, ranks: 2, hosts: 1' 'op: all_reduce, ranks: 2, hosts: 2' \
  'op: all_gather, ranks: 4, hosts: 2' 'op: message, ranks: 2, hosts: 1' 'op: message, ranks: 2, hosts: 2' \
  'name: host, size: 2' 'name: network, size: 4'; do
  grep -q "$what" cluster.yaml || { cat cluster.yaml; fail "no $what"; }
done
on_hosts "$orthant" train run.yaml --set output=predicted --set cluster=./cluster.yaml
[ $got = 0 ] || fail "training with the file gave $got"
grep -q '"predicted_step_seconds":[0-9]' predicted/metrics.jsonl || fail "no prediction"
on_hosts --map-by node "$orthant" bench --device cpu --quick --out wrong.yaml
[ $got = 4 ] || fail "bench with ranks on the wrong hosts gave $got"
on_hosts "$orthant" bench --device cpu --quick
[ $got = 2 ] || fail "bench without --out gave $got"
