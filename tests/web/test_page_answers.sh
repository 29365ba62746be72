#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The WebAssembly module of the page under node gives the bytes of `orthant plan --json`: dense models
# and experts, other software, other devices, settings, jobs that do not fit.
#   tests/web/test_page_answers.sh PROGRAM
set -euo pipefail
program=$1
module=$(dirname "$program")/page/orthant.wasm page=$(dirname "$program")/page/orthant.html
skip() { echo "skipped: $1"; exit 77; }
command -v node >/dev/null || skip 'there is no node'
[ -f "$page" ] || skip "make page has not built $page"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cat >"$scratch/run.yaml" <<'END'
model: llama3-8b
data: {sequence_length: 8192}
batch: {global_batch_size: 64, micro_batch_size: 1}
parallel: {tp: 4, pp: 2, vpp: 2, pipeline: interleaved, zero: 1, recompute: full}
END
sed 's/tp: 4/tp: 8/; s/recompute: full/recompute: none/' "$scratch/run.yaml" >"$scratch/other.yaml"
cat >"$scratch/mixed.yaml" <<'END'
name: two kinds
pools:
  - cluster: h100
    num_devices: 16
  - {cluster: a100-80g, num_devices: 16}
between: {bytes_per_s: 25e9, latency_s: 10e-6}
END
printf 'base: h100\nname: ours\nmatrix_efficiency: 0.6\n' >"$scratch/derived.yaml"
cat >"$scratch/measured.yaml" <<'END'
name: two cores
num_devices: 2
device: cpu
basis: measured
flops_fp32: 4.5e10
other_flops_per_s: 2.5e10
memory_bytes_per_s: 4.6e9
packs: true
memory_bytes: 24e9
threads: 1
launch_s: 7e-8
measured:
  cores: 2
  sharing: 1.3
  kernels: [{op: matmul, threads: 1, dtype: fp32, matrix_flops_per_s: 4.1e10, bytes_per_s: 9e9}]
levels: [{name: memory, size: 2, bytes_per_s: 4e9, latency_s: 2e-6}]
END
same='--model llama3-8b --cluster h100 --gpus 64 --global-batch-size 64 --sequence-length 8192'
script=tests/fixtures/import/megatron_script.sh
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
  "--from $script --cluster h100 --top 2"
  "--from $script --cluster h200 --engine orthant --gpus 256 --tp 8"
  '--from tests/fixtures/import/megatron_deepseek.sh --cluster h800 --pp 16 --tp 1 --ep 16 --top 1'
  "$same --compare $scratch/run.yaml --compare $scratch/other.yaml"
  "--from $script --cluster h100 --compare $script"
  "--model llama3-8b --cluster $scratch/mixed.yaml --top 2 --micro-batch-size 1"
  "--model llama3-8b --cluster $scratch/mixed.yaml --top 1 --micro-batch-size 1 --crosses dp"
  "--model gpt2 --cluster $scratch/measured.yaml --gpus 8 --top 3"
  "--model gpt2 --cluster $scratch/derived.yaml --gpus 8 --top 2"
  "--model gpt2 --cluster $scratch/measured.yaml --gpus 4 --pp 2 --top 1 --sweep tp=1,2"
  '--model llama3-8b --cluster h100 --gpus 8 --recompute selective --recompute-modules mlp,layernorm --top 1'
  '--model llama3-8b --cluster h100 --pp 1 --price 2 --sweep gpus=1..8 --sweep batch=64,128'
  '--model llama3-8b --gpus 16 --tp 2 --sweep cluster=h100,a100-80g,v100 --sweep engine=orthant,megatron-core --sweep tp=2,3'
)
node tests/web/answers.js "$page" "$module" presets "$scratch" "${jobs[@]}"
failed=0
for i in "${!jobs[@]}"; do
  job=${jobs[$i]}
  # $job is split into words on purpose; a flag has no value in the program.
  json=--json
  [[ $job = *--sweep* ]] && json=
  "$program" plan ${job/--simple true/--simple} $json >"$scratch/program" 2>/dev/null || true
  [ -s "$scratch/program" ] && cmp "$scratch/program" "$scratch/$i" && continue
  echo "not the same: $job" >&2
  failed=1
done
[ "$failed" = 0 ] || exit 1

# What is wrong with a script has the same words; only the program reads the JSON of DeepSpeed.
flags='--num-layers 2 --hidden-size 64 --num-attention-heads 2 --seq-length 64 --micro-batch-size 1'
flags="$flags --max-position-embeddings 64 --global-batch-size 8"
mkdir "$scratch/bad"
echo "torchrun --nproc_per_node 8 pretrain_gpt.py $flags --vocab-size 512 --new-flag 3" >"$scratch/bad/unknown.sh"
echo "torchrun --nproc_per_node 8 pretrain_gpt.py $flags" >"$scratch/bad/vocabulary.sh"
echo "torchrun --nproc_per_node 8 pretrain_gpt.py $flags --vocab-size 512 --tensor-model-parallel-size x" >"$scratch/bad/number.sh"
echo "torchrun --nproc_per_node 8 pretrain_gpt.py $flags --vocab-size 512 --pipeline-model-parallel-size 3" >"$scratch/bad/stages.sh"
echo "torchrun --nproc_per_node 8 pretrain_gpt.py $flags --vocab-size 512 --use-mup" >"$scratch/bad/fixed.sh"
bad=("$scratch"/bad/*.sh tests/fixtures/import/deepspeed_script.sh)
node tests/web/answers.js "$page" "$module" presets "$scratch/bad" "${bad[@]/#/--cluster h100 --from }"
for i in "${!bad[@]}"; do
  error=$(node -p 'const a = JSON.parse(require("fs").readFileSync(0)); a.status === 2 && a.error' <"$scratch/bad/$i")
  case ${bad[$i]} in
    *deepspeed*) [[ $error = deepspeed_script.sh:*deepspeed* ]] ;;
    *) # the program names the path, the page the file
      said=$("$program" plan --cluster h100 --from "${bad[$i]}" 2>&1) && exit 1
      grep -qF "error: $error" <<<"${said//$scratch\/bad\//}" ;;
  esac || { echo "${bad[$i]}: $error" >&2; exit 1; }
done

# The fewest devices that end a run in time, and those that were tried, are those of the program.
late=(--model llama3-8b --cluster h100 --gpus 64 --tokens 161G --tp 1 --pp 1 --cp 1)
mkdir "$scratch/late"
node tests/web/answers.js "$page" "$module" presets "$scratch/late" "${late[*]} --deadline 6d" "${late[*]} --deadline 1h" \
  "${late[*]} --deadline soon"
said() { node -p 'const a = JSON.parse(require("fs").readFileSync(0)); a.text || a.error' <"$scratch/late/$1"; }
"$program" plan "${late[@]}" --deadline 6d >"$scratch/program"
tr -s ' \n' ' ' <"$scratch/program" | grep -qF "$(said 0)" && [[ $(said 0) = '6 days: planned for 32: 32 devices take '*', 24 devices take '* ]] ||
  { said 0; grep deadline "$scratch/program"; exit 1; } >&2
for i in 1 2; do
  "$program" plan "${late[@]}" --deadline $([ $i = 1 ] && echo 1h || echo soon) 2>"$scratch/program" >&2 && exit 1
  grep -qF "error: $(said $i)" "$scratch/program" || { said $i; cat "$scratch/program"; exit 1; } >&2
done

# A plan of the program is the page with this plan in it.
plan=("$program" plan --model qwen3-8b --cluster a100-80g --gpus 32 --tp 1 --zero 1 --set optimizer.name=muon)
"${plan[@]}" --html "$scratch/plan.html" --json >"$scratch/program"
node -e '
  const assert = require("node:assert"), fs = require("node:fs");
  const [page, plan, answer] = process.argv.slice(1).map(f => fs.readFileSync(f, "utf8"));
  const at = plan.indexOf(" id=\"given\">"), end = plan.indexOf("</script>", at);
  const given = JSON.parse(plan.slice(at + 12, end));
  assert.deepEqual(given.answer, JSON.parse(answer));
  assert.deepEqual(given.state, { model: "qwen3-8b", cluster: "a100-80g", gpus: "32", tp: "1", zero: "1" });
  assert.deepEqual(given.settings, { "optimizer.name": "muon" });
  assert.ok(!plan.slice(at, end).includes("<"), "the plan could end its element");
  // The rest is the page, with the report for readers without scripts.
  const from = page.indexOf("<noscript>") + 10, to = page.indexOf(" id=\"given\">") + 12;
  assert.equal(plan.slice(0, from), page.slice(0, from));
  assert.ok(plan.includes("<section id=\"rejected\""));
  assert.ok(plan.endsWith(page.slice(to)));
' "$page" "$scratch/plan.html" "$scratch/program"
# Scripts of --from and files of --compare are in the page, as if they were dropped on it; files of
# other formats are read by the program only.
"$program" plan --from $script --cluster h100 --compare $script --html "$scratch/from.html" >/dev/null
"$program" plan $same --engine presets/engines/megatron-core.yaml --compare "$scratch/run.yaml" --html "$scratch/run.html" >/dev/null
node -e '
  const assert = require("node:assert"), fs = require("node:fs");
  const given = file => {
    const text = fs.readFileSync(file, "utf8"), at = text.indexOf(" id=\"given\">") + 12;
    return JSON.parse(text.slice(at, text.indexOf("</script>", at)));
  };
  const [from, run, script] = process.argv.slice(1), text = fs.readFileSync(script, "utf8");
  const a = given(from), b = given(run), name = "megatron_script.sh";
  assert.deepEqual(a.files, { script: { name, text } });
  assert.deepEqual(a.compared, [{ name, text }]);
  assert.deepEqual(a.state, { cluster: "h100" });
  assert.equal(a.answer.compared.length, 1);
  assert.deepEqual(Object.keys(b.files), ["engine"]);
  assert.equal(b.state.engine, undefined);
  const own = JSON.parse(b.compared[0].text);
  assert.equal(own.parallel.tp, 4);
  assert.equal(own.model.num_hidden_layers, 32);
  assert.deepEqual(own.data, { sequence_length: 8192 });
' "$scratch/from.html" "$scratch/run.html" "$script"
toml=tests/fixtures/import/torchtitan_2024.toml
grep -q "id=.given" <("$program" plan --from $toml --cluster h100 --top 1 --html /dev/stdout) &&
  { echo "a file that only the program reads is in the page" >&2; exit 1; }
grep -q "id=.given" <("$program" plan --model gpt2 --cluster h100 --gpus 2 --deadline 99w --html /dev/stdout) &&
  { echo "a question of the program is in the page" >&2; exit 1; }
echo "${#jobs[@]} jobs: the page's bytes are the program's"
