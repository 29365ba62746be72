#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: waits
# `orthant train --supervise`: after kills at random times a run has the bits of one never broken; a
# hang is found; stops, budgets and lost ranks. With OT_TESTS=full: 20 kills of 8 ranks, and the time
# from a kill to the next new step.
set -uo pipefail
orthant=${1:?usage: test_supervise.sh ORTHANT}
supervisor=
. tests/support/work_folder.sh
trap 'kill -KILL $supervisor 2>/dev/null; rm -rf "$work"' EXIT
cat >run.yaml <<'YAML'
model: {model_type: llama, vocab_size: 257, hidden_size: 32, intermediate_size: 48, num_hidden_layers: 2,
  num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 32}
data: {train: train, tokenizer: bytes, sequence_length: 32}
batch: {global_batch_size: 8, micro_batch_size: 1}
learning_rate: {warmup_steps: 2, decay: constant}
steps: 300
checkpoint: {every: 20}
log: {every: 100}
threads: 1
YAML

milliseconds() { echo $(($(date +%s%N) / 1000000)); }
lines() { cat "$1" 2>/dev/null | wc -l; }
losses() { sed -n 's/^{"step":\([0-9]*\),"loss":\([^,]*\),.*/\1 \2/p' "$1"; }
count() { cat "$1/events.jsonl" 2>/dev/null | grep -c "\"event\":\"$2\""; }

supervise() {  # NAME ARGUMENTS...: in the background
  local name=$1
  shift
  "$orthant" train run.yaml --set output=$name --supervise "$@" >$name.out 2>$name.err &
  supervisor=$!
}
child() { cat /proc/$supervisor/task/*/children 2>/dev/null | tr ' ' '\n' | head -1; }
wait_for_step() {  # NAME STEP: until the run has more than STEP lines of metrics
  for _ in $(seq 2000); do [ "$(lines $1/metrics.jsonl)" -gt "$2" ] && return; sleep 0.01; done
  cat $1.err; fail "$1: no step $2"
}
ended() { got=0; wait $supervisor || got=$?; }  # sets `got`

# Waits until the child of NAME has taken a step, kills it a random time later.
kill_child() {  # NAME KILLS
  for _ in $(seq 1000); do [ "$(count $1 first_step)" -gt "$2" ] && break; sleep 0.01; done
  sleep "0.$((RANDOM % 3))$((RANDOM % 10))"
  kill -KILL "$(child)" 2>/dev/null
}

# Kills.
"$orthant" train run.yaml --set output=whole --ranks 2 >/dev/null 2>&1 || fail "the unbroken run"
supervise killed --ranks 2
kill_child killed 0
kill_child killed 1
ended
[ "$got" = 0 ] || { cat killed.err; fail "after kills: exit code $got"; }
[ "$(count killed failure)" -ge 1 ] || fail "no failure is logged"
[ "$(count killed failure)" = "$(count killed restart)" ] || fail "failures and restarts differ"
grep -qE '^supervisor: the job was killed by signal 9 .* after step [0-9]+; [0-9]+ steps? (is|are) lost; restart 1 of 10 in 0 s on 2 ranks$' \
  killed.err || { cat killed.err; fail "the failure is not described"; }
diff <(losses whole/metrics.jsonl) <(losses killed/metrics.jsonl) >/dev/null || fail "losses differ after kills"
for file in model optimizer; do
  cmp {whole,killed}/checkpoints/step-00000300/$file.safetensors || fail "$file differs after kills"
done

# A process that hangs.
supervise hung --set steps=100 --set parallel.watchdog_seconds=2
wait_for_step hung 30
kill -STOP "$(child)"
start=$(milliseconds)
for _ in $(seq 2000); do grep -q '^supervisor:' hung.err && break; sleep 0.01; done
took=$(($(milliseconds) - start))
ended
[ "$got" = 0 ] || { cat hung.err; fail "after a hang: exit code $got"; }
grep -q '"event":"failure".*"kind":"hang"' hung/events.jsonl || fail "the hang is not logged"
# Within twice the watchdog, and time for a busy machine.
[ $took -lt 8000 ] || fail "a hang was found after $took ms, with a watchdog of 2 s"

# A stop.
supervise stopped --set steps=1000000
wait_for_step stopped 5
kill -TERM $supervisor
ended
[ "$got" = 75 ] || { cat stopped.err; fail "a stop gave $got"; }
[ "$(lines stopped/metrics.jsonl)" = "$(ls stopped/checkpoints | tail -1 | sed 's/step-0*//')" ] ||
  fail "a stop did not save the last step"

# Ranks that come and go: a launcher that finds two of four ranks while the file `down` is there.
cat >launch.sh <<'SH'
ranks=$1; shift
[ -e down ] && [ "$ranks" -gt 2 ] && { echo "error: two ranks are missing" >&2; exit 1; }
exec "$@" --ranks "$ranks"
SH
supervise elastic --ranks 4 --min-ranks 2 -- sh launch.sh '{ranks}'
wait_for_step elastic 30
touch down
kill -KILL "$(child)"
for _ in $(seq 1000); do grep -q '"event":"start".*"ranks":2' elastic/events.jsonl && break; sleep 0.01; done
wait_for_step elastic 60
rm down
kill -KILL "$(child)"
ended
[ "$got" = 0 ] || { cat elastic.err; fail "elastic: exit code $got"; }
ranks=$(sed -n 's/.*"event":"start".*"ranks":\([0-9]*\).*/\1/p' elastic/events.jsonl | uniq | tr '\n' ' ')
[ "$ranks" = "4 2 4 " ] || { cat elastic.err; fail "elastic: ranks $ranks"; }
grep -q '"kind":"launcher".*"detail":"two ranks are missing"' elastic/events.jsonl || fail "the launcher is not named"
paste <(losses whole/metrics.jsonl) <(losses elastic/metrics.jsonl) |
  awk '{d = ($2 - $4) / $2; if ($1 != $3 || d > 1e-4 || d < -1e-4) exit 1} END {if (NR != 300) exit 1}' ||
  fail "elastic: the losses are not those of the unbroken run"

# Budgets and failures that are not tried again.
expect 4 "the supervisor gives up: the job ended with exit code 4 after step 0 (no rank at all)" \
  "$orthant" train run.yaml --set output=none --supervise --restarts 1 -- sh -c 'echo "error: no rank at all" >&2; exit 4'
grep -q "1 of 1 restarts were used" err.txt || fail "the budget is not named"
# Open MPI's words, of 4 in one line and of 5 in two.
for words in 'mpirun noticed that process rank 3 with PID 7 on node far exited on signal 9 (Killed).' \
  'prterun noticed that process rank 3 with PID 7 on node far exited on\nsignal 9 (Killed).'; do
  expect 137 "after step 0, rank 3 on far" "$orthant" train run.yaml --set output=words \
    --supervise --restarts 0 -- sh -c "printf '$words\n' >&2; exit 137"
  rm -rf words
done
expect 2 "steps" "$orthant" train run.yaml --set output=none --supervise --set steps=-1
expect 2 "a launcher after -- needs --supervise" "$orthant" train run.yaml -- mpirun
expect 5 "the same samples would give the same numbers" "$orthant" train run.yaml --set output=nan --supervise \
  --set optimizer.lr=1e30 --set optimizer.clip=0 --set learning_rate.warmup_steps=0

# Many kills, and how long they take.
[ "${OT_TESTS:-}" = full ] || { echo "all passed; a hang was found after $took ms"; exit 0; }
supervise many --ranks 8 --set steps=100000 --restarts 100
for kills in $(seq 0 19); do kill_child many "$kills"; done
for _ in $(seq 6000); do [ "$(count many first_step)" -gt 20 ] && break; sleep 0.01; done
kill -TERM $supervisor
ended
[ "$got" = 75 ] || { cat many.err; fail "many kills: exit code $got"; }
sed -n 's/^{"event":"\(failure\|first_step\)","time":\([0-9.]*\),.*/\1 \2/p' many/events.jsonl |
  awk '$1 == "failure" {from = $2} $1 == "first_step" && from {printf "%.2f\n", $2 - from; from = 0}' | sort -n >seconds.txt
[ "$(lines seconds.txt)" = 20 ] || fail "many kills: $(lines seconds.txt) restarts"
echo "from a kill to the next step, 8 ranks, s: $(sed -n 10p seconds.txt) median, $(tail -1 seconds.txt) at most"
awk 'NR == 10 && $1 >= 3 {exit 1}' seconds.txt || fail "half of the restarts take 3 s or more"
echo "all passed"
