// SPDX-License-Identifier: Apache-2.0
// Token shards of every layout. Byte 0: the layout (0 to 3), bit 2: with an .idx, bit 3: ids start
// documents, bit 4: a known vocabulary, bit 5: with a meta.json; bytes 1 and 2: length of the .idx
// (low byte first), which follows; then the .bin, which is also the meta.json.
#include "data/shard_meta.h"
#include "data/token_shard.h"
#include "fuzz/fuzz.h"
#include "host/heap.h"

enum { HEAD = 3, VOCABULARY = 300, IDS = 4096 };

static ot_status check_document(void *context, int64_t document, int64_t first, int64_t count) {
  int64_t *const next = context;
  (void)document;
  fuzz_require(first == *next && count >= 0, "documents follow one another");
  *next = first + count;
  return OT_OK;
}

static void check_boundary(void *context, int64_t position) {
  int64_t *const last = context;
  fuzz_require(position > *last, "boundaries ascend");
  *last = position;
}

static ot_status read_all(const ot_token_shard *shard, bool checked) {
  static int32_t ids[IDS];
  const ot_token_shard_info *const about = ot_token_shard_describe(shard);
  ot_token_shard_scan_result scan;
  int64_t end = 0, last = 0;
  const int64_t count = about->tokens < IDS ? about->tokens : IDS;
  OT_TRY(ot_token_shard_scan(shard, &scan));
  fuzz_require(!checked || scan.max_id < VOCABULARY, "ids are in the vocabulary");
  OT_TRY(ot_token_shard_each_document(shard, check_document, &end));
  fuzz_require(end == about->tokens, "documents cover the tokens");
  OT_TRY(ot_token_shard_read(shard, about->tokens - count, count, ids));
  if (count == 0) return OT_OK;
  const ot_token_shard_span span = {.count = count, .ids = ids, .last = ids[count - 1]};
  OT_TRY(ot_token_shard_read(shard, 0, count, ids));
  OT_TRY(ot_token_shard_boundaries(shard, &span, check_boundary, &last));
  int64_t first;
  if (scan.documents > 0) return ot_token_shard_document(shard, scan.documents - 1, &first, &end);
  return OT_OK;
}

static ot_status read_meta(const char *path) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_shard_origin origin;
  const ot_status status = ot_shard_origin_read(path, &arena, &origin);
  ot_heap_release(&heap);
  return status;
}

ot_status fuzz_one(const uint8_t *data, size_t size, ot_arena *arena) {
  if (size < HEAD) return ot_fail(OT_USAGE, "nothing");
  const uint8_t how = data[0];
  const size_t stated = data[1] + 256 * (size_t)data[2], rest = size - HEAD;
  const size_t idx_bytes = stated < rest ? stated : rest;
  fuzz_remove("s.idx");
  fuzz_remove("s.meta.json");
  if (how & 4) fuzz_file("s.idx", data + HEAD, idx_bytes);
  const uint8_t *const bin = data + HEAD + idx_bytes;
  const char *const path = fuzz_file(how & 32 ? "s.meta.json" : "s.bin", bin, rest - idx_bytes);
  if (how & 32) return read_meta(ot_arena_format(arena, "%s/s.bin", fuzz_directory()));
  const ot_token_shard_request request = {
      .path = path,
      .format = (ot_data_format)(how % 4),
      .vocab_size = how & 16 ? VOCABULARY : 0,
      .eod = how & 64 ? 0 : -1,
      .boundary = how & 8 ? OT_BOUNDARY_START : OT_BOUNDARY_AUTO};
  ot_token_shard *shard = NULL;
  OT_TRY(ot_token_shard_create(&request, &shard));
  const ot_status status = read_all(shard, how & 16);
  ot_token_shard_destroy(&shard);
  return status;
}
