#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run: any machine. Plans written as other software's launch scripts, and read back: the same
# configuration, model, precision, batch and devices, at the same price to the last digit.
set -euo pipefail
. tests/support/expect.sh
orthant=$(realpath "${1:?usage: test_emit_software.sh ORTHANT}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export XDG_CONFIG_HOME=$work/user

# The first plan, or the one read back: everything before its reasons, without intervals.
plan_of() {  # plan_of FILE KEY
  awk -v key="\"$2\": " '
    index($0, key) { inside = 1; next }
    inside && /"why": / { exit }
    inside && !/[{}\]\[]|interval|doubt|equal|differ/ { gsub(/^ +|,$/, ""); print }' "$1"
}
fact() { grep -m 1 -E "\"$2\": " "$1"; }

trips=0
trip() {  # trip SOFTWARE ENGINE MODEL GPUS OPTIONS...
  local software=$1 engine=$2 model=$3 gpus=$4 all=$*
  shift 4
  local options=(--cluster h100 --gpus "$gpus" --top 1)
  "$orthant" plan "${options[@]}" --engine "$engine" --model "$model" "$@" --json >there.json ||
    fail "no plan: $all"
  "$orthant" plan "${options[@]}" --engine "$engine" --model "$model" "$@" --emit "$software=script" >/dev/null ||
    fail "not written: $all"
  bash -n script || fail "the script is no script: $all"
  # Degrees narrow the search; the file gives everything else.
  local degrees=()
  while [ $# -gt 0 ]; do
    case $1 in --global-batch-size | --sequence-length | --precision | --set) ;; *) degrees+=("$1" "$2") ;; esac
    shift 2
  done
  "$orthant" plan "${options[@]}" --from script "${degrees[@]}" --json >back.json 2>err.txt || true
  grep -q '"imported": ' back.json || { cat script err.txt; fail "not read back: $all"; }
  plan_of there.json plans >there.txt
  plan_of back.json imported >back.txt
  [ -s there.txt ] || fail "no plan in JSON"
  if ! diff there.txt back.txt; then
    cat script
    fail "another plan: $all"
  fi
  for key in parameters engine precision global_batch_size sequence_length devices; do
    [ "$(fact there.json $key)" = "$(fact back.json $key)" ] || fail "$key differs: $all"
  done
  trips=$((trips + 1))
}

b=(--global-batch-size 256 --sequence-length 4096)
core=(trip megatron megatron-core)
# tp, sequence parallelism, stages, chunks, cp, recompute, batches
"${core[@]}" qwen3-1.7b 64 "${b[@]}" --tp 1 --pp 1 --cp 1 --zero 0 --recompute full
"${core[@]}" llama3-8b 64 "${b[@]}" --tp 2 --pp 4 --cp 1 --vpp 2 --pipeline interleaved
"${core[@]}" llama3-8b 64 "${b[@]}" --tp 2 --pp 4 --cp 1 --vpp 3 --pipeline interleaved  # a layout
"${core[@]}" llama3-8b 64 "${b[@]}" --tp 1 --pp 2 --cp 2 --pipeline 1f1b --recompute selective --precision fp8
"${core[@]}" llama2-70b 128 "${b[@]}" --tp 8 --pp 4 --cp 1 --pipeline 1f1b --micro-batch-size 2 --precision bf16
"${core[@]}" llama3.1-405b 1024 "${b[@]}" --tp 8 --pp 16 --cp 1 --pipeline 1f1b --recompute full
"${core[@]}" gpt2-xl 8 --global-batch-size 64 --tp 1 --pp 2 --cp 1 --pipeline 1f1b --precision fp16
"${core[@]}" qwen3-8b 16 "${b[@]}" --tp 4 --pp 1 --cp 1 --precision fp32 --zero 1
"${core[@]}" llama3-8b 40 --global-batch-size 240 --sequence-length 4096 --tp 1 --pp 5 --cp 1 --zero 1
"${core[@]}" llama3-8b 64 "${b[@]}" --tp 1 --pp 2 --cp 1 --pipeline 1f1b --recompute-modules layernorm,mlp
# experts, latent attention
"${core[@]}" mixtral-8x7b 64 "${b[@]}" --tp 2 --pp 4 --cp 1 --ep 8 --pipeline 1f1b
"${core[@]}" qwen3-30b-a3b 32 "${b[@]}" --tp 1 --pp 2 --cp 1 --ep 16 --vpp 2 --pipeline interleaved --recompute full
"${core[@]}" deepseek-v3 1024 --global-batch-size 1024 --sequence-length 4096 --tp 1 --pp 16 --cp 1 --ep 64 \
  --pipeline 1f1b --precision fp8 --recompute full
"${core[@]}" deepseek-v3 2048 --global-batch-size 15360 --sequence-length 4096 --tp 1 --pp 16 --cp 1 --ep 64 \
  --zero 1 --pipeline 1f1b --precision fp8 --recompute-modules mla_up_proj,layernorm,moe_act,shared_experts
# CUDA graphs, a fused loss, Megatron FSDP
bridge=(trip megatron megatron-bridge)
"${bridge[@]}" llama3-8b 64 "${b[@]}" --tp 2 --pp 2 --cp 1 --vpp 4 --pipeline interleaved --precision fp8
"${bridge[@]}" llama3-8b 64 "${b[@]}" --tp 1 --pp 1 --cp 1 --zero 3
"${bridge[@]}" llama3-8b 64 "${b[@]}" --tp 2 --pp 1 --cp 1 --zero 2
titan=(trip torchtitan torchtitan)
"${titan[@]}" llama3.1-8b 64 "${b[@]}" --tp 1 --pp 1 --cp 1 --zero 3 --recompute selective
"${titan[@]}" llama3.1-8b 64 "${b[@]}" --tp 2 --pp 4 --cp 1 --zero 2 --pipeline interleaved --vpp 2
"${titan[@]}" llama3.1-8b 64 "${b[@]}" --tp 1 --pp 4 --cp 2 --zero 3 --pipeline zb-v --recompute full
"${titan[@]}" llama3.1-8b 64 "${b[@]}" --tp 1 --pp 4 --cp 2 --zero 3 --pipeline dualpipe-v --recompute full
"${titan[@]}" qwen3-1.7b 8 "${b[@]}" --tp 1 --pp 1 --cp 1 --zero 0 --recompute full --precision fp32
"${titan[@]}" llama3.1-70b 256 "${b[@]}" --tp 8 --pp 1 --cp 1 --precision fp8
"${titan[@]}" llama3.1-405b 512 "${b[@]}" --tp 8 --pp 8 --cp 1 --pipeline 1f1b --recompute full
"${titan[@]}" qwen3-30b-a3b 64 "${b[@]}" --tp 1 --pp 1 --cp 1 --ep 8 --recompute full
"${titan[@]}" deepseek-v3 512 "${b[@]}" --tp 1 --pp 8 --cp 1 --ep 16 --pipeline gpipe --recompute full
speed=(trip deepspeed deepspeed)
"${speed[@]}" llama2-7b 64 "${b[@]}" --tp 1 --zero 3 --recompute full
"${speed[@]}" llama2-13b 64 "${b[@]}" --tp 2 --zero 2 --precision bf16 --recompute full
"${speed[@]}" gpt2-xl 8 --global-batch-size 64 --tp 1 --zero 1 --recompute none
"${speed[@]}" llama3-8b 64 "${b[@]}" --tp 4 --zero 1 --micro-batch-size 4 --recompute full --precision bf16
trip deepspeed megatron-deepspeed gpt3-175b 384 --global-batch-size 1536 --set model.vocab_size=51200 --tp 4 --pp 12 --zero 1 --recompute full
trip deepspeed megatron-deepspeed gpt2-xl 8 --global-batch-size 64 --tp 1 --pp 2 --zero 0 --recompute full
tron=(trip nanotron nanotron)
"${tron[@]}" llama3-8b 64 "${b[@]}" --tp 2 --pp 4 --cp 1 --zero 1 --pipeline 1f1b
"${tron[@]}" llama2-70b 256 "${b[@]}" --tp 8 --pp 8 --cp 1 --zero 1 --pipeline gpipe --recompute full
"${tron[@]}" llama3-8b 8 "${b[@]}" --tp 4 --pp 1 --cp 1 --zero 0 --micro-batch-size 2 --precision bf16 --recompute full
"${tron[@]}" llama3-8b 64 "${b[@]}" --tp 1 --pp 1 --cp 2 --zero 1 --precision fp16 --recompute full

# ---- what cannot be written is named ----
plan=("$orthant" plan --cluster h100 --gpus 8 --top 1 --model llama3-8b)
expect 2 "--emit megatron: the plan is for engine orthant" "${plan[@]}" --emit megatron
expect 2 "--engine megatron-core" "${plan[@]}" --emit megatron
expect 2 "the fused experts of engine megatron-bridge-26.06 cannot be configured with flags of core 0.14" \
  "$orthant" plan --model qwen3-30b-a3b --cluster h100 --gpus 16 --tp 1 --pp 1 --cp 1 --ep 8 --engine megatron-bridge-26.06 --emit megatron
expect 2 "--emit torchtitan: the plan is for engine nanotron" "${plan[@]}" --engine nanotron --emit torchtitan
expect 2 "--emit megatron writes its launch script" "${plan[@]}" --engine megatron-core --emit sbatch
expect 2 "would start Orthant, but the plan is for jax" "${plan[@]}" --engine jax --emit mpirun
expect 2 "cannot be configured for the precision bf16-pure" \
  "${plan[@]}" --engine megatron-core --precision bf16-pure --emit megatron
expect 2 "torchtitan has no flavor of llama2-7b" \
  "$orthant" plan --cluster h100 --gpus 8 --model llama2-7b --engine torchtitan --emit torchtitan
expect 2 "is not one of run|mpirun|sbatch|mpijob|megatron" "${plan[@]}" --emit nemo
[ "$trips" -ge 30 ] || fail "only $trips round trips"
echo "$trips round trips"
