#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run: any machine. Questions to orthant plan beyond the fastest plan: memory margin, sweeps,
# comparisons, deadlines, the simplest plan.
set -euo pipefail
. tests/support/expect.sh
orthant=$(realpath "${1:?usage: test_plan_questions.sh ORTHANT}")
source_dir=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export XDG_CONFIG_HOME=$work/user
plan=("$orthant" plan --model llama3-8b --cluster h100)
few=(--gpus 16 --global-batch-size 256 --pp 1 --cp 1 --pipeline 1f1b)

holds() { grep -q -- "$2" "$1" || { head -n 60 "$1"; fail "no $2 in $1"; }; }
number() { sed -n '/"plans"/,$s/^ *"'"$2"'": \([0-9.e-]*\),*$/\1/p' "$1" | head -1; }  # number FILE KEY: of plan 1

# ---- the memory margin ----
expect 2 "memory_margin: -1 is out of range; allowed: 0 to 100 percent (--memory-margin)" "${plan[@]}" --memory-margin -1
expect 2 "memory_margin: 101 is out of range; allowed: 0 to 100" "${plan[@]}" --memory-margin 101
for margin in 0 30; do "${plan[@]}" "${few[@]}" --top 1 --memory-margin $margin --json >"margin$margin.json"; done
"${plan[@]}" "${few[@]}" --top 1 --json >margin.json
awk "BEGIN { exit !($(number margin0.json used) > $(number margin30.json used)) }" || fail "the margin changes no plan"
awk "BEGIN { exit !(1.3 * $(number margin30.json used) <= $(number margin30.json capacity)) }" || fail "the margin is not kept"
holds margin30.json '"memory_margin": 0.3,'
holds margin0.json '"memory_margin": 0,'
# By default the one-sided interval of 4 of 5 cases; the ranges in JSON are those of the text.
"${plan[@]}" "${few[@]}" --top 1 >margin.txt
holds margin.txt '^memory margin: [0-9.]*% of a plan.s memory, so plans need at most [78][0-9.]* GB'
low=$(sed -n '/"interval80"/,/}/{/"used"/,/]/p;}' margin.json | grep -Eo '[0-9.e+]+' | sed -n 2p)
awk "BEGIN { printf \"memory %.4g GB to\n\", $low / 1e9 }" >range.txt
grep -qF -f range.txt margin.txt || { cat range.txt margin.txt; fail "text and JSON have different ranges"; }

# ---- sweeps ----
"${plan[@]}" --tp 1 --pp 1 --cp 1 --sweep gpus=8..32 --sweep batch=128,256 >sweep.csv
[ "$(wc -l <sweep.csv)" = 7 ] || { cat sweep.csv; fail "6 points and a header expected"; }
[ "$(cut -d, -f1,2 sweep.csv | paste -sd' ')" = "gpus,global_batch_size 8,128 8,256 16,128 16,256 32,128 32,256" ] ||
  { cat sweep.csv; fail "the points are not those asked for"; }
# A point is the plan of its values.
"${plan[@]}" --tp 1 --pp 1 --cp 1 --gpus 32 --global-batch-size 256 --top 1 --json >point.json
"${plan[@]}" --tp 1 --pp 1 --cp 1 --sweep gpus=16,32 --sweep batch=256 --json >sweep.json
column() { awk -F, -v name="$1" 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i } END { print $at[name] }' sweep.csv; }
awk "BEGIN { r = $(column step_seconds) / $(number point.json step_seconds); exit !(r > 1 - 1e-5 && r < 1 + 1e-5) }" ||
  fail "a point is not its plan"
grep -qF "\"step_seconds\": $(number point.json step_seconds)," sweep.json || fail "the JSON is not that of the plan"
# What does not fit or is invalid has a reason, and the rest goes on.
"${plan[@]}" --gpus 1 --sweep global-batch-size=1 --sweep tp=1,3 >no.csv
holds no.csv '^1,1,1,4096,false,.*,no plan fits$'
holds no.csv '^1,3,1,4096,false,.*,plan: tp=3; allowed'
expect 2 'these can: model cluster engine gpus' "${plan[@]}" --sweep top=1,2
expect 2 'is not KEY=VALUE' "${plan[@]}" --sweep gpus
expect 2 'a value is missing' "${plan[@]}" --sweep gpus=8,,16
expect 2 'the smaller first' "${plan[@]}" --sweep gpus=16..8
expect 2 'gpus is given twice' "${plan[@]}" --sweep gpus=8 --sweep gpus=16
expect 2 'more than 64 values' "${plan[@]}" --sweep "tp=$(seq -s, 65)"
expect 2 '--trace one' "${plan[@]}" --sweep gpus=8 --trace x.json
# The page has every point; where it is not built there is none, and nothing is planned for it.
swept=("${plan[@]}" --pp 1 --cp 1 --price 2 --sweep gpus=1,16,32 --sweep batch=128,256 --sweep tp=1 --html sweep.html)
if [ -f "$(dirname "$orthant")/page/orthant.html" ]; then
  "${swept[@]}" >page.csv
  python3 - sweep.html page.csv <<'END'
import csv, json, sys
page, lines = (open(path).read() for path in sys.argv[1:])
rows = list(csv.DictReader(lines.splitlines()))
given = json.loads(page.split(' id="given">')[1].split("</script>")[0])
swept = given["swept"]
assert [a["key"] for a in swept["axes"]] == ["gpus", "global_batch_size", "tp"] and swept["points"] == 6
assert swept["names"] + "".join(row["line"] for row in swept["rows"]) == lines
assert f"<pre>{lines}</pre>" in page  # for readers without scripts
fits = [r for r in rows if r["fits"] == "true"]
assert 0 < len(fits) < len(rows) == 6
for row, at in zip(rows, swept["rows"]):
    assert str(at["point"]["fits"]).lower() == row["fits"] and str(at["point"]["gpus"]) == row["gpus"]
# It opens with the first of them that has a plan.
assert given["state"]["gpus"] == fits[0]["gpus"] and given["state"]["global_batch_size"] == fits[0]["global_batch_size"]
step = given["answer"]["plans"][0]["step_seconds"]
assert abs(step / float(fits[0]["step_seconds"]) - 1) < 1e-5
END
  expect 2 'the page cannot answer this question' "$orthant" plan --from "$source_dir/tests/fixtures/import/torchtitan_2024.toml" \
    --cluster h100 --sweep gpus=256 --html sweep.html
else
  expect 3 'shown by the page, which is not built' "${swept[@]}"
fi

# ---- comparisons ----
"${plan[@]}" "${few[@]}" --tp 2 --zero 1 --emit run=two.yaml >/dev/null
printf 'data: {sequence_length: 4096}\n' >>two.yaml
"${plan[@]}" "${few[@]}" --tp 1 --zero 3 --emit run=three.yaml >/dev/null
printf 'data: {sequence_length: 4096}\n' >>three.yaml
"${plan[@]}" "${few[@]}" --compare two.yaml --compare three.yaml >compared.txt
holds compared.txt '^  A    2   1 '
holds compared.txt '^  B    1   1 '
holds compared.txt '^two.yaml compared with plan 1 (in brackets)$'
holds compared.txt '^three.yaml compared with two.yaml (in brackets)$'
"${plan[@]}" "${few[@]}" --compare two.yaml --json >compared.json
"${plan[@]}" "${few[@]}" --tp 2 --zero 1 --top 1 --json >two.json
sed -n '/"compared"/,$p' compared.json | found -F "\"step_seconds\": $(number two.json step_seconds)," ||
  fail "a compared run is not priced as its plan"
# What a file says beyond degrees is priced: layouts, settings of a run, switches of other software.
pipe=(--gpus 16 --global-batch-size 256 --tp 1 --pp 2 --cp 1 --zero 1 --pipeline 1f1b --top 1)
compared() { sed -n '/"compared"/,$s/^ *"step_seconds": \([0-9.e-]*\),*$/\1/p' "$1"; }  # compared FILE: their steps
"${plan[@]}" "${pipe[@]}" --emit run=even.yaml >/dev/null
printf 'data: {sequence_length: 4096}\n' >>even.yaml
sed 's/^parallel:/&\n  layout: "Et*8|t*24L"/' even.yaml >lame.yaml
sed 's/reduce: bf16/reduce: fp32/' even.yaml >wide.yaml
"${plan[@]}" "${pipe[@]}" --compare even.yaml --compare lame.yaml --compare wide.yaml --json >layouts.json
compared layouts.json | paste -sd' ' | awk '{ exit !($1 > 0 && $2 > 1.3 * $1 && $3 > $1) }' ||
  { compared layouts.json; fail "a layout or a setting of the file is not priced"; }
"${plan[@]}" "${pipe[@]}" --compare even.yaml --compare lame.yaml --html compared.html >/dev/null
for part in '<section id="compared"' '>even.yaml</th><th>lame.yaml</th>' '<h3>lame.yaml compared with even.yaml</h3>' \
  'class="m on"' 'in 4 of 5 cases'; do holds compared.html "$part"; done
[ "$(grep -c '^<tr.*<th scope="row">\(step\|bubble\|memory\)</th>' compared.html)" -ge 3 ] || fail "terms are missing in the page"
sed 's/^parallel:/&\n  order_csv: order.csv/' even.yaml >order.yaml
: >order.csv
expect 2 'parallel.order_csv is no schedule of plans' "${plan[@]}" "${pipe[@]}" --compare order.yaml
sed 's/zero: 1/zero: 1\n  accumulate: sharded/' even.yaml >sharded.yaml
expect 2 'plans accumulate whole with zero 1' "${plan[@]}" "${pipe[@]}" --compare sharded.yaml
software=("${plan[@]}" "${pipe[@]}" --engine megatron-core --recompute none --micro-batch-size 1)
"${software[@]}" --emit megatron=on.sh >/dev/null
grep -v -- '--overlap-grad-reduce' on.sh >off.sh
"${software[@]}" --compare on.sh --compare off.sh --json >switches.json
compared switches.json | paste -sd' ' | awk '{ exit !($1 > 0 && $2 > 0 && $2 != $1) }' ||
  { compared switches.json; fail "a switch of the file is not priced"; }
# Layers of stages of other software are priced and named, too.
sed 's/--pipeline-model-parallel-size 2/& --pipeline-model-parallel-layout "Et*8|t*24L"/' on.sh >lame.sh
grep -q 'parallel-layout' lame.sh || fail "on.sh has no pp of 2"
"${software[@]}" --compare on.sh --compare lame.sh >stages.txt
sed -n '/^lame.sh compared with on.sh/,$p' stages.txt >stages_of_lame.txt
holds stages_of_lame.txt 'the same degrees, other layers of stages or settings: +'

expect 2 'two.yaml: global batch 256, but the job has 128' "${plan[@]}" --gpus 16 --global-batch-size 128 --compare two.yaml
expect 2 'two.yaml: layers 32' "$orthant" plan --cluster h100 --model gpt2 --gpus 16 --compare two.yaml
expect 3 'none.yaml' "${plan[@]}" --gpus 16 --compare none.yaml

# What is meant is named: a vocabulary that the file pads, an engine's family, keys of other sections.
"$orthant" plan --model gpt2 --cluster h100 --gpus 8 --global-batch-size 64 --engine megatron-core --emit megatron=gpt.sh >/dev/null
sed -i 's/--vocab-size .*/--vocab-size 50304/' gpt.sh
expect 2 '--set model.vocab_size=50304 gives the job that of the file' "$orthant" plan --model gpt2 --cluster h100 --gpus 8 \
  --global-batch-size 64 --engine megatron-core --compare gpt.sh
expect 2 'megatron-core' "${plan[@]}" --engine megatron
expect 2 'did you mean optimizer.lr?' "$orthant" config --set learning_rate.peak=1e-3
expect 2 'did you mean "micro_batch_size"?' "$orthant" config --set batch.micro_batch=2

# ---- layouts that a person can write ----
# Layers of the model that its first plan leaves over after equal chunks.
left_over() {
  sed -n '/"plans": \[/,/"rejected"/p' "$1" | awk -v layers="$2" '/^ *"pp": /{gsub(/[^0-9]/, ""); pp = $0}
    /^ *"vpp": /{gsub(/[^0-9]/, ""); print layers % (pp * $0); exit}'
}
megatron() {
  "$orthant" plan --model "$1" --cluster h100 --gpus "$2" --engine megatron-core --top 4 --json "${@:3}"
}
megatron llama2-13b 64 >near.json
[ "$(left_over near.json 40)" = 0 ] || fail "equal chunks cost less than 1 %, and plan 1 has others"
holds near.json '"simpler": "plan 1 is the simplest'
! grep -q uneven_chunks near.json || fail "a line about chunks where plan 1 has equal ones"
megatron llama3-70b 512 >apart.json
[ "$(left_over apart.json 80)" != 0 ] || fail "equal chunks cost more than 1 %, and plan 1 has them"
holds apart.json '"uneven_chunks": "the chunks of plan 1 are a list of their layers.* the best plan with equal chunks takes'
megatron llama3-70b 512 --simple >simpler.json
[ "$(left_over simpler.json 80)" = 0 ] || fail "--simple keeps a list of layers"
! grep -q uneven_chunks simpler.json || fail "a line about chunks where plan 1 has equal ones"

# ---- the deadline ----
fixed=(--tp 1 --pp 1 --cp 1 --zero 1 --tokens 100G --gpus 256 --top 1)
"${plan[@]}" "${fixed[@]}" --deadline 5d --json >deadline.json
devices=$(sed -n 's/^    "devices": \([0-9]*\),$/\1/p' deadline.json | head -1)
elapsed=$(sed -n '/"goodput"/,/}/s/^ *"elapsed_seconds": \([0-9.]*\).*/\1/p' deadline.json)
awk "BEGIN { exit !($elapsed <= 5 * 86400 && $devices < 256) }" || fail "$devices devices take $elapsed s"
grep -q "\"devices\": $((devices - 8))" deadline.json || fail "one host fewer was not tried"
"${plan[@]}" "${fixed[@]}" --deadline 5d >deadline.txt
holds deadline.txt "planned for *$devices"
expect 1 '256 devices take' "${plan[@]}" "${fixed[@]}" --deadline 1h
expect 2 'is no time such as 12h, 30d or 6w' "${plan[@]}" "${fixed[@]}" --deadline soon

# ---- the simplest plan ----
job=("$orthant" plan --cluster h100 --model llama3-70b --gpus 64 --global-batch-size 256 --cp 1 --micro-batch-size 1)
"${job[@]}" --top 2 --json >fast.json
"${job[@]}" --top 2 --simple --json >simple.json
order() { sed -n '/"plans"/,$s/^ *"pipeline": "\([^"]*\)",$/\1/p' "$1" | head -1; }
[ "$(order fast.json) $(order simple.json)" = "interleaved 1f1b" ] || fail "$(order fast.json), simpler $(order simple.json)"
holds simple.json '"simpler": "plan 1 is the simplest of those that cannot be told from the fastest'
"${job[@]}" --top 1 --simple >one.txt
holds one.txt 'plans, simplest first, then fastest'
grep -q 'plan [2-9]' one.txt && { cat one.txt; fail "a plan is named that is not shown"; }
awk "BEGIN { exit !($(number simple.json step_seconds) >= $(number fast.json step_seconds)) }" || fail "the simplest is faster than the fastest"
echo "all passed"
