#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run: any machine. `orthant judge` on one record and on two: exit codes, JSON, the page, and where
# each of them is written.
set -euo pipefail
. tests/support/expect.sh
orthant=${1:?usage: test_judge_verb.sh ORTHANT}
records=$PWD/tests/fixtures/judge
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# A page: well-formed, without a number that is none, nothing from elsewhere.
check_page() {
  python3 - "$1" <<'PY' || fail "the page $1"
import re, sys, xml.etree.ElementTree as tree
root = tree.fromstring(open(sys.argv[1]).read().replace("<!DOCTYPE html>", ""))
ids = [e.get("id") for e in root.iter() if e.get("id")]
assert len(ids) == len(set(ids)), ids
for e in root.iter():
    assert e.tag not in ("script", "link", "img"), e.tag
    for key, value in e.attrib.items():
        if key == "href": assert value[1:] in ids, value
        if key not in ("aria-label", "content", "lang"): assert not re.search(r"\b(nan|inf)\b", value), value
PY
}

expect 0 "page: clean.html" "$orthant" judge "$records/llama_bf16" --html clean.html
check_page clean.html
grep -q "<h1>No finding</h1>" clean.html || fail "the heading of a clean step"
expect 1 "page: found.html" "$orthant" judge "$records/qwen3_tp_unreduced" --html found.html
check_page found.html
grep -q "<h1>missing_reduction over tp</h1>" found.html || fail "the heading of a finding"
expect 1 "page: both.html" "$orthant" judge "$records/qwen3_fp32" "$records/qwen3_tp_unreduced" --html both.html
check_page both.html
[ "$(grep -c 'self_attn.q_norm.weight: 1.37M own errors</title>' both.html)" = 2 ] || fail "the maps of two records"

# The page alone on standard output; with --json it needs a file.
"$orthant" judge "$records/llama_bf16" --html /dev/stdout >piped.html
check_page piped.html
expect 2 "both print on stdout" "$orthant" judge "$records/llama_bf16" --json --html /dev/stdout
expect 3 "absent/page.html" "$orthant" judge "$records/llama_bf16" --html absent/page.html

"$orthant" judge "$records/llama_fp32" --json >one.json
"$orthant" judge "$records/llama_fp32" "$records/llama_ddp_means" --json >two.json && fail "a finding has exit code 0"
python3 - "$records" <<'PY' || fail "the documents"
import json, sys
one, two = json.load(open("one.json")), json.load(open("two.json"))
keys = ["verdict", "step", "parts", "findings", "sensitivity", "not_decided", "tensors"]
assert list(one) == keys, list(one)
assert len(one["tensors"]) == 21 and all(0 < t["ratio"] < 4 for t in one["tensors"])
assert list(two) == keys[:-1] + ["records", "difference"], list(two)
assert two["verdict"] == "finding" and two["findings"][0]["record"] == 2
assert two["findings"][0]["what"] == two["records"][1]["findings"][0]["what"] == "mean_of_means"
assert [r["record"] for r in two["records"]] == [sys.argv[1] + "/llama_fp32", sys.argv[1] + "/llama_ddp_means"]
assert [r["verdict"] for r in two["records"]] == ["clean", "finding"]
assert all("record" not in f for r in two["records"] for f in r["findings"])
d = two["difference"]
assert d["departs"] == [2] and not d["same_values"] and not d["same_layout"] and d["same_types"] and d["same_software"]
for t, first, second in zip(d["tensors"], two["records"][0]["tensors"], two["records"][1]["tensors"]):
    assert t["name"] == first["name"] == second["name"] and t["ratios"] == [first["ratio"], second["ratio"]]
    assert t["ratios"][0] < 4 and t["ratios"][1] > 1e5 and abs(t["difference"] / t["ratios"][1] - 1) < 1e-4 and t["elements"] > 0
# The report of the first record is the one that it has alone.
alone = dict(two["records"][0])
del alone["record"]
assert {k: alone[k] for k in ("verdict", "step", "parts", "findings")} == {k: one[k] for k in ("verdict", "step", "parts", "findings")}
PY
expect 2 "the optimizer's weight_decay of" "$orthant" judge "$records/llama_fp32" "$records/llama_decay"
expect 3 "missing" "$orthant" judge "$records/llama_fp32" missing
