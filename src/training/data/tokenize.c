// SPDX-License-Identifier: Apache-2.0
// Windows of a large document are encoded separately, assuming that each starts at the start of a
// pre-token. The encoder of the previous window reports whether that holds
// (ot_encoder_encode_window); if not, both are encoded again as one in commit order, so the ids are
// those of the whole document.
#include "data/tokenize.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "data/bpe_train.h"
#include "data/corpus.h"
#include "data/shard_writer.h"
#include "host/cores.h"
#include "host/heap.h"
#include "tokenizer/encoder.h"
#include "tokenizer/special_tokens.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/unicode.h"

// The results of one thread for its block.
typedef struct worker {
  const char *key;
  int64_t eod;
  ot_encoder *encoder;
  ot_token_list ids;
  ot_token_list lengths;  // lines and documents: tokens of each, with eod
  int64_t text_bytes, invalid_bytes;
  const char *invalid_path;  // first file with such bytes; null: none
  bool counts_bad;           // lines of JSON
  ot_corpus_bad_lines bad;
  bool reached;  // window: a pre-token ends at its stop
} worker;

typedef struct output {
  ot_shard_writer *writer;
  int64_t eod;
  int64_t bad_lines_max;
  ot_tokenize_result *result;  // text_bytes, invalid and bad lines are summed here
  ot_buffer carry;             // text of windows with a pre-token across their end
  int64_t carry_target;        // bytes to collect before the next attempt
} output;

// ---- one block, on one thread ----

static void count_invalid(worker *w, const char *path, const void *text, int64_t length) {
  const int64_t count = ot_unicode_invalid_bytes(text, length);
  if (count > 0 && !w->invalid_path) w->invalid_path = path;
  w->invalid_bytes += count;
}

static ot_status encode_document(void *context, const char *text, int64_t length) {
  worker *const w = context;
  const int64_t before = w->ids.count;
  OT_TRY(ot_encoder_encode(w->encoder, text, length, &w->ids));
  const int32_t eod = (int32_t)w->eod;
  if (w->eod >= 0) OT_TRY(ot_token_list_append(&w->ids, &eod, 1));
  const int64_t count = w->ids.count - before;
  OT_CHECK(count < INT32_MAX, OT_ENVIRONMENT, "a document of %lld tokens is too long",
           (long long)count);
  const int32_t narrow = (int32_t)count;
  w->text_bytes += length;
  return ot_token_list_append(&w->lengths, &narrow, 1);
}

static ot_text_window window_of(const ot_buffer *text, int64_t stop, bool final) {
  return (ot_text_window){.text = text->data, .length = text->length, .stop = stop, .final = final};
}

static ot_status process(void *context, const ot_corpus_block *block) {
  worker *const w = context;
  w->ids.count = 0;
  w->lengths.count = 0;
  w->text_bytes = w->invalid_bytes = 0;
  w->invalid_path = NULL;
  w->bad.count = 0;
  if (block->kind == OT_CORPUS_LINES) {
    const ot_corpus_line_sink to = {.key = w->key,
                                    .sink = encode_document,
                                    .context = w,
                                    .bad = w->counts_bad ? &w->bad : NULL};
    return ot_corpus_read_lines(block, &to);
  }
  if (block->kind == OT_CORPUS_WINDOW) {
    const ot_text_window window = window_of(&block->text, block->stop, block->final);
    w->text_bytes = block->stop;
    count_invalid(w, block->path, block->text.data, block->stop);
    return ot_encoder_encode_window(w->encoder, &window, &w->ids, &w->reached);
  }
  int64_t start = 0;
  for (int64_t i = 0; i < block->num_documents; i++) {
    const int64_t length = block->ends[i] - start;
    count_invalid(w, block->paths[i], block->text.data + start, length);
    OT_TRY(encode_document(w, (const char *)block->text.data + start, length));
    start = block->ends[i];
  }
  return OT_OK;
}

// ---- commits, in order ----

static ot_status end_document(output *o) {
  const int32_t eod = (int32_t)o->eod;
  if (o->eod >= 0) OT_TRY(ot_shard_writer_append(o->writer, &eod, 1));
  return ot_shard_writer_end_document(o->writer);
}

// Adds the window to the collected text and, if there is enough, encodes that as one.
static ot_status retry_with_carry(output *o, worker *w, const ot_corpus_block *block) {
  const int64_t stop = o->carry.length + block->stop;
  OT_TRY(ot_buffer_append(&o->carry, block->text.data, block->text.length));
  w->reached = false;
  w->ids.count = 0;
  if (block->final || stop >= o->carry_target) {
    const ot_text_window window = window_of(&o->carry, stop, block->final);
    OT_TRY(ot_encoder_encode_window(w->encoder, &window, &w->ids, &w->reached));
    // Doubling keeps the work linear if a document has no place to split.
    o->carry_target = 2 * stop;
  }
  o->carry.length = w->reached ? 0 : stop;
  return OT_OK;
}

static ot_status commit_window(output *o, worker *w, const ot_corpus_block *block) {
  if (o->carry.length > 0) {
    OT_TRY(retry_with_carry(o, w, block));
  } else if (!w->reached) {
    OT_TRY(ot_buffer_append(&o->carry, block->text.data, block->stop));
    o->carry_target = 2 * block->stop;
  }
  if (w->reached) OT_TRY(ot_shard_writer_append(o->writer, w->ids.ids, w->ids.count));
  return block->final ? end_document(o) : OT_OK;
}

static ot_status add_bad_lines(const output *o, const worker *w) {
  ot_tokenize_result *const r = o->result;
  if (w->bad.count == 0) return OT_OK;
  if (r->bad_lines == 0) ot_text_format(r->bad_line, sizeof r->bad_line, "%s", w->bad.first);
  r->bad_lines += w->bad.count;
  if (r->bad_lines <= o->bad_lines_max) return OT_OK;
  ot_fail(OT_ENVIRONMENT, "%s; more than %lld lines are bad", w->bad.first,
          (long long)o->bad_lines_max);
  return ot_fail_hint(OT_ENVIRONMENT, "--skip-bad-lines N is the most lines to skip");
}

static ot_status commit(void *context, void *worker_of_block, const ot_corpus_block *block) {
  output *const o = context;
  worker *const w = worker_of_block;
  ot_tokenize_result *const r = o->result;
  OT_TRY(add_bad_lines(o, w));
  r->text_bytes += w->text_bytes;
  if (w->invalid_bytes > 0 && r->invalid_bytes == 0)
    ot_text_format(r->invalid_path, sizeof r->invalid_path, "%s", w->invalid_path);
  r->invalid_bytes += w->invalid_bytes;
  if (block->kind == OT_CORPUS_WINDOW) return commit_window(o, w, block);
  const int32_t *ids = w->ids.ids;
  for (int64_t i = 0; i < w->lengths.count; i++) {
    OT_TRY(ot_shard_writer_append(o->writer, ids, w->lengths.ids[i]));
    OT_TRY(ot_shard_writer_end_document(o->writer));
    ids += w->lengths.ids[i];
  }
  return OT_OK;
}

// ---- the run ----

typedef struct session {
  const ot_tokenize_request *request;
  ot_tokenizer *tokenizer;
  ot_corpus *corpus;
  int num_threads;
  worker *workers;  // [num_threads]
  void **pointers;  // [num_threads] to them
  output output;
} session;

static ot_status choose_eod(const session *s, int64_t *eod) {
  const ot_tokenize_request *const request = s->request;
  *eod = -1;
  if (request->no_eod) return OT_OK;
  *eod =
      request->eod ? ot_tokenizer_find(s->tokenizer, request->eod) : ot_tokenizer_eos(s->tokenizer);
  if (*eod >= 0) return OT_OK;
  if (request->eod) {
    return ot_fail(OT_USAGE, "the tokenizer has no token \"%s\" for the end of documents (%s)",
                   request->eod, request->tokenizer);
  }
  ot_fail(OT_USAGE, "the tokenizer does not define an end-of-text token (%s)", request->tokenizer);
  return ot_fail_hint(OT_USAGE, "set it with --eod, or use --no-eod for none");
}

static ot_status create_workers(session *s) {
  s->workers = calloc((size_t)s->num_threads, sizeof *s->workers);
  s->pointers = calloc((size_t)s->num_threads, sizeof *s->pointers);
  OT_CHECK(s->workers && s->pointers, OT_ENVIRONMENT, "out of memory (%d threads)", s->num_threads);
  for (int i = 0; i < s->num_threads; i++) {
    s->pointers[i] = &s->workers[i];
    s->workers[i].key = ot_corpus_key(s->corpus);
    s->workers[i].eod = s->output.eod;
    s->workers[i].counts_bad = s->request->skip_bad_lines > 0;
    OT_TRY(ot_encoder_create(s->tokenizer, &s->workers[i].encoder));
  }
  return OT_OK;
}

static void destroy_session(session *s) {
  for (int i = 0; s->workers && i < s->num_threads; i++) {
    ot_encoder_destroy(&s->workers[i].encoder);
    ot_token_list_release(&s->workers[i].ids);
    ot_token_list_release(&s->workers[i].lengths);
  }
  free(s->workers);
  free(s->pointers);
  ot_buffer_release(&s->output.carry);
  ot_shard_writer_destroy(&s->output.writer);
  ot_corpus_destroy(&s->corpus);
  ot_tokenizer_destroy(&s->tokenizer);
}

static ot_status write_shard(session *s, ot_tokenize_result *result) {
  const ot_corpus_job job = {.process = process,
                             .commit = commit,
                             .context = &s->output,
                             .workers = s->pointers,
                             .num_threads = s->num_threads};
  *result = (ot_tokenize_result){.eod = s->output.eod};
  s->output.result = result;
  s->output.bad_lines_max = s->request->skip_bad_lines;
  OT_TRY(ot_corpus_run(s->corpus, &job));
  const ot_corpus_skipped skipped = ot_corpus_skipped_files(s->corpus);
  result->documents = ot_shard_writer_documents(s->output.writer);
  result->tokens = ot_shard_writer_tokens(s->output.writer);
  result->files = ot_corpus_num_files(s->corpus) - skipped.count;
  result->skipped_files = skipped.count;
  if (skipped.first)
    ot_text_format(result->skipped_path, sizeof result->skipped_path, "%s", skipped.first);
  result->vocab_size = ot_tokenizer_vocab_size(s->tokenizer);
  ot_tokenizer_hash(s->tokenizer, result->tokenizer_hash);
  const bool is_file = strcmp(s->request->tokenizer, "bytes") != 0;
  char *const absolute = is_file ? realpath(s->request->tokenizer, NULL) : NULL;
  const ot_shard_meta meta = {
      .tokenizer = absolute ? absolute : s->request->tokenizer,
      .tokenizer_hash = result->tokenizer_hash,
      .vocab_size = result->vocab_size,
      .eod = result->eod,
      .sources = s->request->paths,
      .num_sources = s->request->num_paths,
      .num_files = result->files,
      .text_bytes = result->text_bytes,
  };
  const ot_status status = ot_shard_writer_commit(s->output.writer, &meta);
  free(absolute);
  return status;
}

static void note_tokenizer(const session *s, ot_tokenize_result *result) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  const int64_t all = ot_tokenizer_vocab_size(s->tokenizer);
  const char *const note = ot_tokenizer_note(s->tokenizer, all, &arena);
  ot_text_format(result->note, sizeof result->note, "%s", note ? note : "");
  ot_heap_release(&heap);
}

static ot_status run(session *s, ot_tokenize_result *result) {
  const ot_tokenize_request *const request = s->request;
  s->num_threads = request->num_threads > 0 ? request->num_threads : ot_host_cores();
  OT_TRY(ot_tokenizer_create(request->tokenizer, &s->tokenizer));
  OT_TRY(choose_eod(s, &s->output.eod));
  const ot_corpus_request corpus = {.paths = request->paths,
                                    .num_paths = request->num_paths,
                                    .key = request->key,
                                    .format = request->format,
                                    .splittable = ot_tokenizer_is_splittable(s->tokenizer),
                                    .window_bytes = request->window_bytes};
  OT_TRY(ot_corpus_create(&corpus, &s->corpus));
  OT_TRY(ot_shard_writer_create(request->out, ot_tokenizer_vocab_size(s->tokenizer),
                                &s->output.writer));
  OT_TRY(create_workers(s));
  OT_TRY(write_shard(s, result));
  note_tokenizer(s, result);
  return OT_OK;
}

static ot_status train_first(const ot_tokenize_request *request) {
  if (request->train_vocab <= 0) return OT_OK;
  const ot_bpe_train_request train = {.paths = request->paths,
                                      .num_paths = request->num_paths,
                                      .key = request->key,
                                      .format = request->format,
                                      .skips_bad_lines = request->skip_bad_lines > 0,
                                      .vocab_size = request->train_vocab,
                                      .num_threads = request->num_threads,
                                      .out = request->tokenizer};
  return ot_bpe_train_run(&train);
}

ot_status ot_tokenize_run(const ot_tokenize_request *request, ot_tokenize_result *result) {
  OT_TRY(train_first(request));
  session s = {.request = request};
  const ot_status status = run(&s, result);
  destroy_session(&s);
  return status;
}
