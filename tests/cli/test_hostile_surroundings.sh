#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A run among readers that do not read, signals of its terminal and its scheduler, and files that
# vanish: it goes on, or says what is wrong before its first step.
set -uo pipefail
orthant=${1:?usage: test_hostile_surroundings.sh ORTHANT}
. tests/support/work_folder.sh
cat >run.yaml <<'YAML'
model: {model_type: llama, vocab_size: 257, hidden_size: 16, intermediate_size: 32, num_hidden_layers: 2,
  num_attention_heads: 2, max_position_embeddings: 16}
data: {train: train, tokenizer: bytes, sequence_length: 16}
batch: {global_batch_size: 4, micro_batch_size: 1}
learning_rate: {warmup_steps: 0, decay: constant}
checkpoint: {every: 0}
steps: 6
threads: 1
YAML
lines() { cat "$1" 2>/dev/null | wc -l; }
wait_for_lines() {  # FILE COUNT
  for _ in $(seq 6000); do [ "$(lines "$1")" -ge "$2" ] && return; sleep 0.01; done
  fail "$1 has $(lines "$1") lines, expected $2"
}

# ---- readers that do not read ----

mkfifo pipe
exec 8<>pipe
dd if=/dev/zero of=pipe bs=65536 count=1 oflag=nonblock 2>/dev/null
for how in "--ranks 2" "--ranks 2 --supervise"; do
  name=unread${how//[^a-z0-9]/}
  timeout -k 1 30 "$orthant" train run.yaml --set output=$name $how 2>pipe
  [ $? = 0 ] || fail "$how: a run whose messages nobody reads does not end"
  [ "$(lines $name/metrics.jsonl)" = 6 ] || fail "$how: it did not train"
done

"$orthant" train run.yaml --set output=result --json >pipe 2>/dev/null &
pid=$!
for _ in $(seq 500); do [ -e result/checkpoints/step-00000006 ] && break; sleep 0.01; done
sleep 0.2
kill -TERM $pid
got=0; wait $pid || got=$?
[ $got = 143 ] || fail "SIGTERM to a run that waits for the reader of its result gave $got, expected 143"
exec 8>&-

mkfifo slow
exec 7<>slow
"$orthant" train run.yaml --set output=slow.run --set steps=100000 --set log.tensorboard=false 2>slow &
pid=$!
wait_for_lines slow.run/metrics.jsonl 6000
cat slow >read.txt 7>&- 8>&- &
reader=$!
sleep 0.5
kill -TERM $pid
got=0; wait $pid || got=$?
exec 7>&-
wait $reader
[ $got = 75 ] || fail "SIGTERM to a run whose reader was late gave $got, expected 75"
grep -qE "note: nobody read what was written: [0-9]+ lines? (is|are) missing here" read.txt || { tail -3 read.txt; fail "lines that found no room are not counted"; }
grep -q "stopped by a signal" read.txt || fail "the last message is lost"

"$orthant" train run.yaml --set output=closed 2>&- || fail "a run without stderr fails"
[ "$(cat closed/.lock | wc -c)" -lt 80 ] && ! grep -rq 'tok/s' closed || fail "messages are in a file of the run"

# ---- signals ----

for signal in HUP XCPU USR2; do
  "$orthant" train run.yaml --set output=$signal --set steps=1000000 2>err.txt &
  pid=$!
  wait_for_lines $signal/metrics.jsonl 1
  kill -$signal $pid
  got=0; wait $pid || got=$?
  [ $got = 75 ] || { cat err.txt; fail "SIG$signal gave $got, expected 75"; }
  [ -n "$(ls $signal/checkpoints)" ] || fail "SIG$signal: no checkpoint"
done
# Under nohup, also when a library has a handler of its own before main.
echo '#include <signal.h>
static void ignore(int number) { (void)number; }
__attribute__((constructor)) static void take_over(void) { signal(SIGHUP, ignore); }' >library.c
${CC:-cc} -shared -fPIC -o library.so library.c || fail "no library"
for library in '' "$PWD/library.so"; do
  rm -rf nohup
  (trap '' HUP; export LD_PRELOAD=$library ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}verify_asan_link_order=0
   exec "$orthant" train run.yaml --set output=nohup --set steps=1000000 2>err.txt) &
  pid=$!
  wait_for_lines nohup/metrics.jsonl 1
  kill -HUP $pid
  count=$(lines nohup/metrics.jsonl)
  wait_for_lines nohup/metrics.jsonl $((count + 10))
  kill -TERM $pid
  got=0; wait $pid || got=$?
  [ $got = 75 ] || { cat err.txt; fail "a run under nohup gave $got, expected 75"; }
done
# ---- files of the run ----

"$orthant" train run.yaml --set output=gone --set steps=1000000 2>err.txt &
pid=$!
wait_for_lines gone/metrics.jsonl 5
rm gone/metrics.jsonl gone/tensorboard/* gone/.heartbeat
sleep 0.8  # a sign of life every half second
wait_for_lines gone/metrics.jsonl 5
: >gone/metrics.jsonl
wait_for_lines gone/metrics.jsonl 5
kill -TERM $pid
wait $pid
[ "$(grep -c '"event":"log"' gone/events.jsonl)" = 3 ] || { cat gone/events.jsonl; fail "files that vanished are no events"; }
grep -q "gone/metrics.jsonl was removed during the run" err.txt || { cat err.txt; fail "a removed file is not noticed"; }
grep -q "gone/metrics.jsonl was cut to 0 bytes" err.txt || { cat err.txt; fail "a cut file is not noticed"; }
tr -d '\0' <gone/metrics.jsonl | cmp - gone/metrics.jsonl || fail "zeros in metrics.jsonl"
[ -e gone/.heartbeat ] || fail "no sign of life for a supervisor any more"
[ -s "$(echo gone/tensorboard/*)" ] || fail "no file for TensorBoard any more"
rm gone/metrics.jsonl
step=$(ls gone/checkpoints | sed 's/step-0*//')
expect 0 "metrics.jsonl ends at step 0, and the run goes on after step $step" "$orthant" train run.yaml --set output=gone --set steps=$((step + 1))

(ulimit -f 200; expect 0 "could not be written" "$orthant" train run.yaml --set output=full --set steps=500) || exit 1
grep -q "metrics.jsonl.; what is not written is counted, and the run goes on" err.txt || { cat err.txt; fail "a full disk is not said"; }
[ -z "$(tail -c 1 full/metrics.jsonl)" ] || fail "the last line is not whole"

mkdir folder
expect 3 "cannot write: Is a directory (folder)" "$orthant" train run.yaml --set output=trace --trace folder:4-5
[ ! -s trace/metrics.jsonl ] || fail "a trace that cannot be is noticed after the first step"
expect 0 "cannot write: No space left on device (/dev/full); the run goes on" \
  "$orthant" train run.yaml --set output=trace --trace /dev/full:2-3 --ranks 2
[ "$(lines trace/metrics.jsonl)" = 6 ] || fail "a failing trace ended the run"
mkfifo unread
for how in absent idle; do  # nobody has opened the FIFO; somebody has and does not read
  [ $how = absent ] || exec 8<>unread
  expect 0 "cannot write: nobody has read it for 2 s (unread); the run goes on" \
    timeout -k 1 20 "$orthant" train run.yaml --set output=trace$how --trace unread:2-6 --ranks 2
  [ "$(ls trace$how/checkpoints)" = step-00000006 ] || fail "a trace that nobody reads ended the run"
done
exec 8>&-
# ---- limits ----

grep -q __asan_init "$orthant" && { echo "all passed, without limits"; exit 0; }
for stack in 128 512; do  # with 64 the constructors of some MPIs have too little
  (ulimit -s $stack; expect 0 "done" "$orthant" train run.yaml --set output=stack$stack --ranks 2) || exit 1
done
for how in "" --dry-run; do
  (ulimit -v 160000; expect 3 "buffer of 128 MB of the BLAS" timeout -s KILL 20 "$orthant" train run.yaml --set output=space $how) || exit 1
  grep -q "ulimit -v" err.txt || { cat err.txt; fail "a limit of address space is not named"; }
done
large="--set model.hidden_size=512 --set model.intermediate_size=1536 --set model.num_hidden_layers=6"
groups=/sys/fs/cgroup/memory limit=memory.limit_in_bytes
[ -d $groups ] || { groups=/sys/fs/cgroup limit=memory.max; }
outer=$groups/orthant_test_$$
if mkdir $outer 2>/dev/null; then
  trap 'rmdir $outer/inner $outer; rm -rf "$work"' EXIT
  [ $limit = memory.limit_in_bytes ] || echo +memory >$outer/cgroup.subtree_control 2>/dev/null
  if mkdir $outer/inner && echo 120M >$outer/$limit 2>/dev/null; then
    for how in "" --dry-run; do
      (echo $BASHPID >$outer/inner/cgroup.procs
        expect 3 "its control group (cgroup) may use 125.8 MB" "$orthant" train run.yaml --set output=group $large $how) || exit 1
    done
    (echo $BASHPID >$outer/inner/cgroup.procs; exec "$orthant" doctor --json) | found '"group_limit_bytes": 125829120' ||
      fail "doctor does not tell the limit of the control group"
  fi
fi

# A launcher that ends like a job that the kernel has killed.
expect 137 "for want of memory (dmesg)" "$orthant" train run.yaml --set output=killed --supervise --restarts 1 -- \
  sh -c 'kill -9 $$'
echo "all passed"
