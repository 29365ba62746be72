// SPDX-License-Identifier: Apache-2.0
// Lengths are written to the index at once; offsets and the document table are computed from them
// at the end, in blocks.
#include "data/shard_writer.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json_writer.h"
#include "base/text.h"
#include "data/shard_meta.h"
#include "files/content_hash.h"
#include "files/disk.h"
#include "files/output_file.h"
#include "host/heap.h"
#include "tokenizer/buffer.h"
#include "tokenizer/split_pattern.h"

enum { BLOCK = 4096, SEQUENCE_TOKENS_MAX = 1 << 30 };

struct ot_shard_writer {
  char prefix[OT_PATH_BYTES];
  ot_output_file *bin;
  ot_output_file *idx;
  ot_content_hash *bin_hash;
  int64_t vocab_size;
  int64_t token_bytes;
  int64_t tokens;
  int64_t sequences;
  int64_t documents;
  int64_t open_tokens;      // of the sequence being written
  ot_buffer continuations;  // i64 numbers of sequences that continue a document
};

static ot_status fill(ot_shard_writer *w, const char *prefix, int64_t vocab_size) {
  int64_t stem = (int64_t)strlen(prefix);
  if (ot_text_ends_with(prefix, ".bin") || ot_text_ends_with(prefix, ".idx")) stem -= 4;
  OT_CHECK(stem > 0 && stem + 16 < OT_PATH_BYTES, OT_USAGE, "not a file prefix: \"%s\"", prefix);
  ot_text_format(w->prefix, OT_PATH_BYTES, "%.*s", (int)stem, prefix);
  w->vocab_size = vocab_size;
  w->token_bytes = vocab_size < OT_SHARD_U16_BELOW ? 2 : 4;
  char path[OT_PATH_BYTES];
  ot_text_format(path, OT_PATH_BYTES, "%s.bin", w->prefix);
  OT_TRY(ot_output_file_create(path, &w->bin));
  ot_text_format(path, OT_PATH_BYTES, "%s.idx", w->prefix);
  OT_CHECK(!ot_output_file_is_stream(path), OT_ENVIRONMENT,
           "not a regular file, but the index is read back while it is written (%s)", path);
  OT_TRY(ot_output_file_create(path, &w->idx));
  OT_TRY(ot_content_hash_create(&w->bin_hash));
  const uint8_t header[OT_SHARD_HEADER_BYTES] = {0};
  return ot_output_file_write(w->idx, header, sizeof header);
}

ot_status ot_shard_writer_create(const char *prefix, int64_t vocab_size, ot_shard_writer **out) {
  *out = NULL;
  ot_shard_writer *writer = calloc(1, sizeof *writer);
  OT_CHECK(writer, OT_ENVIRONMENT, "out of memory (%s)", prefix);
  const ot_status status = fill(writer, prefix, vocab_size);
  if (status != OT_OK) ot_shard_writer_destroy(&writer);
  *out = writer;
  return status;
}

void ot_shard_writer_destroy(ot_shard_writer **writer) {
  ot_shard_writer *const w = *writer;
  if (!w) return;
  ot_output_file_destroy(&w->bin);
  ot_output_file_destroy(&w->idx);
  ot_content_hash_destroy(&w->bin_hash);
  ot_buffer_release(&w->continuations);
  free(w);
  *writer = NULL;
}

int64_t ot_shard_writer_documents(const ot_shard_writer *writer) { return writer->documents; }

int64_t ot_shard_writer_tokens(const ot_shard_writer *writer) { return writer->tokens; }

static ot_status write_block(ot_shard_writer *w, const int32_t *ids, int64_t count) {
  uint16_t narrow[BLOCK];
  for (int64_t i = 0; i < count; i++) {
    OT_ASSERT(ids[i] >= 0 && ids[i] < w->vocab_size);
    narrow[i] = (uint16_t)ids[i];
  }
  const void *const bytes = w->token_bytes == 2 ? (const void *)narrow : (const void *)ids;
  ot_content_hash_update(w->bin_hash, bytes, count * w->token_bytes);
  OT_TRY(ot_output_file_write(w->bin, bytes, count * w->token_bytes));
  w->tokens += count;
  w->open_tokens += count;
  return OT_OK;
}

static ot_status end_sequence(ot_shard_writer *w) {
  const int32_t length = (int32_t)w->open_tokens;
  w->sequences++;
  w->open_tokens = 0;
  return ot_output_file_write(w->idx, &length, sizeof length);
}

ot_status ot_shard_writer_append(ot_shard_writer *writer, const int32_t *ids, int64_t count) {
  while (count > 0) {
    if (writer->open_tokens == SEQUENCE_TOKENS_MAX) {
      OT_TRY(end_sequence(writer));
      OT_TRY(ot_buffer_append(&writer->continuations, &writer->sequences, sizeof(int64_t)));
    }
    const int64_t room = SEQUENCE_TOKENS_MAX - writer->open_tokens;
    int64_t n = count < BLOCK ? count : BLOCK;
    if (n > room) n = room;
    OT_TRY(write_block(writer, ids, n));
    ids += n;
    count -= n;
  }
  return OT_OK;
}

ot_status ot_shard_writer_end_document(ot_shard_writer *writer) {
  writer->documents++;
  return end_sequence(writer);
}

// ---- commit ----

static ot_status write_offsets(ot_shard_writer *w) {
  int32_t lengths[BLOCK];
  int64_t offsets[BLOCK];
  int64_t at = 0;
  for (int64_t first = 0; first < w->sequences; first += BLOCK) {
    const int64_t n = w->sequences - first < BLOCK ? w->sequences - first : BLOCK;
    OT_TRY(ot_output_file_read_at(w->idx, OT_SHARD_HEADER_BYTES + 4 * first, lengths, 4 * n));
    for (int64_t i = 0; i < n; i++) {
      offsets[i] = at;
      at += lengths[i] * w->token_bytes;
    }
    OT_TRY(ot_output_file_write(w->idx, offsets, 8 * n));
  }
  return OT_OK;
}

static ot_status write_document_table(ot_shard_writer *w) {
  int64_t continued = 0;
  const int64_t num_continued = w->continuations.length / (int64_t)sizeof(int64_t);
  for (int64_t i = 0; i <= w->sequences; i++) {
    int64_t next = -1;
    if (continued < num_continued) {
      memcpy(&next, w->continuations.data + 8 * continued, sizeof next);
    }
    if (i == next) {
      continued++;
    } else {
      OT_TRY(ot_output_file_write(w->idx, &i, sizeof i));
    }
  }
  return OT_OK;
}

static ot_status write_header(ot_shard_writer *w) {
  uint8_t header[OT_SHARD_HEADER_BYTES];
  const uint64_t version = OT_SHARD_VERSION;
  const uint64_t sequences = (uint64_t)w->sequences, entries = (uint64_t)w->documents + 1;
  memcpy(header, ot_shard_magic, sizeof ot_shard_magic);
  memcpy(header + OT_SHARD_VERSION_AT, &version, 8);
  header[OT_SHARD_TYPE_AT] = w->token_bytes == 2 ? OT_SHARD_U16 : OT_SHARD_I32;
  memcpy(header + OT_SHARD_SEQUENCES_AT, &sequences, 8);
  memcpy(header + OT_SHARD_DOCUMENTS_AT, &entries, 8);
  return ot_output_file_write_at(w->idx, 0, header, sizeof header);
}

static void print_meta(const ot_shard_writer *w, const ot_shard_meta *meta, ot_json_writer *json) {
  char hash[OT_CONTENT_HASH_BYTES];
  char unicode[OT_UNICODE_VERSION_CHARS];
  ot_content_hash_print(w->bin_hash, hash);
  ot_split_unicode_version(unicode);
  ot_json_object(json, NULL);
  ot_json_integer(json, "format", 1);
  ot_json_text(json, "tool", "orthant " OT_VERSION);
  ot_json_object(json, "tokenizer");
  ot_json_text(json, "path", meta->tokenizer);
  ot_json_text(json, "xxh3_128", meta->tokenizer_hash);
  ot_json_text(json, "unicode", unicode);
  ot_json_end(json);
  ot_json_integer(json, "vocab_size", meta->vocab_size);
  ot_json_integer(json, "eod", meta->eod);
  ot_json_text(json, "dtype", w->token_bytes == 2 ? "uint16" : "int32");
  ot_json_integer(json, "documents", w->documents);
  ot_json_integer(json, "tokens", w->tokens);
  ot_json_integer(json, "text_bytes", meta->text_bytes);
  ot_json_integer(json, "files", meta->num_files);
  ot_json_array(json, "sources");
  for (int64_t i = 0; i < meta->num_sources; i++) ot_json_text(json, NULL, meta->sources[i]);
  ot_json_end(json);
  ot_json_text(json, "bin_xxh3_128", hash);
  ot_json_end(json);
}

static ot_status write_meta(const ot_shard_writer *w, const ot_shard_meta *meta) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_json_writer json = ot_json_begin(&arena, 2);
  print_meta(w, meta, &json);
  char path[OT_PATH_BYTES];
  ot_text_format(path, sizeof path, "%s.meta.json", w->prefix);
  const ot_status status = ot_output_file_replace(path, json.text, json.length);
  ot_heap_release(&heap);
  return status;
}

ot_status ot_shard_writer_commit(ot_shard_writer *writer, const ot_shard_meta *meta) {
  OT_ASSERT(writer->open_tokens == 0);
  OT_TRY(write_offsets(writer));
  OT_TRY(write_document_table(writer));
  OT_TRY(write_header(writer));
  // New tokens must not be read with an old index.
  unlink(ot_output_file_path(writer->idx));
  OT_TRY(ot_output_file_commit(writer->bin));
  OT_TRY(write_meta(writer, meta));
  return ot_output_file_commit(writer->idx);
}
