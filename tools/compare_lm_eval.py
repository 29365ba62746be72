#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Evaluates a model with stock lm_eval through `orthant serve`, and compares every figure with `orthant score` and with
transformers on the same weights.

    tools/compare_lm_eval.py CHECKPOINT [--orthant build/orthant] [--lm-eval lm_eval] [--text FILE]

Four local tasks are made of lines of FILE (default: LICENSE): multiple choice with the choices as they are and with the
usual delimiter before them, perplexity, generation. lm_eval comes from PyPI
("lm-eval[api]"); torch and transformers of this Python are used if they are there. All traffic stays on this machine.
Exit 0: all figures agree; 1: some do not."""
import argparse
import glob
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.request

CLIENT = {"acc": "acc,none", "acc_norm": "acc_norm,none", "words": "word_perplexity,none", "bytes": "byte_perplexity,none", "bits": "bits_per_byte,none"}
MADE = 12  # tokens generated
COMMON = """dataset_path: json
dataset_kwargs: {data_files: {test: %s}}
test_split: test
metadata: {version: 1.0}
"""
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
    "local_spaced": """output_type: multiple_choice
doc_to_text: "{{question}}"
doc_to_choice: "{{stripped}}"
doc_to_target: "{{answer}}"
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
generation_kwargs: {until: ["\\n", "."], max_gen_toks: %d}
metric_list:
  - {metric: exact_match, aggregation: mean, higher_is_better: true}
""" % MADE}


def make_documents(path):
    lines = [" ".join(line.split()) for line in open(path, encoding="utf-8")]
    lines = [line for line in lines if len(line.split()) >= 8][:24]
    made = []
    for i, line in enumerate(lines):
        words, other = line.split(), lines[(i + 7) % len(lines)].split()
        half = len(words) // 2
        choices = [" " + " ".join(words[half:]), " " + " ".join(other[half:]), " " + " ".join(reversed(words[half:]))]
        turn = i % 3
        choices = choices[-turn:] + choices[:-turn] if turn else choices
        made.append({"question": " ".join(words[:half]), "choices": choices, "stripped": [c[1:] for c in choices],
                     "answer": turn, "text": line})
    return made


class Comparison:
    def __init__(self, options):
        self.options = options
        self.work = tempfile.mkdtemp()
        self.failures = 0
        self.documents = make_documents(options.text)
        path = os.path.join(self.work, "documents.jsonl")
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(d) + "\n" for d in self.documents)
        os.mkdir(os.path.join(self.work, "tasks"))
        for name, text in TASKS.items():
            with open(os.path.join(self.work, "tasks", name + ".yaml"), "w", encoding="utf-8") as file:
                file.write("task: %s\n" % name + COMMON % path + text)

    def expect(self, name, same):
        self.failures += not same
        print("%-88s %s" % (name, "yes" if same else "NO"), flush=True)

    # ---- lm_eval through the server ----

    def lm_eval(self, clients, batch):
        o = self.options
        out = os.path.join(self.work, "out-%d" % clients)
        server = subprocess.Popen([o.orthant, "serve", o.checkpoint, "--port", "0", "--max-length", str(o.max_length)],
                                  stdout=subprocess.PIPE, text=True)
        try:
            address = server.stdout.readline().strip()
            self.info = json.load(urllib.request.urlopen(address + "/tokenizer_info"))
            self.begin = self.info["bos_token"] or self.info["eos_token"]
            request = urllib.request.Request(address + "/tokenize", json.dumps({"prompt": self.begin}).encode(),
                                             {"Content-Type": "application/json"})
            self.prefix = json.load(urllib.request.urlopen(request))["tokens"]
            environment = dict(os.environ, HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", HF_HOME=os.path.join(self.work, "hf"))
            model = "base_url=%s/v1/completions,model=any,max_length=%d,num_concurrent=%d" % (address, o.max_length, clients)
            done = subprocess.run([o.lm_eval, "run", "--model", "local-completions", "--model_args", model, "--batch_size",
                                   str(batch), "--tasks", ",".join(TASKS), "--include_path", os.path.join(self.work, "tasks"),
                                   "--output_path", out, "--log_samples"], env=environment, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True)
            if done.returncode:
                raise SystemExit("lm_eval failed:\n" + done.stdout[-3000:])
        finally:
            server.terminate()
            server.wait()
        samples = {}
        for name in TASKS:
            path = glob.glob(os.path.join(out, "**", "samples_%s_*.jsonl" % name), recursive=True)[0]
            read = [json.loads(line) for line in open(path, encoding="utf-8")]
            samples[name] = [s["filtered_resps"] for s in sorted(read, key=lambda s: s["doc_id"])]
        results = json.load(open(glob.glob(os.path.join(out, "**", "results_*.json"), recursive=True)[0], encoding="utf-8"))
        return samples, results["results"]

    # ---- orthant score ----

    def score(self, items):
        path = os.path.join(self.work, "score.jsonl")
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(item) + "\n" for item in items)
        text = subprocess.run([self.options.orthant, "score", self.options.checkpoint, path], check=True, capture_output=True,
                              text=True).stdout
        return [json.loads(line) for line in text.splitlines()]

    # The client encodes context and continuation together, and cuts behind as many tokens as the context alone has.
    def our_choices(self):
        items = []
        for d in self.documents:
            items += [{"context": "", "continuation": d["question"]}]
            items += [{"text": d["question"] + c} for c in d["choices"]]
        lines = self.score(items)
        rows = []
        for i in range(0, len(lines), 4):
            first = len(lines[i]["tokens"])  # the first token of a text is not among those scored
            rows.append([sum(line["logprobs"][first:]) for line in lines[i + 1:i + 4]])
        return rows

    def our_texts(self):
        lines = self.score([{"text": d["text"]} for d in self.documents])
        first = self.score([{"tokens": self.prefix * 2}])  # the ids of whole texts come from lines with a context
        assert len(first[0]["tokens"]) == 1
        ids = [line["tokens"] for line in self.score([{"context": self.begin, "continuation": d["text"]}
                                                      for d in self.documents])]
        assert all(len(i) == len(line["tokens"]) + 1 for i, line in zip(ids, lines))
        return [sum(line["logprobs"]) for line in self.score([{"tokens": self.prefix + i} for i in ids])]

    def compare_with_score(self, samples, results):
        theirs = [[float(x[0]) for x in row] for row in samples["local_choice"]]
        ours = self.our_choices()
        self.expect("choice: log-likelihoods are those of orthant score, to the last digit", theirs == ours)
        right = [max(range(3), key=row.__getitem__) == d["answer"] for row, d in zip(ours, self.documents)]
        accuracy = sum(right) / len(right)
        self.expect("choice: acc is %.4f" % accuracy, results["local_choice"][CLIENT["acc"]] == accuracy)
        rolling = [float(row[0] if isinstance(row, list) else row) for row in samples["local_perplexity"]]
        ours = self.our_texts()
        self.expect("perplexity: log-likelihoods are those of orthant score, to the last digit", rolling == ours)
        words = sum(len(d["text"].split()) for d in self.documents)
        size = sum(len(d["text"].encode()) for d in self.documents)
        figures = {"words": math.exp(-sum(ours) / words), "bytes": math.exp(-sum(ours) / size),
                   "bits": -sum(ours) / size / math.log(2)}
        for name, value in figures.items():
            found = results["local_perplexity"][CLIENT[name]]
            self.expect("perplexity: %s is %.6f" % (CLIENT[name], value), math.isclose(found, value, rel_tol=1e-12))
        return theirs, rolling

    # ---- orthant score --tasks, whose figures are those of `evaluate:` in a run ----

    def our_tasks(self):
        def write(name, lines):
            path = os.path.join(self.work, name + ".jsonl")
            with open(path, "w", encoding="utf-8") as file:
                file.writelines(json.dumps(line) + "\n" for line in lines)
            return path

        paths = [write("choice", [{"context": d["question"], "choices": d["choices"], "answer": d["answer"], "delimiter": ""}
                                  for d in self.documents]),
                 write("spaced", [{"context": d["question"], "choices": d["choices"], "answer": d["answer"]}
                                  for d in self.documents]),
                 write("delimited", [{"context": d["question"], "choices": d["stripped"], "answer": d["answer"], "delimiter": " "}
                                     for d in self.documents]),
                 write("perplexity", [{"text": d["text"]} for d in self.documents])]
        text = subprocess.run([self.options.orthant, "score", self.options.checkpoint, "--tasks", *paths], check=True,
                              capture_output=True, text=True).stdout
        return {line["task"]: line for line in map(json.loads, text.splitlines())}

    def compare_tasks(self, results):
        ours = self.our_tasks()
        for name, theirs in ("choice", "local_choice"), ("spaced", "local_spaced"), ("delimited", "local_spaced"):
            for figure in "acc", "acc_norm":
                value = ours[name][figure]
                self.expect("tasks: %s of %s is %.4f" % (figure, name, value), results[theirs][CLIENT[figure]] == value)
        for figure, name in ("bits_per_byte", "bits"), ("word_perplexity", "words"):
            value, found = ours["perplexity"][figure], results["local_perplexity"][CLIENT[name]]
            self.expect("tasks: %s is %.6f" % (figure, value), math.isclose(found, value, rel_tol=1e-12))

    # ---- transformers ----

    def compare_with_transformers(self, choices, rolling, made):
        import torch
        import transformers
        directory = os.path.join(self.work, "model")
        subprocess.run([self.options.orthant, "convert", self.options.checkpoint, directory], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        model = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float64).eval()
        tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=os.path.join(directory, "tokenizer.json"))

        def encode(text):
            return tokenizer.encode(text, add_special_tokens=False)

        def logits(ids):
            with torch.no_grad():
                return model(torch.tensor([ids])).logits[0].double()

        def likelihood(ids, first):
            rows = torch.log_softmax(logits(ids), -1)
            return sum(rows[i - 1, ids[i]].item() for i in range(first, len(ids)))

        worst = max(abs(likelihood(encode(d["question"] + c), len(encode(d["question"]))) - x)
                    for d, row in zip(self.documents, choices) for c, x in zip(d["choices"], row))
        self.expect("choice: transformers in float64, largest difference %.1e nats" % worst, worst < 1e-3)
        worst = max(abs(likelihood(self.prefix + encode(d["text"]), 1) - x) for d, x in zip(self.documents, rolling))
        self.expect("perplexity: transformers in float64, largest difference %.1e nats" % worst, worst < 1e-3)

        ends = model.generation_config.eos_token_id
        ends = ends if isinstance(ends, list) else [ends]

        def generate(text):
            ids, new = encode(text), []
            while len(new) < MADE:
                token = int(logits(ids + new)[-1].argmax())
                if token in ends:
                    break
                new.append(token)
                shown = tokenizer.decode(new)
                stops = [shown.index(stop) for stop in ("\n", ".") if stop in shown]
                if stops:
                    return shown[:min(stops)]
            return tokenizer.decode(new)

        expected = [generate(d["question"]) for d in self.documents]
        self.expect("generation: %d texts are those of transformers, greedy" % len(made), made == expected)


def main():
    root = os.path.realpath(os.path.join(os.path.dirname(__file__), ".."))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("--orthant", default=os.path.join(root, "build", "orthant"))
    parser.add_argument("--lm-eval", default="lm_eval")
    parser.add_argument("--text", default=os.path.join(root, "LICENSE"))
    parser.add_argument("--max-length", type=int, default=256)
    c = Comparison(parser.parse_args())
    samples, results = c.lm_eval(1, 1)
    many, _ = c.lm_eval(4, 8)
    c.expect("one request at a time, and 4 clients with batches of 8: the same answers", samples == many)
    choices, rolling = c.compare_with_score(samples, results)
    c.compare_tasks(results)
    made = [row[0] if isinstance(row, list) else row for row in samples["local_generation"]]
    try:
        c.compare_with_transformers(choices, rolling, made)
    except ImportError as missing:
        print("skipped: transformers (%s)" % missing)
    shutil.rmtree(c.work)
    sys.exit(c.failures > 0)


if __name__ == "__main__":
    main()
