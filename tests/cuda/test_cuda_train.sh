#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run: any machine. `train` with device=cuda, on the emulated GPU: the losses of the CPU, the same bits
# twice, a checkpoint that the CPU goes on from, resumed runs that keep the algorithms of their products; and what
# it says where there is no GPU.
set -euo pipefail
. tests/cuda/emulated.sh "${1:-build/orthant}"

"$orthant" tokenize --tokenizer bytes --out train "$here/LICENSE" >/dev/null
cat >run.yaml <<'YAML'
model: {model_type: llama, vocab_size: 257, hidden_size: 32, intermediate_size: 64, num_hidden_layers: 2,
  num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 64, tie_word_embeddings: true}
data: {train: train, tokenizer: bytes, sequence_length: 32}
batch: {global_batch_size: 4, micro_batch_size: 2}
optimizer: {lr: 5e-3}
steps: 6
threads: 1
YAML

losses() { grep -o '"loss":[^,]*' "$1/metrics.jsonl"; }

"$orthant" train run.yaml --set device=cpu --set output=cpu >/dev/null 2>&1
on_gpu train run.yaml --set device=cuda --set output=gpu >/dev/null 2>out
grep -Eq '^memory: arena planned [0-9.]+ MB, in use on the GPU [0-9.]+ of 8589\.9 MB$' out || fail "memory: $(cat out)"
on_gpu train run.yaml --set output=again >/dev/null 2>&1  # auto finds the GPU
losses gpu | cmp - <(losses again) || fail "other bits in a second run"

# Resumed where cuBLASLt would propose other algorithms: gemm.table keeps the first ones. Another version says so.
cp -r again kept
cp -r again upgraded
on_gpu train run.yaml --set output=again --set steps=8 >/dev/null 2>&1
OT_SHIM_LT_ORDER=reversed on_gpu train run.yaml --set output=kept --set steps=8 >out 2>&1
losses again | cmp - <(losses kept) || fail "other bits in a resumed run"
grep -q 'note: matrix products' out && fail "note: $(cat out)"
OT_SHIM_LT_ORDER=reversed OT_SHIM_LT_VERSION=130200 on_gpu train run.yaml --set output=upgraded --set steps=8 >out 2>&1
grep -q 'note: matrix products may have other bits than before: they were by cuBLASLt 130100' out ||
  fail "another version: $(cat out)"
grep -Eq '^products: cuBLASLt refused 0 shapes, .* and [1-9][0-9]* stored algorithms, which others replaced$' out ||
  fail "no word of replaced algorithms in the end: $(cat out)"
tail -n 1 upgraded/metrics.jsonl | grep -q '"products_by_own_kernel":0,"algorithms_replaced":[1-9]' || fail "metrics: $(tail -n 1 upgraded/metrics.jsonl)"
tail -n 1 kept/metrics.jsonl | grep -q '"products_by_own_kernel":0,"algorithms_replaced":0,' || fail "metrics: $(tail -n 1 kept/metrics.jsonl)"
tail -n 1 cpu/metrics.jsonl | grep -q '"products_by_own_kernel":null,"algorithms_replaced":null,' || fail "metrics: $(tail -n 1 cpu/metrics.jsonl)"
losses again | cmp -s - <(losses upgraded) && fail "other algorithms give the same bits"
paste -d' ' <(losses cpu) <(losses gpu) | sed 's/"loss"://g' | awk '
  { d = $1 - $2; if (d < 0) d = -d; if (d > 2e-5 * $1) { print "step", NR ": loss", $2, "and", $1; bad = 1 } }
  END { exit bad || NR != 6 }' || fail "the losses are not those of the CPU"

"$orthant" train run.yaml --set device=cpu --set output=gpu --set steps=8 >/dev/null 2>&1 ||
  fail "the CPU does not go on from the checkpoint of the GPU"
[ "$(losses gpu | wc -l)" = 8 ] || fail "not 8 steps"

expect 3 "$no_gpu" "$orthant" train run.yaml --set device=cuda --set output=none
expect 3 'no GPU can be used' "$emulated" train run.yaml --set device=cuda --set output=none

# Heads that no kernel takes.
wide=(--set model.head_dim=320 --set steps=1)
expect 3 'attention on a GPU takes heads of at most 256' \
  on_gpu train run.yaml "${wide[@]}" --set device=cuda --set output=none
on_gpu train run.yaml "${wide[@]}" --set device=auto --set output=wide >out 2>&1 || fail "wide heads: $(cat out)"
grep -q 'takes heads of at most 256' out || fail "wide heads: $(cat out)"

# Ranks that are threads share the GPU.
on_gpu train run.yaml --ranks 2 --set device=cuda --set output=two >/dev/null 2>&1 || fail "2 ranks"
paste -d' ' <(losses two) <(losses gpu) | head -6 | sed 's/"loss"://g' | awk '
  { d = $1 - $2; if (d < 0) d = -d; if (d > 2e-5 * $1) { print "step", NR ": loss", $1, "and", $2; bad = 1 } }
  END { exit bad || NR != 6 }' || fail "the losses of 2 ranks are not those of 1"

# With a GPU each they have the same bits, and need NCCL.
OT_SHIM_DEVICES=2 on_gpu train run.yaml --ranks 2 --set device=cuda --set output=each >/dev/null 2>out || fail "2 GPUs"
grep -q ', on a GPU each, by NCCL 2\.28\.9, ' out || fail "the version of NCCL: $(cat out)"
losses two | cmp - <(losses each) || fail "other bits on 2 GPUs"
OT_SHIM_DEVICES=2 OT_SHIM_NCCL=none expect 3 'NCCL is not found' \
  on_gpu train run.yaml --ranks 2 --set device=cuda --set output=none

# Processes need a GPU each.
(
  cd "$here"
  . tests/support/mpi_launch.sh "$emulated"
  cd "$folder"
  OT_TEST_DEVICE=cuda expect 3 'ranks 0 1 use the same GPU' \
    "${launch[@]}" -n 2 "$emulated" train run.yaml --set device=cuda --set output=none
) || [ $? = 77 ] || exit 1
