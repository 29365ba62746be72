#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run: any machine. The real clock: generators are processes; a tape gives the same bits of metrics
# and weights again; a generator that is killed costs its responses, and the run goes on, without it
# or with a new process; synchronous runs have the same bits with any generators; stopped runs go on;
# generators of another run, tapes of another run and the end of all generators are refused.
set -euo pipefail
orthant=$(realpath "${1:?usage: test_rl_real.sh ORTHANT}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*"; exit 1; }
data=$(realpath "$(dirname "$0")/../../examples/sorting.awk")
cd "$work"
awk -f "$data" -v lines=500 -v seed=2 >prompts.jsonl
cat >rl.yaml <<'YAML'
model: {model_type: llama, vocab_size: 257, hidden_size: 32, intermediate_size: 64, num_hidden_layers: 2,
  num_attention_heads: 4, max_position_embeddings: 64, initializer_range: 0.1}
init: random
data: {tokenizer: bytes, sequence_length: 64}
batch: {micro_batch_size: 8}
optimizer: {lr: 1e-3, weight_decay: 0}
learning_rate: {warmup_steps: 0, decay: constant}
steps: 12
rl: {prompts: prompts.jsonl, reward: edit_similarity, max_tokens: 24, clock: real, generators: 2, slots: 8, group: 4, batch: 16}
log: {every: 1}
threads: 1
YAML
rl() { # OUTPUT ARGUMENTS
  local output=$1
  shift
  timeout 300 "$orthant" rl rl.yaml --set output="$work/$output" "$@" >"$output.txt" 2>"$output.log"
}
same() { # A B STEPS
  cmp "$1/metrics.jsonl" "$2/metrics.jsonl" || fail "metrics of $1 and $2"
  cmp "$1/checkpoints/step-$3/model.safetensors" "$2/checkpoints/step-$3/model.safetensors" || fail "weights of $1 and $2"
}

# ---- a run and its replay, with another number of threads ----
for cache in keep recompute; do
  rl "$cache" --set rl.cache=$cache --set rl.max_lag=2 || fail "$(cat $cache.log)"
  grep -q "^12 updates on .* tokens in seconds" $cache.txt || fail "$(cat $cache.txt)"
  awk -F'"lag_max":' '{ split($2, a, /[,}]/); if (a[1] > 2) exit 1; sum += a[1] } END { exit !(sum > 0) }' $cache/metrics.jsonl ||
    fail "lags: none, or above the bound"
  rl "$cache.again" --set rl.cache=$cache --set rl.max_lag=2 --set threads=2 --replay $cache/tape.txt || fail "$(cat $cache.again.log)"
  same $cache $cache.again 00000012
done
# A tape with two responses of an update exchanged is another run.
sed 's/^u 3 \([0-9]*\) \([0-9]*\)/u 3 \2 \1/' keep/tape.txt >changed
rl mixed --set rl.max_lag=2 --replay changed && fail "a changed tape is played"
grep -q "update 3 has other bits than on the tape" mixed.log || fail "$(cat mixed.log)"
rl short --set steps=13 --replay keep/tape.txt && fail "a tape that is too short is played"
grep -q "its updates are 12" short.log || fail "$(cat short.log)"

# ---- trainers on two ranks ----
rl ranks --ranks 2 --set steps=4 || fail "$(cat ranks.log)"
rl ranks.again --ranks 2 --set steps=4 --replay ranks/tape.txt || fail "$(cat ranks.again.log)"
same ranks ranks.again 00000004

# ---- a launcher that talks ----
rl talks --set 'rl.launch=[sh, -c, "echo Welcome to the cluster; exec {command}"]' --set rl.restarts=0 && fail "what a launcher says is a message"
grep -q 'wrote "Welcome to the cluster" to its standard output' talks.log || fail "$(cat talks.log)"

# ---- a run goes on ----
rl keep --set rl.max_lag=2 --set steps=16 || fail "$(cat keep.log)"
grep -q "continuing after update 12" keep.log || fail "$(cat keep.log)"
[ "$(wc -l <keep/metrics.jsonl)" = 16 ] || fail "metrics of a continued run"

# ---- a generator is killed ----
lines() { cat "$1/metrics.jsonl" 2>/dev/null | wc -l; }
after() { # UPDATES OUTPUT: waits until the run in the background has made them
  until [ "$(lines "$2")" -ge "$1" ]; do sleep 0.05; kill -0 $run || fail "$(cat "$2.log")"; done
}
end_generator() { kill -9 "$(pgrep -f "output=$work/$1 .*--generator 1/2")"; }
rl killed --set steps=60 --set rl.restarts=0 &
run=$!
after 10 killed
end_generator killed
wait $run || fail "$(cat killed.log)"
grep -q "generator 1 has ended after [0-9]* updates: its responses are lost, 1 of 2 generators go on" killed.log || fail "$(cat killed.log)"
[ "$(lines killed)" = 60 ] || fail "updates after the kill"
grep -q "^x 1$" killed/tape.txt || fail "the tape has no loss"
rl killed.again --set steps=60 --set rl.restarts=0 --replay killed/tape.txt || fail "$(cat killed.again.log)"
same killed killed.again 00000060

# ---- and started again ----
begin() { # OUTPUT ARGUMENTS: in the background, so that $run gets signals
  local output=$1
  shift
  "$orthant" rl rl.yaml --set output="$work/$output" "$@" >"$output.txt" 2>"$output.log" &
  run=$!
}
stop() { # SIGNAL OUTPUT
  local code=0
  kill -"$1" $run
  wait $run || code=$?
  [ $code = 75 ] || fail "exit code $code of a stopped run: $(cat "$2.log")"
}
begin anew --set steps=1000000
after 5 anew
end_generator anew
until sed '1,/^x 1$/d' anew/tape.txt | grep -q "^g 1 t"; do sleep 0.05; kill -0 $run || fail "$(cat anew.log)"; done
after $(($(lines anew) + 5)) anew
stop TERM anew
grep -q "generator 1 has ended after [0-9]* updates: its responses are lost, it is started again (1 of 3 times)" anew.log || fail "$(cat anew.log)"
awk '/^u/ { for (i = 3; $i != "a"; i++) if (seen[$i]++) exit 1 }' anew/tape.txt || fail "a response is trained on twice"
rl anew.again --set steps="$(lines anew)" --replay anew/tape.txt || fail "$(cat anew.again.log)"
same anew anew.again "$(printf %08d "$(lines anew)")"

# ---- synchronous: the same bits with one generator, with two, and with one that is killed ----
weights() { md5sum <"$1/checkpoints/step-$2/model.safetensors"; }
for n in 1 2; do
  rl sync$n --set rl.updates=synchronous --set rl.generators=$n --set steps=30 || fail "$(cat sync$n.log)"
  awk -F'"lag_max":' '{ split($2, a, /[,}]/); if (a[1] > 0) exit 1 }' sync$n/metrics.jsonl || fail "a synchronous run has lags"
done
[ "$(weights sync1 00000030)" = "$(weights sync2 00000030)" ] || fail "synchronous weights depend on generators"
rl sync2.again --set rl.updates=synchronous --set steps=30 --replay sync2/tape.txt || fail "$(cat sync2.again.log)"
same sync2 sync2.again 00000030
rl sync3 --set rl.updates=synchronous --set steps=30 &
run=$!
after 4 sync3
end_generator sync3
wait $run || fail "$(cat sync3.log)"
grep -q "it is started again (1 of 3 times)" sync3.log || fail "$(cat sync3.log)"
[ "$(weights sync1 00000030)" = "$(weights sync3 00000030)" ] || fail "synchronous weights after a kill"
rl sync4 --set rl.updates=synchronous --set steps=30 --set rl.restarts=0 &
run=$!
after 4 sync4
end_generator sync4
wait $run || fail "$(cat sync4.log)"
[ "$(lines sync4)" = 30 ] || fail "synchronous updates without a generator"

# ---- a signal stops a run after a checkpoint, and it goes on ----
begin stopped --set steps=1000000
after 5 stopped
stop TERM stopped
grep -q "stopped by a signal after update [0-9]*" stopped.log || fail "$(cat stopped.log)"
more=$(($(lines stopped) + 5))
rl stopped --set steps=$more || fail "$(cat stopped.log)"
[ "$(lines stopped)" = $more ] || fail "updates of a stopped run"
# On the simulated clock it has the bits of a run that rests for a checkpoint after that update.
begin paused --set rl.clock=simulated --set steps=1000000
after 5 paused
stop INT paused
at=$(lines paused) steps=$((2 * $(lines paused) - 1))
for output in paused rested; do
  rl $output --set rl.clock=simulated --set steps=$steps --set checkpoint.every="$at" || fail "$(cat $output.log)"
done
[ "$(weights paused "$(printf %08d $steps)")" = "$(weights rested "$(printf %08d $steps)")" ] || fail "bits of a stopped run"

# ---- all are killed ----
rl none --set steps=1000000 --set rl.restarts=0 &
run=$!
after 2 none
pgrep -f "output=$work/none .*--generator" | xargs kill -9
wait $run && fail "a run without generators goes on"
grep -q "all generators have ended after [0-9]* updates" none.log || fail "$(cat none.log)"
echo "all passed"
