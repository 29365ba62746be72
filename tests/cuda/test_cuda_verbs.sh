#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run: any machine. sample, score, serve and audit with --device, on the emulated GPU and on several: the tokens and
# log-probabilities of the CPU, clean audits; evaluations of a run; and what they say where there is no GPU.
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
near() {
  paste <(numbers cpu.scores) <(numbers "$1") | awk '
    { d = $1 - $2; if (d < 0) d = -d; if (d > 1e-5) { print "log-probabilities", $1, $2; bad = 1 } }
    END { exit bad || NR < 30 }' || fail "other log-probabilities: $1"
}
near cuda.scores

# ---- a GPU for each rank ----
on_gpus() { OT_SHIM_DEVICES=2 on_gpu "$@" --ranks 2 --device cuda; }
on_gpus score model texts --pp 2 | cmp - cuda.scores || fail "stages have other bits than one GPU"
on_gpus score model texts >tp.scores
! cmp -s tp.scores cuda.scores || fail "tp has the bits of one GPU: not sharded"
near tp.scores
on_gpus sample model --prompt "$prompt" --temperature 0 --max-tokens 20 --json | cmp - cpu.json ||
  fail "GPUs continue a prompt with other tokens"
OT_SHIM_DEVICES=2 OT_SHIM_NCCL=none expect 3 'NCCL is not found' on_gpu score model texts --ranks 2 --device cuda

# A server on two GPUs gives over HTTP the log-probabilities of `score` on one.
OT_TEST_DEVICE=cuda OT_SHIM_DEVICES=2 "$emulated" serve model --port 0 --ranks 2 --pp 2 --device cuda >address 2>served &
server=$!
trap '[ -z "$server" ] || kill -KILL $server; rm -rf "$folder"' EXIT
until [ -s address ] || ! kill -0 $server 2>/dev/null; do sleep 0.05; done
if [ -s address ]; then
  body='{"prompt": "Licensed under the Apache License", "max_tokens": 0, "echo": true, "logprobs": 0}'
  exec 3<>"/dev/tcp/127.0.0.1/$(sed 's/.*://' address)"
  printf 'POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n' >&3
  printf 'Content-Length: %d\r\n\r\n%s' ${#body} "$body" >&3
  grep -o '"token_logprobs":\[[^]]*' <&3 | sed 's/.*\[null,//' >told
  exec 3>&-
  head -n 1 cuda.scores | grep -o '"logprobs":\[[^]]*' | sed 's/.*\[//' | cmp - told || fail "the server: $(cat told served)"
  kill $server && wait $server || fail "the server ends with $?: $(cat served)"
else
  grep -q 'without libmicrohttpd' served || fail "$(cat served)"
fi
server=

# A run evaluates itself on its GPUs, each with a share or as stages: the figures of `score` on one.
printf '%s\n' '{"text": "Licensed under"}' '{"text": "the Apache License"}' '{"text": "Version 2.0"}' >held.jsonl
for stages in 1 2; do
  run=(train run.yaml --ranks 2 --set device=cuda --set batch.micro_batch_size=8 --set steps=1
    --set evaluate="{stages: $stages, tasks: {held: held.jsonl}}" --set output=run$stages)
  OT_SHIM_DEVICES=2 on_gpu "${run[@]}" --dry-run >/dev/null 2>out || fail "dry run: $(cat out)"
  grep -Eq "^evaluation: .* on (one rank of each GPU|each GPU, in pipelines of 2 ranks)$" out || fail "where: $(cat out)"
  OT_SHIM_DEVICES=2 on_gpu "${run[@]}" >/dev/null 2>out || fail "stages $stages: $(cat out)"
  on_gpu score run$stages --device cuda --tasks held.jsonl | grep -o '"bits_per_byte":[0-9.]*' >score
  grep '"step":1,"evaluate/held/bits_per_byte"' run$stages/metrics.jsonl | sed 's,evaluate/held/,,' |
    grep -o '"bits_per_byte":[0-9.]*' | cmp - score || fail "stages $stages: other figures than score"
done

# ---- audits ----
on_gpu audit causality run.yaml --device cuda >out || fail "causality: $(cat out)"
grep -q '^causality: clean' out || fail "causality: $(cat out)"
on_gpu audit step model --device cuda >out || fail "step: $(cat out)"
for device in cpu cuda; do on_gpu audit drift model --device $device >$device.drift; done
grep -q '^drift: clean' cuda.drift || fail "drift: $(cat cuda.drift)"
! cmp -s cpu.drift cuda.drift || fail "drift has the figures of the CPU: not on the GPU"
on_gpu audit drift model --set device=cuda | cmp - cuda.drift || fail "--device is not the key device"
printf '%s\n' '{"text": "Licensed"}' '{"text": "Version"}' >short.jsonl
"$orthant" score model short.jsonl --device cpu >short.scores
on_gpu audit drift model --device cuda --against short.scores >out || fail "drift against the CPU: $(cat out)"
grep -q '^drift: clean' out || fail "drift against the CPU: $(cat out)"
"$orthant" audit drift run.yaml --set device=cuda --device cpu >out || fail "--device does not override: $(cat out)"
# Ranks that share the GPU, and a GPU each: every weight moves, on each axis that splits weights or sums.
for mesh in dp_replicate=2 tp=2 pp=2; do
  for devices in 1 2; do
    OT_SHIM_DEVICES=$devices on_gpu audit ranks run.yaml --set batch.micro_batch_size=4 --set model.num_hidden_layers=2 --set parallel.$mesh \
      --ranks 2 --device cuda >out ||
      fail "ranks, $mesh, $devices devices: $(cat out)"
    grep -q '^ranks: clean' out || fail "ranks, $mesh, $devices devices: $(cat out)"
  done
done

# ---- without a GPU ----
for verb in "sample model" "score model texts" "audit drift model"; do
  expect 3 "$no_gpu" "$orthant" $verb --device cuda
  expect 3 'no GPU can be used' "$emulated" $verb --device cuda
done
