#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run: any machine. `bench`, `doctor`, plans and predictions for a GPU, on the emulated one; too little of its
# memory, a GPU that is too old, one that fails in a step, audits of overlap; OT_TESTS=full: `make demo`.
set -euo pipefail
. tests/cuda/emulated.sh "${1:-build/orthant}"
export XDG_CONFIG_HOME=$folder/user

"$orthant" tokenize --tokenizer bytes --out train "$here/LICENSE" >/dev/null
cat >run.yaml <<'YAML'
model: {model_type: llama, vocab_size: 257, hidden_size: 32, intermediate_size: 64, num_hidden_layers: 1,
  num_attention_heads: 2, num_key_value_heads: 2, max_position_embeddings: 32, tie_word_embeddings: true}
data: {train: train, tokenizer: bytes, sequence_length: 16}
batch: {global_batch_size: 4, micro_batch_size: 4}
steps: 2
threads: 1
YAML

# ---- bench: auto takes the GPU, and this-machine is the GPU ----
on_gpu bench --quick >bench.txt 2>/dev/null
file=user/orthant/clusters/this-machine.yaml
for key in flops_bf16 flops_fp32 flops_fp64 memory_bytes_per_s other_flops_per_s launch_s attention_efficiency \
  launch_s to_device_bytes_per_s from_device_bytes_per_s; do
  awk -v key="$key:" '$1 == key { found = $2 > 0 } END { exit !found }' $file || fail "bench: no $key: $(cat $file)"
done
for part in 'device: "emulated device"' 'basis: quick' 'processors: 132' 'memory_bytes: 8589934592' 'packs: false' \
  'threads: 0' 'op: linear, threads: 1, dtype: bf16' 'op: attention_grad, threads: 1, dtype: fp32' 'op: adamw, '; do
  grep -q "$part" $file || fail "bench: no $part: $(cat $file)"
done
grep -q '^1 x emulated device, 8.6 GB each' bench.txt || fail "bench: $(cat bench.txt)"

# ---- quick: small sizes on an emulated GPU, real ones on a fast one (the first needs 128 MiB for an operand) ----
grep -q 'rows: 64, columns: 64, depth: 64' $file || fail "bench: no small product: $(cat $file)"
expect 3 '134217728 bytes are needed' \
  env OT_SHIM_SPEED=1000000 OT_SHIM_MEMORY=100000000 OT_TEST_DEVICE=cuda "$emulated" bench --quick --out fast.yaml
[ ! -e fast.yaml ] || fail "bench: a fast GPU was measured with small sizes"

# ---- a bench of more micro-batches has the memory of a run: the activations of one of them ----
planned() {  # planned MICRO_BATCHES: bytes of its step, and of its state
  (cd "$here" && OT_TEST_DEVICE=cuda "$(dirname "$emulated")/gpu_step_emulated" --model bench/models/tiny-64.json --sequence 32 \
    --micro-batch 4 --micro-batches "$1" --warmup 0 --repeats 1 --json) |
    sed 's/.*"planned_bytes":\([0-9]*\),"state_bytes":\([0-9]*\).*/\1 \2/'
}
read -r one state <<<"$(planned 1)"
read -r eight _ <<<"$(planned 8)"
[ $((eight - one)) -lt $(((one - state) / 10)) ] || fail "8 micro-batches need $eight bytes, one $one"

# ---- plans, and the predictions of runs on it ----
expect 2 'measured products up to 64 x 64 x 64; those of this job have 1024 x 3072 x 768' \
  "$orthant" plan --model gpt2 --cluster this-machine --global-batch-size 8
cat >config.json <<'JSON'
{"model_type": "llama", "vocab_size": 257, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1,
 "num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 32, "tie_word_embeddings": true}
JSON
"$orthant" plan --model ./config.json --cluster this-machine --global-batch-size 8 --sequence-length 16 --json >plan.json
grep -q '"basis": "quick"' plan.json || fail "plan: $(head -c 600 plan.json)"
on_gpu train run.yaml --set output=a --trace trace.json:2-2 >out 2>&1 || fail "train: $(cat out)"
grep -q 'on a GPU, arena planned' out || fail "train does not say what computes: $(cat out)"
grep -Eq '^  step +[0-9.]+ ms +[0-9.]+ ms' out || fail "no predicted step next to the measured one: $(cat out)"
grep -q '"predicted_step_seconds":[0-9]' a/metrics.jsonl || fail "metrics: $(cat a/metrics.jsonl)"
grep -q '"name": *"[a-z_/.]*linear' trace.json || fail "the trace has no kernels: $(head -c 400 trace.json)"
head -n 1 a/metrics.jsonl | grep -q '"bubble_fraction":null' || fail "a bubble without events: $(cat a/metrics.jsonl)"
# Neither device is predicted from the other.
expect 0 'no predictions: this-machine describes emulated device, and the run is on the CPU' \
  "$orthant" train run.yaml --set device=cpu --set output=b
grep -q '"predicted_step_seconds":null' b/metrics.jsonl || fail "metrics: $(cat b/metrics.jsonl)"
sed 's/^packs: false/packs: true/; s/^threads: 0/threads: 1/; s/^  cores: 0/  cores: 1/; s/emulated device/cpu/' $file >cpu.yaml
expect 0 'no prediction: this-machine describes a CPU, and the run is on a GPU' \
  on_gpu train run.yaml --set cluster=./cpu.yaml --set output=c --dry-run

# ---- memory: 128 MiB are kept for libraries ----
expect 3 'it fits with batch.micro_batch_size=2' \
  env OT_SHIM_MEMORY=134700000 OT_TEST_DEVICE=cuda "$emulated" train run.yaml --set output=d
for part in '134.7 MB free of 134.7 MB' '  weights ' '  activations ' '  peak '; do
  grep -q "$part" err.txt || fail "too little memory: no \"$part\": $(cat err.txt)"
done
[ ! -s d/metrics.jsonl ] || fail "a step ran with too little memory"
expect 3 'it fits with batch.micro_batch_size=2' \
  env OT_SHIM_MEMORY=134700000 OT_TEST_DEVICE=cuda "$emulated" train run.yaml --set output=d --dry-run
expect 3 'free of' env OT_SHIM_MEMORY=134700000 OT_TEST_DEVICE=cuda "$emulated" train run.yaml --set output=d \
  --set device=cuda --set batch.micro_batch_size=2 --ranks 2

# ---- a GPU that lacks the kernels ----
expect 0 'note: the CPU runs it: emulated device has compute capability 8.0' \
  env OT_SHIM_CAPABILITY=80 OT_TEST_DEVICE=cuda "$emulated" train run.yaml --set output=e
expect 3 'has compute capability 8.0, for which this build has no kernels' \
  env OT_SHIM_CAPABILITY=80 OT_TEST_DEVICE=cuda "$emulated" train run.yaml --set output=f --set device=cuda
expect 3 'precision: compute=fp16 is not supported' on_gpu train run.yaml --set output=f --set precision.compute=fp16
[ ! -s f/metrics.jsonl ] || fail "a step ran without kernels"

# ---- a GPU that fails in a step: illegal address, uncorrectable memory, as a lost rank ----
for fault in kernel:60:700 kernel:60:214 launch:60:719; do
  expect 4 'error: the GPU failed: ' env OT_SHIM_FAIL=$fault OT_TEST_DEVICE=cuda "$emulated" train run.yaml --set output=g
  [ "$(grep -c '^error' err.txt)" = 1 ] || fail "more than one error: $(cat err.txt)"
done
expect 4 'the GPU failed: an illegal memory access' env OT_SHIM_FAIL=kernel:90:700 OT_TEST_DEVICE=cuda "$emulated" \
  train run.yaml --set output=h --set device=cuda --set batch.micro_batch_size=2 --ranks 2
[ "$(grep -c '^error' err.txt)" = 1 ] || fail "more than one error: $(cat err.txt)"

# ---- a checkpoint has the algorithms of all ranks: the head's products are on the last stage only ----
on_gpu train run.yaml --set output=one --set steps=1 --set model.num_hidden_layers=2 --set model.tie_word_embeddings=false >out 2>&1 || fail "$(cat out)"
on_gpu train run.yaml --set output=two --set steps=1 --set model.num_hidden_layers=2 --set model.tie_word_embeddings=false --set device=cuda \
  --set parallel.pp=2 --ranks 2 >out 2>&1 || fail "2 stages: $(cat out)"
table() { sort "$1/checkpoints/step-00000001/gemm.table"; }
[ "$(table one | wc -l)" -gt 8 ] && diff <(table one) <(table two) >out || fail "algorithms of 2 stages: $(cat out)"

# ---- overlap: from events ----
on_gpu audit overlap run.yaml --device cuda --set batch.micro_batch_size=2 --ranks 2 --steps 1 --json >out || true
grep -Eq '"(compute|exposed)_seconds": *[0-9.e-]*[1-9]' out || fail "overlap: $(cat out)"

# ---- doctor ----
on_gpu doctor --json >out
for part in '"name": "emulated device"' '"capability": "9.0"' '"total_bytes": 8589934592' '"runtime": "CUDA 13'; do
  grep -q "$part" out || fail "doctor: no $part: $(cat out)"
done
"$orthant" doctor >out
grep -q 'not in this build\|no GPU can be used' out || fail "doctor: $(cat out)"
OT_TEST_DEVICE=cuda OT_CUDA_LIBRARIES=$folder "$emulated" doctor >out
grep -q 'libcublasLt.so.13 is not found, which every run on a GPU needs' out || fail "doctor: $(cat out)"

# ---- make demo ----
[ "${OT_TESTS:-}" = full ] || exit 0
cd "$here"
DEMO_DIR=$folder/demo DEMO_SIZE=tiny DEMO_TEXT=100000 OT_TEST_DEVICE=cuda ORTHANT=$emulated tools/demo.sh 3 >"$folder/out" 2>&1 ||
  fail "demo: $(tail -20 "$folder/out")"
grep -q 'bench --quick --device cuda' "$folder/out" && grep -q 'bits per byte' "$folder/out" || fail "demo: $(cat "$folder/out")"
