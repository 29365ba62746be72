// SPDX-License-Identifier: Apache-2.0
// Speed of tokenizers on one thread: bytes of text encoded per second, with each line as a document
// or the whole text as one. Tokenizers alternate; the median of the rounds is reported.
// bench/compare_tokenizers.py compares with HF tokenizers.
//   bench/encode [--text FILE] [--rounds K] [--lines] [--json] [TOKENIZER...]
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/json_writer.h"
#include "files/disk.h"
#include "host/heap.h"
#include "support/bench_program.h"
#include "tokenizer/tokenizer.h"

enum { MAX_TOKENIZERS = 32, MAX_ROUNDS = 100 };

typedef struct subject {
  const char *path;
  ot_tokenizer *tokenizer;
  ot_encoder *encoder;
  int64_t tokens;
  double seconds[MAX_ROUNDS];
} subject;

typedef struct encoding {
  char *text;
  int64_t bytes;
  int rounds;
  bool lines;
  ot_token_list ids;
  subject subjects[MAX_TOKENIZERS];
  int num_subjects;
} encoding;

static double now_s(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static int by_value(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median_s(const encoding *e, subject *s) {
  qsort(s->seconds, (size_t)e->rounds, sizeof *s->seconds, by_value);
  return s->seconds[e->rounds / 2];
}

static ot_status encode(encoding *e, subject *s) {
  e->ids.count = 0;
  if (!e->lines) return ot_encoder_encode(s->encoder, e->text, e->bytes, &e->ids);
  for (int64_t at = 0, length; at < e->bytes; at += length + 1) {
    const char *const newline = memchr(e->text + at, '\n', (size_t)(e->bytes - at));
    length = newline ? newline - (e->text + at) : e->bytes - at;
    OT_TRY(ot_encoder_encode(s->encoder, e->text + at, length, &e->ids));
  }
  return OT_OK;
}

static ot_status measure(encoding *e) {
  // The first round fills caches and is not counted.
  for (int round = -1; round < e->rounds; round++) {
    for (int i = 0; i < e->num_subjects; i++) {
      subject *const s = &e->subjects[i];
      const double start = now_s();
      OT_TRY(encode(e, s));
      if (round >= 0) s->seconds[round] = now_s() - start;
      s->tokens = e->ids.count;
    }
  }
  return OT_OK;
}

static void report(encoding *e) {
  printf("%-40s %10s %10s\n", "tokenizer", "MB/s", "tokens");
  for (int i = 0; i < e->num_subjects; i++) {
    subject *const s = &e->subjects[i];
    printf("%-40s %10.1f %10lld\n", ot_disk_base_name(s->path),
           1e-6 * (double)e->bytes / median_s(e, s), (long long)s->tokens);
  }
}

static void report_json(encoding *e, ot_arena *arena) {
  ot_json_writer w = ot_json_begin(arena, 2);
  ot_json_object(&w, NULL);
  ot_json_integer(&w, "bytes", e->bytes);
  ot_json_array(&w, "tokenizers");
  for (int i = 0; i < e->num_subjects; i++) {
    subject *const s = &e->subjects[i];
    ot_json_object(&w, NULL);
    ot_json_text(&w, "path", s->path);
    ot_json_integer(&w, "tokens", s->tokens);
    ot_json_real(&w, "seconds", median_s(e, s));
    ot_json_end(&w);
  }
  ot_json_end(&w);
  ot_json_end(&w);
  puts(w.text);
}

static ot_status add(encoding *e, const char *path) {
  subject *const s = &e->subjects[e->num_subjects++];
  s->path = path;
  OT_TRY(ot_tokenizer_create(path, &s->tokenizer));
  return ot_encoder_create(s->tokenizer, &s->encoder);
}

static ot_status run_all(const ot_options *options, ot_arena *arena, encoding *e) {
  static const char *const fixtures[] = {"gpt2",    "llama3", "qwen", "llama2",
                                         "mistral", "gemma",  "t5",   "xlmr"};
  OT_TRY(ot_disk_read(arena, ot_options_text(options, "text"), INT64_MAX, &e->text, &e->bytes));
  e->rounds = (int)ot_options_integer(options, "rounds");
  e->lines = ot_options_flag(options, "lines");
  const int given = ot_options_num_arguments(options);
  for (int i = 0; i < given; i++) OT_TRY(add(e, ot_options_argument(options, i)));
  for (int i = 0; i < OT_COUNT(fixtures) && given == 0; i++) {
    OT_TRY(add(e, ot_arena_format(arena, OT_SOURCE_DIR "/tests/fixtures/tokenizers/%s.json",
                                  fixtures[i])));
  }
  OT_TRY(measure(e));
  if (ot_options_json(options)) {
    report_json(e, arena);
  } else {
    report(e);
  }
  return OT_OK;
}

static ot_status run_program(const ot_options *options) {
  static encoding e;
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  const ot_status status = run_all(options, &arena, &e);
  for (int i = 0; i < e.num_subjects; i++) {
    ot_encoder_destroy(&e.subjects[i].encoder);
    ot_tokenizer_destroy(&e.subjects[i].tokenizer);
  }
  ot_token_list_release(&e.ids);
  ot_heap_release(&heap);
  return status;
}

static const ot_option rows[] = {
    {.name = "text",
     .kind = OT_OPTION_PATH,
     .value = "FILE",
     .fallback = OT_SOURCE_DIR "/LICENSE",
     .help = "text to encode"},
    {.name = "rounds",
     .kind = OT_OPTION_INTEGER,
     .value = "K",
     .fallback = "9",
     .minimum = 1,
     .maximum = MAX_ROUNDS,
     .help = "number of times each tokenizer encodes it"},
    {.name = "lines", .kind = OT_OPTION_FLAG, .help = "each line is a document of its own"},
};

const ot_verb ot_bench_program = {
    .prefix = OT_BENCH_PREFIX,
    .name = "encode",
    .summary = "bytes of text per second that tokenizers encode on one thread",
    .arguments = "[TOKENIZER...]",
    .max_arguments = MAX_TOKENIZERS,
    .details = "Default: the small tokenizers of the tests.",
    .examples = "  bench/encode --text corpus.txt model/tokenizer.json",
    .options = rows,
    .num_options = OT_COUNT(rows),
    .json = true,
    .run = run_program,
};
