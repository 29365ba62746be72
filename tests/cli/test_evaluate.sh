#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run: any machine. Evaluation during training: the figures of a step are those of `orthant score` on
# its checkpoint, to the last digit, on every mesh and in every precision; an evaluated run has the
# bits of one that is not. The figures follow from the lines of `orthant score` and from the texts of
# `orthant sample`, here by Python.
set -euo pipefail
. tests/support/expect.sh
orthant=${1:?usage: test_evaluate.sh ORTHANT}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
source_dir=$PWD
cd "$work"

"$orthant" tokenize --tokenizer bytes --out train "$source_dir"/src/step/graph/graph.h >/dev/null
cat >run.yaml <<'YAML'
model: {model_type: llama, vocab_size: 257, hidden_size: 24, intermediate_size: 40, num_hidden_layers: 2,
  num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 64, tie_word_embeddings: true}
data: {train: train, tokenizer: bytes, sequence_length: 48}
batch: {global_batch_size: 4, micro_batch_size: 1}
optimizer: {lr: 2e-2}
steps: 5
learning_rate: {warmup_steps: 1}
checkpoint: {every: 1, keep: 0}
threads: 1
YAML
cat >words.jsonl <<'TASK'
{"context": "static int64_t ", "choices": ["count", "zzzqq", "12"], "answer": 0}
{"context": "// A graph of ", "choices": ["%%%%", "the model"], "answer": 1}
{"context": "", "choices": ["int", "%%%%%%%%%", "ééé"], "answer": 2}
TASK
cat >texts.jsonl <<'TASK'
{"text": "// The placement of a value on the ranks of a mesh is a type: see the table of rules, one row for each kind of op, at the end."}
{"text": "int x = 3;"}
TASK
cat >made.jsonl <<'TASK'
{"prompt": "int", "answer": ["64_t", "x"], "stop": [";", "\n"], "max_tokens": 8}
{"prompt": "// ", "answer": "the", "stop": " "}
{"prompt": "", "answer": "nothing", "max_tokens": 4}
TASK
tasks="words.jsonl texts.jsonl made.jsonl"
evaluate='evaluate={every: 2, tasks: {words: words.jsonl, texts: texts.jsonl, made: made.jsonl}}'

# The figures of `orthant score` as lines of metrics.jsonl.
figures() { # CHECKPOINT STEP
  "$orthant" score "$1" --tasks $tasks | sed 's/^{"task":"\([a-z]*\)",/\1 /; s/}$//' |
    awk -v step="$2" '{ n = split($2, f, ","); for (i = 1; i <= n; i++) { sub(/"/, "\"evaluate/" $1 "/", f[i])
      print "{\"step\":" step "," f[i] "}" } }'
}

# ---- every mesh, every precision: the figures of the checkpoint ----
"$orthant" train run.yaml --set output=plain 2>/dev/null
check() { # NAME OPTIONS...
  local name=$1
  shift
  "$orthant" train run.yaml --set output="$name" --set "$evaluate" "$@" 2>"$name.txt" ||
    fail "$name: $(tail -2 "$name.txt")"
  for step in 2 5; do
    diff <(figures "$name/checkpoints/step-0000000$step" $step) \
      <(grep "\"step\":$step,\"evaluate/" "$name/metrics.jsonl") ||
      fail "$name: the figures of step $step differ"
  done
  [ "$(grep -c '"step":0,"evaluate/' "$name/metrics.jsonl")" = 7 ] || fail "$name: not before the first step"
  [ "$(grep -c '"event":"evaluation"' "$name/events.jsonl")" = 4 ] || fail "$name: events"
}
check one
grep -aq 'evaluate/words/acc_norm' one/tensorboard/events.* || fail "no figures for TensorBoard"
"$orthant" report one --json | found '"name": "texts/bits_per_byte"' || fail "no figures in the report"
check tp2 --ranks 2 --set parallel.tp=2
check dp2pp2 --ranks 4 --set parallel.pp=2 --set parallel.zero=3
check stages --ranks 4 --set parallel.tp=2 --set evaluate.stages=2
check all --ranks 4 --set parallel.pp=2 --set parallel.zero=3 --set evaluate.stages=4
expect 2 "evaluate.stages=3: it must divide the 4 ranks and be at most 4" \
  "$orthant" train run.yaml --ranks 4 --set "$evaluate" --set evaluate.stages=3 --set output=none
check bf16 --ranks 2 --set precision.compute=bf16

# ---- no bit of training changes ----
for file in model optimizer; do
  cmp plain/checkpoints/step-00000005/$file.safetensors one/checkpoints/step-00000005/$file.safetensors
done
# The cadence may change when a run goes on.
"$orthant" train run.yaml --set output=part --set "$evaluate" --set steps=2 2>/dev/null
"$orthant" train run.yaml --set output=part --set steps=5 2>/dev/null || fail "evaluate cannot be removed"

# ---- the figures by Python ----
cat >check.py <<'PY'
import json, math, subprocess, sys
orthant, checkpoint = sys.argv[1:]
def run(*words):
    return subprocess.run([orthant, *words], check=True, capture_output=True, text=True).stdout
def read(path):
    return [json.loads(line) for line in open(path, encoding="utf-8")]
def score(tokens, first):
    with open("line.jsonl", "w") as file:
        file.write(json.dumps({"tokens": tokens}) + "\n")
    return sum(json.loads(run("score", checkpoint, "line.jsonl"))["logprobs"][first - 1:])
got = {}
for line in run("score", checkpoint, "--tasks", "words.jsonl", "texts.jsonl", "made.jsonl").splitlines():
    line = json.loads(line)
    got[line.pop("task")] = line
def near(a, b):
    assert math.isclose(a, b, rel_tol=1e-12), (a, b)
right = norm = nats = 0
for q in read("words.jsonl"):
    context = q["context"].rstrip()
    before = list(context.encode()) or [256]
    whole = (q["context"] + " ")[:len(q["context"])]
    rows = []
    for choice in q["choices"]:
        ids = ([] if context else [256]) + list((whole + choice).encode())
        rows.append(score(ids, len(before)))
    right += rows.index(max(rows)) == q["answer"]
    per = [row / len(c) for row, c in zip(rows, q["choices"])]
    norm += per.index(max(per)) == q["answer"]
    nats -= rows[q["answer"]]
near(got["words"]["acc"], right / 3)
near(got["words"]["acc_norm"], norm / 3)
near(got["words"]["answer_nats"], nats / 3)
# Rolling windows of the model's 64 positions, each token scored once, as lm-evaluation-harness has them.
total = size = words = count = 0
for t in read("texts.jsonl"):
    ids = list(t["text"].encode())
    done = 0
    while done < len(ids):
        n = min(63, len(ids) - done)
        end = done + n
        window = ([256] + ids)[max(0, end - 63) if done else 0:end + 1]
        total += score(window, len(window) - n)
        done = end
    size += len(ids)
    count += len(ids)
    words += len(t["text"].split(" "))
near(got["texts"]["bits_per_byte"], -total / size / math.log(2))
near(got["texts"]["word_perplexity"], math.exp(-total / words))
near(got["texts"]["token_nats"], -total / count)
same = 0
for g in read("made.jsonl"):
    stop = g.get("stop", [])
    made = json.loads(run("sample", checkpoint, "--prompt", g["prompt"], "--temperature", "0", "--max-tokens",
                          str(g.get("max_tokens", 64 - len(g["prompt"]) + 1)), "--json"))["text"]
    for s in [stop] if isinstance(stop, str) else stop:
        made = made.split(s)[0]
    answers = g["answer"] if isinstance(g["answer"], list) else [g["answer"]]
    same += made.strip() in answers
near(got["made"]["exact_match"], same / 3)
PY
if command -v python3 >/dev/null; then python3 check.py "$orthant" one || fail "figures differ from Python's"; fi
# A task whose answer is what the model writes has an exact match.
text=$("$orthant" sample one --prompt int --temperature 0 --max-tokens 5 --json | sed -n 's/.*"text": \(".*"\),$/\1/p')
printf '{"prompt": "int", "answer": ["-", %s], "max_tokens": 5}\n' "$text" >own.jsonl
[ "$("$orthant" score one --tasks own.jsonl)" = '{"task":"own","exact_match":1}' ] || fail "no exact match: $text"

# ---- special tokens: a directory with a beginning of its own and two ends ----
if command -v python3 >/dev/null; then
  cat >special.py <<'PY'
import json, math, os, re, shutil, subprocess, sys
orthant, checkpoint = sys.argv[1], "first/checkpoints/step-00000001"
def run(*words):
    return subprocess.run([orthant, *words], check=True, capture_output=True, text=True).stdout
def make():
    text = json.load(open("one/checkpoints/step-00000002/tokenizer.json"))
    del text["model"]["vocab"]["<|endoftext|>"]
    # The ids of the file are those of `tokenizers`; its last token has no row in the model.
    text["added_tokens"] = [{"id": 256 + i, "content": name, "special": True, "normalized": False}
                            for i, name in enumerate(["<bos>", "<end>", "<turn>", "<image>"])]
    os.makedirs("tok", exist_ok=True)
    json.dump(text, open("tok/tokenizer.json", "w"))
    json.dump({"bos_token": "<bos>", "eos_token": "<turn>", "chat_template": "{{ messages }}"}, open("tok/tokenizer_config.json", "w"))
    json.dump({"eos_token_id": [257, 258]}, open("tok/generation_config.json", "w"))
    with open("spaced.jsonl", "w") as file:
        for context, choices, answer in spaced:
            file.write(json.dumps({"context": context, "choices": [" " + c for c in choices], "answer": answer}) + "\n")
    with open("split.jsonl", "w") as file:
        for context, choices, answer in spaced:
            file.write(json.dumps({"context": context, "choices": choices, "answer": answer, "delimiter": " "}) + "\n")
    with open("wide.jsonl", "w") as file:
        file.write("".join(json.dumps({"text": t}) + "\n" for t in wide))
spaced = [("int", ["a", "count the", "x y z w"], 0), ("// a graph", ["of", "of the schedule", "zzzq"], 1), ("", ["a", "int"], 1)]
wide = ["one\u00a0two\u3000\u2003three\x1cfour", " a\n"]
def score(ids):
    with open("line.jsonl", "w") as file:
        file.write(json.dumps({"tokens": ids}) + "\n")
    return json.loads(run("score", checkpoint, "line.jsonl"))["logprobs"]
def check():
    saved = {name: json.load(open(checkpoint + "/" + name)) for name in
             ("config.json", "generation_config.json", "tokenizer_config.json")}
    assert saved["tokenizer_config.json"] == json.load(open("tok/tokenizer_config.json")), saved
    assert sorted(saved["config.json"]["eos_token_id"]) == [257, 258] and saved["config.json"]["bos_token_id"] == 256, saved
    assert saved["generation_config.json"]["eos_token_id"] == [258, 257], saved
    figures = {}
    for line in map(json.loads, run("score", checkpoint, "--tasks", "spaced.jsonl", "split.jsonl", "wide.jsonl").splitlines()):
        figures[line.pop("task")] = line
    # The figures of the run, to the last digit.
    for line in map(json.loads, open("first/metrics.jsonl")):
        for key, value in line.items():
            if key.startswith("evaluate/") and line["step"] == 1:
                assert figures[key.split("/")[1]][key.split("/")[2]] == value, (key, value, figures)
    assert figures["spaced"] == figures["split"], figures
    norm = plain = 0
    for context, choices, answer in spaced:
        sums = []
        for c in choices:
            ids = list((context + " " + c).encode())
            sums.append(sum(score(ids)[len(context) - 1:] if context else score([256] + ids)))
        per = [s / len(c) for s, c in zip(sums, choices)]
        norm += per.index(max(per)) == answer
        plain += sums.index(max(sums)) == answer
    assert math.isclose(figures["spaced"]["acc_norm"], norm / 3) and math.isclose(figures["spaced"]["acc"], plain / 3), figures
    total = sum(sum(score([256] + list(t.encode()))) for t in wide)
    words = sum(len(re.split(r"\s+", t)) for t in wide)
    assert math.isclose(figures["wide"]["word_perplexity"], math.exp(-total / words), rel_tol=1e-12), (figures, words)
    check_ends()
def check_ends():
    shutil.copytree(checkpoint, "hf", ignore=shutil.ignore_patterns("manifest.json", "optimizer*"))
    def tokens():
        return json.loads(run("sample", "hf", "--prompt", "int", "--seed", "3", "--max-tokens", "6", "--json"))["tokens"]
    before = tokens()
    assert len(before) == 6, before
    # An ordinary token ends texts where the directory itself says so.
    cut = next(i for i in range(1, 6) if before[i] not in before[:i])
    for name in "config.json", "generation_config.json":
        text = json.load(open("hf/" + name))
        json.dump(dict(text, eos_token_id=[258, before[cut]]), open("hf/" + name, "w"))
        assert tokens() == before[:cut], (name, before, tokens())
        json.dump(text, open("hf/" + name, "w"))
make() if sys.argv[2] == "make" else check()
PY
  python3 special.py "$orthant" make
  "$orthant" tokenize --tokenizer tok --out special "$source_dir"/src/step/graph/graph.h >/dev/null
  grep -q '"eod": *258' special.meta.json || fail "documents do not end with the tokenizer's own end"
  special="--set data.train=special --set data.tokenizer=tok --set model.vocab_size=259 --set model.eos_token_id=257"
  "$orthant" train run.yaml $special --set steps=1 --set output=first \
    --set 'evaluate={tasks: {spaced: spaced.jsonl, split: split.jsonl, wide: wide.jsonl}}' 2>first.txt || fail "$(tail -2 first.txt)"
  [ "$(grep -c 'has 260 entries, the model only 259' first.txt)" = 1 ] || fail "no note on the row that is missing"
  python3 special.py "$orthant" check || fail "special tokens"
  printf '{"text": "a <image> here"}\n' >image.jsonl
  expect 2 'image.jsonl:1: the text has the token "<image>" (id 259)' "$orthant" score first --tasks image.jsonl
fi

# ---- what is wrong is named by file and line, before anything is written ----
refuse() { # LINE TEXT
  printf '{"text": "right"}\n%s\n' "$1" >wrong.jsonl
  expect 2 "$2" "$orthant" train run.yaml --set output=none --set evaluate.tasks=wrong.jsonl
  grep -q '^error: .*wrong.jsonl:2' err.txt || fail "no line is named: $(cat err.txt)"
  [ ! -e none ] || fail "a run with wrong tasks was begun"
}
refuse '{"text": 5}' 'needs "text"'
refuse '{"context": "a", "choices": ["b", "c"], "answer": 0}' 'one kind a file'
refuse '{"txt": "a"}' 'needs "choices"'
refuse '{"text": "a"' 'not valid JSON'
printf '{"context": "a", "choices": ["b", "c"], "answer": 2}\n' >wrong.jsonl
expect 2 'wrong.jsonl:1: "answer" is not the index of a choice, 0 to 1' "$orthant" score one --tasks wrong.jsonl
printf '{"prompt": "a", "answer": "b", "max_tokens": 65}\n' >wrong.jsonl
expect 2 'wrong.jsonl:1: "max_tokens" is not from 1 to 64' "$orthant" score one --tasks wrong.jsonl
expect 2 'data.tokenizer' "$orthant" train run.yaml --set output=none --set data.tokenizer=null --set "$evaluate"

# ---- told before: the number of evaluations, their memory ----
"$orthant" train run.yaml --set output=none --set "$evaluate" --dry-run --json 2>dry.txt >dry.json
grep -q '^evaluation: 14 sequences, .*; 4 in the run' dry.txt || fail "the dry run does not tell: $(cat dry.txt)"
grep -q '"evaluations": 4' dry.json || fail "no evaluations in JSON"
"$orthant" train run.yaml --set output=none --set "$evaluate" --set evaluate.stages=2 --ranks 2 --dry-run 2>dry.txt
grep -q '^evaluation: .* on each machine, in pipelines of 2 ranks' dry.txt || fail "no stages: $(cat dry.txt)"
"$orthant" train run.yaml --set output=none --set "$evaluate" --set cluster=h100 --dry-run 2>dry.txt
grep -q '^evaluation: .* tokens, [0-9.e-]* s if none begin alike; 4 in' dry.txt || fail "no predicted time: $(cat dry.txt)"
# `simulate` says the same.
"$orthant" train run.yaml --set output=none --set "$evaluate" --set cluster=h100 --dry-run --json 2>/dev/null >dry.json
"$orthant" simulate run.yaml --set "$evaluate" --cluster h100 --json >simulated.json
seconds() { sed -n 's/^ *"evaluation_seconds": \([0-9.e-]*\),*$/\1/p' "$1"; }
grep -q '"evaluations": 4' simulated.json || fail "evaluations: $(grep evaluation simulated.json)"
awk -v a="$(seconds dry.json)" -v b="$(seconds simulated.json)" 'BEGIN { exit !(a > 0 && a - b < 1e-9 * a && b - a < 1e-9 * a) }' ||
  fail "dry run: $(seconds dry.json) s, simulated: $(seconds simulated.json) s"
