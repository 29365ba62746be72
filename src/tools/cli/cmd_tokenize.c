// SPDX-License-Identifier: Apache-2.0
// `orthant tokenize`: text files to a token shard.
#include <stdio.h>
#include <time.h>

#include "base/json_writer.h"
#include "base/text.h"
#include "cli/verbs.h"
#include "data/tokenize.h"

static double now_s(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void print_json(const ot_tokenize_request *request, const ot_tokenize_result *result,
                       double seconds, ot_arena *arena) {
  ot_json_writer json = ot_json_begin(arena, 0);
  ot_json_object(&json, NULL);
  ot_json_text(&json, "out", request->out);
  ot_json_text(&json, "tokenizer", request->tokenizer);
  ot_json_text(&json, "tokenizer_xxh3_128", result->tokenizer_hash);
  ot_json_integer(&json, "vocab_size", result->vocab_size);
  ot_json_integer(&json, "eod", result->eod);
  ot_json_integer(&json, "files", result->files);
  ot_json_integer(&json, "documents", result->documents);
  ot_json_integer(&json, "tokens", result->tokens);
  ot_json_integer(&json, "text_bytes", result->text_bytes);
  ot_json_integer(&json, "invalid_utf8_bytes", result->invalid_bytes);
  ot_json_integer(&json, "bad_lines", result->bad_lines);
  ot_json_integer(&json, "skipped_files", result->skipped_files);
  ot_json_real(&json, "seconds", seconds);
  ot_json_end(&json);
  puts(json.text);
}

static void print_summary(const ot_tokenize_request *request, const ot_tokenize_result *result,
                          double seconds) {
  const double bytes = (double)result->text_bytes;
  printf("%s.bin: %lld tokens in %lld document%s from %lld file%s\n", request->out,
         (long long)result->tokens, (long long)result->documents,
         ot_text_plural(result->documents, "s"), (long long)result->files,
         ot_text_plural(result->files, "s"));
  printf("%.0f bytes of text, %.2f bytes a token; %.1f s, %.1f MB/s\n", bytes,
         result->tokens > 0 ? bytes / (double)result->tokens : 0.0, seconds,
         seconds > 0 ? bytes / seconds / 1e6 : 0.0);
}

static void print_notes(const ot_tokenize_request *request, const ot_tokenize_result *result) {
  if (result->note[0] != '\0') fprintf(stderr, "note: %s\n", result->note);
  if (request->train_vocab > result->vocab_size) {
    fprintf(stderr, "note: the text has enough pairs only for a vocabulary of %lld\n",
            (long long)result->vocab_size);
  }
  if (result->invalid_bytes > 0) {
    const bool one = result->invalid_bytes == 1;
    fprintf(stderr,
            "note: %lld %s not valid UTF-8 and kept as %s, not as U+FFFD; the first is in %s\n",
            (long long)result->invalid_bytes, one ? "byte is" : "bytes are",
            one ? "it is" : "they are", result->invalid_path);
  }
  if (result->bad_lines > 0) {
    fprintf(stderr, "note: %lld line%s skipped, the first is %s\n", (long long)result->bad_lines,
            result->bad_lines == 1 ? " was" : "s were", result->bad_line);
  }
  if (result->skipped_files > 0) {
    fprintf(stderr,
            "note: %lld file%s skipped as not text; the first is %s (--format text takes their "
            "bytes)\n",
            (long long)result->skipped_files, result->skipped_files == 1 ? " was" : "s were",
            result->skipped_path);
  }
}

static ot_status tokenize(const ot_options *options) {
  ot_arena *const arena = ot_options_arena(options);
  const int num_paths = ot_options_num_arguments(options);
  const char **const paths = ot_arena_array(arena, num_paths, sizeof *paths);
  for (int i = 0; i < num_paths; i++) paths[i] = ot_options_argument(options, i);
  const ot_tokenize_request request = {
      .tokenizer = ot_options_text(options, "tokenizer"),
      .out = ot_options_text(options, "out"),
      .paths = paths,
      .num_paths = num_paths,
      .key = ot_options_text(options, "key"),
      .format = (ot_corpus_format)ot_options_choice(options, "format"),
      .skip_bad_lines = ot_options_integer(options, "skip-bad-lines"),
      .eod = ot_options_text(options, "eod"),
      .no_eod = ot_options_flag(options, "no-eod"),
      .num_threads = (int)ot_options_integer(options, "threads"),
      .train_vocab = ot_options_integer(options, "train-vocab"),
  };
  OT_CHECK(!request.eod || !request.no_eod, OT_USAGE, "--eod and --no-eod contradict each other");
  const double start = now_s();
  ot_tokenize_result result;
  OT_TRY(ot_tokenize_run(&request, &result));
  const double seconds = now_s() - start;
  print_notes(&request, &result);
  if (ot_options_json(options)) {
    print_json(&request, &result, seconds, arena);
  } else {
    print_summary(&request, &result, seconds);
  }
  return OT_OK;
}

static const ot_option rows[] = {
    {"tokenizer", OT_OPTION_PATH, "FILE|bytes", .required = true,
     .help = "tokenizer.json, a folder with one or with vocab.json and merges.txt, or bytes"},
    {"out", OT_OPTION_PATH, "PREFIX", .required = true,
     .help = "writes PREFIX.bin, PREFIX.idx and PREFIX.meta.json"},
    {"train-vocab", OT_OPTION_INTEGER, "N", NULL, 257, 1 << 24,
     .help = "first train a byte-level BPE of N entries on the files and write it to --tokenizer"},
    {"key", OT_OPTION_TEXT, "KEY", "text", .help = "key of the text in lines of JSON"},
    {"format", OT_OPTION_CHOICE, "auto|lines|text", "auto",
     .help = "what the files are: lines of JSON, or each one text; auto: by content and name"},
    {"skip-bad-lines", OT_OPTION_INTEGER, "N", "0", 0, INT64_MAX,
     .help = "skip and count up to N lines of JSON that are damaged or have no text; 0: none"},
    {"eod", OT_OPTION_TEXT, "TOKEN", .help = "end-of-document token; default: the tokenizer's own"},
    {"no-eod", OT_OPTION_FLAG, .help = "append no end-of-document token"},
    {"threads", OT_OPTION_INTEGER, "N", NULL, 1, 4096,
     .help = "threads; the result does not depend on it [all processors]"},
};

const ot_verb ot_verb_tokenize = {
    .name = "tokenize",
    .summary = "text files to a token shard (Megatron .bin and .idx)",
    .arguments = "FILE...",
    .min_arguments = 1,
    .max_arguments = -1,
    .details =
        "Each text FILE is one document. A file has one document per line if its name says so\n"
        "(.jsonl, .ndjson, .jl) or if its first line is a JSON object with the key; where name "
        "and\n"
        "content contradict each other, --format says what it is. What gzip or Zstandard "
        "compressed\n"
        "is read; a folder is traversed in the order of names, without files that are not text.\n"
        "Each document is followed by one end-of-document id; nothing is prepended. Bytes that "
        "are\n"
        "not valid UTF-8 are kept, each as a token of its own, and counted.",
    .examples =
        "  orthant tokenize --tokenizer bytes --out data/train book.txt\n"
        "  orthant tokenize --tokenizer bpe.json --train-vocab 4k --out data/c src/\n"
        "  orthant tokenize --tokenizer gpt2/ --skip-bad-lines 100 --out data/web web.jsonl.zst",
    .options = rows,
    .num_options = OT_COUNT(rows),
    .json = true,
    .run = tokenize,
};
