// SPDX-License-Identifier: Apache-2.0
// The store of a teacher. Its checksums are made right, so that mutations reach what stands after
// them; tokens differ from those that the teacher saw, which is the last thing that is compared.
#include <string.h>

#include "distill/teacher_store.h"
#include "fuzz/fuzz.h"

enum { HEADER_BYTES = 256, WINDOWS_AT = 40, HASH_AT = 248, DRAWS_MOST = 1 << 20, RECORDS = 64 };

static uint64_t word_at(const uint8_t *data, size_t at) {
  uint64_t word;
  memcpy(&word, data + at, sizeof word);
  return word;
}

static void put_hash(uint8_t *data, size_t at, const uint8_t *from, size_t bytes) {
  const uint64_t hash = ot_content_hash_block(from, (int64_t)bytes);
  memcpy(data + at, &hash, sizeof hash);
}

// The checksums of the header and of the first records.
static void complete(uint8_t *data, size_t size) {
  if (size < HEADER_BYTES) return;
  put_hash(data, HASH_AT, data, HASH_AT);
  const uint64_t windows = word_at(data, WINDOWS_AT);
  for (uint64_t i = 0; i < windows && i < RECORDS; i++) {
    const size_t at = HEADER_BYTES + 8 * (size_t)i;
    if (at + 16 > size) return;
    const uint64_t begin = word_at(data, at), end = word_at(data, at + 8);
    if (begin < at || end > size || begin > size || end < begin || end - begin < 24) return;
    put_hash(data, begin + 8, data + begin + 16, end - begin - 16);
  }
}

static ot_status read_all(ot_teacher_store *store, ot_arena *arena) {
  const ot_teacher_header *const h = ot_teacher_store_header(store);
  ot_micro_batch rows;
  ot_teacher_window window;
  if (h->sequence_length * h->ids > DRAWS_MOST) return OT_OK;
  ot_teacher_window_take(h, arena, &window);
  OT_TRY(ot_micro_batch_create(1, h->sequence_length, &rows));
  ot_status status = OT_OK;
  for (int64_t w = 0; w < h->windows && w < RECORDS && status == OT_OK; w++) {
    status = ot_teacher_store_read(store, w, &rows, 0, &window);
    if (status == OT_USAGE) status = OT_OK;  // other tokens: the record itself was accepted
    for (int64_t t = 0; t < h->sequence_length && status == OT_OK; t++) {
      fuzz_require(window.num[t] <= h->ids, "a token has as many ids as there is room for");
      for (int64_t k = 0; k < window.num[t]; k++) {
        const ot_drawn drawn = window.drawn[t * h->ids + k];
        fuzz_require(drawn.id >= 0 && drawn.id < h->vocab_size, "ids are in the vocabulary");
      }
    }
  }
  ot_micro_batch_release(&rows);
  return status;
}

// The same bytes as a store that was begun for such a header: what is whole is gone on from.
static ot_status go_on(const char *path, const ot_teacher_header *header, int64_t size) {
  ot_teacher_writer *writer = NULL;
  if (header->sequence_length * header->ids > DRAWS_MOST) return OT_OK;
  const ot_status status = ot_teacher_writer_create(path, header, &writer);
  if (status == OT_OK) {
    const int64_t next = ot_teacher_writer_next(writer), end = ot_teacher_writer_bytes(writer);
    fuzz_require(next >= 0 && next <= header->windows, "whole windows are of the store");
    fuzz_require(end >= HEADER_BYTES && (next == 0 || end <= size),
                 "whole records are in the file");
  }
  ot_teacher_writer_destroy(&writer);
  return status;
}

ot_status fuzz_one(const uint8_t *data, size_t size, ot_arena *arena) {
  uint8_t *const copy = ot_arena_take(arena, (int64_t)size + 1);
  memcpy(copy, data, size);
  complete(copy, size);
  ot_teacher_store *store = NULL;
  const char *const path = fuzz_file("store", copy, size);
  OT_TRY(ot_teacher_store_open(path, &store));
  const ot_teacher_header header = *ot_teacher_store_header(store);
  const ot_status status = read_all(store, arena);
  ot_teacher_store_close(&store);
  fuzz_file("store.partial", copy, size);
  const ot_status begun = go_on(path, &header, (int64_t)size);
  return status != OT_OK ? status : begun;
}
