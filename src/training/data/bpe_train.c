// SPDX-License-Identifier: Apache-2.0
// Threads count words into their own tables; then merges counts, learns, writes.
#include "data/bpe_train.h"

#include <stdlib.h>
#include <string.h>

#include "data/corpus.h"
#include "files/output_file.h"
#include "host/cores.h"
#include "host/heap.h"
#include "tokenizer/encoder.h"

typedef struct counter {
  const char *key;
  ot_encoder *encoder;
  ot_word_count *words;
  bool skips_bad;  // lines of JSON
  ot_corpus_bad_lines bad;
} counter;

static ot_status count_piece(void *context, const uint8_t *piece, int64_t length) {
  counter *const c = context;
  return ot_word_count_add(c->words, (ot_word){.bytes = piece, .length = length, .count = 1});
}

static ot_status count_document(void *context, const char *text, int64_t length) {
  counter *const c = context;
  const ot_text_window whole = {
      .text = (const uint8_t *)text, .length = length, .stop = length, .final = true};
  bool reached;
  return ot_encoder_split_window(c->encoder, &whole, count_piece, c, &reached);
}

static ot_status count_block(void *context, const ot_corpus_block *block) {
  counter *const c = context;
  if (block->kind == OT_CORPUS_LINES) {
    const ot_corpus_line_sink to = {
        .key = c->key, .sink = count_document, .context = c, .bad = c->skips_bad ? &c->bad : NULL};
    return ot_corpus_read_lines(block, &to);
  }
  if (block->kind == OT_CORPUS_WINDOW) {
    const ot_text_window window = {.text = block->text.data,
                                   .length = block->text.length,
                                   .stop = block->stop,
                                   .final = block->final};
    bool reached;
    return ot_encoder_split_window(c->encoder, &window, count_piece, c, &reached);
  }
  int64_t start = 0;
  for (int64_t i = 0; i < block->num_documents; i++) {
    OT_TRY(count_document(c, (const char *)block->text.data + start, block->ends[i] - start));
    start = block->ends[i];
  }
  return OT_OK;
}

typedef struct session {
  const ot_bpe_train_request *request;
  ot_tokenizer *splitter;  // of the 256 bytes: only its pre-tokenizer is used
  ot_corpus *corpus;
  int num_threads;
  counter *counters;  // [num_threads]
  void **pointers;    // [num_threads] to them
} session;

static ot_status create_splitter(ot_tokenizer **out) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_word_count *none = NULL;
  ot_learned_bpe learned;
  ot_buffer json = {0};
  ot_status status = ot_word_count_create(&none);
  if (status == OT_OK) status = ot_bpe_learn(none, 256, &arena, &learned);
  if (status == OT_OK) status = ot_tokenizer_write_learned(&learned, &json);
  if (status == OT_OK) {
    status =
        ot_tokenizer_create_from_json((const char *)json.data, json.length, "BPE training", out);
  }
  ot_word_count_destroy(&none);
  ot_buffer_release(&json);
  ot_heap_release(&heap);
  return status;
}

static ot_status create_counters(session *s) {
  s->counters = calloc((size_t)s->num_threads, sizeof *s->counters);
  s->pointers = calloc((size_t)s->num_threads, sizeof *s->pointers);
  OT_CHECK(s->counters && s->pointers, OT_ENVIRONMENT, "out of memory (%d threads)",
           s->num_threads);
  for (int i = 0; i < s->num_threads; i++) {
    s->pointers[i] = &s->counters[i];
    s->counters[i].key = ot_corpus_key(s->corpus);
    s->counters[i].skips_bad = s->request->skips_bad_lines;
    OT_TRY(ot_encoder_create(s->splitter, &s->counters[i].encoder));
    OT_TRY(ot_word_count_create(&s->counters[i].words));
  }
  return OT_OK;
}

static void destroy_session(session *s) {
  for (int i = 0; s->counters && i < s->num_threads; i++) {
    ot_encoder_destroy(&s->counters[i].encoder);
    ot_word_count_destroy(&s->counters[i].words);
  }
  free(s->counters);
  free(s->pointers);
  ot_corpus_destroy(&s->corpus);
  ot_tokenizer_destroy(&s->splitter);
}

static ot_status write_learned(const char *path, const ot_word_count *words, int64_t vocab_size) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_buffer json = {0};
  ot_learned_bpe learned;
  ot_status status = ot_bpe_learn(words, vocab_size - 1, &arena, &learned);
  if (status == OT_OK) status = ot_tokenizer_write_learned(&learned, &json);
  if (status == OT_OK) status = ot_output_file_replace(path, json.data, json.length);
  ot_buffer_release(&json);
  ot_heap_release(&heap);
  return status;
}

static ot_status run(session *s) {
  const ot_bpe_train_request *const request = s->request;
  OT_TRY(create_splitter(&s->splitter));
  const ot_corpus_request corpus = {.paths = request->paths,
                                    .num_paths = request->num_paths,
                                    .key = request->key,
                                    .format = request->format,
                                    .splittable = true};
  OT_TRY(ot_corpus_create(&corpus, &s->corpus));
  OT_TRY(create_counters(s));
  const ot_corpus_job job = {
      .process = count_block, .workers = s->pointers, .num_threads = s->num_threads};
  OT_TRY(ot_corpus_run(s->corpus, &job));
  for (int i = 1; i < s->num_threads; i++) {
    OT_TRY(ot_word_count_add_all(s->counters[0].words, s->counters[i].words));
    ot_word_count_destroy(&s->counters[i].words);
  }
  return write_learned(request->out, s->counters[0].words, request->vocab_size);
}

ot_status ot_bpe_train_run(const ot_bpe_train_request *request) {
  OT_CHECK(request->vocab_size >= 257 && request->vocab_size <= 1 << 24, OT_USAGE,
           "vocabulary size %lld is out of range; allowed: 257 (bytes and end of text) to %d",
           (long long)request->vocab_size, 1 << 24);
  OT_CHECK(strcmp(request->out, "bytes") != 0, OT_USAGE,
           "\"bytes\" is a built-in tokenizer; name an output file for the trained one");
  OT_CHECK(!ot_output_file_is_stream(request->out), OT_ENVIRONMENT,
           "not a regular file, but the trained tokenizer must be read back (%s)", request->out);
  session s = {.request = request, .num_threads = request->num_threads};
  if (s.num_threads <= 0) s.num_threads = ot_host_cores();
  const ot_status status = run(&s);
  destroy_session(&s);
  return status;
}
