// SPDX-License-Identifier: Apache-2.0
// Records of a store: packed, unpacked, read and appended. A writer that was killed leaves records
// without an index entry, or damaged ones after a power failure; the next one goes on after the
// last whole record.
#include "distill/teacher_store.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "files/content_hash.h"
#include "files/disk.h"
#include "files/steady_file.h"
#include "host/heap.h"
#include "ops/head.h"

enum { HEADER_BYTES = 256, HASHED_BYTES = HEADER_BYTES - 8, RECORD_HEAD = 24 };

static const char magic[8] = {'O', 'T', 'T', 'E', 'A', 'C', 'H', '1'};

// A file of records.
typedef struct store_file {
  ot_heap heap;
  char path[OT_PATH_BYTES];
  ot_teacher_header header;
  uint64_t *index;  // [windows + 1]
  uint8_t *record;  // [most bytes of a record]
} store_file;

// ---- header ----

// The header in a fixed order and width, apart from padding and layout of the struct.
static void pack_header(const ot_teacher_header *h, uint8_t bytes[HEADER_BYTES]) {
  const int64_t numbers[] = {OT_TEACHER_VERSION, h->sequence_length, h->eod,     h->vocab_size,
                             h->windows,         h->draws,           h->ids,     (int64_t)h->seed,
                             h->document_mask,   h->top_k,           h->id_bits, h->count_bits};
  memset(bytes, 0, HEADER_BYTES);
  memcpy(bytes, magic, sizeof magic);
  memcpy(bytes + 8, numbers, sizeof numbers);
  memcpy(bytes + 104, h->teacher, 32);
  memcpy(bytes + 136, h->tokenizer, 32);
  memcpy(bytes + 168, h->tokens, 32);
  const uint64_t hash = ot_content_hash_block(bytes, HASHED_BYTES);
  memcpy(bytes + HASHED_BYTES, &hash, sizeof hash);
}

static ot_status unpack_header(const char *path, const uint8_t bytes[HEADER_BYTES],
                               ot_teacher_header *h) {
  int64_t n[12];
  uint64_t hash;
  OT_CHECK(memcmp(bytes, magic, sizeof magic) == 0, OT_ENVIRONMENT, "not a store of a teacher (%s)",
           path);
  memcpy(n, bytes + 8, sizeof n);
  memcpy(&hash, bytes + HASHED_BYTES, sizeof hash);
  OT_CHECK(n[0] == OT_TEACHER_VERSION, OT_ENVIRONMENT, "version %lld of a store; known: %d (%s)",
           (long long)n[0], OT_TEACHER_VERSION, path);
  *h = (ot_teacher_header){.sequence_length = n[1],
                           .eod = n[2],
                           .vocab_size = n[3],
                           .windows = n[4],
                           .draws = n[5],
                           .ids = n[6],
                           .seed = (uint64_t)n[7],
                           .document_mask = n[8] != 0,
                           .top_k = n[9] != 0,
                           .id_bits = (int)n[10],
                           .count_bits = (int)n[11]};
  memcpy(h->teacher, bytes + 104, 32);
  memcpy(h->tokenizer, bytes + 136, 32);
  memcpy(h->tokens, bytes + 168, 32);
  const bool sane = hash == ot_content_hash_block(bytes, HASHED_BYTES) && n[1] > 0 &&
                    n[1] <= 1 << 24 && n[4] > 0 && n[4] < INT64_C(1) << 40 && n[6] > 0 &&
                    n[6] <= OT_HEAD_IDS_MAX - 1 && n[10] > 0 && n[10] <= 24 && n[11] > 0 &&
                    n[11] <= 16;
  OT_CHECK(sane, OT_ENVIRONMENT, "the header of the store is damaged (%s)", path);
  return OT_OK;
}

static int64_t records_at(const ot_teacher_header *h) {
  return HEADER_BYTES + 8 * (h->windows + 1);
}

static int64_t record_bytes_max(const ot_teacher_header *h) {
  const int64_t bits = h->sequence_length * h->ids * (h->id_bits + h->count_bits);
  return RECORD_HEAD + h->sequence_length + bits / 8 + 8;
}

// `most`: bytes that a record can have in this file.
static void allocate_arrays(store_file *f, int64_t most) {
  ot_arena arena = ot_heap_arena_create(&f->heap);
  const int64_t bytes = record_bytes_max(&f->header);
  f->index = ot_arena_array(&arena, f->header.windows + 1, sizeof *f->index);
  f->record = ot_arena_take(&arena, (most < bytes ? most : bytes) + 8);
}

void ot_teacher_window_take(const ot_teacher_header *header, ot_arena *arena,
                            ot_teacher_window *window) {
  const int64_t T = header->sequence_length;
  *window =
      (ot_teacher_window){.num = ot_arena_array(arena, T, sizeof *window->num),
                          .drawn = ot_arena_array(arena, T * header->ids, sizeof *window->drawn)};
}

// ---- records ----

// Hash of what the teacher saw: of the hashes of tokens, targets and document starts.
static uint64_t hash_seen(const ot_micro_batch *rows, int64_t b) {
  const int64_t T = rows->T, bytes = T * (int64_t)sizeof *rows->tokens;
  const uint64_t parts[] = {ot_content_hash_block(rows->tokens + b * T, bytes),
                            ot_content_hash_block(rows->targets + b * T, bytes),
                            ot_content_hash_block(rows->doc_starts + b * T, bytes)};
  return ot_content_hash_block(parts, sizeof parts);
}

// Appends `width` bits of `value` at bit *at of zeroed bytes; eight more bytes are there.
static void put_bits(uint8_t *bytes, int64_t *at, uint32_t value, int width) {
  uint64_t word;
  memcpy(&word, bytes + *at / 8, sizeof word);
  word |= (uint64_t)value << (*at % 8);
  memcpy(bytes + *at / 8, &word, sizeof word);
  *at += width;
}

static uint32_t get_bits(const uint8_t *bytes, int64_t *at, int width) {
  uint64_t word;
  memcpy(&word, bytes + *at / 8, sizeof word);
  word >>= *at % 8;
  *at += width;
  return (uint32_t)(word & ((UINT64_C(1) << width) - 1));
}

// Packs a record; returns its bytes.
static int64_t pack_record(store_file *f, uint64_t seen, const ot_teacher_window *window) {
  const ot_teacher_header *const h = &f->header;
  const int64_t T = h->sequence_length;
  memset(f->record, 0, (size_t)record_bytes_max(h));
  memcpy(f->record + 16, &window->entropy, 4);
  memcpy(f->record + 20, &window->loss, 4);
  memcpy(f->record + RECORD_HEAD, window->num, (size_t)T);
  int64_t bits = 0;
  uint8_t *const pairs = f->record + RECORD_HEAD + T;
  for (int64_t t = 0; t < T; t++) {
    for (int64_t k = 0; k < window->num[t]; k++) {
      const ot_drawn drawn = window->drawn[t * h->ids + k];
      put_bits(pairs, &bits, (uint32_t)drawn.id, h->id_bits);
      put_bits(pairs, &bits, (uint32_t)drawn.count, h->count_bits);
    }
  }
  const int64_t bytes = RECORD_HEAD + T + (bits + 7) / 8;
  const uint64_t own = ot_content_hash_block(f->record + 16, bytes - 16);
  memcpy(f->record, &seen, 8);
  memcpy(f->record + 8, &own, 8);
  return bytes;
}

// Whether the record of `bytes` bytes is as it was written.
static bool is_whole(const store_file *f, int64_t bytes) {
  const ot_teacher_header *const h = &f->header;
  uint64_t own;
  if (bytes < RECORD_HEAD + h->sequence_length || bytes > record_bytes_max(h)) return false;
  memcpy(&own, f->record + 8, 8);
  if (own != ot_content_hash_block(f->record + 16, bytes - 16)) return false;
  int64_t pairs = 0;
  for (int64_t t = 0; t < h->sequence_length; t++) {
    const uint8_t num = f->record[RECORD_HEAD + t];
    if (num > h->ids) return false;
    pairs += num;
  }
  const int64_t bits = pairs * (h->id_bits + h->count_bits);
  return bytes == RECORD_HEAD + h->sequence_length + (bits + 7) / 8;
}

// False if an id or the counts of a token are out of range.
static bool unpack_record(const store_file *f, ot_teacher_window *window) {
  const ot_teacher_header *const h = &f->header;
  const int64_t T = h->sequence_length;
  memcpy(&window->entropy, f->record + 16, 4);
  memcpy(&window->loss, f->record + 20, 4);
  memcpy(window->num, f->record + RECORD_HEAD, (size_t)T);
  int64_t bits = 0;
  const uint8_t *const pairs = f->record + RECORD_HEAD + T;
  for (int64_t t = 0; t < T; t++) {
    int64_t sum = 0;
    for (int64_t k = 0; k < window->num[t]; k++) {
      ot_drawn *const drawn = &window->drawn[t * h->ids + k];
      drawn->id = (int32_t)get_bits(pairs, &bits, h->id_bits);
      drawn->count = (int32_t)get_bits(pairs, &bits, h->count_bits);
      if (drawn->id >= h->vocab_size) return false;
      sum += drawn->count;
    }
    if (window->num[t] > 0 && (h->top_k ? sum > h->draws + h->ids : sum != h->draws)) return false;
  }
  return true;
}

// ---- reading ----

struct ot_teacher_store {
  store_file f;
  ot_steady_file file;
};

static ot_status open_store(ot_teacher_store *s) {
  uint8_t bytes[HEADER_BYTES];
  OT_TRY(ot_steady_file_open(s->f.path, &s->file));
  OT_CHECK(s->file.bytes >= HEADER_BYTES, OT_ENVIRONMENT, "the store ends within its header (%s)",
           s->f.path);
  OT_TRY(ot_steady_file_read(&s->file, 0, bytes, HEADER_BYTES));
  OT_TRY(unpack_header(s->f.path, bytes, &s->f.header));
  const ot_teacher_header *const h = &s->f.header;
  OT_CHECK(s->file.bytes >= records_at(h), OT_ENVIRONMENT, "the store ends within its index (%s)",
           s->f.path);
  OT_CHECK(h->sequence_length <= s->file.bytes, OT_ENVIRONMENT,
           "the store is shorter than one of its records (%s)", s->f.path);
  allocate_arrays(&s->f, s->file.bytes);
  OT_TRY(ot_steady_file_read(&s->file, HEADER_BYTES, s->f.index, 8 * (h->windows + 1)));
  for (int64_t i = 0; i <= h->windows; i++) {
    const uint64_t least = i == 0 ? (uint64_t)records_at(h) : s->f.index[i - 1];
    const bool fits = s->f.index[i] >= least && s->f.index[i] <= (uint64_t)s->file.bytes;
    OT_CHECK(fits, OT_ENVIRONMENT, "the index of the store is damaged at window %lld (%s)",
             (long long)i, s->f.path);
  }
  return OT_OK;
}

ot_status ot_teacher_store_open(const char *path, ot_teacher_store **out) {
  ot_teacher_store *store = calloc(1, sizeof *store);
  *out = NULL;
  OT_CHECK(store, OT_ENVIRONMENT, "out of memory (%s)", path);
  ot_text_format(store->f.path, sizeof store->f.path, "%s", path);
  store->file.descriptor = -1;
  const ot_status status = open_store(store);
  if (status != OT_OK) ot_teacher_store_close(&store);
  *out = store;
  return status;
}

void ot_teacher_store_close(ot_teacher_store **store) {
  if (!store || !*store) return;
  if ((*store)->file.descriptor >= 0) ot_steady_file_close(&(*store)->file);
  ot_heap_release(&(*store)->f.heap);
  free(*store);
  *store = NULL;
}

const ot_teacher_header *ot_teacher_store_header(const ot_teacher_store *store) {
  return &store->f.header;
}

ot_status ot_teacher_store_read(ot_teacher_store *store, int64_t window, const ot_micro_batch *rows,
                                int64_t b, ot_teacher_window *out) {
  store_file *const f = &store->f;
  OT_ASSERT(window >= 0 && window < f->header.windows && rows->T == f->header.sequence_length);
  const int64_t at = (int64_t)f->index[window], bytes = (int64_t)f->index[window + 1] - at;
  const bool fits = bytes >= RECORD_HEAD && bytes <= record_bytes_max(&f->header);
  if (fits) OT_TRY(ot_steady_file_read(&store->file, at, f->record, bytes));
  OT_CHECK(fits && is_whole(f, bytes) && unpack_record(f, out), OT_ENVIRONMENT,
           "window %lld of the store is damaged (%s)", (long long)window, f->path);
  uint64_t seen;
  memcpy(&seen, f->record, 8);
  if (seen == hash_seen(rows, b)) return OT_OK;
  ot_fail(OT_USAGE,
          "distill: window %lld of the store was made for other tokens than those of the run (%s)",
          (long long)window, f->path);
  return ot_fail_hint(OT_USAGE,
                      "the training set or its order of documents changed since: "
                      "`orthant distill targets` makes a new store");
}

// ---- writing ----

struct ot_teacher_writer {
  store_file f;
  char partial[OT_PATH_BYTES];
  int file;      // -1: closed
  int64_t next;  // window
  int64_t end;   // bytes of whole records and what precedes them
};

// Goes on after the last whole record of the partial file.
static ot_status find_last(ot_teacher_writer *w) {
  store_file *const f = &w->f;
  int64_t bytes;
  OT_TRY(ot_disk_size(w->file, w->partial, INT64_MAX, &bytes));
  OT_TRY(ot_disk_read_at(w->file, w->partial, HEADER_BYTES, f->index, 8 * (f->header.windows + 1)));
  int64_t next = 0;
  while (next < f->header.windows && f->index[next + 1] > f->index[next] &&
         f->index[next + 1] <= (uint64_t)bytes) {
    next++;
  }
  for (; next > 0; next--) {
    const int64_t at = (int64_t)f->index[next - 1], length = (int64_t)f->index[next] - at;
    if (length > record_bytes_max(&f->header)) continue;
    OT_TRY(ot_disk_read_at(w->file, w->partial, at, f->record, length));
    if (is_whole(f, length)) break;
  }
  w->next = next;
  w->end = next > 0 ? (int64_t)f->index[next] : records_at(&f->header);
  memset(f->index + next + 1, 0, (size_t)(f->header.windows - next) * sizeof *f->index);
  f->index[next] = (uint64_t)w->end;
  return OT_OK;
}

static ot_status begin(ot_teacher_writer *w, const uint8_t bytes[HEADER_BYTES]) {
  w->next = 0;
  w->end = records_at(&w->f.header);
  memset(w->f.index, 0, (size_t)(w->f.header.windows + 1) * sizeof *w->f.index);
  w->f.index[0] = (uint64_t)w->end;
  if (ftruncate(w->file, 0) != 0) return ot_fail(OT_ENVIRONMENT, "cannot cut %s", w->partial);
  return ot_disk_write_at(w->file, w->partial, 0, bytes, HEADER_BYTES);
}

static ot_status open_partial(ot_teacher_writer *w) {
  uint8_t wanted[HEADER_BYTES], found[HEADER_BYTES] = {0};
  int64_t bytes;
  pack_header(&w->f.header, wanted);
  allocate_arrays(&w->f, record_bytes_max(&w->f.header));
  w->file = ot_disk_open_file(w->partial, O_RDWR | O_CREAT);
  OT_CHECK(w->file >= 0, OT_ENVIRONMENT, "cannot create %s", w->partial);
  OT_TRY(ot_disk_size(w->file, w->partial, INT64_MAX, &bytes));
  const bool begun = bytes >= records_at(&w->f.header);
  if (begun) OT_TRY(ot_disk_read_at(w->file, w->partial, 0, found, HEADER_BYTES));
  const bool same = begun && memcmp(wanted, found, HEADER_BYTES) == 0;
  OT_TRY(same ? find_last(w) : begin(w, wanted));
  return ot_disk_write_at(w->file, w->partial, HEADER_BYTES, w->f.index,
                          8 * (w->f.header.windows + 1));
}

ot_status ot_teacher_writer_create(const char *path, const ot_teacher_header *header,
                                   ot_teacher_writer **out) {
  ot_teacher_writer *writer = calloc(1, sizeof *writer);
  *out = NULL;
  OT_CHECK(writer, OT_ENVIRONMENT, "out of memory (%s)", path);
  writer->file = -1;
  writer->f.header = *header;
  ot_text_format(writer->f.path, sizeof writer->f.path, "%s", path);
  ot_text_format(writer->partial, sizeof writer->partial, "%s.partial", path);
  const ot_status status = open_partial(writer);
  if (status != OT_OK) ot_teacher_writer_destroy(&writer);
  *out = writer;
  return status;
}

void ot_teacher_writer_destroy(ot_teacher_writer **writer) {
  if (!writer || !*writer) return;
  if ((*writer)->file >= 0) close((*writer)->file);
  ot_heap_release(&(*writer)->f.heap);
  free(*writer);
  *writer = NULL;
}

int64_t ot_teacher_writer_next(const ot_teacher_writer *writer) { return writer->next; }

int64_t ot_teacher_writer_bytes(const ot_teacher_writer *writer) { return writer->end; }

ot_status ot_teacher_writer_add(ot_teacher_writer *writer, const ot_micro_batch *rows, int64_t b,
                                const ot_teacher_window *window) {
  store_file *const f = &writer->f;
  OT_ASSERT(writer->next < f->header.windows);
  const int64_t bytes = pack_record(f, hash_seen(rows, b), window);
  OT_TRY(ot_disk_write_at(writer->file, writer->partial, writer->end, f->record, bytes));
  writer->end += bytes;
  writer->next++;
  f->index[writer->next] = (uint64_t)writer->end;
  return ot_disk_write_at(writer->file, writer->partial, HEADER_BYTES + 8 * writer->next,
                          &f->index[writer->next], 8);
}

ot_status ot_teacher_writer_commit(ot_teacher_writer *writer) {
  OT_ASSERT(writer->next == writer->f.header.windows);
  const int file = writer->file;
  writer->file = -1;
  OT_TRY(ot_disk_sync_close(file, writer->partial));
  OT_TRY(ot_disk_rename(writer->partial, writer->f.path));
  return ot_disk_sync_parent(writer->f.path);
}
