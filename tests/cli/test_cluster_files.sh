#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run: any machine. Cluster files: what they do not state is guessed and said, they derive from
# presets, errors name place and cure; plans say what they assume and can be run.
set -euo pipefail
. tests/support/expect.sh
orthant=$(realpath "${1:?usage: test_cluster_files.sh ORTHANT}")
titan=$PWD/tests/fixtures/import/torchtitan_2024.toml
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
plan=("$orthant" plan --model llama3-8b --top 1)
holds() { grep -q -- "$2" "$1" || { head -n 60 "$1"; fail "no $2 in $1"; }; }
number() { sed -n '/"plans"/,$s/^ *"'"$2"'": \([0-9.e-]*\),*$/\1/p' "$1" | head -1; }  # number FILE KEY: of plan 1

# ---- what a file does not state ----
cat >own.yaml <<'END'
name: own
num_devices: 16
flops_bf16: 154.8e12
memory_bytes: 48e9
memory_bytes_per_s: 768e9
levels:
  - {name: pcie, size: 8, bytes_per_s: 32e9, latency_s: 2e-6}
  - {name: network, size: 16, bytes_per_s: 12.5e9, latency_s: 5e-6}
END
"${plan[@]}" --cluster own.yaml --json >own.json
awk "BEGIN { exit !($(number own.json mfu) > 0.2 && $(number own.json mfu) < 0.6) }" || fail "MFU $(number own.json mfu)"
holds own.json '"basis": "guessed"'
"${plan[@]}" --cluster own.yaml | tr -s ' \n' ' ' >own.txt
holds own.txt 'basis: guessed: .*and these are assumed: matrix_efficiency 0.6, memory_efficiency 0.78,'
holds own.txt 'all 16 devices that cluster own describes, without --gpus'
# Efficiencies that no run reached are doubted.
{ cat own.yaml; printf '%s\n' basis:\ measured processors:\ 84 'matrix_efficiency: 1' 'memory_efficiency: 1' 'attention_efficiency: 1'; } |
  sed 's/latency_s/efficiency: 1, latency_s/' >high.yaml
"${plan[@]}" --cluster high.yaml --json >high.json
holds high.json '"MFU above 80 %"'
holds high.json '"doubt": "MFU [89][0-9] % is more than any published run reached: check flops_bf16 and the'
"${plan[@]}" --cluster high.yaml >high.txt
holds high.txt '^warning: MFU [89][0-9] %'

# ---- files that derive from others ----
printf 'base: h100\nname: mine\nnum_devices: 16\n' >mine.yaml
"${plan[@]}" --cluster mine.yaml --json >mine.json
"${plan[@]}" --cluster h100 --gpus 16 --json >preset.json
[ "$(number mine.json step_seconds)" = "$(number preset.json step_seconds)" ] || fail "base: h100 plans other steps"
holds mine.json '"basis": "fitted"'
mkdir folder
printf 'base: ../mine.yaml\nmatrix_efficiency: 0.5\n' >folder/slow.yaml
"${plan[@]}" --cluster folder/slow.yaml --json >slow.json
holds slow.json '"basis": "extrapolated"'
awk "BEGIN { exit !($(number slow.json step_seconds) > 1.1 * $(number mine.json step_seconds)) }" || fail "the own key is not read"

refuses() {  # refuses MESSAGE HELP TEXT: of a cluster file
  printf '%b' "$3" >bad.yaml
  expect 2 "error: $1" "${plan[@]}" --cluster bad.yaml
  grep -qF -- "help: $2" err.txt || { cat err.txt; fail "no help: $2"; }
}

refuses 'cluster: no preset and no file is called "h10O" (bad.yaml:1:7)' 'did you mean the preset h100?' 'base: h10O\n'
refuses 'base: 8 files derive from each other (bad.yaml:1:7)' 'a preset, or a file without `base`' 'base: bad.yaml\n'
refuses 'unknown key "matrix_eficiency" (bad.yaml:2:19)' 'did you mean "matrix_efficiency"?' 'base: h100\nmatrix_eficiency: 1\n'
refuses 'matrix_efficiency: 5e-05 cannot be; allowed: 0.001 to 1' 'a fraction' 'base: h100\nmatrix_efficiency: 5e-5\n'
refuses 'levels: the outermost level joins 1 of 8 devices (bad.yaml:1:1)' 'size of the last level' \
  'name: x\nnum_devices: 8\nflops_bf16: 1e14\nmemory_bytes: 8e10\nmemory_bytes_per_s: 1e12\n'
refuses 'cluster x: device x has no flops of fp32, which op linear needs' 'flops_fp32 in the cluster file, or another precision' \
  'name: x\nnum_devices: 1\nflops_fp16: 1e14\nmemory_bytes: 8e10\nmemory_bytes_per_s: 1e12\n'

# ---- the table of keys ----
"$orthant" presets --keys >keys.txt
for key in matrix_efficiency other_flops_per_s levels.N.efficiency measured.kernels.N.matrix_flops_per_s between.bytes_per_s; do
  grep -q "^$key  .*(.*)$" keys.txt || fail "no $key in the table"
done
expect 2 '--keys prints a table' "$orthant" presets --keys --json

# ---- what is assumed ----
"${plan[@]}" --cluster h100 --gpus 8 --sequence-length 200000 | tr -s ' \n' ' ' >long.txt
holds long.txt 'sequence length 200000 is beyond the 8192 positions of the model: training needs --set model.max_position_embeddings=200000'
sed 's/^data_parallel_shard_degree.*/data_parallel_shard_degree = -1/' "$titan" >titan.toml
expect 2 'the number of devices is not given' "$orthant" plan --cluster h100 --from titan.toml
grep -q '^help: --gpus' err.txt || fail "help: $(cat err.txt)"

# ---- what is planned can be run ----
"${plan[@]}" --cluster h100 --gpus 8 --tp 1 --pp 1 --emit run=run.yaml >/dev/null
holds run.yaml '^device: cuda$'
"${plan[@]}" --cluster tpu-v5p --gpus 8 --emit run=tpu.yaml >/dev/null
holds tpu.yaml '^device: auto$'
expect 4 'is 8 ranks, but there is 1' "$orthant" train run.yaml --dry-run
grep -q '^help: --ranks 8, or mpirun -n 8' err.txt || fail "help: $(cat err.txt)"
title() { "${plan[@]}" "$@" --emit sbatch | sed -n 2p; }
[[ $(title --cluster h100 --gpus 8) == *'Orthant trains on one Hopper GPU; several were never tried.' ]] || fail "$(title --cluster h100 --gpus 8)"
[[ $(title --cluster a100-80g --gpus 8) == *'that of Hopper; on others it was never tried.' ]] || fail "$(title --cluster a100-80g --gpus 8)"
[[ $(title --cluster mi300x --gpus 8) == *'does not run on them.' ]] || fail "$(title --cluster mi300x --gpus 8)"
echo "all passed"
