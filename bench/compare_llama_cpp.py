#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Paired comparison of bench/decode with llama.cpp: GPT-2 124M, the same random weights, float32, A B A B ...

    python3 bench/compare_llama_cpp.py SOURCES BUILD [--threads 2] [--rounds 5] [--work FOLDER]

SOURCES is llama.cpp's source tree, BUILD a folder with its static libraries (cmake -DBUILD_SHARED_LIBS=OFF -DGGML_NATIVE=ON, target
llama). A small program against its C interface is compiled here. This Python needs numpy and gguf, llama.cpp's own writer of its
files. The weights are written twice, as a Hugging Face directory and as GGUF; first both score the same tokens, and the largest
difference is printed (llama.cpp takes GELU from a table in half precision). Each round runs `build/bench/decode --weights` and that
program, in turns; the table gives the median of each side and the median, lowest and highest of the ratios per round, ours / theirs:
above 1 ours is faster.

A prompt of --prompt tokens is read at once by one sequence (ours also gives the score of each token, theirs only the logits of the
last); then 1 and 8 sequences generate --tokens tokens each after --context tokens."""
import argparse
import glob
import json
import math
import os
import statistics
import subprocess
import tempfile

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), ".."))
LAYERS, WIDTH, HEADS, POSITIONS, VOCABULARY = 12, 768, 12, 1024, 50257
BATCHES = (1, 8)
SCORED = [(i * 7919 + 5) % VOCABULARY for i in range(48)]

# MODEL THREADS SEQUENCES CONTEXT TOKENS: the rates of prompt and generation; with TOKENS 0, log-probabilities of the prompt.
PROGRAM = r"""
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "llama.h"
static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
static void add(struct llama_batch *b, int token, int position, int sequence, int logits) {
  b->token[b->n_tokens] = token;
  b->pos[b->n_tokens] = position;
  b->n_seq_id[b->n_tokens] = 1;
  b->seq_id[b->n_tokens][0] = sequence;
  b->logits[b->n_tokens++] = (int8_t)logits;
}
static void quiet(enum ggml_log_level level, const char *text, void *context) {
  (void)level, (void)text, (void)context;
}
int main(int argc, char **argv) {
  if (argc != 6) return 1;
  const int threads = atoi(argv[2]), S = atoi(argv[3]), context = atoi(argv[4]), made = atoi(argv[5]);
  llama_log_set(quiet, NULL);
  llama_backend_init();
  struct llama_model *const model = llama_model_load_from_file(argv[1], llama_model_default_params());
  struct llama_context_params p = llama_context_default_params();
  p.n_ctx = (uint32_t)(S * (context + made + 1));
  p.n_batch = (uint32_t)(S * context);
  p.n_ubatch = 512;
  p.n_seq_max = (uint32_t)S;
  p.n_threads = p.n_threads_batch = threads;
  p.type_k = p.type_v = GGML_TYPE_F32;
  struct llama_context *const l = model ? llama_init_from_model(model, p) : NULL;
  if (!l) return 2;
  const int V = llama_vocab_n_tokens(llama_model_get_vocab(model));
  struct llama_batch b = llama_batch_init(S * context, 0, 1);
  for (int warm = 1; warm >= 0; warm--) {
    llama_memory_clear(llama_get_memory(l), true);
    b.n_tokens = 0;
    for (int s = 0; s < S; s++)
      for (int i = 0; i < context; i++) add(&b, (i * 7919 + 5 + s) % V, i, s, made == 0 || i + 1 == context);
    const double begin = now();
    if (llama_decode(l, b)) return 3;
    llama_synchronize(l);
    if (!warm && made > 0) printf("%.6g ", S * context / (now() - begin));
  }
  for (int i = 0; made == 0 && i + 1 < context; i++) {
    const float *const x = llama_get_logits_ith(l, i);
    double largest = x[0], sum = 0;
    for (int k = 0; k < V; k++) largest = x[k] > largest ? x[k] : largest;
    for (int k = 0; k < V; k++) sum += exp(x[k] - largest);
    printf("%.9f ", x[b.token[i + 1]] - largest - log(sum));
  }
  const double begin = now();
  for (int i = 0; i < made; i++) {
    b.n_tokens = 0;
    for (int s = 0; s < S; s++) add(&b, (i * 31 + s) % V, context + i, s, 1);
    if (llama_decode(l, b)) return 3;
    llama_synchronize(l);
  }
  if (made > 0) printf("%.6g", S * made / (now() - begin));
  return 0;
}
"""


def make_weights(numpy):
    random = numpy.random.default_rng(1)

    def matrix(rows, columns):
        return (random.standard_normal((rows, columns), dtype=numpy.float32) * 0.02).astype(numpy.float32)

    weights = {"wte.weight": matrix(VOCABULARY, WIDTH), "wpe.weight": matrix(POSITIONS, WIDTH)}
    ones, zeros = numpy.ones(WIDTH, numpy.float32), numpy.zeros(WIDTH, numpy.float32)
    for i in range(LAYERS):
        for norm in "ln_1", "ln_2":
            weights["h.%d.%s.weight" % (i, norm)], weights["h.%d.%s.bias" % (i, norm)] = ones, zeros
        for name, rows, columns in (("attn.c_attn", WIDTH, 3 * WIDTH), ("attn.c_proj", WIDTH, WIDTH),
                                    ("mlp.c_fc", WIDTH, 4 * WIDTH), ("mlp.c_proj", 4 * WIDTH, WIDTH)):
            weights["h.%d.%s.weight" % (i, name)] = matrix(rows, columns)  # stored as input x output
            weights["h.%d.%s.bias" % (i, name)] = numpy.zeros(columns, numpy.float32)
    weights["ln_f.weight"], weights["ln_f.bias"] = ones, zeros
    return weights


def write_hugging_face(folder, weights):
    header, offset = {}, 0
    for name, tensor in weights.items():
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [offset, offset + tensor.nbytes]}
        offset += tensor.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in weights.values():
            file.write(tensor.tobytes())
    config = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": VOCABULARY, "n_embd": WIDTH,
              "n_layer": LAYERS, "n_head": HEADS, "n_positions": POSITIONS, "activation_function": "gelu_new",
              "layer_norm_epsilon": 1e-5, "tie_word_embeddings": True}
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)


def write_gguf(path, weights, gguf):
    names = {"wte": "token_embd", "wpe": "position_embd", "ln_f": "output_norm", "ln_1": "attn_norm", "ln_2": "ffn_norm",
             "attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output", "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"}
    writer = gguf.GGUFWriter(path, "gpt2")
    writer.add_block_count(LAYERS)
    writer.add_context_length(POSITIONS)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(4 * WIDTH)
    writer.add_head_count(HEADS)
    writer.add_layer_norm_eps(1e-5)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_vocab_size(VOCABULARY)
    writer.add_tokenizer_model("none")
    for name, tensor in weights.items():
        stem, suffix = name.rsplit(".", 1)
        layer = ""
        if stem.startswith("h."):
            _, index, stem = stem.split(".", 2)
            layer = "blk.%s." % index
        product = ".c_" in "." + stem and suffix == "weight"
        writer.add_tensor("%s%s.%s" % (layer, names[stem], suffix), tensor.T.copy() if product else tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def run_ours(o, folder):
    words = [os.path.join(ROOT, "build/bench/decode"), "--weights", folder, "--threads", str(o.threads), "--slots", str(BATCHES[-1]),
             "--context", str(o.context), "--tokens", str(o.tokens), "--prompt", str(o.prompt), "--repeats", "1", "--json"]
    lines = [json.loads(line) for line in subprocess.run(words, check=True, capture_output=True, text=True).stdout.splitlines()]
    rates = {"prompt": next(line["tokens_per_second"] for line in lines if "prompt" in line)}
    rates.update({line["slots"]: line["tokens_per_second"] for line in lines if "slots" in line})
    return rates


def compile_theirs(o, folder):
    source, program = os.path.join(folder, "llama_cpp_speed.c"), os.path.join(folder, "llama_cpp_speed")
    with open(source, "w", encoding="utf-8") as file:
        file.write(PROGRAM)
    libraries = [name for name in glob.glob(os.path.join(o.build, "**", "lib*.a"), recursive=True)
                 if os.path.basename(name) in ("libllama.a", "libggml.a", "libggml-cpu.a", "libggml-base.a")]
    subprocess.run(["g++", "-O2", "-x", "c++", "-fpermissive", "-w", source, "-x", "none", "-I", os.path.join(o.sources, "include"),
                    "-I", os.path.join(o.sources, "ggml/include"), "-Wl,--start-group", *libraries, "-Wl,--end-group", "-fopenmp",
                    "-lpthread", "-ldl", "-o", program], check=True)
    return program


def call_theirs(program, path, *numbers):
    words = [program, path, *map(str, numbers)]
    return [float(x) for x in subprocess.run(words, check=True, capture_output=True, text=True).stdout.split()]


def run_theirs(o, program, path):
    rates = {b: call_theirs(program, path, o.threads, b, o.context, o.tokens)[1] for b in BATCHES}
    rates["prompt"] = call_theirs(program, path, o.threads, 1, o.prompt, 1)[0]
    return rates


# Both read the same weights.
def compare_scores(folder, program, path):
    line = os.path.join(folder, "line.jsonl")
    with open(line, "w", encoding="utf-8") as file:
        file.write(json.dumps({"tokens": SCORED}) + "\n")
    text = subprocess.run([os.path.join(ROOT, "build/orthant"), "score", folder, line], check=True, capture_output=True, text=True).stdout
    ours, theirs = json.loads(text)["logprobs"], call_theirs(program, path, 1, 1, len(SCORED), 0)
    worst = max(abs(a - b) for a, b in zip(ours, theirs))
    print("%d log-probabilities differ by at most %.1e nats" % (len(theirs), worst), flush=True)
    if len(ours) != len(theirs) or not worst < 5e-3 or math.isnan(worst):
        raise SystemExit("these are not the same models")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources")
    parser.add_argument("build")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--work", help="keeps the weights (1 GB)")
    o = parser.parse_args()
    import gguf
    import numpy
    with tempfile.TemporaryDirectory() as temporary:
        folder = o.work or temporary
        path = os.path.join(folder, "model.gguf")
        os.makedirs(folder, exist_ok=True)
        if not os.path.exists(path):
            weights = make_weights(numpy)
            write_hugging_face(folder, weights)
            write_gguf(path, weights, gguf)
        program = compile_theirs(o, folder)
        compare_scores(folder, program, path)
        rounds = []
        for i in range(o.rounds):
            sides = [lambda: run_ours(o, folder), lambda: run_theirs(o, program, path)]
            made = [side() for side in (sides if i % 2 == 0 else sides[::-1])]
            rounds.append(made if i % 2 == 0 else made[::-1])
    for key, name in [("prompt", "prompt of %d tokens" % o.prompt)] + [(b, "%d sequence%s" % (b, "s" * (b > 1))) for b in BATCHES]:
        ours, theirs = [r[0][key] for r in rounds], [r[1][key] for r in rounds]
        ratios = [a / b for a, b in zip(ours, theirs)]
        print("%-24s ours %8.1f tokens/s   llama.cpp %8.1f   ratio %.2f (%.2f to %.2f)"
              % (name, statistics.median(ours), statistics.median(theirs), statistics.median(ratios), min(ratios), max(ratios)))


if __name__ == "__main__":
    main()
