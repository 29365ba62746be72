#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run: any machine. `orthant ledger` on a model that trains in a tenth of a second (with OT_TESTS=full
# also acceptance.sh, on a larger one): the figures of a look equal those that Python computes from the recorded runs, pairs are exact, what was recorded
# is neither changed nor run again, and every refusal has its exit code.
set -euo pipefail
. tests/support/expect.sh
orthant=$(realpath "${1:?usage: test_ledger_verb.sh ORTHANT}")
source_dir=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp LICENSE "$work/text.txt"
cd "$work"
succeed() { "$@" >out.txt 2>err.txt || { cat out.txt err.txt; fail "$* failed"; }; }
"$orthant" tokenize --tokenizer bytes --out train text.txt >/dev/null
cat >run.yaml <<'YAML'
model: {model_type: llama, vocab_size: 257, hidden_size: 16, intermediate_size: 32, num_hidden_layers: 1,
  num_attention_heads: 2, max_position_embeddings: 32}
data: {train: train, validation: train, validation_tokens: 512, tokenizer: bytes, sequence_length: 16}
batch: {global_batch_size: 8, micro_batch_size: 8}
optimizer: {lr: 1e-2}
learning_rate: {min: 1e-3}
tokens: 2560
YAML

# ---- init: the policy is valid, its scales grow, a ledger is begun once ----
expect 0 "wrote ledger/policy.yaml" "$orthant" ledger init run.yaml
grep -q "^16 pairs: " out.txt
expect 2 "exists" "$orthant" ledger init run.yaml
expect 3 "there is no ledger" "$orthant" ledger run x --ledger elsewhere
cat >ledger/policy.yaml <<'YAML'
base: ../run.yaml
metric: {tokens: 512}
ladder: [{name: small, tokens: 2560, set: {hidden_size: 24}}]
seeds: {base: 7, count: 3}
slope: {factors: [0.7, 1.4], seeds: 3}
looks: {pairs: [3]}
audit: none
YAML

# ---- a change with a known multiplier: ln 1.1 at each scale ----
echo 'forged_budget: [1.1]' >ledger/changes/forged.yaml
expect 2 "not registered" "$orthant" ledger run forged
expect 0 "registered" "$orthant" ledger add forged
expect 2 "in the record already" "$orthant" ledger add forged
expect 2 "is missing" "$orthant" ledger look forged
expect 0 "run 12/12" "$orthant" ledger run forged --jobs 2
succeed "$orthant" ledger look forged --json
python3 - <<'PY' || fail "the look is not what its runs say"
import json, math, statistics
lines = [json.loads(l) for l in open("ledger/ledger.jsonl")]
runs = [l for l in lines if l["kind"] == "run"]
look = json.load(open("out.txt"))["look"]
loss = lambda change, scale, budget, seed: next(r["loss"] for r in runs if (r["change"], r["scale"], r["budget"], r["seed"]) == (change, scale, budget, seed))
assert len(runs) == 12 and len({r["key"] for r in runs}) == 12
for r in runs:  # pairs are exact, and differ in what they should
    assert r["data_hash"] == next(q for q in runs if (q["scale"], q["seed"]) == (r["scale"], r["seed"]))["data_hash"], r
assert len({r["data_hash"] for r in runs if r["scale"] == "small"}) == 3
def ln_m(scale, seeds):
    d = statistics.mean(loss("base", scale, 1, s) - loss("forged", scale, 1, s) for s in seeds)
    y = [statistics.mean(loss("base", scale, f, s) - loss("base", scale, 1, s) for s in seeds) for f in (0.7, 1.4)]
    a, b = math.log(0.7), math.log(1.4)
    p = (y[0] * b * b - y[1] * a * a) / (a * b * b - b * a * a)  # p x + q x^2 through three points
    q = (y[0] - p * a) / (a * a)
    return 2 * d / (math.sqrt(p * p - 4 * q * d) - p), -p
seeds = [7, 8, 9]
for scale in ("small",):
    got, want = look["ln_m"][scale], ln_m(scale, seeds)[0]
    if abs(want) < 0.2:
        assert abs(got - want) < 1e-9, (scale, got, want)
    assert abs(look["slope"][scale] - ln_m(scale, seeds)[1]) < 1e-9
means = lambda seeds: statistics.mean(ln_m(s, seeds)[0] for s in ("small",))
left = [means([s for s in seeds if s != out]) for out in seeds]
se = math.sqrt(2 / 3 * sum((x - statistics.mean(left)) ** 2 for x in left))
t = 4.302652729911275  # of 97.5 %, 2 degrees of freedom
if all(abs(ln_m(s, k)[0]) < 0.2 for s in ("small",) for k in [seeds] + [[x for x in seeds if x != o] for o in seeds]):
    assert abs(look["mean"] - means(seeds)) < 1e-9 and abs(look["se"] - se) < 1e-9, (look, means(seeds), se)
    assert abs(look["ci"][1] - (means(seeds) + t * se)) < 1e-8
flops = {r["scale"]: r["model_flops"] for r in runs if r["change"] == "base" and r["budget"] == 1}
for r in runs:  # FLOPs come from the schedule: in proportion to tokens
    if r["budget"] == 1.4: assert abs(r["model_flops"] / flops[r["scale"]] / 1.4 - 1) < 0.02, r
PY
expect 0 "nothing to run" "$orthant" ledger run forged

# ---- a harmful change: exit 1, and no run of the baseline again ----
succeed "$orthant" ledger add slow --set optimizer.lr=1e-5 --set learning_rate.min=0 --hypothesis 1.02
expect 0 "run 3/3" "$orthant" ledger run slow --jobs 2
worse() { local code=0; "$orthant" ledger look "$@" >out.txt 2>err.txt || code=$?; [ "$code" = 1 ] || fail "$1 gave $code"; }
worse slow
grep -q "^slow: worse after 3 pairs" out.txt || { cat out.txt; fail "not worse"; }
grep -q "one scale: whether it holds at larger ones is not known" out.txt || fail "one scale"

# ---- a verdict is signed once, by a person ----
expect 2 "no verdict to sign" "$orthant" ledger sign wide
succeed "$orthant" ledger sign slow --by "A. Reader"
expect 2 "is signed by A. Reader" "$orthant" ledger sign slow

# ---- pairs that are the baseline's own runs: their differences are rounding, and no gain ----
echo 'budget: 1.4' >ledger/changes/own.yaml
succeed "$orthant" ledger add own
expect 0 "3 pairs at 1 scale" "$orthant" ledger run own
succeed "$orthant" ledger look own
grep -q "^own: equal" out.txt && grep -q "note: the pairs differ by less than rounding" out.txt || { cat out.txt; fail "a gain of rounding"; }

# ---- more FLOPs at equal steps are counted by the schedule ----
succeed "$orthant" ledger add wide --set model.intermediate_size=64
expect 0 "run 3/3" "$orthant" ledger run wide --jobs 2
worse wide --json
python3 - <<'PY' || fail "the FLOPs of a wider model"
import json
verdict = json.load(open("out.txt"))["verdict"]
assert verdict["m"] < 1 < verdict["m_quality"] and verdict["verdict"] == "worse", verdict
run = [l for l in map(json.loads, open("ledger/ledger.jsonl")) if l["kind"] == "run" and l["budget"] == 1]
of = lambda change, scale: next(r["model_flops"] for r in run if (r["change"], r["scale"]) == (change, scale))
# Llama: 6 (4 C^2 + 3 C F + V C) + causal half of 12 T C, a token; F 32 and 64.
flops = lambda C, F: 6 * (4 * C * C + 3 * C * F + 257 * C) + 6 * 16 * C
for scale, C in (("small", 24),):
    got, want = of("wide", scale) / of("base", scale), flops(C, 64) / flops(C, 32)
    assert abs(got / want - 1) < 0.01, (got, want)
PY

# ---- noise: both arms of a rounding ----
succeed "$orthant" ledger fit --jobs 2 --json
python3 - <<'PY' || fail "the calibration"
import json, math, statistics
lines = [json.loads(l) for l in open("ledger/ledger.jsonl")]
for c in json.load(open("out.txt"))["scales"]:
    loss = lambda change: [r["loss"] for r in lines if r["kind"] == "run" and (r["change"], r["scale"], r["budget"]) == (change, c["scale"], 1)]
    base, other = loss("base"), loss("a-a")
    assert len(base) == len(other) == 3
    sd = statistics.stdev(base)
    assert abs(c["sd"] - sd) < 1e-9 and abs(c["sd_ln_c"] + sd / c["slope"]) < 1e-9, (c, sd)
    assert c["slope"] < 0 and c["rho"] > 0.9 and c["pair_sd"] < c["sd_ln_c"], c
PY

# ---- a stack: two changes that do the same; the runs are those of one ----
echo 'forged_budget: [1.1]' >ledger/changes/twin.yaml
succeed "$orthant" ledger add twin
succeed "$orthant" ledger add hot --set optimizer.lr=1.5e-2
succeed "$orthant" ledger merge forged twin --json
python3 - <<'PY' || fail "the stack"
import json, math
m = json.load(open("out.txt"))
assert abs(m["gap"] + m["ln_m"]) < 1e-12 and m["gap_ci"][0] < -math.log(1.1) * 0.8 and m["gap_ci"][1] < 0, m
assert m["parts"] == {"forged": "stays", "twin": "masked"} and m["verdict"] == "twin: masked", m
PY
expect 2 "a file next to" "$orthant" ledger merge forged hot --write a/b.yaml
expect 0 "wrote " "$orthant" ledger merge forged hot --write base-2.yaml --jobs 2
grep -q "  lr: 1.5e-2" base-2.yaml || fail "the new base"
# Paths in it are relative to it, whatever they are relative to in the files of the changes.
for part in train.*; do cp "$part" "elsewhere.${part#train.}"; done
mkdir -p moved && cp ledger/policy.yaml moved/
succeed "$orthant" ledger add shards --ledger moved --set data.train=elsewhere --set optimizer.lr=1.5e-2
grep -q "data.train: ../../elsewhere$" moved/changes/shards.yaml || { cat moved/changes/shards.yaml; fail "a path of a change"; }
expect 0 "wrote " "$orthant" ledger merge shards --ledger moved --write base-3.yaml --jobs 2
grep -q "^  train: elsewhere$" base-3.yaml || { cat base-3.yaml; fail "paths of the new base"; }
succeed "$orthant" ledger merge forged twin hot --factorial --jobs 2 --json
python3 - <<'PY' || fail "the factorial"
import json, itertools, statistics
f = json.load(open("out.txt"))
effects = {e["effect"]: e["ln_m"] for e in f["effects"]}
assert len(effects) == 6 and f["runs"] == 8 and f["resolution"] == 0
# Of two that do the same: each has half of the effect, and together they lack the whole.
assert abs(effects["forged"] - effects["twin"]) < 1e-12
assert abs(effects["forged x twin"] + 2 * effects["forged"]) < 1e-9, effects
PY

# ---- the same bits again; the bases of merges ----
succeed "$orthant" ledger rerun 2
[ "$(grep -c ": the same bits$" out.txt)" = 2 ] || { cat out.txt; fail "other bits"; }
succeed "$orthant" ledger bisect
grep -q "nothing to search" out.txt || fail "a base that holds"
printf '#!/bin/sh\nexec "%s" "$@" --set optimizer.eps=1e-6\n' "$orthant" >wrong.sh && chmod +x wrong.sh
bad() { local code=0; "$@" >out.txt 2>err.txt || code=$?; [ "$code" = 1 ] || { cat out.txt err.txt; fail "$* gave $code"; }; }
bad "$orthant" ledger bisect --program wrong.sh
grep -q "^line .*: other bits" err.txt || { cat out.txt err.txt; fail "a program of this folder"; }
sed -i 's/lr: 1.5e-2/lr: 1.6e-2/' base-2.yaml
bad "$orthant" ledger bisect
grep -q "base-2.yaml, by the merge of line" out.txt || { cat out.txt; fail "the base was edited"; }

# ---- the first key, and the first commit, that changes the loss; rounding is none ----
sed 's/{lr: 1e-2}/{eps: 1.1e-8, lr: 1.5e-2, weight_decay: 0.2}/; s/micro_batch_size: 8/micro_batch_size: 4/' run.yaml >other.yaml
bad "$orthant" ledger bisect --against other.yaml
grep -q "^the first key that changes the loss: optimizer.lr=1.5e-2 (2 looks)$" out.txt || { cat out.txt err.txt; fail "the key"; }
expect 2 'no "huge" (it has small)' "$orthant" ledger bisect --against other.yaml --scale huge
expect 2 "is of --commits and --against" "$orthant" ledger bisect --scale small
sed 's/{lr: 1e-2}/{eps: 1.1e-8, lr: 1e-2}/' run.yaml >other.yaml
succeed "$orthant" ledger bisect --against other.yaml
grep -q "nothing to search" out.txt && grep -q "seeds explain it" err.txt || { cat out.txt err.txt; fail "rounding is no loss"; }
if command -v git >/dev/null; then
  git init -q repository
  commit() {  # commit SUBJECT FIRST_LINE OPTIONS: a program that is this one with options
    printf '#!/bin/sh\n%s\nexec "%s" "$@" %s\n' "$2" "$orthant" "$3" >repository/program
    git -C repository add program
    git -C repository -c user.name=test -c user.email=test -c commit.gpgsign=false commit -q -m "$1"
  }
  commit words '# one' ''
  commit rounding '# two' '--set optimizer.eps=1.1e-8'
  commit unfinished 'if' ''
  commit warmer '# three' '--set optimizer.eps=1.1e-8 --set optimizer.lr=1.5e-2'
  commit last '# four' '--set optimizer.lr=1.5e-2'
  bad "$orthant" ledger bisect --commits HEAD~4.. --source repository --json \
    --build 'sh -n program && mkdir -p build && cp program build/orthant && chmod +x build/orthant'
  python3 - "$(git -C repository rev-parse HEAD~1)" <<'PY' || fail "the commit"
import json, sys
b = json.load(open("out.txt"))
assert b["commit"] == sys.argv[1] + " warmer" and len(b["not_tried"]) == 1 and b["not_tried"][0].endswith(" unfinished"), b
assert b["looks"] <= 3 and b["pairs"] == 3 and b["ci"][1] * b["ci"][0] > 0, b
PY
  [ "$(git -C repository worktree list | wc -l)" = 1 ] || fail "the work tree is left"
else
  echo "skipped: bisect --commits, there is no git here"
fi

# ---- reports ----
succeed "$orthant" ledger report --html page.html
grep -q "^6 proposed, 4 looked at, 1 accepted, 0.1 expected false" out.txt || { cat out.txt; fail "the census"; }
grep -q "^forged  *quality  better  *3 " out.txt || { cat out.txt; fail "the table"; }
python3 - <<'PY' || fail "the page"
import re, xml.etree.ElementTree as tree
root = tree.fromstring(open("page.html").read().replace("<!DOCTYPE html>", ""))
ids = {e.get("id") for e in root.iter() if e.get("id")}
assert {"claims", "forest", "ladder", "stack"} <= ids, ids
for e in root.iter():
    assert e.tag not in ("script", "link", "img"), e.tag
    for key, value in e.attrib.items():
        assert key in ("aria-label", "content", "lang") or not re.search(r"\b(nan|inf)\b", value, re.I), (e.tag, key, value)
assert sum(e.tag == "svg" for e in root.iter()) == 3
PY
succeed "$orthant" ledger export --out runs.csv
python3 -c 'import csv; rows = list(csv.DictReader(open("runs.csv"))); assert len(rows) > 20 and float(rows[0]["loss"]) > 0, len(rows)' ||
  fail "the export"

# ---- a longer run whose tokens count is as good as the baseline's curve says: m is 1 ----
echo 'budget: 1.2' >ledger/changes/longer.yaml
succeed "$orthant" ledger add longer
expect 0 "run 3/3" "$orthant" ledger run longer --jobs 2
succeed "$orthant" ledger look longer --json
python3 - <<'PY' || fail "a budget that counts"
import json, math
out = json.load(open("out.txt"))
runs = [r for r in map(json.loads, open("ledger/ledger.jsonl")) if r["kind"] == "run" and r["seed"] == 7 and r["budget"] == 1]
of = lambda change, key: next(r[key] for r in runs if r["change"] == change)
assert of("longer", "tokens") == 3072 and abs(of("longer", "model_flops") / of("base", "model_flops") - 1.2) < 1e-9
assert abs(out["look"]["mean"]) < 0.02 and out["verdict"]["m_quality"] > 1.15, out
PY

# ---- a change of speed has the same bits; a multiplier that is too good waits for audits ----
succeed "$orthant" ledger add quick --class speed --set parallel.recompute=full
succeed "$orthant" ledger run quick --jobs 2
succeed "$orthant" ledger look quick
grep -q "^quick: better .*: the same bits in 3 of 3 pairs" out.txt || { cat out.txt; fail "recomputing changes no bit"; }
echo 'forged_budget: 1.1' >ledger/changes/again.yaml
succeed "$orthant" ledger add again
echo 'margins: {too_good: 1.05}' >>ledger/policy.yaml
succeed "$orthant" ledger run again
succeed "$orthant" ledger look again
grep -q "^again: withheld .*: 100 % of the held-out 50-grams are in the training data; causality is clean" out.txt ||
  { cat out.txt; fail "the validation set is the training set"; }
grep -q "policy.yaml was changed after again was registered" out.txt || fail "another policy"

# ---- losses of the next scale are written before it runs; FLOPs of Muon are counted ----
mkdir -p up/changes
cat >up/policy.yaml <<'YAML'
base: ../run.yaml
ladder: [{name: s1, tokens: 1280}, {name: s2, tokens: 2560}, {name: s3, tokens: 5120}]
seeds: {base: 7, count: 3}
slope: {from: ladder}
looks: {pairs: [3]}
audit: none
target: 1e12
YAML
succeed "$orthant" ledger add muon --ledger up --set optimizer.name=muon --set optimizer.adamw_lr=1e-2 --set optimizer.lr=2e-3
succeed "$orthant" ledger run muon --ledger up --jobs 2
"$orthant" ledger look muon --ledger up >out.txt || [ $? = 1 ]
grep -q "^predicted for muon at s3: loss .*: \(held\|missed\)$" out.txt || { cat out.txt; fail "the outcome of a prediction"; }
succeed "$orthant" ledger report --ledger up --json
python3 - <<'PY' || fail "the predictions"
import json, math, statistics
lines = [json.loads(l) for l in open("up/ledger.jsonl")]
runs = [l for l in lines if l["kind"] == "run"]
losses = lambda change, scale: [r["loss"] for r in sorted(runs, key=lambda r: r["seed"]) if (r["change"], r["scale"]) == (change, scale)]
flops = lambda change, scale: next(r["model_flops"] for r in runs if (r["change"], r["scale"]) == (change, scale))
predicted = {(l["change"], l["scale"]): l for l in lines if l["kind"] == "predict"}
assert set(predicted) == {("base", "s3"), ("muon", "s3")}, predicted
for (change, scale), p in predicted.items():
    first = next(i for i, l in enumerate(lines) if l["kind"] == "run" and (l["change"], l["scale"]) == (change, scale))
    assert lines.index(p) < first, "written after a run"
# The baseline: a power law, between a line and no fall at all, with t of 2 degrees of freedom.
t = 4.302652729911275
one, two, p = losses("base", "s1"), losses("base", "s2"), predicted["base", "s3"]
x = [math.log(flops("base", s)) for s in ("s1", "s2", "s3")]
step = (x[2] - x[1]) / (x[1] - x[0])
mean = statistics.mean
assert abs(p["loss"] - mean(two) * (mean(two) / mean(one)) ** step) < 1e-9
line = [b + step * (b - a) for a, b in zip(one, two)]
se = lambda values: statistics.stdev(values) / math.sqrt(3)
assert abs(p["ci"][0] - (mean(line) - t * math.hypot(se(line), se(two)))) < 1e-8, p
assert abs(p["ci"][1] - (mean(two) + t * math.sqrt(2) * se(two))) < 1e-8, p
report = {(r["change"], r["scale"]): r for r in json.load(open("out.txt"))["predictions"]}
for key, r in report.items():
    found = mean(losses(*key))
    assert abs(r["found"] - found) < 1e-12 and r["result"] == ("held" if r["low"] <= found <= r["high"] else "missed"), r
# Keller Jordan 2024: five steps of X X^T, its square, and a product with X, for 4 + 3 matrices.
for scale, steps in (("s1", 10), ("s2", 20), ("s3", 40)):
    more = 5 * steps * (4 * (4 * 16**3 + 2 * 16**3) + 3 * (4 * 16**2 * 32 + 2 * 16**3))
    assert abs(flops("muon", scale) - flops("base", scale) - more) < 1, (scale, flops("muon", scale) - flops("base", scale), more)
PY

# ---- from one scale, a prediction is as wide as other changes moved; keys are judged at a scale ----
mkdir -p two/changes
cat >two/policy.yaml <<'YAML'
base: ../run.yaml
metric: {tokens: 256}
ladder: [{name: s1, tokens: 640}, {name: s2, tokens: 1280}]
seeds: {base: 7, count: 2}
slope: {factors: [0.6, 1.6], seeds: 2}
looks: {pairs: [2]}
audit: none
YAML
succeed "$orthant" ledger add cold --ledger two --set optimizer.lr=1e-3
succeed "$orthant" ledger add cool --ledger two --set optimizer.lr=0.8e-2
for change in cold cool; do
  succeed "$orthant" ledger run $change --ledger two --jobs 2
  "$orthant" ledger look $change --ledger two >out.txt || [ $? = 1 ]
done
succeed "$orthant" ledger report --ledger two --json
python3 - <<'PY' || fail "predictions from one scale"
import json
lines = [json.loads(l) for l in open("two/ledger.jsonl")]
p = {l["change"]: l for l in lines if l["kind"] == "predict"}
look = next(l for l in lines if l["kind"] == "look" and l["change"] == "cold")
assert p["cold"]["ci"] == [None, None] and p["cold"]["scale"] == "s2", p
low, high = p["cool"]["ci"]
assert low < p["cool"]["loss"] < high, p
# At least t of one degree of freedom times the move of the other change, by the slope of the baseline.
slope = look["slope"]["s2"]
move = abs(look["ln_m"]["s2"] - look["ln_m"]["s1"])
assert high - low > 12.7 * move * slope, (p, move, slope)
words = {r["change"]: r["result"] for r in json.load(open("out.txt"))["predictions"]}
assert words["cold"] == "no interval" and words["cool"] in ("held", "missed"), words
PY
sed 's/{lr: 1e-2}/{lr: 1e-3}/' run.yaml >other.yaml
for scale in s1 s2; do
  "$orthant" ledger bisect --against other.yaml --ledger two --scale $scale >out.txt 2>err.txt || [ $? = 1 ]
  python3 - $scale <<'PY' || { cat err.txt; fail "the difference at $scale"; }
import json, re, statistics, sys
runs = [l for l in map(json.loads, open("two/ledger.jsonl")) if l["kind"] == "run" and l["scale"] == sys.argv[1] and l["budget"] == 1]
mean = lambda change: statistics.mean(r["loss"] for r in runs if r["change"] == change)
found = float(re.search("the loss differs by (\\S+) .* in 2 pairs at " + sys.argv[1], open("err.txt").read())[1])
assert abs(found / (mean("cold") - mean("base")) - 1) < 0.01, (found, mean("cold") - mean("base"))
PY
done

# ---- a stack whose sums are biased at the ranks of the target is vetoed ----
cat >run-32.yaml <<'YAML'
model: {model_type: llama, vocab_size: 257, hidden_size: 16, intermediate_size: 32, num_hidden_layers: 1,
  num_attention_heads: 2, max_position_embeddings: 32}
data: {train: train, sequence_length: 16}
batch: {global_batch_size: 4096}
tokens: 1M
YAML
mkdir -p wire && sed 's/audit: none/audit: causality/; s/small, tokens: 2560/small, tokens: 256/; s/pairs: \[3\]/pairs: [2]/' ledger/policy.yaml >wire/policy.yaml
echo 'compute: [planned: {cluster: h100, gpus: 4096, scale: ../run-32.yaml}]' >>wire/policy.yaml
succeed "$orthant" ledger add coarse --ledger wire --set precision.reduce=bf16 --set precision.accumulate=wire
bad "$orthant" ledger merge coarse --ledger wire
grep -q "coarse is vetoed: an audit found biased_reduction on 4096 ranks" err.txt || { cat err.txt; fail "the veto of a precision"; }
tail -n 1 wire/ledger.jsonl | python3 -c '
import json, sys
v = json.loads(sys.stdin.read())
assert (v["kind"], v["change"], v["verdict"]) == ("verdict", "coarse", "vetoed") and v["why"] == "an audit found biased_reduction on 4096 ranks", v' ||
  fail "the verdict of a precision"
bad "$orthant" ledger run coarse --ledger wire
grep -q "the verdict on coarse is vetoed" err.txt || { cat err.txt; fail "a vetoed change"; }

# ---- kill -9 of a ledger ends its trainings ----
mkdir -p killed && sed 's/tokens: 2560/tokens: 640000/; s/^slope.*/slope: {from: budgets, factors: [0.9, 1.1]}/' ledger/policy.yaml >killed/policy.yaml
succeed "$orthant" ledger add hot --ledger killed --set optimizer.lr=1.5e-2
"$orthant" ledger run hot --ledger killed --jobs 2 >out.txt 2>err.txt &
ledger_process=$!
children() { cat /proc/$ledger_process/task/*/children 2>/dev/null || true; }
for _ in $(seq 300); do [ "$(children | wc -w)" = 2 ] && ls killed/runs/*/metrics.jsonl >/dev/null 2>&1 && break; sleep 0.1; done
trainings=$(children)
[ "$(echo "$trainings" | wc -w)" = 2 ] || { cat err.txt; fail "two trainings"; }
kill -9 $ledger_process
wait $ledger_process 2>/dev/null || true
alive() { for p in $trainings; do [ ! -d "/proc/$p" ] || grep -q "^State:.Z" "/proc/$p/status" 2>/dev/null || echo "$p"; done; }
for _ in $(seq 300); do [ -z "$(alive)" ] && break; sleep 0.1; done
left=$(alive)
[ -z "$left" ] || { kill -9 $left || true; fail "trainings outlive their ledger"; }
# Of at least 4,500 steps each: they were ended, not done.
for metrics in killed/runs/*/metrics.jsonl; do
  step=$(sed -n 's/^{"step":\([0-9]*\).*/\1/p' "$metrics" | tail -n 1)
  [ "${step:-0}" -lt 4000 ] || fail "a training went on to step $step"
done
# A script that does not exec: what it started ends with the ledger, too.
printf '#!/bin/sh\nsleep 300 &\necho $! >sleeping\nwait\n' >slow.sh && chmod +x slow.sh
for number in KILL TERM; do
  rm -f sleeping
  "$orthant" ledger rerun 1 --program slow.sh >out.txt 2>err.txt &
  ledger_process=$!
  for _ in $(seq 300); do [ -s sleeping ] && break; sleep 0.05; done
  trainings=$(cat sleeping)
  [ -n "$(alive)" ] || fail "the script runs nothing"
  kill -s $number $ledger_process
  wait $ledger_process 2>/dev/null || true
  for _ in $(seq 600); do [ -z "$(alive)" ] && break; sleep 0.05; done
  left=$(alive)
  [ -z "$left" ] || { kill -9 $left || true; fail "$number: what a script started outlives its ledger"; }
done

# ---- bits a byte: the same runs in another unit ----
mkdir -p bits && sed 's/tokens: 512}/tokens: 512, name: bits_per_byte}/; s/^looks.*/looks: {pairs: [2]}/' ledger/policy.yaml >bits/policy.yaml
succeed "$orthant" ledger fit --ledger bits --jobs 2
python3 - <<'PY' || fail "bits a byte"
import json, math
of = lambda path: {(r["seed"], r["budget"]): r["loss"] for r in map(json.loads, open(path)) if r["kind"] == "run" and r["change"] == "base"}
nats, bits = of("ledger/ledger.jsonl"), of("bits/ledger.jsonl")
meta = json.load(open("train.meta.json"))
for k, loss in bits.items():
    assert abs(loss / (nats[k] * meta["tokens"] / meta["text_bytes"] / math.log(2)) - 1) < 1e-12, (k, loss)
assert len(bits) == 6
PY

# ---- refusals ----
echo 'note: changed' >>ledger/changes/forged.yaml
expect 2 "was changed after it was registered" "$orthant" ledger look forged
expect 2 "no name" "$orthant" ledger add 'a b' --set seed=1
expect 2 "optimizer.lrr" "$orthant" ledger add typo --set optimizer.lrr=1
expect 2 "unknown action" "$orthant" ledger sell
succeed "$orthant" ledger add other --set data.sequence_length=8 --set batch.global_batch_size=16
succeed "$orthant" ledger run other --jobs 2
expect 1 "the pair is not exact: data_hash" "$orthant" ledger look other

# ---- a record that is damaged: told, and not shortened ----
mkdir damaged && cp -r ledger/. damaged && printf 'lines of zeros\0\n\0\n' >>damaged/ledger.jsonl
size=$(wc -c <damaged/ledger.jsonl) lines=$(wc -l <ledger/ledger.jsonl)
expect 1 "damaged/ledger.jsonl:$((lines + 1)): the line has a zero byte" "$orthant" ledger report --ledger damaged
expect 1 "zero byte" "$orthant" ledger add third --set seed=1 --ledger damaged
[ "$(wc -c <damaged/ledger.jsonl)" = "$size" ] || fail "lines after a zero byte are cut off"
rm damaged/ledger.jsonl && mkdir damaged/ledger.jsonl
expect 3 "not a regular file (damaged/ledger.jsonl)" "$orthant" ledger report --ledger damaged
sed 's/^base:.*/base: ""/' ledger/policy.yaml >damaged/policy.yaml
expect 2 "base: the RUN.yaml of the baseline is missing (damaged/policy.yaml)" "$orthant" ledger look slow --ledger damaged
sed 's/name: [a-z0-9]*/name: ..\/x/' ledger/policy.yaml >damaged/policy.yaml
expect 2 'ladder: "../x" is no name: ' "$orthant" ledger look slow --ledger damaged

# ---- one digit edited in the record ----
sed '5s/"loss":\([0-9]\)\./"loss":\1.9/' ledger/ledger.jsonl >edited && cp edited ledger/ledger.jsonl
expect 1 "ledger/ledger.jsonl:5: the line was changed" "$orthant" ledger look slow
if [ "${OT_TESTS:-}" = full ]; then
  cd "$source_dir" && tests/ledger/acceptance.sh "$orthant"
fi
echo "all passed"
