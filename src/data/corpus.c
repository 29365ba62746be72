// SPDX-License-Identifier: Apache-2.0
// Cuts files into blocks. What was read beyond the end of a block waits in `rest` and begins the
// next one.
#include "data/corpus.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "data/corpus_files.h"
#include "data/text_file.h"
#include "host/heap.h"

enum { WINDOW_BYTES = 1 << 20, LOOK_AHEAD_BYTES = 4096, READ_BYTES = 1 << 16 };

struct ot_corpus {
  ot_heap heap;
  ot_file_list files;
  const char *key;
  bool splittable;
  int64_t window_bytes;
  int64_t next_file;
  int64_t next_index;
  int64_t next_line;
  ot_text_file *file;  // null between files
  const char *path;    // of `file`
  bool at_end;         // all of `file` has been read
  ot_buffer rest;      // read from `file`, not yet in a block
};

static ot_status fill(ot_corpus *corpus, const ot_corpus_request *request) {
  ot_arena arena = ot_heap_arena_create(&corpus->heap);
  corpus->key = ot_arena_format(&arena, "%s", request->key ? request->key : "text");
  corpus->splittable = request->splittable;
  corpus->window_bytes = request->window_bytes > 0 ? request->window_bytes : WINDOW_BYTES;
  for (int64_t i = 0; i < request->num_paths; i++) {
    OT_TRY(ot_file_list_add(&corpus->files, request->paths[i], &arena));
  }
  OT_CHECK(corpus->files.count > 0, OT_ENVIRONMENT, "no files to read (%s)",
           request->num_paths > 0 ? request->paths[0] : "none given");
  return OT_OK;
}

ot_status ot_corpus_create(const ot_corpus_request *request, ot_corpus **out) {
  *out = NULL;
  ot_corpus *corpus = calloc(1, sizeof *corpus);
  OT_CHECK(corpus, OT_ENVIRONMENT, "out of memory (corpus)");
  const ot_status status = fill(corpus, request);
  if (status != OT_OK) ot_corpus_destroy(&corpus);
  *out = corpus;
  return status;
}

void ot_corpus_destroy(ot_corpus **corpus) {
  if (!*corpus) return;
  ot_text_file_destroy(&(*corpus)->file);
  ot_buffer_release(&(*corpus)->rest);
  ot_heap_release(&(*corpus)->heap);
  free(*corpus);
  *corpus = NULL;
}

void ot_corpus_block_release(ot_corpus_block *block) {
  ot_buffer_release(&block->text);
  free(block->ends);
  *block = (ot_corpus_block){0};
}

int64_t ot_corpus_num_files(const ot_corpus *corpus) { return corpus->files.count; }

const char *ot_corpus_key(const ot_corpus *corpus) { return corpus->key; }

static bool is_lines(const char *path) {
  return ot_text_ends_with(path, ".jsonl") || ot_text_ends_with(path, ".jsonl.gz") ||
         ot_text_ends_with(path, ".jsonl.zst");
}

static ot_status open_next(ot_corpus *corpus) {
  corpus->path = corpus->files.paths[corpus->next_file++];
  corpus->at_end = false;
  corpus->next_line = 1;
  return ot_text_file_create(corpus->path, &corpus->file);
}

// Reads on in the open file until `text` has `target` bytes or the file ends.
static ot_status read_up_to(ot_corpus *corpus, ot_buffer *text, int64_t target) {
  while (!corpus->at_end && text->length < target) {
    OT_TRY(ot_buffer_reserve(text, READ_BYTES));
    int64_t n = 0;
    OT_TRY(ot_text_file_read(corpus->file, text->data + text->length, READ_BYTES, &n));
    text->length += n;
    corpus->at_end = n == 0;
  }
  return OT_OK;
}

static ot_status end_document(ot_corpus_block *block) {
  if (block->num_documents == block->ends_capacity) {
    const int64_t larger = block->ends_capacity > 0 ? 2 * block->ends_capacity : 64;
    int64_t *const grown = realloc(block->ends, (size_t)larger * sizeof *grown);
    OT_CHECK(grown, OT_ENVIRONMENT, "out of memory (%lld documents)", (long long)larger);
    block->ends = grown;
    block->ends_capacity = larger;
  }
  block->ends[block->num_documents++] = block->text.length;
  return OT_OK;
}

static bool is_letter(uint8_t byte) {
  return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z');
}

// `limit`, or the beginning of the character of UTF-8 that it would cut.
static int64_t before_character(const uint8_t *text, int64_t limit) {
  enum { MOST_FOLLOWING = 3 };
  for (int64_t i = limit; i >= limit - MOST_FOLLOWING; i--) {
    if ((text[i] & 0xC0) != 0x80) return i;
  }
  return limit;
}

// A place near the end of text[0..limit) where a piece most likely begins, so that windows can be
// encoded apart: a space between letters, or else a letter after a newline, or else a character. It
// need not be right: whoever joins the windows checks.
static int64_t choose_cut(const uint8_t *text, int64_t limit) {
  int64_t after_newline = -1;
  for (int64_t i = limit - 2; i > limit / 2; i--) {
    if (text[i] == ' ' && is_letter(text[i - 1]) && is_letter(text[i + 1])) return i;
    if (after_newline < 0 && text[i - 1] == '\n' && is_letter(text[i])) after_newline = i;
  }
  return after_newline >= 0 ? after_newline : before_character(text, limit);
}

// The window of a large document that begins with what waits in `rest`.
static ot_status next_window(ot_corpus *corpus, ot_corpus_block *block) {
  block->kind = OT_CORPUS_WINDOW;
  OT_TRY(ot_buffer_append(&block->text, corpus->rest.data, corpus->rest.length));
  corpus->rest.length = 0;
  OT_TRY(read_up_to(corpus, &block->text, corpus->window_bytes + LOOK_AHEAD_BYTES));
  block->final = corpus->at_end;
  if (block->final) {
    block->stop = block->text.length;
    ot_text_file_destroy(&corpus->file);
    return OT_OK;
  }
  block->stop = choose_cut(block->text.data, corpus->window_bytes);
  return ot_buffer_append(&corpus->rest, block->text.data + block->stop,
                          block->text.length - block->stop);
}

// Adds the open file to a block of documents; `full` when the block ends before it.
static ot_status add_document(ot_corpus *corpus, ot_corpus_block *block, bool *full) {
  const int64_t start = block->text.length;
  const int64_t large =
      corpus->splittable ? corpus->window_bytes + LOOK_AHEAD_BYTES : INT64_MAX / 4;
  OT_TRY(read_up_to(corpus, &block->text, start + large));
  if (corpus->at_end) {
    ot_text_file_destroy(&corpus->file);
    *full = block->text.length >= corpus->window_bytes;
    return end_document(block);
  }
  OT_TRY(ot_buffer_append(&corpus->rest, block->text.data + start, block->text.length - start));
  block->text.length = start;
  *full = true;
  return OT_OK;
}

static int64_t count_newlines(const ot_buffer *text) {
  int64_t count = 0;
  for (int64_t i = 0; i < text->length; i++) count += text->data[i] == '\n';
  return count;
}

static ot_status next_lines(ot_corpus *corpus, ot_corpus_block *block) {
  block->kind = OT_CORPUS_LINES;
  block->path = corpus->path;
  block->first_line = corpus->next_line;
  OT_TRY(ot_buffer_append(&block->text, corpus->rest.data, corpus->rest.length));
  corpus->rest.length = 0;
  const uint8_t *newline = NULL;
  for (int64_t target = corpus->window_bytes; !newline && !corpus->at_end; target *= 2) {
    OT_TRY(read_up_to(corpus, &block->text, target));
    newline =
        block->text.length > 0 ? memrchr(block->text.data, '\n', (size_t)block->text.length) : NULL;
  }
  if (corpus->at_end) {
    ot_text_file_destroy(&corpus->file);
    return OT_OK;
  }
  const int64_t whole = newline + 1 - block->text.data;
  OT_TRY(ot_buffer_append(&corpus->rest, newline + 1, block->text.length - whole));
  block->text.length = whole;
  corpus->next_line += count_newlines(&block->text);
  return OT_OK;
}

ot_status ot_corpus_next(ot_corpus *corpus, ot_corpus_block *block, bool *more) {
  block->kind = OT_CORPUS_DOCUMENTS;
  block->text.length = 0;
  block->num_documents = 0;
  block->stop = 0;
  block->final = false;
  block->index = corpus->next_index;
  for (bool full = false; !full;) {
    const bool between = corpus->file == NULL;
    if (between && corpus->next_file == corpus->files.count) break;
    if (between) OT_TRY(open_next(corpus));
    if (is_lines(corpus->path)) {
      if (block->num_documents == 0) OT_TRY(next_lines(corpus, block));
      full = true;
    } else if (between) {
      OT_TRY(add_document(corpus, block, &full));
    } else {
      OT_TRY(next_window(corpus, block));
      full = true;
    }
  }
  *more = block->num_documents > 0 || block->kind != OT_CORPUS_DOCUMENTS;
  // A large document alone leaves an empty block behind: its first window is next.
  if (!*more && corpus->file) return ot_corpus_next(corpus, block, more);
  corpus->next_index += *more;
  return OT_OK;
}
