#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Evaluates a model with stock lm_eval through `orthant serve`, and compares every figure with `orthant score` and with
transformers on the same weights.

    tools/compare_lm_eval.py CHECKPOINT [--orthant build/orthant] [--lm-eval lm_eval] [--text FILE]

Three local tasks are made of the lines of FILE (default: LICENSE): multiple choice, perplexity, generation. lm_eval comes from
PyPI ("lm-eval[api]"); torch and transformers of this Python are used if they are there. All traffic stays on this machine.
Exit 0: all figures agree; 1: some do not."""
import argparse
import glob
import json
import math
import os
import subprocess
import sys
import tempfile

root = os.path.realpath(os.path.join(os.path.dirname(__file__), ".."))
parser = argparse.ArgumentParser()
parser.add_argument("checkpoint")
parser.add_argument("--orthant", default=os.path.join(root, "build", "orthant"))
parser.add_argument("--lm-eval", default="lm_eval")
parser.add_argument("--text", default=os.path.join(root, "LICENSE"))
parser.add_argument("--max-length", type=int, default=256)
options = parser.parse_args()
checkpoint = os.path.realpath(options.checkpoint)
orthant = os.path.realpath(options.orthant)
work = tempfile.mkdtemp()

# ---- tasks ----

lines = [" ".join(line.split()) for line in open(options.text, encoding="utf-8")]
lines = [line for line in lines if len(line.split()) >= 8][:24]


def document(i):
    words, other = lines[i].split(), lines[(i + 7) % len(lines)].split()
    half = len(words) // 2
    choices = [" " + " ".join(words[half:]), " " + " ".join(other[half:]), " " + " ".join(reversed(words[half:]))]
    turn = i % 3
    return {"question": " ".join(words[:half]), "choices": choices[-turn:] + choices[:-turn], "answer": turn, "text": lines[i]}


documents = [document(i) for i in range(len(lines))]
with open(os.path.join(work, "documents.jsonl"), "w", encoding="utf-8") as file:
    file.writelines(json.dumps(d) + "\n" for d in documents)

COMMON = """dataset_path: json
dataset_kwargs: {{data_files: {{test: {path}}}}}
test_split: test
metadata: {{version: 1.0}}
""".format(path=os.path.join(work, "documents.jsonl"))
TASKS = {
    "local_choice": """output_type: multiple_choice
doc_to_text: "{{question}}"
doc_to_choice: "{{choices}}"
doc_to_target: "{{answer}}"
target_delimiter: ""
metric_list:
  - {metric: acc, aggregation: mean, higher_is_better: true}
  - {metric: acc_norm, aggregation: mean, higher_is_better: true}
""",
    "local_perplexity": """output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{text}}"
metric_list:
  - {metric: word_perplexity}
  - {metric: byte_perplexity}
  - {metric: bits_per_byte}
""",
    "local_generation": """output_type: generate_until
doc_to_text: "{{question}}"
doc_to_target: "{{text}}"
generation_kwargs: {until: ["\\n", "."], max_gen_toks: 12}
metric_list:
  - {metric: exact_match, aggregation: mean, higher_is_better: true}
"""}
os.mkdir(os.path.join(work, "tasks"))
for name, text in TASKS.items():
    with open(os.path.join(work, "tasks", name + ".yaml"), "w", encoding="utf-8") as file:
        file.write("task: " + name + "\n" + COMMON + text)


# ---- lm_eval through the server ----

def run_lm_eval(clients, batch):
    out = os.path.join(work, "out-%d-%d" % (clients, batch))
    server = subprocess.Popen([orthant, "serve", checkpoint, "--port", "0", "--max-length", str(options.max_length)],
                              stdout=subprocess.PIPE, text=True)
    try:
        address = server.stdout.readline().strip()
        environment = dict(os.environ, HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", HF_HOME=os.path.join(work, "hf"))
        model = "base_url=%s/v1/completions,model=any,max_length=%d,num_concurrent=%d" % (address, options.max_length, clients)
        subprocess.run([options.lm_eval, "run", "--model", "local-completions", "--model_args", model, "--batch_size", str(batch),
                        "--tasks", ",".join(TASKS), "--include_path", os.path.join(work, "tasks"), "--output_path", out,
                        "--log_samples"], check=True, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    finally:
        server.terminate()
        server.wait()
    samples = {}
    for name in TASKS:
        path = glob.glob(os.path.join(out, "**", "samples_%s_*.jsonl" % name), recursive=True)[0]
        samples[name] = sorted((json.loads(line) for line in open(path, encoding="utf-8")), key=lambda s: s["doc_id"])
    results = json.load(open(glob.glob(os.path.join(out, "**", "results_*.json"), recursive=True)[0], encoding="utf-8"))
    return samples, results["results"]


failures = 0


def expect(name, same):
    global failures
    failures += not same
    print("%-64s %s" % (name, "the same" if same else "DIFFERENT"))


samples, results = run_lm_eval(1, 1)
many, _ = run_lm_eval(4, 8)
for name in TASKS:
    expect("lm_eval, %s: one request at a time, and 4 clients with 8" % name,
           [s["filtered_resps"] for s in samples[name]] == [s["filtered_resps"] for s in many[name]])


# ---- orthant score ----

def score(items):
    path = os.path.join(work, "score.jsonl")
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(item) + "\n" for item in items)
    text = subprocess.run([orthant, "score", checkpoint, path], check=True, capture_output=True, text=True).stdout
    return [json.loads(line) for line in text.splitlines()]


def numbers(response):
    return [[float(x[0]), str(x[1]) == "True"] if isinstance(x, (list, tuple)) else float(x) for x in response]


def plain_sum(values):
    total = 0.0
    for value in values:
        total += value
    return total


# The client encodes context and continuation together and cuts behind the context's tokens.
def pair(context, continuation):
    whole, alone = score([{"text": context + continuation}, {"text": context}])
    first = len(alone["tokens"])  # one token less is printed: the first has no score
    return whole["logprobs"][first:]


choice = [numbers(s["filtered_resps"]) for s in samples["local_choice"]]
ours = [[plain_sum(pair(d["question"], c)) for c in d["choices"]] for d in documents]
expect("choice: log-likelihoods of lm_eval and orthant score",
       [[x[0] for x in row] for row in choice] == ours)
picked = sum(max(range(3), key=row.__getitem__) == d["answer"] for row, d in zip(ours, documents)) / len(documents)
expect("choice: acc %.4f" % picked, results["local_choice"]["acc,none"] == picked)

eos = json.load(open(os.path.join(checkpoint, "config.json"), encoding="utf-8")) if os.path.isfile(
    os.path.join(checkpoint, "config.json")) else {}
rolling = [float(s["filtered_resps"][0]) for s in samples["local_perplexity"]]
texts = score([{"text": d["text"]} for d in documents])
print("perplexity: %s" % results["local_perplexity"]["word_perplexity,none"])


# ---- transformers ----

def with_transformers(directory):
    import torch
    import transformers
    model = transformers.AutoModelForCausalLM.from_pretrained(directory, torch_dtype=torch.float64).eval()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=os.path.join(directory, "tokenizer.json"))

    def logprobs(ids):
        with torch.no_grad():
            rows = torch.log_softmax(model(torch.tensor([ids])).logits[0].double(), -1)
        return [rows[i, ids[i + 1]].item() for i in range(len(ids) - 1)]

    def likelihood(context, continuation):
        first = len(tokenizer.encode(context, add_special_tokens=False))
        return sum(logprobs(tokenizer.encode(context + continuation, add_special_tokens=False))[first - 1:])

    worst = max(abs(likelihood(d["question"], c) - x[0])
                for d, row in zip(documents, choice) for c, x in zip(d["choices"], row))
    expect("choice: transformers in float64, largest difference %.2g nats" % worst, worst < 1e-3)
    prefix = results_eos(tokenizer)
    worst = max(abs(sum(logprobs([prefix] + tokenizer.encode(d["text"], add_special_tokens=False))) - x)
                for d, x in zip(documents, rolling))
    expect("perplexity: transformers in float64, largest difference %.2g nats" % worst, worst < 1e-3)

    def generate(text):
        ids = tokenizer.encode(text, add_special_tokens=False)
        made = []
        while len(made) < 12:
            with torch.no_grad():
                token = int(model(torch.tensor([ids + made])).logits[0, -1].argmax())
            if token == prefix:
                break
            made.append(token)
            shown = tokenizer.decode(ids + made)[len(tokenizer.decode(ids)):]
            stops = [shown.index(stop) for stop in ("\n", ".") if stop in shown]
            if stops:
                return shown[:min(stops)]
        return tokenizer.decode(ids + made)[len(tokenizer.decode(ids)):]

    made = [s["filtered_resps"][0] for s in samples["local_generation"]]
    expect("generation: texts of transformers", made == [generate(d["question"]) for d in documents])


def results_eos(tokenizer):
    for text in ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|eos|>"):
        if text in tokenizer.get_vocab():
            return tokenizer.get_vocab()[text]
    raise SystemExit("no end-of-text token")


# The rolling log-likelihood begins behind the end-of-text token, which `score` is given as ids.
def check_rolling(tokens_of_eos):
    items = [{"tokens": tokens_of_eos + [0] * 0 + full} for full in tokens]
    expect("perplexity: log-likelihoods of lm_eval and orthant score",
           [plain_sum(line["logprobs"]) for line in score(items)] == rolling)


directory = os.path.join(work, "hf-model")
subprocess.run([orthant, "convert", checkpoint, directory], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
try:
    with_transformers(directory)
except ImportError as missing:
    print("skipped: transformers (%s)" % missing)
sys.exit(failures > 0)
