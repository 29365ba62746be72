// SPDX-License-Identifier: Apache-2.0
// Text to tokenize: byte 0 selects the name: plain text, lines of JSON, either compressed, or none;
// byte 1 whether large documents are split.
#include "data/corpus.h"
#include "fuzz/fuzz.h"

enum { HEAD = 2, WINDOW_BYTES = 4096, DOCUMENT_BYTES_MAX = 1 << 19 };

static ot_status count_text(void *context, const char *text, int64_t length) {
  int64_t *const sum = context;
  fuzz_require(text != NULL && length >= 0, "a line has a text");
  *sum += length;
  return OT_OK;
}

static ot_status read_all(ot_corpus *corpus, ot_corpus_block *block) {
  int64_t sum = 0;
  bool more = true;
  while (more) {
    OT_TRY(ot_corpus_next(corpus, block, &more));
    if (!more) break;
    const ot_corpus_line_sink to = {.key = "text", .sink = count_text, .context = &sum};
    if (block->kind == OT_CORPUS_LINES) OT_TRY(ot_corpus_read_lines(block, &to));
    if (block->kind == OT_CORPUS_WINDOW)
      fuzz_require(block->stop > 0 && block->stop <= block->text.length, "windows advance");
  }
  return OT_OK;
}

ot_status fuzz_one(const uint8_t *data, size_t size, ot_arena *arena) {
  static const char *const names[] = {"t.txt",     "t.jsonl",     "t.txt.gz", "t.jsonl.gz",
                                      "t.txt.zst", "t.jsonl.zst", "t.json",   "t"};
  (void)arena;
  if (size < HEAD) return ot_fail(OT_USAGE, "nothing");
  const char *const path = fuzz_file(names[data[0] % OT_COUNT(names)], data + HEAD, size - HEAD);
  const ot_corpus_request request = {.paths = &path,
                                     .num_paths = 1,
                                     .splittable = data[1] & 1,
                                     .window_bytes = WINDOW_BYTES,
                                     .document_bytes_max = DOCUMENT_BYTES_MAX};
  ot_corpus *corpus = NULL;
  ot_corpus_block block = {0};
  OT_TRY(ot_corpus_create(&request, &corpus));
  const ot_status status = read_all(corpus, &block);
  ot_corpus_block_release(&block);
  ot_corpus_destroy(&corpus);
  return status;
}
