#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run: any machine. sample, score and audit with --device, on the emulated GPU: the tokens and
# log-probabilities of the CPU, clean audits; and what they say where there is no GPU.
set -euo pipefail
. tests/cuda/emulated.sh "${1:-build/orthant}"

"$orthant" tokenize --tokenizer bytes --out train "$here/LICENSE" >/dev/null
cat >run.yaml <<'YAML'
model: {model_type: llama, vocab_size: 257, hidden_size: 32, intermediate_size: 64, num_hidden_layers: 1,
  num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 128, tie_word_embeddings: true}
data: {train: train, tokenizer: bytes, sequence_length: 8}
batch: {global_batch_size: 16, micro_batch_size: 16}
optimizer: {lr: 2e-2}
steps: 100
threads: 1
device: cpu
YAML
"$orthant" train run.yaml --set output=model >/dev/null 2>&1

# ---- sample and score ----
prompt="Licensed under the Apache License, Version 2.0 (the \"License\"); you may not"
for device in cpu cuda; do
  on_gpu sample model --prompt "$prompt" --temperature 0 --max-tokens 20 --json --device $device >$device.json
done
cmp cpu.json cuda.json || fail "the GPU continues a prompt with other tokens"

printf '%s\n' '{"text": "Licensed under the Apache License"}' '{"context": "Copy", "continuation": "right"}' >texts
for device in cpu cuda auto; do on_gpu score model texts --device $device >$device.scores; done
cmp cuda.scores auto.scores || fail "auto does not take the GPU"
! cmp -s cpu.scores cuda.scores || fail "sums in the order of the CPU: not on the GPU"
numbers() { grep -o '"logprobs":[^]]*' "$1" | tr -c '0-9.e\n-' '\n' | grep '[0-9]'; }
paste <(numbers cpu.scores) <(numbers cuda.scores) | awk '
  { d = $1 - $2; if (d < 0) d = -d; if (d > 1e-5) { print "log-probabilities", $1, $2; bad = 1 } }
  END { exit bad || NR < 30 }' || fail "other log-probabilities"

# ---- audits ----
on_gpu audit causality run.yaml --device cuda >out || fail "causality: $(cat out)"
grep -q '^causality: clean' out || fail "causality: $(cat out)"
on_gpu audit step model --device cuda >out || fail "step: $(cat out)"
for device in cpu cuda; do on_gpu audit drift model --device $device >$device.drift; done
grep -q '^drift: clean' cuda.drift || fail "drift: $(cat cuda.drift)"
! cmp -s cpu.drift cuda.drift || fail "drift has the figures of the CPU: not on the GPU"
on_gpu audit drift model --set device=cuda | cmp - cuda.drift || fail "--device is not the key device"
"$orthant" audit drift run.yaml --set device=cuda --device cpu >out || fail "--device does not override: $(cat out)"
on_gpu audit ranks run.yaml --set batch.micro_batch_size=8 --ranks 2 --device cuda >out || fail "ranks: $(cat out)"
grep -q '^ranks: clean' out || fail "ranks: $(cat out)"

# ---- without a GPU ----
for verb in "sample model" "score model texts" "audit drift model"; do
  expect 3 "$no_gpu" "$orthant" $verb --device cuda
  expect 3 'no GPU can be used' "$emulated" $verb --device cuda
done
