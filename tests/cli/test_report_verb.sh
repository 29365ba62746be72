#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run: any machine. `orthant report` and `orthant checkpoint` on a run that was killed and resumed:
# the account adds up, pages are well-formed, damage is found, exit codes.
set -euo pipefail
. tests/support/expect.sh
orthant=${1:?usage: test_report_verb.sh ORTHANT}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
source_dir=$PWD
cd "$work"
cp "$source_dir"/src/step/graph/graph.h text.txt
"$orthant" tokenize --tokenizer bytes --out train text.txt >/dev/null
cat >run.yaml <<'YAML'
model: {model_type: llama, vocab_size: 257, hidden_size: 24, intermediate_size: 40, num_hidden_layers: 2,
  num_attention_heads: 3, num_key_value_heads: 1, max_position_embeddings: 64}
data: {train: train, validation: {held: train}, validation_tokens: 512, tokenizer: bytes, sequence_length: 48}
batch: {global_batch_size: 6, micro_batch_size: 2}
steps: 6
checkpoint: {every: 2, keep: 0}
log: {health_every: 2}
threads: 1
output: a
YAML
"$orthant" train run.yaml 2>/dev/null
rm -r a/checkpoints/step-00000006
"$orthant" train run.yaml 2>/dev/null

succeed() { "$@" >out.txt 2>err.txt || { cat out.txt err.txt; fail "$* failed"; }; }

# A page: well-formed, without a number that is none, nothing from elsewhere.
check_page() {
  python3 - "$1" <<'PY' || fail "the page $1"
import re, sys, xml.etree.ElementTree as tree
text = open(sys.argv[1]).read()
root = tree.fromstring(text.replace("<!DOCTYPE html>", ""))
ids = [e.get("id") for e in root.iter() if e.get("id")]
assert len(ids) == len(set(ids)), ids
for e in root.iter():
    for key, value in e.attrib.items():
        if key in ("aria-label", "content", "lang"): continue
        assert not re.search(r"\b(nan|inf)\b", value, re.I), (e.tag, key, value)
        if key == "href": assert value[1:] in ids, value
    assert e.tag not in ("script", "link", "img"), e.tag
PY
}

expect 0 "page: page.html" "$orthant" report a --html page.html
for word in "a: finished, step 6 of 6" "goodput" "productive" "start at step 4 on 1 rank from checkpoint, 2 steps to repeat" \
  "(held)" "0, 1 restart, 2 steps repeated"; do
  grep -qF -- "$word" out.txt || { cat out.txt; fail "the report lacks \"$word\""; }
done
awk 'length($0) > 100 { exit 1 }' out.txt || fail "the report has a line of more than 100 columns"
check_page page.html
grep -qE '<title>Orthant run a: llama, [0-9.]+k parameters</title>' page.html &&
  grep -qE '<h1>a: llama, [0-9.]+k parameters</h1>' page.html || fail "the title is not the run's name and model"
succeed "$orthant" report "$PWD/./a/" --html other.html
grep -q '<title>Orthant run a: ' other.html || fail "the title is a path"
grep -q 'Health of the layers' page.html || fail "no health on the page"
expect 0 "charts: 11 files in made/charts" "$orthant" report a --svg made/charts
python3 - <<'PY' || fail "the charts as files"
import os, re, xml.etree.ElementTree as tree
svg = "{http://www.w3.org/2000/svg}"
names = sorted(os.listdir("made/charts"))
assert len(names) == 11, names
assert {"loss.svg", "gradient_norm.svg", "where_the_time_went.svg", "what_happened.svg"} <= set(names), names
page = open("page.html").read()
for name in names:
    text = open("made/charts/" + name).read()
    root = tree.fromstring(text)
    assert root.tag == svg + "svg" and root.get("width") and root.get("height"), name
    assert root.find(svg + "title").text, name
    style = root.find(svg + "style").text
    assert "var(" not in style and "prefers-color-scheme:dark" in style, name
    classes = {c for e in root.iter() for c in (e.get("class") or "").split()}
    assert classes <= set(re.findall(r"\.([a-z0-9-]+)", style)), (name, classes)
    assert "http" not in text.replace("http://www.w3.org/2000/svg", ""), name
    drawn = re.findall(r'd="([^"]+)"', text)
    assert all(d in page for d in drawn), name + " differs from the page"
keys = "".join(tree.parse("made/charts/loss.svg").getroot().itertext())
def drawn(kind): return [e.get("class") for e in tree.parse("made/charts/loss.svg").iter() if (e.get("class") or "").startswith(kind)]
assert drawn("curve ") == ["curve l-compute"], drawn("curve ")  # two validations are no line
assert drawn("dot ").count("dot c-dp") == 2 and drawn("dot ").count("dot c-compute") == 6, drawn("dot ")
assert "training: " in keys and "validation held: " in keys, keys
PY
"$orthant" report a --json >report.json
python3 - <<'PY' || fail "the account"
import json
r = json.load(open("report.json"))
g = r["goodput"]
assert abs(sum(g["seconds"].values()) - g["wall_seconds"]) < 1e-9 * g["wall_seconds"]
assert g["lost_steps"] == 2 and g["restarts"] == 1 and g["saves"] == 4 and g["failures"] == 0
assert g["seconds"]["lost"] > 0 and g["seconds"]["idle"] > 0 and g["seconds"]["validation"] > 0
lines = [json.loads(l) for l in open("a/metrics.jsonl")]
steps = sum(l["step_seconds"] for l in lines if "loss" in l)
assert abs(g["seconds"]["productive"] - steps) < 1e-9, (g, steps)
# The metrics tell it after each step, of the time until then: the run ends a little later.
goodput = [l["goodput"] for l in lines if "loss" in l]
assert all(0 < x < 1 for x in goodput), goodput
assert steps / g["wall_seconds"] <= goodput[-1] < 2 * steps / g["wall_seconds"], (goodput, g)
assert r["steps"] == 6 and r["checkpoints"] == [6, 4, 2] and r["state"] == "finished"
PY
expect 2 "both print on stdout" "$orthant" report a --json --html /dev/stdout
"$orthant" report a --html /dev/stdout >piped.html
check_page piped.html

# Runs without events, without steps, with values that are none, and with a damaged file.
mkdir old new odd
cp a/config.yaml a/metrics.jsonl old
cp a/config.yaml new
sed 's/"loss":[0-9.]*/"loss":null/; s/"step_seconds":[0-9.e-]*/"step_seconds":null/' a/metrics.jsonl >odd/metrics.jsonl
for run in old new odd; do
  succeed "$orthant" report $run --html $run.html
  check_page $run.html
  "$orthant" report $run --json | python3 -m json.tool >/dev/null || fail "JSON of $run"
done
"$orthant" report old | found "no event log" || fail "a run without events has an account"
"$orthant" report new | found "not started" || fail "a run without steps has begun"
cp -r a torn
printf '{"event":"moon","time":1}\n{"event":"sto' >>torn/events.jsonl
succeed "$orthant" report torn
sed -i 2s/:/:,/ torn/metrics.jsonl
expect 3 "torn/metrics.jsonl:2: not a line of metrics" "$orthant" report torn
sed -i '3s/"time"/"tame"/' torn/events.jsonl
expect 3 "torn/events.jsonl:3: \"time\" is not a number" "$orthant" report torn
expect 2 "is not a run directory" "$orthant" report .
expect 2 "missing is not a directory" "$orthant" report missing
expect 3 "absent/page.html" "$orthant" report a --html absent/page.html

# Checkpoints.
"$orthant" checkpoint list a >list.txt
[ "$(grep -c 'complete$' list.txt)" = 3 ] || { cat list.txt; fail "list"; }
succeed "$orthant" checkpoint verify a
succeed "$orthant" checkpoint diff a a/checkpoints/step-00000006
grep -q "weights: 2[0-9] of 2[0-9] tensors have the same bits$" out.txt || { cat out.txt; fail "diff of one with itself"; }
"$orthant" train run.yaml --set output=b --set optimizer.lr=1e-4 --set steps=2 2>/dev/null
"$orthant" checkpoint diff a b --json >diff.json
python3 - <<'PY' || fail "diff"
import json
d = json.load(open("diff.json"))
assert [k["b"] for k in d["config"] if k["key"] == "optimizer.lr"] == [1e-4], d["config"]
assert not d["equal"] and {g["group"] for g in d["groups"]} >= {"weights", "m", "v"}
assert all(g["equal"] < g["tensors"] and g["max_absolute"] > 0 for g in d["groups"])
PY
cp -r a bad
printf '\x7f' | dd of=bad/checkpoints/step-00000004/optimizer.safetensors bs=1 seek=20003 conv=notrunc 2>/dev/null
succeed "$orthant" checkpoint list bad
expect 1 "1 of 3 checkpoints is damaged" "$orthant" checkpoint verify bad
grep -q "step-00000004/optimizer.safetensors differs from its manifest: bytes" out.txt || { cat out.txt; fail "no place"; }
expect 1 "damaged" "$orthant" checkpoint verify bad --json
grep -q '"state": "damaged"' out.txt || fail "no damage in JSON"
# The damaged one does not count, so both others are the newest two that are right.
succeed "$orthant" checkpoint prune bad --keep 1
[ "$(ls bad/checkpoints | wc -l)" = 3 ] || fail "prune removed one of the newest two that are right"
succeed "$orthant" checkpoint prune a --keep 1 --dry-run
grep -q "would remove a/checkpoints/step-00000002" out.txt || { cat out.txt; fail "dry run"; }
[ -d a/checkpoints/step-00000002 ] || fail "a dry run removed a checkpoint"
exec 9>a/.lock; flock 9
expect 3 "in use" "$orthant" checkpoint prune a --keep 1
exec 9>&-
succeed "$orthant" checkpoint prune a --keep 1
[ "$(ls a/checkpoints | grep -c step-)" = 2 ] && [ ! -d a/checkpoints/step-00000002 ] || fail "prune"
expect 2 "neither a run directory nor a checkpoint" "$orthant" checkpoint list "$source_dir/src"
expect 2 'unknown action "show"' "$orthant" checkpoint show a
expect 2 "prune needs --keep N" "$orthant" checkpoint prune a
expect 2 "diff compares two checkpoints" "$orthant" checkpoint diff a
expect 2 "--keep" "$orthant" checkpoint prune a --keep 0
