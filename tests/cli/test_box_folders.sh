#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: waits
# run: Linux, with the right to make namespaces, and Open MPI. Two hosts with two ranks each, in a box
# (tools/cluster_box.sh), that share nothing: `output` is on the disk of rank 0's host, copies in
# memory on the disk of each. Runs have the bits of one machine, before and after a restart.
set -uo pipefail
. tests/support/two_hosts.sh "${1:?usage: test_box_folders.sh ORTHANT}" 32M
local=/tmp/box/local
cat >run.yaml <<'YAML'
model: {model_type: llama, vocab_size: 257, hidden_size: 32, intermediate_size: 48, num_hidden_layers: 2,
  num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 64, tie_word_embeddings: true}
data: {train: train, tokenizer: bytes, sequence_length: 32}
batch: {global_batch_size: 4, micro_batch_size: 1}
parallel: {tp: 2, pp: 2, watchdog_seconds: 20}
learning_rate: {decay: constant, warmup_steps: 0}
checkpoint: {every: 4}
steps: 12
threads: 1
YAML

# train HOST SETTINGS...: with rank 0 on HOST. Sets `got`.
train() {
  local first=$1
  shift
  "$box" on "$first" bash -c 'cd /tmp/box/shared && exec "$@"' in_box mpirun \
    --host "host$first:2,host$((1 - first)):2" "$orthant" train run.yaml "$@" >"$work/out.txt" 2>"$work/err.txt"
  got=$?
}
said() { grep -qE "$1" "$work/err.txt" || fail "not said: $1"; }
# same NAME STEPS: the last checkpoint, on host 0, is that of threads.
same() {
  local file
  "$orthant" train run.yaml --ranks 4 --set output="threads-$1" --set "steps=$2" 2>"$work/err.txt" || fail "threads"
  for file in model optimizer; do
    "$box" on 0 bash -c "cat $local/$1/checkpoints/step-*$2/$file.safetensors" |
      cmp - threads-"$1"/checkpoints/step-*"$2"/$file.safetensors || fail "$1: $file differs from that of threads"
  done
}

# Folders that are not shared.
train 0 --set output=$local/run --set steps=8
[ $got = 0 ] || fail "a folder on one host gave $got"
said "^note: 2 of 4 ranks do not see $local/run/checkpoints of rank 0 on host0, the first of them is rank 2 on host1: "
"$box" on 1 test -e $local/run && fail "host1 has a run directory"
train 0 --set output=$local/run
[ $got = 0 ] || fail "resuming from a folder on one host gave $got"
said "resuming from $local/run/checkpoints/step-00000008"
same run 12

# Rank 0 is on the other host: the run does not begin again.
train 1 --set output=$local/run
[ $got = 3 ] || fail "rank 0 on the other host gave $got"
said "rank 2 on host0: $local/run/checkpoints has a checkpoint of step 12 on this host; .* go on from step 0"
said 'start rank 0 on this host'
[ "$(grep -c '^error: ' "$work/err.txt")" = 1 ] || fail "more than one error"

# Copies on the disk of each host: after a failure the ranks read their own, or those of the other host.
copies=(--set checkpoint.every=100 --set checkpoint.memory=1 --set checkpoint.memory_path=$local)
lost_copies=1
[ "${OT_TESTS:-}" != full ] || lost_copies="none 0 1"
for lost in $lost_copies; do
  output=$local/copies-$lost
  train 0 --set output="$output" "${copies[@]}" --set steps=1000000 &
  job=$!
  # shellcheck disable=SC2016  # expanded on the host
  for _ in {1..200}; do
    [ "$("$box" on 0 bash -c 'cat "$1/metrics.jsonl" 2>/dev/null | wc -l' in_box "$output")" -lt 5 ] || break
    sleep 0.05
  done
  for host in 0 1; do "$box" on $host bash -c 'for p in /proc/[0-9]*; do
      [ "$(readlink "$p/ns/uts")" = "$(readlink /proc/self/ns/uts)" ] && [ "$(readlink "$p/exe")" = "$1" ] &&
      kill -KILL "${p#/proc/}"; done' in_box "$orthant"; done
  wait $job
  [ $lost = none ] || "$box" on $lost bash -c "rm -r $local/orthant-*"
  step=$("$box" on 0 tail -1 "$output/metrics.jsonl" | sed 's/.*"step":\([0-9]*\).*/\1/')
  train 0 --set output="$output" "${copies[@]}" --set steps=$((step + 2))
  [ $got = 0 ] || fail "a restart after the loss of $lost gave $got"
  said 'resuming from the copies in memory of step '
  same copies-$lost $((step + 2))
  "$box" on 0 bash -c "ls $local/orthant-* 2>/dev/null" && fail "copies are left"
done
exit 0
