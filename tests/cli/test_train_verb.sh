#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run: any machine. The whole workflow of a user: tokenize, train, stop, resume, score, sample. Two
# runs, recompute, and resuming at any step must give the same bits.
set -euo pipefail
. tests/support/expect.sh
orthant=${1:?usage: test_train_verb.sh ORTHANT}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
source_dir=$PWD
cd "$work"

losses() { sed -n 's/.*"step":\([0-9]*\),"loss":\([^,]*\),.*/\1 \2/p' "$1"; }

mkdir text
cp "$source_dir"/src/step/graph/*.h "$source_dir"/src/step/schedule/*.h text/
"$orthant" tokenize --tokenizer bytes --out train text >/dev/null
"$orthant" tokenize --tokenizer bytes --out valid "$source_dir"/src/core/base/text.h >/dev/null
cat >run.yaml <<'YAML'
model: {model_type: llama, vocab_size: 257, hidden_size: 24, intermediate_size: 40, num_hidden_layers: 2,
  num_attention_heads: 3, num_key_value_heads: 1, max_position_embeddings: 64, tie_word_embeddings: true}
data: {train: train, validation: valid, validation_tokens: 512, tokenizer: bytes, sequence_length: 48}
batch: {global_batch_size: 6, micro_batch_size: 2}
optimizer: {lr: 3e-3}
steps: 6
learning_rate: {warmup_steps: 2, min: 1e-4}
checkpoint: {every: 1, keep: 0}
log: {health_every: 2}
threads: 2
output: a
YAML

# Ranks that do not fit the degrees hide no wrong value, whatever comes first.
misfit=(run.yaml --ranks 3 --set parallel.pp=2)
expect 4 'mesh: 3 ranks are not a multiple of' "$orthant" train "${misfit[@]}"
expect 3 '/none.yaml' "$orthant" train "${misfit[@]}" --set cluster=/none.yaml
expect 2 'audit.every=3, but audit.checks is empty' "$orthant" train "${misfit[@]}" --set audit.every=3
expect 2 'x:9-2' "$orthant" train "${misfit[@]}" --trace x:9-2
expect 2 '--record takes STEP=DIR with a step from 1, not 0=x' "$orthant" train "${misfit[@]}" --record 0=x
expect 2 '--record takes STEP=DIR with a step from 1, not 3=' "$orthant" train "${misfit[@]}" --record 3=
expect 2 'no preset and no file is called "nonexist"' "$orthant" simulate "${misfit[@]}" --cluster nonexist

"$orthant" train run.yaml 2>talk.txt
[ "$(losses a/metrics.jsonl | wc -l)" = 6 ] || fail "metrics.jsonl does not have one line per step"
grep -q '"step":0,"val_loss"' a/metrics.jsonl || fail "no validation before the first step"
grep -q 'update_ratio/model.layers.0.self_attn.q_proj.weight' a/metrics.jsonl || fail "no health"
for k in 1 2 3 4 5 6; do [ -f "a/checkpoints/step-0000000$k/manifest.json" ] || fail "no step $k"; done

# The same run again, and with full recompute.
"$orthant" train run.yaml --set output=b 2>/dev/null
"$orthant" train run.yaml --set output=c --set parallel.recompute=full 2>/dev/null
"$orthant" train run.yaml --set output=d --set parallel.recompute=[selective,full] 2>/dev/null
for other in b c d; do
  diff <(losses a/metrics.jsonl) <(losses $other/metrics.jsonl) || fail "run $other: losses differ"
  for file in model optimizer; do
    cmp a/checkpoints/step-00000006/$file.safetensors $other/checkpoints/step-00000006/$file.safetensors
  done
done

# A recorded step changes nothing, and the judge finds it clean.
"$orthant" train run.yaml --set output=recorded --record 2=steps/two 2>talk.txt
grep -q 'step 2 is recorded: orthant judge steps/two' talk.txt || fail "nothing says where the record is"
diff <(losses a/metrics.jsonl) <(losses recorded/metrics.jsonl) || fail "a recorded run has other losses"
cmp a/checkpoints/step-00000006/optimizer.safetensors recorded/checkpoints/step-00000006/optimizer.safetensors
"$orthant" judge steps/two | grep -q 'verdict: clean' || fail "the record is not clean"
cmp a/checkpoints/step-00000006/config.json steps/two/config.json || fail "another config.json than an export"
expect 2 'step 2 is not taken: 6 of 6 steps are done' "$orthant" train run.yaml --set output=a --record 2=x
expect 2 'step 9 is not taken: 0 of 6 steps are done' "$orthant" train run.yaml --set output=late --record 9=x
expect 2 'the folder of the record is not empty' "$orthant" train run.yaml --set output=late --record 2=steps/two
expect 2 '--record is not for supervised runs' "$orthant" train run.yaml --supervise --record 2=x

# Dropout masks depend on the sample and the element only: not on recompute, not on the micro-batch.
dropout="model={model_type: gpt2, vocab_size: 257, n_embd: 24, n_layer: 2, n_head: 3, n_positions: 64, resid_pdrop: 0.1, attn_pdrop: 0.1, embd_pdrop: 0.1}"
"$orthant" train run.yaml --set output=e --set "$dropout" 2>/dev/null
"$orthant" train run.yaml --set output=f --set "$dropout" --set parallel.recompute=full 2>/dev/null
"$orthant" train run.yaml --set output=g --set "$dropout" --set batch.micro_batch_size=3 2>/dev/null
cmp e/checkpoints/step-00000006/model.safetensors f/checkpoints/step-00000006/model.safetensors
near=$(paste <(losses e/metrics.jsonl) <(losses g/metrics.jsonl) |
  awk '{ d = $2 - $4; if (d < 0) d = -d; if (d > 1e-4) bad = 1 } END { print bad ? "no" : "yes" }')
[ "$near" = yes ] || fail "dropout depends on the micro-batch size"

# Resuming after each step.
for k in 1 2 3 4 5; do
  mkdir -p r$k/checkpoints
  cp -r a/checkpoints/step-0000000$k r$k/checkpoints/
  head -n $((k + 1)) a/metrics.jsonl >r$k/metrics.jsonl
  "$orthant" train run.yaml --set output=r$k 2>/dev/null
  diff <(losses a/metrics.jsonl) <(losses r$k/metrics.jsonl) || fail "resumed at $k: losses differ"
  cmp a/checkpoints/step-00000006/optimizer.safetensors r$k/checkpoints/step-00000006/optimizer.safetensors
done

# Saves as often as pays: the third step to measure one; with failures all the time every step after it.
"$orthant" train run.yaml --set output=seldom --set checkpoint.every=auto 2>talk.txt
grep -q '^checkpoints every [0-9]* steps: a save blocks .* failure is expected every 5.07e+04 h$' talk.txt || fail "no interval"
[ "$(ls seldom/checkpoints | tr '\n' ' ')" = "step-00000003 step-00000006 " ] || fail "automatic saves: $(ls seldom/checkpoints)"
grep -q '^  every: auto$' seldom/config.yaml || fail "config.yaml: checkpoint.every"
"$orthant" train run.yaml --set output=often --set 'checkpoint={every: auto, mtbf_hours: 1e-9, keep: 0}' 2>/dev/null
[ "$(ls often/checkpoints | wc -l)" = 4 ] || fail "automatic saves: $(ls often/checkpoints)"
cmp a/checkpoints/step-00000006/optimizer.safetensors often/checkpoints/step-00000006/optimizer.safetensors
# The steps between saves are those that were told; a change of less than a factor of two is not told.
"$orthant" train run.yaml --set output=some --set steps=150 --set log.health_every=0 \
  --set 'checkpoint={every: auto, mtbf_hours: 1e-5}' 2>talk.txt
awk '/^checkpoints every / { if (!least || $3 < least) least = $3; if ($3 > most) most = $3 }
  /"event":"save"/ { sub(/.*"step":/, ""); sub(/,.*/, ""); gap = $0 - step; step = $0; saves++
    if (saves > 1 && step < 150 && (2 * gap < least || gap > 2 * most)) bad = gap }
  END { if (!least || saves < 3 || bad) { print least, most, saves, bad; exit 1 } }' talk.txt some/events.jsonl ||
  fail "$(grep '^checkpoints every' talk.txt) but: $(grep '"save"' some/events.jsonl)"
expect 2 'checkpoint.every: "often" is not a whole number; allowed: at least 0 steps or auto' \
  "$orthant" train run.yaml --set output=wrong --set checkpoint.every=often
expect 2 'checkpoint.every: -1 is out of range; allowed: at least 0 steps or auto' \
  "$orthant" train run.yaml --set output=wrong --set checkpoint.every=-1
expect 2 'checkpoint.mtbf_hours: 0 is out of range; allowed: above 0' \
  "$orthant" train run.yaml --set output=wrong --set checkpoint.mtbf_hours=0

# A signal: a complete checkpoint, exit 75, and the same command continues.
"$orthant" train run.yaml --set output=s --set steps=2000 --set checkpoint.every=0 2>/dev/null &
pid=$!
for _ in $(seq 200); do [ -s s/metrics.jsonl ] && [ "$(wc -l <s/metrics.jsonl)" -gt 2 ] && break; sleep 0.05; done
kill -USR1 $pid
got=0; wait $pid || got=$?
[ "$got" = 75 ] || fail "a signal gave $got, expected 75"
ls s/checkpoints | found step- || fail "no checkpoint after a signal"

# A bit of the newest checkpoint flips: verbs that read the run fall back and report it, verbs given
# this one checkpoint fail. Without a complete checkpoint no verb starts from scratch.
"$orthant" train run.yaml --set output=h --set steps=3 2>/dev/null
cp -r h h_text
sed -i s/llama/lxama/ h_text/checkpoints/step-00000003/config.json
printf '\x7f' | dd of=h/checkpoints/step-00000003/model.safetensors bs=1 seek=20003 conv=notrunc 2>/dev/null
echo '{"text":"typedef struct"}' >q.jsonl
damaged="skipping 1 damaged checkpoint"
expect 0 "$damaged" "$orthant" sample h --prompt typedef --max-tokens 2
expect 0 "$damaged" "$orthant" score h q.jsonl
expect 0 "$damaged" "$orthant" convert h h_hf
expect 0 "$damaged" "$orthant" audit causality h
expect 0 "$damaged" "$orthant" train run.yaml --set output=h_init --set steps=1 --set init=h_text
expect 0 "$damaged" "$orthant" train run.yaml --set output=h_two --set steps=1 --set init=h --ranks 2 \
  --set batch.micro_batch_size=3
for verb in "sample CHECKPOINT" "score CHECKPOINT q.jsonl" "convert CHECKPOINT out" "audit causality CHECKPOINT" \
  "train run.yaml --set output=h_one --set init=CHECKPOINT" "train run.yaml --set output=h_one --resume CHECKPOINT"; do
  expect 3 "step-00000003/model.safetensors" "$orthant" ${verb/CHECKPOINT/h/checkpoints/step-00000003}
done
expect 0 "$damaged" "$orthant" train run.yaml --set output=h --set steps=4
cmp a/checkpoints/step-00000004/optimizer.safetensors h/checkpoints/step-00000004/optimizer.safetensors
for k in 1 2 3 4; do truncate -s 100 h/checkpoints/step-0000000$k/model.safetensors; done
expect 3 "none of the checkpoints of" "$orthant" train run.yaml --set output=h --set steps=5
expect 3 "none of the checkpoints of" "$orthant" sample h

# A special file where a regular one is required does not block.
mkfifo fifo.yaml
expect 3 "not a regular file (fifo.yaml)" timeout 20 "$orthant" train fifo.yaml
"$orthant" score a <(cat q.jsonl) | found '"logprobs"' || fail "a pipe is not accepted as text"

# Rejected requests and their messages.
expect 0 "is finished: 6 steps" "$orthant" train run.yaml
sed 's/3e-3/4e-3/' run.yaml >other.yaml
expect 2 "optimizer.lr: 0.003 -> 0.004" "$orthant" train other.yaml
expect 0 "is finished" "$orthant" train run.yaml --set optimizer.lr=4e-3
expect 2 "did you mean" "$orthant" train run.yaml --set optimiser.lr=1
expect 2 "already holds a run" "$orthant" train run.yaml --resume never
expect 2 "not those of a run" "$orthant" train run.yaml --set output=text
expect 2 "vocab_size=200" "$orthant" train run.yaml --set output=x --set model.vocab_size=200
expect 3 "missing.bin does not exist" "$orthant" train run.yaml --set output=x --set data.train=missing
head -c 100 train.bin >cut.bin; cp train.idx cut.idx
expect 3 "cut.bin" "$orthant" train run.yaml --set output=x --set data.train=cut
# A run reports the same errors and warnings about unusual settings as a dry run.
"$orthant" tokenize --train-vocab 257 --tokenizer other.json --out other text >/dev/null
for dry in "" --dry-run; do
  expect 2 "sequence_length=65 is more than max_position_embeddings=64" "$orthant" train run.yaml --set output=x $dry \
    --set data.sequence_length=65
  expect 2 "model.max_position_embeddings=65" "$orthant" train run.yaml --set output=x $dry --set data.sequence_length=65
  expect 2 "sequence_length=4000000 exceeds the data: $PWD/train has" "$orthant" train run.yaml --set output=x $dry \
    --set data.sequence_length=4000000 --set model.max_position_embeddings=4000000
  hash=$(grep -o '"xxh3_128": "[0-9a-f]*"' train.meta.json | head -1 | cut -d'"' -f4)
  expect 2 "train was tokenized with bytes (hash $hash), not with $PWD/other.json (hash " \
    "$orthant" train run.yaml --set output=x $dry --set data.tokenizer=other.json
  expect 2 "valid was tokenized with" "$orthant" train run.yaml --set output=x $dry \
    --set data.tokenizer=other.json --set data.train=other
  expect 3 "this machine has" "$orthant" train run.yaml --set output=x $dry --set model.hidden_size=16384 \
    --set model.head_dim=64 --set model.intermediate_size=65536 --set model.num_hidden_layers=100
  expect 0 "the warm-up of 6 steps is not over when the run ends, after 1" "$orthant" train run.yaml $dry \
    --set output="n$dry" --set learning_rate.warmup_steps=6 --set steps=1 --set data.tokenizer=other.json \
    --set data.tokenizer_check=false
  expect 0 "not given, so the default of gpt2 is used: vocab_size=50257, n_positions=1024" "$orthant" train run.yaml $dry \
    --set output="m$dry" --set steps=1 --set 'model={model_type: gpt2, n_embd: 24, n_layer: 2, n_head: 3}'
done
expect 4 "started 4 processes" env OMPI_COMM_WORLD_SIZE=4 "$orthant" train run.yaml
expect 0 "memory of one rank" "$orthant" train run.yaml --set output=y --dry-run
# Copies in memory: what they need, and settings that are refused.
copies=(--set output=y --set checkpoint.memory=2 --dry-run)
expect 0 "in /dev/shm of a host; " "$orthant" train run.yaml "${copies[@]}"
kilobytes() { sed -n 's/.*checkpoint.memory needs \([0-9.]*\) \([kM]\)B .*/\1 \2/p' err.txt | awk '{ print $1 * ($2 == "M" ? 1000 : 1) }'; }
one=$(kilobytes)
expect 0 "in /dev/shm of a host; " "$orthant" train run.yaml "${copies[@]}" --ranks 3
awk -v one="$one" -v three="$(kilobytes)" 'BEGIN { exit !(one > 500 && three > 2 * one) }' ||
  fail "three ranks do not need more copies than one, $one kB: $(cat err.txt)"
expect 0 "/absent of a host; an unknown number of bytes there are free" "$orthant" train run.yaml "${copies[@]}" \
  --set checkpoint.memory_path="$PWD/absent"
expect 2 "checkpoint.memory: -1 is out of range; allowed: at least 0" "$orthant" train run.yaml "${copies[@]}" \
  --set checkpoint.memory=-1
expect 2 'checkpoint.memory: "often" is not a whole number' "$orthant" train run.yaml "${copies[@]}" --set checkpoint.memory=often
expect 2 "checkpoint.memory_path=copies is not an absolute path (try /dev/shm)" "$orthant" train run.yaml "${copies[@]}" \
  --set checkpoint.memory_path=copies
expect 2 "checkpoint.memory_path" "$orthant" train run.yaml "${copies[@]}" --set checkpoint.memory_path=
[ ! -e y ] || fail "a dry run wrote files"

# Uses the trained model.
"$orthant" score a q.jsonl >score.json
grep -q '"logprobs":\[-' score.json || fail "no scores"
# A text that cannot be scored is reported in its place; the scores of the others do not change.
printf '{"text":""}\n{"text":"typedef struct"}\n\n{"text": 3\n{"text":"typedef struct"}\n' >bad.jsonl
expect 2 "3 of 5 lines could not be scored; the first: bad.jsonl:1: no tokens" "$orthant" score a bad.jsonl
"$orthant" score a bad.jsonl >bad.json 2>/dev/null || true
[ "$(grep -n error bad.json | cut -d: -f1 | tr '\n' ' ')" = "1 3 4 " ] || fail "errors are not in their places"
[ "$(sed -n 2p bad.json)" = "$(cat score.json)" ] || fail "a bad line changes another score"
"$orthant" sample a --prompt "typedef" --max-tokens 20 --seed 3 >one.txt
"$orthant" sample a --prompt "typedef" --max-tokens 20 --seed 3 >two.txt
cmp one.txt two.txt
"$orthant" schedule run.yaml >schedule.txt
grep -q "^order step micro_batches=3" schedule.txt || fail "no step order"
"$orthant" schedule run.yaml --set device=cuda >gpu.txt
grep -q '^  adamw.* joins$' gpu.txt || fail "no tensors share a launch on a GPU"
"$orthant" schedule run.yaml --set device=cpu | found ' joins$' && fail "tensors share a launch on the CPU"
"$orthant" train run.yaml --set output=t --trace trace.json:2-3 2>/dev/null
grep -q '"linear"' trace.json || fail "no linear task in the trace"
# Times are in microseconds from the beginning of the first step of the trace.
first=$(grep -o '"ts": *[0-9.e+-]*' trace.json | awk -F: 'NR == 1 || $2 + 0 < least { least = $2 + 0 } END { print least }')
awk "BEGIN { exit !($first >= 0 && $first < 1e6) }" || fail "the trace begins at $first us"
"$orthant" train run.yaml --set output=u --set steps=1 --show-batch 2>&1 | found "sample 0: " || fail "no batch shown"
echo "all passed"
