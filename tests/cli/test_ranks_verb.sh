#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run: any machine. Training on many ranks, as threads of one process.
set -euo pipefail
. tests/support/expect.sh
orthant=${1:?usage: test_ranks_verb.sh ORTHANT}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
source_dir=$PWD
cd "$work"

"$orthant" tokenize --tokenizer bytes --out train "$source_dir"/src/core/base/*.h >/dev/null
cat >run.yaml <<'YAML'
model: {model_type: llama, vocab_size: 257, hidden_size: 32, intermediate_size: 48, num_hidden_layers: 4,
  num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 64, tie_word_embeddings: true}
data: {train: train, validation: train, validation_tokens: 300, tokenizer: bytes, sequence_length: 32}
batch: {global_batch_size: 8, micro_batch_size: 1}
steps: 4
log: {health_every: 2}
threads: 1
output: a
YAML

# Errors are printed once and before anything is written.
expect 4 "3 ranks are not a multiple of pp=1 x cp=1 x tp=2" \
  "$orthant" train run.yaml --ranks 3 --set parallel.tp=2
expect 4 "the launcher started 1 process, and --ranks says 4" \
  env OMPI_COMM_WORLD_SIZE=1 "$orthant" train run.yaml --ranks 4
expect 4 "started 2 processes" env OMPI_COMM_WORLD_SIZE=2 "$orthant" train run.yaml
expect 4 "mesh: 1 rank is not a multiple" "$orthant" train run.yaml --set parallel.pp=2
expect 2 "global_batch_size=8" "$orthant" train run.yaml --ranks 3
[ "$(grep -c '^error' err.txt)" = 1 ] || fail "an error was reported more than once"
printf '0F0,0F1\n0F0\n' >bad.csv
expect 2 "error: parallel.order_csv: line 2, column 1: entry '0F0'" \
  "$orthant" train run.yaml --ranks 2 --set parallel.pp=2 --set parallel.order_csv=bad.csv
expect 2 "error: parallel.layout has 1 chunk; the stages need 2" \
  "$orthant" train run.yaml --ranks 2 --set parallel.pp=2 --set 'parallel.layout=Et*4L'
expect 2 "error: parallel.layout has 2 chunks; the stages need 1" \
  "$orthant" train run.yaml --set 'parallel.layout=Et*4|L'
[ ! -e a ] || fail "a rejected run wrote files"

# A dry run plans for the most loaded rank and prints how to start.
expect 0 ", the maximum" "$orthant" train run.yaml --ranks 2 --dry-run --set parallel.pp=2
grep -q "^2 ranks (pp 2)" err.txt || fail "no mesh in the dry run"
grep -qF -- "to start it: orthant train run.yaml --set parallel.pp=2 --ranks 2" err.txt ||
  fail "no launch line"
[ ! -e a ] || fail "a dry run wrote files"

# Every parallel configuration trains the same model. A pipeline changes no bit; others change the
# order of reductions, so fp32 losses agree to a few units in the last of 7 digits.
losses() { sed -n 's/.*"step":\([0-9]*\),"loss":\([^,]*\),.*/\1 \2/p' "$1/metrics.jsonl"; }
validations() { grep -c val_loss "$1/metrics.jsonl"; }
train() {  # train NAME RANKS SETTING...
  local name=$1 ranks=$2
  shift 2
  "$orthant" train run.yaml --ranks "$ranks" --set output="$name" "${@/#/--set=}" 2>"$name.err" ||
    { cat "$name.err"; fail "$name did not train"; }
}
same_bits() {
  diff <(losses one) <(losses "$1") || fail "$1: losses differ from one rank"
  for file in model optimizer; do
    cmp one/checkpoints/step-00000004/$file.safetensors "$1"/checkpoints/step-00000004/$file.safetensors
  done
}
near() {
  [ "$(losses "$1" | wc -l)" = 4 ] || fail "$1 does not have one line per step"
  paste <(losses one) <(losses "$1") | awk -v name="$1" '
    { d = $2 - $4; if (d < 0) d = -d; if (d > 1e-6 * $2) { print name ": " $0; bad = 1 } }
    END { exit bad }' || fail "$1: losses differ from one rank"
  [ "$(validations "$1")" = "$(validations one)" ] || fail "$1 was not validated"
}
train one 1
while read -r name check ranks settings; do
  # shellcheck disable=SC2086
  train "$name" "$ranks" $settings
  $check "$name"
done <<'SPLITS'
pp same_bits 2 parallel.pp=2
zb_h1 same_bits 2 parallel.pp=2 parallel.pipeline=zb-h1
interleaved same_bits 2 parallel.pp=2 parallel.vpp=2 parallel.pipeline=interleaved
zero0 near 4 parallel.zero=0
zero1 near 2 parallel.zero=1
zero2 near 4 parallel.zero=2 parallel.dp_replicate=2
zero3 near 4 parallel.zero=3
whole3 near 4 parallel.zero=3 parallel.accumulate=whole
tp near 2 parallel.tp=2
tp4 near 4 parallel.tp=4
ring near 2 parallel.cp=2
ulysses near 2 parallel.cp=2 parallel.context=ulysses
all near 8 parallel.tp=2 parallel.cp=2 parallel.pp=2
SPLITS
diff <(losses zero0) <(losses whole3) || fail "zero 3: losses differ from zero 0"
tr -d ' \n' <all/checkpoints/step-00000004/manifest.json | found \
  '"mesh":{"pp":2,"vpp":1,"dp_replicate":1,"dp_shard":1,"cp":2,"ep":1,"tp":2,"ranks":8}' ||
  fail "the mesh in the manifest differs"
for key in update_ratio/model.layers.1.mlp.down_proj.weight max_activation/layers.2 \
  gradient_norm/model.embed_tokens.weight; do
  for name in zero0 tp4 all; do
    paste <(grep -o "\"$key\":[^,}]*" one/metrics.jsonl) <(grep -o "\"$key\":[^,}]*" $name/metrics.jsonl) |
      awk -F'[:\t]' '{ d = $2 - $4; if (d < 0) d = -d; if (d > 1e-4 * $2 || NF != 4) exit 1 }' ||
      fail "$name: $key differs"
  done
done

# Exposed communication is reported by axis.
exposed() {  # exposed NAME AXIS: prints yes if every step waited for that axis
  grep -o '"exposed_seconds":{[^}]*}' "$1/metrics.jsonl" | grep -o "\"$2\":[^,}]*" |
    awk -F: '{ if (!($2 > 0)) zero = 1 } END { print NR == 4 && !zero ? "yes" : "no" }'
}
for pair in tp:tp pp:pp ring:cp zero3:dp; do
  [ "$(exposed ${pair%:*} ${pair#*:})" = yes ] || fail "no step of ${pair%:*} waited for ${pair#*:}"
done
[ "$(exposed one tp)$(exposed pp tp)" = nono ] || fail "one rank waited for others"

# A checkpoint of one configuration starts another, bit for bit.
"$orthant" train run.yaml --ranks 4 --set output=on --set parallel.zero=3 --set parallel.tp=2 \
  --set steps=4 --resume all 2>err.txt && grep -q "is finished" err.txt || { cat err.txt; fail "not resumed elsewhere"; }
mkdir -p moved/checkpoints
cp -r zero3/checkpoints/step-00000004 moved/checkpoints/
"$orthant" train run.yaml --ranks 2 --set output=moved --set parallel.pp=2 --set steps=5 2>/dev/null
mkdir -p kept/checkpoints
cp -r zero3/checkpoints/step-00000004 kept/checkpoints/
"$orthant" train run.yaml --set output=kept --set steps=5 2>/dev/null
for file in model optimizer; do
  cmp moved/checkpoints/step-00000005/$file.safetensors kept/checkpoints/step-00000005/$file.safetensors
done
tr -d ' \n' <moved/checkpoints/step-00000005/manifest.json | found '"next_sample":40' ||
  fail "data position differs"

# Weights of another run, read by every rank.
for dtype in fp32 bf16; do
  train from_$dtype 1 init=./one precision.compute=$dtype
  train stages_from_$dtype 2 init=./one precision.compute=$dtype parallel.pp=2
  diff <(losses from_$dtype) <(losses stages_from_$dtype) || fail "$dtype: init depends on the split"
done

train shards_from_bf16 4 init=./one precision.compute=bf16 parallel.tp=2
paste <(losses from_bf16) <(losses shards_from_bf16) |
  awk '{ d = $2 - $4; if (d < 0) d = -d; if (d > 1e-3 * $2 || NF != 4) exit 1 }' ||
  fail "bf16 over tp: losses differ"

# NaN ends all ranks and is reported once.
expect 5 "step 2: the" "$orthant" train run.yaml --ranks 2 --set output=nan --set optimizer.lr=1e30 \
  --set optimizer.clip=0 --set learning_rate.warmup_steps=0
[ "$(grep -c '^error' err.txt)" = 1 ] || fail "an error was reported more than once"

# One signal stops all ranks and is reported once.
"$orthant" train run.yaml --ranks 4 --set parallel.pp=2 --set output=s --set steps=100000 2>err.txt &
pid=$!
for _ in $(seq 200); do [ -s s/metrics.jsonl ] && [ "$(wc -l <s/metrics.jsonl)" -gt 2 ] && break; sleep 0.05; done
kill -USR1 $pid
got=0; wait $pid || got=$?
[ "$got" = 75 ] || { cat err.txt; fail "a signal gave $got, expected 75"; }
[ "$(grep -c '^error' err.txt)" = 1 ] || fail "a stop was reported more than once"
grep -q "^help: run the same command again" err.txt || fail "no hint how to continue after a signal"
ls s/checkpoints | found step- || fail "no checkpoint after a signal"

# A failure on rank 0 ends all ranks and is reported once.
mkdir full && chmod a-w full
if [ "$(id -u)" != 0 ]; then
  expect 3 "rank 0 on" "$orthant" train run.yaml --ranks 2 --set output=full/a
  [ "$(grep -c '^error' err.txt)" = 1 ] || fail "an error was reported more than once"
fi
expect 3 "rank 0 on" "$orthant" train run.yaml --ranks 2 --set output=/dev/null/a
[ "$(grep -c '^error' err.txt)" = 1 ] || fail "an error was reported more than once"

# A file size limit stops a save like a full disk: reported once; earlier checkpoints stay.
train limited 2 parallel.pp=2
expect 3 "rank 0 on" bash -c 'ulimit -f 16; exec "$@"' limit \
  "$orthant" train run.yaml --ranks 2 --set parallel.pp=2 --set output=limited --set steps=6
[ "$(grep -c '^error' err.txt)" = 1 ] || fail "an error was reported more than once"
grep -q "^help: raise the limit on the size of files" err.txt || fail "no hint about the limit"
[ "$(ls -A limited/checkpoints)" = step-00000004 ] || fail "a failed save left or removed files"
"$orthant" train run.yaml --ranks 2 --set parallel.pp=2 --set output=limited --set steps=6 2>/dev/null
[ -e limited/checkpoints/step-00000006/manifest.json ] || fail "the run did not continue"

# A trace contains every rank.
"$orthant" train run.yaml --ranks 2 --set parallel.tp=2 --set output=t --trace trace.json:2-2 2>/dev/null
for rank in 0 1; do grep -q "\"name\":\"rank $rank\"" trace.json || fail "no rank $rank in the trace"; done

# On a described cluster, lines show the plan and MFU; a cluster that is too small does not stop the
# run.
cat >cluster.yaml <<'YAML'
name: two
num_devices: 2
device: core
flops_fp32: 1e12
other_flops_per_s: 1e10
memory_bytes_per_s: 1e10
memory_bytes: 1G
levels: [{name: memory, size: 2, bytes_per_s: 1e10, latency_s: 1e-6}]
YAML
train planned 2 parallel.pp=2 cluster=./cluster.yaml
grep -q '"mfu":0\.' planned/metrics.jsonl || fail "no MFU on a known cluster"
grep -q '"predicted_step_seconds":[0-9]' planned/metrics.jsonl || fail "no prediction"
"$orthant" train run.yaml --ranks 2 --set cluster=./cluster.yaml --set output=dry --dry-run 2>err.txt
grep -q "first step on two: " err.txt || { cat err.txt; fail "no prediction in the dry run"; }
train larger 4 cluster=./cluster.yaml
grep -q "no predictions: cluster two" larger.err || fail "no reason for missing predictions"
grep -q '"predicted_step_seconds":null' larger/metrics.jsonl || fail "a prediction without data"

# Schedules of single ranks.
"$orthant" schedule run.yaml --ranks 2 --rank 1 --set parallel.pp=2 >one.txt
grep -q "^region weights.head" one.txt || fail "the last stage does not hold the head"
"$orthant" schedule run.yaml --ranks 2 --rank 0 --set parallel.pp=2 >zero.txt
! grep -q "^region weights.head" zero.txt || fail "the first stage holds the head"
expect 2 "ranks are 0 to 1" "$orthant" schedule run.yaml --ranks 2 --rank 2
echo "all passed"
