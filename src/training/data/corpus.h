// SPDX-License-Identifier: Apache-2.0
// The text of files as a sequence of blocks that threads process independently: many small
// documents, one window of a large one, or lines of JSON. Blocks do not depend on the number of
// threads. A text file is one document; lines of JSON have one per line, under a key
// (corpus_kind.h); what gzip and Zstandard compressed is decompressed; directories are walked in
// byte order of names, skipping names that begin with a dot, and files that are not text.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "data/corpus_kind.h"
#include "tokenizer/buffer.h"

typedef struct ot_corpus_request {
  const char *const *paths;  // [num_paths] files and directories, in this order
  int64_t num_paths;
  const char *key;          // of the text in lines of JSON
  ot_corpus_format format;  // of all files
  bool splittable;          // large documents are split into windows; else whole
  int64_t window_bytes;     // of text per block; 0 = 1 MiB
  // The limit of a line, or of a document that is not split, which a small compressed file could
  // make endless; 0 = 4 GiB.
  int64_t document_bytes_max;
} ot_corpus_request;

typedef enum ot_corpus_kind {
  OT_CORPUS_DOCUMENTS,  // complete documents, one after the other
  OT_CORPUS_WINDOW,     // a part of one document
  OT_CORPUS_LINES,      // complete lines of JSON
} ot_corpus_kind;

typedef struct ot_corpus_block {
  ot_corpus_kind kind;
  int64_t index;  // of the block, from 0
  ot_buffer text;
  int64_t *ends;       // [num_documents] end of each document in `text`
  const char **paths;  // [num_documents] their files; valid until the corpus is destroyed
  int64_t num_documents;
  int64_t ends_capacity;
  int64_t stop;        // window: the next one starts at text[stop], between characters; the text
                       // after it is context
  bool final;          // window: last of the document; stop is then the length of the text
  const char *path;    // lines and windows: of the file
  int64_t first_line;  // lines: number of the first, from 1
} ot_corpus_block;

void ot_corpus_block_release(ot_corpus_block *block);

typedef struct ot_corpus ot_corpus;

// Lists the files; copies what `request` points to. OT_ENVIRONMENT if a path is missing or there
// are no files.
ot_status ot_corpus_create(const ot_corpus_request *request, ot_corpus **out);
void ot_corpus_destroy(ot_corpus **corpus);

int64_t ot_corpus_num_files(const ot_corpus *corpus);
const char *ot_corpus_key(const ot_corpus *corpus);

// Reads the next block into `block`, whose memory is reused; `more` is false at the end. One thread
// at a time. Blocks on input.
ot_status ot_corpus_next(ot_corpus *corpus, ot_corpus_block *block, bool *more);

// Files that were found in a directory, but are not text: how many so far, and the first.
typedef struct ot_corpus_skipped {
  int64_t count;
  const char *first;
} ot_corpus_skipped;
ot_corpus_skipped ot_corpus_skipped_files(const ot_corpus *corpus);

// Lines that are not a JSON object with a text under the key: how many, and what the first is.
enum { OT_CORPUS_BAD_BYTES = 1024 };
typedef struct ot_corpus_bad_lines {
  int64_t count;
  char first[OT_CORPUS_BAD_BYTES];
} ot_corpus_bad_lines;

// Called with the text of one line of JSON.
typedef ot_status (*ot_corpus_text_sink)(void *context, const char *text, int64_t length);

typedef struct ot_corpus_line_sink {
  const char *key;
  ot_corpus_text_sink sink;
  void *context;
  ot_corpus_bad_lines *bad;  // counts bad lines, added; null: the first one is an error
} ot_corpus_line_sink;

// Reads the lines of a block of kind OT_CORPUS_LINES, skipping empty ones. OT_ENVIRONMENT, naming
// file and line, for a bad one, unless these are counted.
ot_status ot_corpus_read_lines(const ot_corpus_block *block, const ot_corpus_line_sink *to);

// ---- parallel processing of a corpus ----

// Blocks are processed concurrently and committed one by one in corpus order, so the result does
// not depend on the number of threads. A failure takes effect when its block is due: the first in
// the corpus is reported.
typedef struct ot_corpus_job {
  // Processes one block; run by many threads, each with its own `worker`.
  ot_status (*process)(void *worker, const ot_corpus_block *block);
  // Commits the results of `worker` for the block; run by one thread at a time, in order. May be
  // null.
  ot_status (*commit)(void *context, void *worker, const ot_corpus_block *block);
  void *context;         // first argument of `commit`
  void *const *workers;  // [num_threads]
  int num_threads;       // >= 1
} ot_corpus_job;

// Blocks until the corpus is done or a block failed. The calling thread works, too.
ot_status ot_corpus_run(ot_corpus *corpus, const ot_corpus_job *job);
