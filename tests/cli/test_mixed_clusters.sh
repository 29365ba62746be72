#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run: any machine. orthant plan on clusters of several pools: files, text and JSON, what is emitted,
# and what is refused.
set -euo pipefail
. tests/support/expect.sh
orthant=$(realpath "${1:?usage: test_mixed_clusters.sh ORTHANT}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export XDG_CONFIG_HOME=$work/user
mkdir pools
printf '%s\n' 'name: two' 'pools:' '  - {cluster: h100, num_devices: 8}' \
  '  - {cluster: pools/old.yaml, num_devices: 8, name: old}' \
  'between: {bytes_per_s: 25e9, latency_s: 5e-6}' >two.yaml
"$orthant" presets a100-80g >pools/old.yaml
plan=("$orthant" plan --model llama2-7b --cluster two.yaml --global-batch-size 64 --top 3)
holds() { grep -q -- "$2" "$1" || { head -n 60 "$1"; fail "no $2 in $1"; }; }

# ---- both ways, in text and JSON ----
"${plan[@]}" --pp 2 --pipeline 1f1b --tp 1 --cp 1 --zero 1 >pp.txt
holds pp.txt '16 devices: 8 h100 of 85.5[0-9]* GB and 8 old of 85.[0-9]* GB'
holds pp.txt 'pp crosses pools: h100 [0-9]* layers in 1 stage, memory'
holds pp.txt 'layers are divided by'
"${plan[@]}" --pp 1 --tp 1 --cp 1 --zero 1 --json >dp.json
python3 - dp.json <<'END'
import json, sys
answer = json.load(open(sys.argv[1]))
assert [p["name"] for p in answer["cluster"]["pools"]] == ["h100", "old"], answer["cluster"]
assert answer["cluster"]["between"]["bytes_per_second"] == 25e9
plan = answer["plans"][0]
assert plan["crosses"] == "dp", plan
fast, slow = plan["pools"]
assert fast["replicas"] == slow["replicas"] == 8 and fast["micro_batches"] > slow["micro_batches"], plan["pools"]
assert plan["micro_batch_size"] * 8 * (fast["micro_batches"] + slow["micro_batches"]) == 64, plan
assert plan["memory"]["used"] == max(p["memory"]["used"] for p in plan["pools"]), plan
END

# ---- what is written ----
for across in pp:2 dp:1; do
  "${plan[@]}" --pp "${across#*:}" --tp 1 --cp 1 --zero 1 --pipeline 1f1b --html page.html --trace trace.json >/dev/null
  holds page.html "<li>pools <b>${across%:*} crosses pools: h100"
  python3 -c 'import json; assert json.load(open("trace.json"))'
done
"${plan[@]}" --pp 2 --pipeline 1f1b --tp 1 --cp 1 --zero 1 --emit run=run.yaml >/dev/null
holds run.yaml 'Ranks 0 to 7: devices of h100'
holds run.yaml 'layout: "Et\*[0-9]*|t\*[0-9]*L"'
printf 'data: {train: none, sequence_length: 4096}\n' >>run.yaml
"$orthant" config run.yaml >config.txt
expect 2 "replicas in pool h100 have" "${plan[@]}" --pp 1 --tp 1 --cp 1 --zero 1 --emit run
"${plan[@]}" --crosses pp --json >pp.json
! grep -q '"crosses": "dp"' pp.json || fail "--crosses pp has plans whose replicas cross"
holds pp.json '"crosses": "pp"'
expect 2 "crosses=pp, but cluster h100 has no pools" "$orthant" plan --model gpt2 --cluster h100 --gpus 8 --crosses pp
expect 2 "no software here trains uneven replicas" "${plan[@]}" --pp 1 --tp 1 --cp 1 --zero 1 --emit mpirun
"${plan[@]}" --pp 2 --engine megatron-core --emit megatron=megatron.sh >/dev/null
holds megatron.sh 'pipeline-model-parallel-layout'

# One device in each pool: no axis can be traded for another.
sed 's/num_devices: 8/num_devices: 1/' two.yaml >tiny.yaml
"$orthant" plan --model gpt2 --cluster tiny.yaml --global-batch-size 8 --crosses pp --tp 1 --pp 2 >tiny.txt
holds tiny.txt 'pp crosses pools'

# ---- what is refused ----
expect 2 "which only \`orthant plan\` prices" "$orthant" simulate run.yaml --cluster two.yaml
expect 2 "pools of 16 devices in total, 32 asked for" "${plan[@]}" --gpus 32
expect 2 "stages of 16 devices do not fill pool h100 of 8" "${plan[@]}" --cp 16 --pp 1
sed 's/between:.*//' two.yaml >open.yaml
expect 2 "between" "$orthant" plan --model gpt2 --cluster open.yaml
sed 's/h100/h101/' two.yaml >wrong.yaml
expect 2 "no preset and no file is called \"h101\"" "$orthant" plan --model gpt2 --cluster wrong.yaml
sed '4d' two.yaml >one.yaml
expect 2 "1 pools; allowed: 2 to 4" "$orthant" plan --model gpt2 --cluster one.yaml
sed 's/num_devices: 8, name: old/num_devices: 12/' two.yaml >half.yaml
expect 2 "not whole groups of 8" "$orthant" plan --model gpt2 --cluster half.yaml
# Too large for the memory of a device, and 7 micro-batches for two and four replicas.
sed 's/num_devices: 8, name: old/num_devices: 16, name: old/' two.yaml >more.yaml
expect 2 "7 micro-batches of 1 cannot be divided over the replicas" "$orthant" plan --model llama3.1-405b \
  --cluster more.yaml --crosses dp --tp 4 --pp 1 --cp 1 --global-batch-size 7
