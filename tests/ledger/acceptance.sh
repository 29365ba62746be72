#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The whole ledger against truths by construction, on a model of 90 thousand parameters and tokens
# from a fixed random grammar: forged budgets, pairs that do the same, leaks, more FLOPs, an edited
# record, runs again on another split, eight merges one of which went wrong. About 300 runs.
#   tests/ledger/acceptance.sh ORTHANT [JOBS]        OT_LEDGER_KEEP=DIR keeps the ledgers
# Needs the test program test_ledger_statistics in the folder tests next to ORTHANT.
set -euo pipefail
orthant=$(realpath "${1:?usage: acceptance.sh ORTHANT [JOBS]}")
jobs=${2:-2}
statistics=$(dirname "$orthant")/tests/test_ledger_statistics
work=${OT_LEDGER_KEEP:-$(mktemp -d)}
mkdir -p "$work"
[ -n "${OT_LEDGER_KEEP:-}" ] || trap 'rm -rf "$work"' EXIT
. tests/support/expect.sh
cd "$work"
begun=$SECONDS
succeed() { "$@" >out.txt 2>err.txt || { cat out.txt err.txt; fail "$* failed"; }; }
bad() { local code=0; "$@" >out.txt 2>err.txt || code=$?; [ "$code" = 1 ] || { cat out.txt err.txt; fail "$* gave $code, not 1"; }; }
ledger() { "$orthant" ledger "$@"; }
note() { printf '%4d s  %s\n' $((SECONDS - begun)) "$*"; }

# ---- in simulation: 10,000 ledgers for each truth (tests/ledger/test_ledger_statistics.c) ----
succeed env OT_TESTS=full "$statistics"
python3 - <<'PY' || fail "coverage or false claims in simulation"
import re
said = open("out.txt").read() + open("err.txt").read()
rows = re.findall(r"ln m (\S+): (\d+) ledgers, coverage (\S+) %, claims above 0 (\S+) %", said)
assert [float(r[0]) for r in rows] == [0, 0.0953, 0.2] and all(int(r[1]) == 10000 for r in rows), said
print("        coverage of 95 %% intervals: %s %%; false claims %s %%" % (", ".join(r[2] for r in rows), rows[0][3]))
assert all(93 <= float(r[2]) <= 97 for r in rows) and float(rows[0][3]) <= 2.5, rows
PY
note "simulation"

# ---- data: token t is followed by tables[t][rank], rank by Zipf's law ----
python3 - <<'PY'
import array, random
V, S = 512, 1.3
r = random.Random(1)
weights = [k ** -S for k in range(1, V + 1)]
tables = []
for _ in range(V):
    tables.append(list(range(V)))
    r.shuffle(tables[-1])
for name, n, seed in (("train", 1000000, 2), ("held-out", 60000, 3)):
    r, t, out = random.Random(seed), 0, array.array("H")
    for rank in r.choices(range(V), weights, k=n):
        t = tables[t][rank]
        out.append(t)
    out.tofile(open(name + ".bin", "wb"))
PY
cat >run.yaml <<'YAML'
model: {model_type: llama, vocab_size: 512, hidden_size: 48, intermediate_size: 128, num_hidden_layers: 2,
  num_attention_heads: 4, max_position_embeddings: 64, tie_word_embeddings: true}
data: {train: train.bin, validation: held-out.bin, validation_tokens: 32k, sequence_length: 64, format: nanogpt}
batch: {global_batch_size: 16, micro_batch_size: 16}
optimizer: {lr: 5e-3}
learning_rate: {warmup_steps: 10, min: 5e-4}
tokens: 409600
YAML
policy() {  # policy DIR BASE SCALES SEED COUNT PAIRS AUDIT
  mkdir -p "$1/changes"
  cat >"$1/policy.yaml" <<YAML
base: ../$2
ladder: [$3]
seeds: {base: $4, count: $5}
looks: {pairs: [$6]}
audit: $7
target: 1e21
YAML
}
s1='{name: s1, tokens: 102400}' s2='{name: s2, tokens: 204800}' s3='{name: s3, tokens: 409600}'

# ---- the forged multiplier: ln 1.1 at every scale, 12 pairs ----
policy ledger run.yaml "$s1, $s2, $s3" 1000 12 12 causality
echo 'forged_budget: 1.1' >ledger/changes/forged.yaml
succeed ledger add forged
succeed ledger run forged --jobs "$jobs"
succeed ledger look forged --json
python3 - <<'PY' || fail "the forged multiplier"
import json, math
look = json.load(open("out.txt"))["look"]
half = (look["ci"][1] - look["ci"][0]) / 2
print("        forged: ln m %.4f [%.4f, %.4f], truth %.4f, half width %.4f" % (look["mean"], *look["ci"], math.log(1.1), half))
assert look["ci"][0] <= math.log(1.1) <= look["ci"][1] and half <= 0.015, look
PY
note "forged"

# ---- A/A: other seeds of the same arm ----
policy other run.yaml "$s1" 2000 12 12 none
echo 'forged_budget: 1' >other/changes/same.yaml
succeed ledger add same --ledger other
succeed ledger run same --ledger other --jobs "$jobs"
python3 - <<'PY' || fail "A/A"
import json, math, random, statistics
read = lambda path: [r["loss"] for r in map(json.loads, open(path)) if r["kind"] == "run" and r["scale"] == "s1" and r["budget"] == 1 and r["change"] in ("base", "same")]
pool, other = read("ledger/ledger.jsonl"), read("other/ledger.jsonl")
assert len(pool) == len(other) == 12, (len(pool), len(other))
excludes = lambda d, t: abs(statistics.mean(d)) > t * statistics.stdev(d) / math.sqrt(len(d))
r, claims = random.Random(0), 0
for _ in range(2000):
    pick = r.sample(pool, 8)
    claims += excludes([a - b for a, b in zip(pick[:4], pick[4:])], 3.182446305284263)
paired = [a - b for a, b in zip(pool, other)]
print("        A/A: 4 against 4 of 12 seeds claim in %.1f %%; 12 pairs of other seeds: %.5f, sd %.5f" % (claims / 20, statistics.mean(paired), statistics.stdev(paired)))
assert claims <= 160 and not excludes(paired, 2.200985160082949)
PY
note "A/A"

# ---- sub-additive: two changes that do the same, and the whole ----
echo 'forged_budget: 1.1' >ledger/changes/twin.yaml
succeed ledger add twin
succeed ledger merge forged twin --pairs 12 --jobs "$jobs" --json
python3 - <<'PY' || fail "the gap"
import json, math
m = json.load(open("out.txt"))
print("        gap %.4f [%.4f, %.4f], truth %.4f; %s" % (m["gap"], *m["gap_ci"], -math.log(1.1), m["verdict"]))
assert m["gap_ci"][0] <= -math.log(1.1) <= m["gap_ci"][1] and m["verdict"] == "twin: masked", m
PY
note "sub-additive"

# ---- from here on 4 pairs: a gain that shrinks up the ladder; twice the MLP at equal steps ----
policy ledger run.yaml "$s1, $s2, $s3" 1000 12 4 causality
echo 'forged_budget: [1.2, 1.1, 1.05]' >ledger/changes/fading.yaml
succeed ledger add fading
succeed ledger run fading --jobs "$jobs"
succeed ledger look fading
grep -q "^fading: better" out.txt && grep -q "its sign is unknown\|at target *-" out.txt || { cat out.txt; fail "a gain that fades"; }
awk '$1 == "trend" { print "        trend " $2 " " $3 " " $4; exit !($2 < 0) }' out.txt || fail "the trend"
note "trend"

succeed ledger add wide --set model.intermediate_size=256
succeed ledger run wide --jobs "$jobs"
bad ledger look wide --json
python3 - <<'PY' || fail "twice the MLP"
import json
v = json.load(open("out.txt"))["verdict"]
print("        twice the MLP: m %.3f by FLOPs, %.3f at equal tokens" % (v["m"], v["m_quality"]))
assert v["m"] < 1 < v["m_quality"] and v["verdict"] == "worse", v
PY
note "compute"

# ---- tuning: both arms at their own best rate; planned seconds: those of `orthant plan` ----
policy tuned run.yaml "$s1" 1000 2 2 none
sed -i 's/102400/10240/; s/^target.*//' tuned/policy.yaml
cat >>tuned/policy.yaml <<'YAML'
tuning: {keys: [optimizer.lr], factors: [0.5, 1, 2]}
compute: [seconds, planned: {cluster: h100, gpus: 512, scale: ../big.yaml}]
YAML
cat >big.yaml <<'YAML'
model: llama3-8b
data: {sequence_length: 8192}
batch: {global_batch_size: 512}
precision: {compute: bf16}
tokens: 1T
YAML
succeed ledger add half-decay --ledger tuned --set optimizer.weight_decay=0.05
succeed ledger run half-decay --ledger tuned --jobs "$jobs"
echo 'forged_budget: 1.1' >tuned/changes/longer.yaml
succeed ledger add longer --ledger tuned
succeed ledger run longer --ledger tuned --jobs "$jobs"
succeed ledger look longer --ledger tuned --json
mv out.txt look.json
succeed "$orthant" plan --model llama3-8b --cluster h100 --gpus 512 --global-batch-size 512 --sequence-length 8192 --tokens 1T --json
python3 - <<'PY' || fail "tuning or planned seconds"
import json, math, re
lines = [json.loads(l) for l in open("tuned/ledger.jsonl")]
tunes = {l["change"]: l for l in lines if l["kind"] == "tune"}
assert set(tunes) == {"base", "half-decay", "longer"}
for t in tunes.values():
    assert t["factor"] == (0.5, 1, 2)[min(range(3), key=lambda i: t["losses"][i])], t
for r in lines:
    if r["kind"] == "run" and r["seed"] < 1002:
        lr = float(re.search(r"^  lr: ([^ ]*)", open("tuned/runs/%s/config.yaml" % r["run"]).read(), re.M)[1])
        assert abs(lr / (5e-3 * tunes[r["change"]]["factor"]) - 1) < 1e-12, (r, lr)
verdict = json.load(open("look.json"))["verdict"]
assert verdict["verdict"] == "better" and verdict["m_speed"] == 1 and abs(verdict["m_total"] / verdict["m_quality"] - 1) < 1e-12, verdict
plan = json.load(open("out.txt"))["plans"][0]["step_seconds"] * math.ceil(1e12 / (512 * 8192))
assert abs(verdict["planned_seconds"][0] / plan - 1) < 1e-9, (verdict, plan)
PY
note "tuning, planned seconds"

# ---- leaks: experts that choose among later tokens; a program whose attention crosses documents ----
sed 's/model_type: llama/model_type: mixtral, num_local_experts: 4, num_experts_per_tok: 2, num_key_value_heads: 4/; s/tie_word_embeddings: true/tie_word_embeddings: false/' run.yaml >experts.yaml
policy leaks experts.yaml "$s1" 1000 4 4 causality
succeed ledger add choice --ledger leaks --set model.moe_routing=expert_choice
bad ledger run choice --ledger leaks
grep -q "vetoed: an audit found expert_choice" err.txt || { cat err.txt; fail "the veto"; }
bad ledger run choice --ledger leaks
printf '#!/bin/sh\nexec "%s" "$@" --set data.document_mask=false\n' "$orthant" >crossing.sh && chmod +x crossing.sh
succeed ledger add crossing --ledger leaks --program crossing.sh
bad ledger run crossing --ledger leaks
grep -q "vetoed: an audit found document_mask" err.txt || { cat err.txt; fail "the veto of a program"; }
# Without the audit before the first pair, a gain above too_good brings it.
policy unaudited experts.yaml "$s1" 1000 4 4 none
sed -i '$amargins: {too_good: 1.001}' unaudited/policy.yaml
succeed ledger add choice --ledger unaudited --set model.moe_routing=expert_choice
succeed ledger run choice --ledger unaudited --jobs "$jobs"
bad ledger look choice --ledger unaudited
grep -q "^choice: vetoed .*expert_choice" out.txt || { cat out.txt; fail "a large gain"; }
grep "m .* by FLOPs" out.txt | sed 's/^ */        leak: /'
note "leaks"

# ---- eight merges; a wrong one changes bits without a word in the record ----
policy merges run.yaml "$s1" 1000 4 2 none
sed -i 's/102400/10240/; $aslope: {factors: [0.9, 1.1], seeds: 2}' merges/policy.yaml
for i in 1 2 3 4 5 6 7 8; do
  succeed ledger add "step$i" --ledger merges --set "optimizer.lr=$((5 + i))e-3"
  echo 'forged_budget: 1.5' >"merges/changes/lift$i.yaml"
  succeed ledger add "lift$i" --ledger merges
  succeed ledger merge "step$i" "lift$i" --ledger merges --write "base-$i.yaml" --jobs "$jobs"
  sed -i "s/^base:.*/base: ..\/base-$i.yaml/" merges/policy.yaml
done
succeed ledger bisect --ledger merges
grep -q "nothing to search" out.txt || fail "the bases hold"
# A program that computes something else since the fifth merge.
cat >wrong.sh <<SH
#!/bin/sh
case "\$2" in *base-[5-8].yaml) exec "$orthant" "\$@" --set optimizer.eps=1e-6 ;; esac
exec "$orthant" "\$@"
SH
chmod +x wrong.sh
bad ledger bisect --ledger merges --program wrong.sh
grep -q "base-5.yaml, by the merge of line .* (3 looks)" out.txt || { cat out.txt err.txt; fail "bisect"; }
note "bisect"

# ---- runs again: the same bits; on another split within rounding ----
succeed ledger rerun 3
[ "$(grep -c ": the same bits$" out.txt)" = 3 ] || { cat out.txt; fail "other bits"; }
succeed ledger rerun 3 --ranks 2 --set parallel.tp=2
[ "$(grep -c "another split: loss" out.txt)" = 3 ] || { cat out.txt; fail "another split"; }
sed 's/^/        /' out.txt
# The bound of docs/bits.md for one step in float32; here after a whole run.
awk '/another split/ { gsub(/[()]/, "", $NF); n += $NF ~ /^[0-9.e-]+$/ && $NF + 0 < 1e-5 } END { exit n != 3 }' out.txt || fail "another split"
note "rerun"

# ---- one digit edited ----
sed '9s/"loss":\([0-9]\)\./"loss":\1.9/' ledger/ledger.jsonl >edited && cp edited ledger/ledger.jsonl
bad ledger rerun 1
grep -q "ledger/ledger.jsonl:9: the line was changed" err.txt || { cat err.txt; fail "the chain"; }
note "chain"
[ "${OT_LEDGER_SECONDS:-}" = "" ] || [ $((SECONDS - begun)) -le "$OT_LEDGER_SECONDS" ] || fail "it took $((SECONDS - begun)) s, allowed $OT_LEDGER_SECONDS"
echo "accepted after $((SECONDS - begun)) s"
