#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run: any machine. Plans from the command line: arguments, keys, exit codes; emitted files are
# accepted by their readers.
set -euo pipefail
. tests/support/expect.sh
orthant=$(realpath "${1:?usage: test_plan_verb.sh ORTHANT}")
source_dir=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export XDG_CONFIG_HOME=$work/user

holds() {  # holds FILE PATTERN...
  local file=$1 pattern
  shift
  for pattern in "$@"; do grep -q -- "$pattern" "$file" || { cat "$file"; fail "no $pattern in $file"; }; done
}
plan=("$orthant" plan --cluster h100)

# ---- errors ----
expect 2 "--model M is needed" "${plan[@]}"
expect 2 "did you mean the preset gpt2?" "${plan[@]}" --model gtp2
expect 2 "no preset and no file is called \"h101\"" "$orthant" plan --model gpt2 --cluster h101
expect 2 "--gpus: 0 is out of range" "${plan[@]}" --model gpt2 --gpus 0
expect 2 "price: 0 is out of range; allowed: above 0" "${plan[@]}" --model gpt2 --price 0
expect 2 "global_batch_size=16777216 is not a multiple of micro_batch_size=3 x dp=8" "${plan[@]}" --model gpt2 \
  --gpus 8 --dp 8 --micro-batch-size 3 --critical-batch-tokens 9223372036854775807
expect 2 "\"fp4\" is not one of bf16|fp8|fp32" "${plan[@]}" --model gpt2 --precision fp4
expect 2 "there is no engine called \"nemo\"" "${plan[@]}" --model gpt2 --engine nemo
expect 2 "one of orthant, " "${plan[@]}" --model gpt2 --engine nemo
expect 3 "nemo.yaml" "${plan[@]}" --model gpt2 --engine ./nemo.yaml
expect 2 "is not one of run|mpirun|sbatch|mpijob|megatron" "${plan[@]}" --model gpt2 --emit slurm
expect 2 "both print on stdout" "${plan[@]}" --model gpt2 --gpus 8 --emit run --json
expect 2 "tp=3 does not divide the 8 devices" "${plan[@]}" --model gpt2 --gpus 8 --tp 3
expect 2 "position table of 1024" "${plan[@]}" --model gpt2 --gpus 8 --sequence-length 2048
expect 2 "--model and --from both say" "${plan[@]}" --model gpt2 --from "$source_dir"/tests/fixtures/import/torchtitan_2024.toml
expect 2 "etp=2 of engine megatron-core is not priced" "${plan[@]}" --model gpt2 --engine megatron-core --etp 2
expect 2 "micro_batches=16777216 x chunks=1; a plan follows at most 1048576" \
  "${plan[@]}" --model gpt2 --gpus 1 --global-batch-size 16777216 --micro-batch-size 1
expect 3 "nowhere.toml" "${plan[@]}" --from nowhere.toml
expect 3 "never measured" "$orthant" plan --model gpt2
expect 2 "did you mean --recompute?" "${plan[@]}" --model gpt2 --recomputes full

# ---- every precision is in the help and accepted ----
"$orthant" help plan >help.txt
for precision in $(sed -n 's/^    {\.name = "\([^"]*\)".*/\1/p' "$source_dir/src/core/describe/recipe.c"); do
  holds help.txt "[ |]$precision\(|\|$\)"
  "${plan[@]}" --model gpt2 --gpus 8 --tp 1 --pp 1 --cp 1 --top 1 --precision "$precision" >/dev/null ||
    fail "--precision $precision is rejected"
done

# ---- the document ----
"${plan[@]}" --model llama3-8b --gpus 8 --pp 1 --json >a.json
"${plan[@]}" --model llama3-8b --gpus 8 --pp 1 --json >b.json
cmp a.json b.json || fail "two plans of one job differ"
holds a.json '"parameters": 8030261248' '"active_parameters": 8030261248' '"flops_per_token": [1-9]' \
  '"bytes_per_parameter": 16' '"state_bytes": 128484179968' '"min_devices_for_state": 2' \
  '"batch_floor_devices": [1-9]' '"crossover_devices": [1-9]' '"critical_batch_tokens": [1-9]' \
  '"tp": ' '"pp": ' '"vpp": ' '"cp": ' '"ep": ' '"dp": ' '"zero": ' '"micro_batch_size": ' \
  '"micro_batches": ' '"pipeline": "' '"recompute": "' '"fits": true' '"weights": [1-9]' '"gradients": [1-9]' \
  '"optimizer": [1-9]' '"activations": [1-9]' '"gathered": ' '"buffers": ' '"peak": [1-9]' \
  '"capacity": 85520809984' '"memory_bytes": 80000000000' '"step_seconds": [0-9.]*[1-9]' '"mfu": 0\.' '"hfu": 0\.' \
  '"model_tflops_per_device": ' '"tokens_per_second_per_device": ' '"bubble_fraction": ' '"exposed_seconds": {' \
  '"why": \[' '"run": {' '"model": "llama3-8b"' '"rejected": \[' '"mfu_convention": "model FLOPs, causal half'

# ---- the text report ----
"${plan[@]}" --model llama3-8b --gpus 8 --pp 1 >a.txt
holds a.txt '^state and work$' '^limits, at [0-9]* TFLOP/s per device (kernel rate of the best plan; [0-9]* TFLOP/s over the whole step)$' '^plans, fastest first' '^why plan 1$' '^the other plans compared' \
  'causal half' '^assumed: '
[ "$(awk 'length($0) > 104' a.txt | wc -l)" = 0 ] || fail "a line of more than 104 columns"
grep -q $'\033' a.txt && fail "colour without a terminal"

# ---- the answer comes first, and a terminal shows it bold ----
[ "$(sed -n 3p a.txt | cut -c1-6)" = "plans," ] || fail "the answer does not follow the job: $(sed -n 3p a.txt)"
place() { grep -n "^$1" a.txt | head -1 | cut -d: -f1; }
[ "$(place 'why plan 1')" -lt "$(place 'state and work')" ] && [ "$(place 'why plan 1')" -lt "$(place 'limits, at')" ] ||
  fail "limits come before reasons"
if command -v script >/dev/null; then
  bold=$'\033[1m' plain=$'\033[0m'
  screen() { script -qec "TERM=xterm $orthant plan --cluster h100 --model llama3-8b --gpus 8 --pp 1" /dev/null </dev/null; }
  screen | tr -d '\r' >screen.txt
  grep -qF "${bold}why plan 1${plain}" screen.txt || fail "headings are not bold on a terminal"
  grep -qF "${bold}  1  " screen.txt || fail "plan 1 is not bold on a terminal"
  sed "s/\x1b\[[01]m//g" screen.txt | cmp - a.txt || fail "a terminal shows another text"
  NO_COLOR=1 screen | tr -d '\r' | cmp - a.txt || fail "bold in spite of NO_COLOR"
fi

# ---- --brief: the answer alone, at most 15 lines ----
for job in "h100 llama3-8b 64" "tpu-v5p gpt2 8" "h800 deepseek-v3 2048" "mi300x llama3-8b 16"; do
  read -r cluster model gpus <<<"$job"
  "$orthant" plan --cluster "$cluster" --model "$model" --gpus "$gpus" --brief >brief.txt
  holds brief.txt "^$model on $cluster: " '^  1  ' '^  plan 1 in 4 of 5 cases: ' '^assumed: '
  [ "$(wc -l <brief.txt)" -le 15 ] || { cat brief.txt; fail "--brief prints over 15 lines"; }
  grep -q '^why\|^state\|^limits' brief.txt && fail "--brief prints reasons"
done
"${plan[@]}" --model llama3-8b --gpus 8 --pp 1 --brief --top 4 >brief.txt
holds brief.txt '^  4  '
expect 2 "brief shortens the text, which --json replaces" "${plan[@]}" --model gpt2 --gpus 8 --brief --json
expect 2 "brief shortens the text, which --emit replaces" "${plan[@]}" --model gpt2 --gpus 8 --brief --emit run
expect 1 "no plan fits" "${plan[@]}" --model llama3-8b --gpus 1 --brief
[ "$(wc -l <out.txt)" -le 15 ] || fail "--brief prints over 15 lines where nothing fits"
holds out.txt "^nothing fits; each of these"

grep -Eq 'hides its|fast enough' a.txt && fail "a promise that communication hides"

# ---- what predictions are based on ----
holds a.json '"basis": "fitted"' '"engine orthant on h100"'
holds a.txt '^plan 1: beyond published runs: engine orthant on h100$'
grep -q '^basis: ' a.txt && fail "a fitted preset prints the line"
"$orthant" plan --cluster tpu-v5p --model gpt2 --gpus 8 --pp 1 --top 1 >guess.txt
holds guess.txt 'Orthant does not run on tpu-v5p: --engine jax prices software that does' '^basis: guessed: ' '^plan 1: beyond published runs: device tpu-v5p$'
"${plan[@]}" --model gpt2 --gpus 8 --pp 1 --top 1 --set model.n_head=2 >wide.txt
holds wide.txt 'no attention kernels for heads of 384 on h100 (at most 256): --engine NAME'
"${plan[@]}" --model gpt2 --gpus 8 --pp 1 --top 1 --set model.n_head=3 | found 'no attention kernels' &&
  fail "heads of 256 have kernels"
"$orthant" plan --cluster h200 --model gpt2 --gpus 8 --pp 1 --top 1 --json >guess.json
holds guess.json '"basis": "extrapolated"' '"device h200"'
"${plan[@]}" --model gpt2 --gpus 20000 --global-batch-size 20000 --tp 1 --pp 1 --cp 1 --top 1 >many.txt
holds many.txt 'describes 16384 devices; 20000 are priced' '20000 devices (at most 10752)'

# ---- a job that cannot fit is reported with a need above the capacity ----
"${plan[@]}" --model llama3-8b --gpus 64 --set model.attention_residuals=block --json >needs.json
sed -n 's/.*needs at least \([0-9.]*\) GB of \([0-9.]*\) GB .*/\1 \2/p' needs.json >needs.txt
[ -s needs.txt ] || fail "no job that cannot fit"
awk '$1 <= $2 { exit 1 }' needs.txt || fail "fits, but is reported not to: $(cat needs.txt)"

# ---- one plan per set of degrees and ZeRO stage; variants on request ----
degrees() { awk '/^  [0-9].*%$/ { print $2, $3, $5, $6, $7, $8 }' "$1"; }
[ "$(degrees a.txt | wc -l)" = 5 ] || fail "there are not five plans"
[ -z "$(degrees a.txt | sort | uniq -d)" ] || fail "two plans have the same degrees"
"${plan[@]}" --model llama3-8b --gpus 8 --pp 1 --variants >variants.txt
[ -n "$(degrees variants.txt | sort | uniq -d)" ] || fail "--variants shows none"

# ---- the same notation and names in text, page and comments ----
"$orthant" plan --model llama3-70b --cluster h100 --gpus 512 --tp 1 --pp 1 --cp 1 --zero 3 --top 1 --html hsdp.html \
  --emit run=hsdp.yaml >hsdp.txt
dp=$(sed -n 's/^      dp \(512 ([0-9]* replicas x [0-9]* shards)\)$/\1/p' hsdp.txt)
[ -n "$dp" ] || { cat hsdp.txt; fail "the text does not show the factors of dp"; }
holds hsdp.txt '^  1  .* 512    3     [0-9]* x [0-9]*  '
holds hsdp.html "<b>$dp</b>" "zero 3 over dp $dp: weights" '<b>[0-9]* x [0-9]*</b>' 'exposed world' '>launches<'
holds hsdp.yaml "^# .* dp $dp zero 3, micro-batches [0-9]* x [0-9]*, "
grep -q 'exposed all\|>all<\|>host<' hsdp.html && fail "the page uses other names"

# ---- given values are fixed; giving more of them is no error ----
"${plan[@]}" --model llama3-8b --gpus 8 --tp 2 --pp 2 --dp 2 --zero 1 --recompute full --pipeline 1f1b \
  --micro-batch-size 2 --json >fixed.json
holds fixed.json '"tp": 2' '"pp": 2' '"dp": 2' '"zero": 1' '"recompute": "full"' '"pipeline": "1f1b"' \
  '"micro_batch_size": 2'

# ---- a measured critical batch ----
"${plan[@]}" --model llama3-8b --gpus 64 --critical-batch-tokens 10M --sequence-length 10000 \
  --global-batch-size 64 --tp 8 --pp 1 --cp 1 --json >critical.json
holds critical.json '"batch_floor_devices": 1000' '"critical_batch_tokens": 10000000'

# ---- nothing fits ----
expect 1 "no plan fits: the nearest takes" "${plan[@]}" --model llama3-8b --gpus 1
holds err.txt '^help: fits with [248] devices'
expect 1 "no plan fits" "${plan[@]}" --model llama3-8b --gpus 1 --json
holds out.txt '"plans": \[\]' '"nearest": {' '"remedies": \['

# ---- emitted files ----
cat >tiny.json <<'JSON'
{"model_type": "llama", "vocab_size": 257, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4,
 "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64, "tie_word_embeddings": true}
JSON
cat >machine.yaml <<'YAML'
name: paper
num_devices: 4
memory_bytes: 1G
memory_bytes_per_s: 1e10
flops_fp32: 1e10
other_flops_per_s: 1e9
threads: 1
packs: true
levels: [{name: wire, size: 4, bytes_per_s: 1e9, latency_s: 1e-6}]
YAML
own=("$orthant" plan --model tiny.json --cluster machine.yaml --global-batch-size 8 --sequence-length 32)
"$orthant" tokenize --tokenizer bytes --out train "$source_dir"/src/core/base/*.h >/dev/null
mkdir elsewhere
"${own[@]}" --pp 2 --tp 2 --emit run=elsewhere/run.yaml >own.txt
holds own.txt 'precision fp32: paper has no rate of bf16' '^why plan 1'
cat >>elsewhere/run.yaml <<'YAML'
data: {train: ../train, tokenizer: bytes, sequence_length: 32}
steps: 2
threads: 1
YAML
"$orthant" config elsewhere/run.yaml >config.txt
holds config.txt ' pp: 2 .*run.yaml' ' tp: 2 .*run.yaml'
"$orthant" train elsewhere/run.yaml --ranks 4 --dry-run 2>dry.txt || { cat dry.txt; fail "training rejects a plan"; }
"$orthant" train elsewhere/run.yaml --ranks 4 2>trained.txt || { cat trained.txt; fail "a plan that does not train"; }
holds trained.txt '^step 2/2'
# On stdout, the content is the file itself.
"${own[@]}" --emit run >run.yaml
holds run.yaml '^model: .*tiny.json' '^parallel:' '^precision:'
# A model changed by --set is written out.
"${own[@]}" --set model.num_hidden_layers=2 --emit run >run.yaml
holds run.yaml '  num_hidden_layers: 2'

# Other settings of --set are also written, once.
"${own[@]}" --set optimizer.clip=0 --set threads=1 --set parallel.watchdog_seconds=9 --emit run >run.yaml
holds run.yaml '^  clip: 0.0$' '^threads: 1$' '^  watchdog_seconds: 9'
[ "$(grep -c '^parallel:' run.yaml)" = 1 ] || fail "a section is written twice"

# Expert parallelism: the plan equals its simulation, and the memory of training, to the byte.
cat >experts.json <<'JSON'
{"model_type": "mixtral", "vocab_size": 257, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4,
 "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64, "num_local_experts": 8,
 "num_experts_per_tok": 2, "router_aux_loss_coef": 0}
JSON
first() { sed -n '/^ *"'"$2"'": /{s/^[^:]*: \([^,]*\),*$/\1/p;q;}' "$1"; }  # first FILE KEY
for degrees in "--ep 4" "--ep 2 --etp 2" "--ep 2 --pp 2 --zero 1" "--ep 2 --tp 2 --zero 3 --recompute full" \
  "--ep 4 --set parallel.expert_buffer=3" "--ep 2 --zero 3 --set parallel.prefetch=2 --set parallel.reshard=false" \
  "--ep 2 --cp 2 --set parallel.context=ulysses"; do
  # shellcheck disable=SC2086
  "$orthant" plan --model experts.json --cluster machine.yaml --global-batch-size 8 --sequence-length 32 $degrees \
    --emit run=experts.yaml --json >experts.plan
  cat >>experts.yaml <<'YAML'
data: {train: train, tokenizer: bytes, sequence_length: 32}
steps: 1
threads: 1
YAML
  holds experts.yaml "^  ep: ${degrees:5:1}$"
  "$orthant" train experts.yaml --ranks 4 --dry-run >dry.txt 2>&1 || { cat dry.txt; fail "$degrees: training rejects it"; }
  holds dry.txt "($(first experts.plan peak) bytes)"
  "$orthant" simulate experts.yaml --cluster ./machine.yaml --json >experts.step
  awk -v a="$(first experts.plan step_seconds)" -v b="$(first experts.step step_seconds)" \
    'BEGIN { exit !(a > 0 && a < b * 1.000001 && b < a * 1.000001) }' || fail "$degrees: simulated step differs from the plan"
done
"$orthant" train experts.yaml --ranks 4 2>trained.txt || { cat trained.txt; fail "experts that do not train"; }
# The receive buffer of experts costs memory, and the emitted run uses the same size.
roomy() {  # roomy EVEN_SHARES
  "$orthant" plan --model experts.json --cluster machine.yaml --global-batch-size 8 --sequence-length 32 --ep 4 --tp 1 \
    --pp 1 --cp 1 --zero 1 --micro-batch-size 2 --recompute none --set parallel.expert_buffer="$1" --emit run=roomy.yaml \
    --json >roomy.plan
  holds roomy.yaml "^  expert_buffer: $1$"
  first roomy.plan peak
}
[ "$(roomy 1.0)" -lt "$(roomy 1.5)" ] && [ "$(roomy 1.5)" -lt "$(roomy 3.0)" ] || fail "the expert buffer is not in the memory plan"

# Unbalanced load: overflow passes are planned as simulated, and the page lists them.
uneven=("$orthant" plan --model experts.json --cluster machine.yaml --global-batch-size 8 --sequence-length 32 --ep 4 \
  --tp 1 --pp 1 --cp 1 --zero 1 --micro-batch-size 2 --recompute none)
"${uneven[@]}" --json >even.plan
"${uneven[@]}" --expert-imbalance 2.6 --emit run=uneven.yaml --json >uneven.plan
echo "data: {train: train, tokenizer: bytes, sequence_length: 32}" >>uneven.yaml
"$orthant" simulate uneven.yaml --cluster ./machine.yaml --expert-imbalance 2.6 --json >uneven.step
holds uneven.step '"more_rounds": 2'
awk -v a="$(first even.plan step_seconds)" -v b="$(first uneven.plan step_seconds)" -v c="$(first uneven.step step_seconds)" \
  'BEGIN { exit !(b > 1.1 * a && b < c * 1.000001 && c < b * 1.000001) }' || fail "overflow passes are not predicted, or not as simulated"
# Measured passes, of which few are nearly empty: less than a full pass each, and nothing without any.
passes() { "$orthant" simulate uneven.yaml --cluster ./machine.yaml --expert-passes "$1" --json >passes.step && first passes.step step_seconds; }
awk -v even="$(first even.plan step_seconds)" -v one="$(passes 1)" -v some="$(passes 1.25)" -v full="$(first uneven.step step_seconds)" \
  'BEGIN { exit !(one < even * 1.000001 && even < one * 1.000001 && some > one && some - one < (full - one) / 8) }' ||
  fail "measured passes are not predicted"
holds passes.step '"more_rounds": 0.25'
expect 2 "--expert-passes: 0.5; allowed: 1 or more" "$orthant" simulate uneven.yaml --cluster ./machine.yaml --expert-passes 0.5
[ "$(first even.plan peak)" = "$(first uneven.plan peak)" ] || fail "unbalanced load costs more memory"
"${uneven[@]}" --expert-imbalance 2.6 | tr '\n' ' ' | tr -s ' ' >uneven.txt
holds uneven.txt "the busiest rank of ep has 2.6 times the mean of rows" "in 3 passes of 1.25 even shares"
expect 2 "expert_imbalance: 0.5 is out of range; allowed: at least 1" "${uneven[@]}" --expert-imbalance 0.5
expect 2 "expert_imbalance of engine megatron-core is not priced" \
  "${plan[@]}" --model gpt2 --engine megatron-core --expert-imbalance 2
expect 2 "allowed: 1 (even) or more" "$orthant" simulate uneven.yaml --cluster ./machine.yaml --expert-imbalance 0

# Other hosts: 16 devices on two.
big=("${plan[@]}" --model llama3-8b --gpus 16 --tp 2 --pp 1 --cp 1 --zero 1)
"${big[@]}" --emit mpirun=go.sh >/dev/null
sh -n go.sh
holds go.sh '--supervise --ranks 16 -- mpirun -n {ranks} --hostfile "$hosts" --map-by ppr:8:node'
"${big[@]}" --emit sbatch >go.sbatch
bash -n go.sbatch
holds go.sbatch '^#SBATCH --ntasks=16$' '^#SBATCH --ntasks-per-node=8$' '^#SBATCH --signal=USR1@[1-9]' '--supervise --ranks 16 --' '^ *srun -n {ranks}' \
  '75.*scontrol requeue'
"${big[@]}" --emit mpijob >job.yaml
holds job.yaml '^kind: MPIJob' 'apiVersion: kubeflow.org/v2beta1' 'slotsPerWorker: 8' 'replicas: 2' 'nvidia.com/gpu: 8'

# The script passes signals on and returns the exit code of the ranks.
mkdir bin
cat >bin/mpirun <<'SH'
#!/bin/sh
trap 'echo saved >saved; exit 75' USR1
echo started >started
while :; do sleep 0.05; done
SH
chmod +x bin/mpirun
ln -s "$orthant" bin/orthant
"${own[@]}" --emit mpirun=own.sh >/dev/null
"${own[@]}" --emit run=run.yaml >/dev/null
echo "data: {train: train, tokenizer: bytes, sequence_length: 32}" >>run.yaml
echo "steps: 1" >>run.yaml
PATH=$work/bin:$PATH sh own.sh &
script=$!
for _ in $(seq 200); do [ -e started ] && break; sleep 0.05; done
kill -TERM "$script"
code=0
wait "$script" || code=$?
[ "$code" = 75 ] && [ -e saved ] || fail "the ranks did not save: exit $code"

# ---- configurations of other frameworks ----
"${plan[@]}" --from "$source_dir"/tests/fixtures/import/torchtitan_2024.toml --gpus 256 --tp 1 --pp 1 >from.txt
holds from.txt 'engine torchtitan' '^  own ' '^your own compared with plan 1'
"${plan[@]}" --from "$source_dir"/tests/fixtures/import/torchtitan_2024.toml --gpus 256 --tp 1 --pp 1 --json >from.json
holds from.json '"imported": {'
expect 2 "--gpus: as many devices as the file is meant for" \
  "${plan[@]}" --from "$source_dir"/tests/fixtures/import/torchtitan_2024.toml --gpus 24

sed "s/tp_mode: REDUCE_SCATTER/tp_mode: ALL_REDUCE/" "$source_dir"/tests/fixtures/import/nanotron.yaml >all_reduce.yaml
"${plan[@]}" --from all_reduce.yaml --engine orthant >from.txt
holds from.txt "tp with sequence parallelism, as Orthant has it"
! grep -q "without sequence parallelism" from.txt || fail "Orthant without sequence parallelism"

# Switches of a file change its price; a file without a model needs one.
llama=(--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 --seq-length 4096
  --micro-batch-size 1 --global-batch-size 256 --swiglu --normalization RMSNorm --position-embedding-type rope
  --untie-embeddings-and-output-weights --disable-bias-linear --vocab-size 32000 --tensor-model-parallel-size 4
  --sequence-parallel --pipeline-model-parallel-size 2 --use-distributed-optimizer --bf16
  --num-layers-per-virtual-pipeline-stage 8)
own_step() { "${plan[@]}" --from "$1" --gpus 64 --tp 4 --pp 2 --cp 1 --json | sed -n '/"imported"/,$p' |
  grep -m 1 step_seconds; }
echo "${llama[@]}" >bare.txt
for flag in --overlap-grad-reduce --tp-comm-overlap --no-overlap-p2p-communication --enable-cuda-graph \
  '--recompute-granularity selective' '--decoder-first-pipeline-num-layers 20' --attention-backend=unfused; do
  echo "${llama[@]}" $flag >flag.txt
  [ "$(own_step bare.txt)" != "$(own_step flag.txt)" ] || fail "$flag has no price"
done
echo '{"train_batch_size": 512, "train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3},
  "bf16": {"enabled": true}}' >ds.json
expect 2 "does not say which model (add --model M)" "${plan[@]}" --from ds.json --gpus 64
"${plan[@]}" --from ds.json --model llama2-7b --gpus 64 --tp 1 >ds.txt
holds ds.txt 'engine deepspeed' '^  own  1   1 .* 64    3     8 x 1'

# ---- what software supports ----
core=("${plan[@]}" --model llama3-8b --gpus 64 --engine megatron-core)
"${core[@]}" --pp 4 --tp 1 --cp 1 --variants --top 20 >core.txt
! grep -Eq '^ +[0-9]+ .*(zb-|gpipe)' core.txt || fail "megatron-core has no zero-bubble schedule"
expect 2 "engine megatron-core (Megatron-core) does not support zb-v; supported by" "${core[@]}" --pipeline zb-v
titan=("${plan[@]}" --model llama3-8b --gpus 64 --engine torchtitan)
"${titan[@]}" --pipeline dualpipe --pp 8 --top 1 >dual.txt
holds dual.txt 'dualpipe on 8 stages is priced as dualpipe-v on 4 with' '^  1 .* 4   2 .* dualpipe-v'
expect 2 "dualpipe needs pp, an even number of stages, not 3" "${titan[@]}" --pipeline dualpipe --pp 3
expect 2 "(engine megatron-bridge)" "${core[@]}" --zero 3
expect 2 "engine llmq (llmq 0.5) runs on 1 host" "${plan[@]}" --model llama2-7b --engine llmq --gpus 64
expect 2 "does not support tp; supported by" "${plan[@]}" --model llama2-7b --engine llmq --gpus 8 --tp 4
expect 2 "does not support fp8" "${plan[@]}" --model llama2-7b --engine nanotron --gpus 8 --precision fp8

# ---- user-defined frameworks ----
core=("${plan[@]}" --model llama3-8b --gpus 16 --tp 2 --pp 2 --cp 1 --json)
"$orthant" presets megatron-core >core.yaml
"${core[@]}" --engine megatron-core >preset.json
"${core[@]}" --engine ./core.yaml >file.json
cmp preset.json file.json || fail "a framework read from a file differs from its preset"
sed 's/^name: .*/name: mine/; s/^allocator_slack: .*/allocator_slack: 0.2/' core.yaml >mine.yaml
"${core[@]}" --engine mine.yaml >mine.json
holds mine.json '"engine": "mine"'
[ "$(first mine.json reserved)" -gt "$(first preset.json reserved)" ] || fail "the file's allocator slack has no effect"
sed 's/^recipe: .*/recipe: fp4/' core.yaml >fp4.yaml
expect 2 "there is no recipe called \"fp4\"" "${core[@]}" --engine fp4.yaml
sed 's/pipelines: .*/pipelines: [1f2b]/' core.yaml >typo.yaml
expect 2 "runs.pipelines: nothing is called \"1f2b\"" "${core[@]}" --engine typo.yaml
sed 's/^name: .*/name: orthant/' core.yaml >own.yaml
expect 2 "\"orthant\" is Orthant itself" "${core[@]}" --engine own.yaml

# ---- pages and traces ----
"${own[@]}" --pp 2 --html page.html --trace trace.json >/dev/null
holds page.html '<html' 'tiny.json'
holds trace.json '"traceEvents"' '"name":"rank 0"' '"cat":"F"' '"name":"send"'
"${big[@]}" --engine megatron-core --trace played.json >/dev/null
holds played.json '"traceEvents"'
echo "all passed"
