#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The WebAssembly module of the page under node gives the bytes of `orthant plan --json`: dense models
# and experts, other software, other devices, settings, jobs that do not fit.
#   tests/web/test_page_answers.sh PROGRAM
set -euo pipefail
program=$1
module=$(dirname "$program")/page/orthant.wasm
skip() { echo "skipped: $1"; exit 77; }
command -v node >/dev/null || skip 'there is no node'
[ -f "$module" ] || skip "make page has not built $module"

jobs=(
  '--model llama3-8b --cluster h100 --gpus 8'
  '--model llama3-8b --cluster h100 --gpus 1'
  '--model mixtral-8x7b --cluster a100-80g --gpus 64 --ep 8 --pp 4 --sequence-length 8192 --price 2.5'
  '--model qwen3-30b-a3b --cluster h100 --gpus 64 --tp 4 --engine megatron-core --top 2'
  '--model gpt2 --cluster v100 --gpus 8 --precision fp16 --recompute full'
  '--model deepseek-v3 --cluster h800 --gpus 2048 --tp 4 --pp 16 --ep 16 --top 1 --expert-imbalance 2'
  '--model llama3-8b --cluster mi300x --gpus 64 --tp 1 --set optimizer.name=muon --zero 1'
  '--model gpt2-xl --cluster a100-40g --gpus 16 --memory-margin 20 --simple true'
  '--model gpt2-xl --cluster a100-40g --gpus 16 --memory-margin 0'
)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=0
for job in "${jobs[@]}"; do
  # $job is split into words on purpose; a flag has no value in the program.
  "$program" plan ${job/--simple true/--simple} --json >"$scratch/program" 2>/dev/null || true
  node tests/web/answers.js "$module" presets "$job" >"$scratch/page"
  [ -s "$scratch/program" ] && cmp "$scratch/program" "$scratch/page" && continue
  echo "not the same: $job" >&2
  failed=1
done
[ "$failed" = 0 ] || exit 1
echo "${#jobs[@]} jobs: the page's bytes are the program's"
