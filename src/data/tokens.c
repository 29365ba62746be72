// SPDX-License-Identifier: Apache-2.0
// Opening by format, reading ids with a check of each.
#include "data/tokens.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "data/tokens_parts.h"

enum { BLOCK = 2048, LLMC_HEADER_BYTES = 1024, GPT2_EOD = 50256, LLAMA3_EOD = 128000 };

typedef struct llmc_kind {
  int32_t magic, version;
  ot_shard_type type;
  int32_t eod;
} llmc_kind;

static const llmc_kind llmc_kinds[] = {
    {.magic = 20240520, .version = 1, .type = OT_SHARD_U16, .eod = GPT2_EOD},
    {.magic = 20240801, .version = 7, .type = OT_SHARD_U32, .eod = LLAMA3_EOD},
};

// ---- opening ----

static ot_status open_bin(ot_tokens *t) {
  OT_TRY(ot_disk_open(t->bin_path, &t->bin));
  return ot_disk_size(t->bin, t->bin_path, INT64_MAX, &t->bin_bytes);
}

void ot_tokens_set_type(ot_tokens *t, ot_shard_type type) {
  t->type = type;
  switch (type) {
    case OT_SHARD_U8:
      t->about.dtype = "uint8";
      t->about.token_bytes = 1;
      return;
    case OT_SHARD_I8:
      t->about.dtype = "int8";
      t->about.token_bytes = 1;
      return;
    case OT_SHARD_I16:
      t->about.dtype = "int16";
      t->about.token_bytes = 2;
      return;
    case OT_SHARD_U16:
      t->about.dtype = "uint16";
      t->about.token_bytes = 2;
      return;
    case OT_SHARD_I32:
      t->about.dtype = "int32";
      t->about.token_bytes = 4;
      return;
    case OT_SHARD_U32:
      t->about.dtype = "uint32";
      t->about.token_bytes = 4;
      return;
    case OT_SHARD_I64:
      t->about.dtype = "int64";
      t->about.token_bytes = 8;
      return;
  }
  OT_UNREACHABLE();
}

static ot_status open_megatron(ot_tokens *t) {
  t->about.format = OT_DATA_MEGATRON;
  t->about.idx_path = t->idx_path;
  OT_TRY(ot_disk_open(t->idx_path, &t->idx));
  OT_TRY(open_bin(t));
  return ot_tokens_read_index(t);
}

// The header of an llm.c file; null when the file has none.
static const llmc_kind *read_llmc_header(const ot_tokens *t, int32_t header[3]) {
  const int64_t length = 3 * (int64_t)sizeof *header;
  if (t->bin_bytes < length || pread(t->bin, header, (size_t)length, 0) != length) return NULL;
  for (size_t i = 0; i < sizeof llmc_kinds / sizeof *llmc_kinds; i++) {
    if (header[0] == llmc_kinds[i].magic) return &llmc_kinds[i];
  }
  return NULL;
}

static ot_status open_llmc(ot_tokens *t, const llmc_kind *kind, const int32_t header[3]) {
  t->about.format = OT_DATA_LLMC;
  if (t->about.eod < 0) t->about.eod = kind->eod;
  OT_CHECK(header[1] == kind->version, OT_ENVIRONMENT, "%s: byte 4: version %d, expected %d",
           t->bin_path, header[1], kind->version);
  ot_tokens_set_type(t, kind->type);
  const int64_t expected = LLMC_HEADER_BYTES + header[2] * t->about.token_bytes;
  OT_CHECK(header[2] >= 0 && t->bin_bytes == expected, OT_ENVIRONMENT,
           "%s: the header says %d tokens (%lld bytes), but the file has %lld bytes", t->bin_path,
           header[2], (long long)expected, (long long)t->bin_bytes);
  t->data_start = LLMC_HEADER_BYTES;
  t->about.tokens = header[2];
  return OT_OK;
}

static ot_status open_headerless(ot_tokens *t) {
  t->about.format = OT_DATA_NANOGPT;
  ot_tokens_set_type(t, OT_SHARD_U16);
  OT_CHECK(t->bin_bytes % 2 == 0, OT_ENVIRONMENT,
           "%s: %lld bytes are not a whole number of 16-bit tokens", t->bin_path,
           (long long)t->bin_bytes);
  t->about.tokens = t->bin_bytes / 2;
  return OT_OK;
}

static ot_status open_without_index(ot_tokens *t, ot_data_format format) {
  OT_TRY(open_bin(t));
  if (format == OT_DATA_NANOGPT) return open_headerless(t);
  int32_t header[3] = {0};
  const llmc_kind *const kind = read_llmc_header(t, header);
  if (kind) return open_llmc(t, kind, header);
  if (format == OT_DATA_LLMC) {
    return ot_fail(OT_ENVIRONMENT,
                   "%s: byte 0: not an llm.c token file (magic %d, expected %d or %d)", t->bin_path,
                   header[0], llmc_kinds[0].magic, llmc_kinds[1].magic);
  }
  ot_fail(OT_ENVIRONMENT, "%s: no .idx next to it and no known magic number at byte 0",
          t->bin_path);
  return ot_fail_hint(OT_ENVIRONMENT,
                      "headerless 16-bit tokens (nanoGPT) must be said: data.format: nanogpt");
}

// From PREFIX, PREFIX.bin or PREFIX.idx to the paths of both files.
static ot_status name_files(ot_tokens *t, const char *path) {
  const int64_t length = (int64_t)strlen(path);
  OT_CHECK(length > 0 && length + 8 < OT_PATH_BYTES, OT_USAGE,
           "not a path of a token shard: \"%s\"", path);
  const bool has_suffix = ot_text_ends_with(path, ".bin") || ot_text_ends_with(path, ".idx");
  const int stem = (int)(has_suffix ? length - 4 : length);
  ot_text_format(t->bin_path, OT_PATH_BYTES, "%.*s.bin", stem, path);
  ot_text_format(t->idx_path, OT_PATH_BYTES, "%.*s.idx", stem, path);
  // A file of another name: tokens without an index, or "x.bin" given as "x.bin.bin"'s prefix.
  if (!has_suffix && !ot_disk_is_file(t->bin_path) && ot_disk_is_file(path)) {
    ot_text_format(t->bin_path, OT_PATH_BYTES, "%s", path);
  }
  return OT_OK;
}

static ot_status open_files(ot_tokens *t, const ot_tokens_request *request) {
  OT_TRY(name_files(t, request->path));
  const bool has_index = ot_disk_is_file(t->idx_path);
  const bool has_bin = ot_disk_is_file(t->bin_path);
  if (!has_bin) {
    ot_fail(OT_ENVIRONMENT, "no token shard here: %s does not exist (%s)", t->bin_path,
            request->path);
    return ot_fail_hint(OT_ENVIRONMENT, "`orthant tokenize` makes one from text");
  }
  const bool megatron =
      request->format == OT_DATA_MEGATRON || (request->format == OT_DATA_AUTO && has_index);
  return megatron ? open_megatron(t) : open_without_index(t, request->format);
}

static ot_status fill(ot_tokens *t, const ot_tokens_request *request) {
  t->bin = t->idx = -1;
  t->vocab_size = request->vocab_size;
  t->about = (ot_tokens_about){
      .bin_path = t->bin_path, .documents = -1, .sequences = -1, .eod = request->eod};
  OT_TRY(open_files(t, request));
  // The scripts of llm.c write the id before each document, those of nanoGPT after it.
  const bool begins = t->about.format == OT_DATA_LLMC;
  t->about.boundary = request->boundary != OT_BOUNDARY_AUTO ? request->boundary
                      : begins                              ? OT_BOUNDARY_START
                                                            : OT_BOUNDARY_END;
  if (t->vocab_size == 0 || t->bin_bytes > OT_TOKENS_CHECKED_BYTES) return OT_OK;
  ot_tokens_scan_result ignored;
  return ot_tokens_scan(t, &ignored);
}

ot_status ot_tokens_create(const ot_tokens_request *request, ot_tokens **out) {
  *out = NULL;
  ot_tokens *tokens = calloc(1, sizeof *tokens);
  OT_CHECK(tokens, OT_ENVIRONMENT, "out of memory (%s)", request->path);
  const ot_status status = fill(tokens, request);
  if (status != OT_OK) ot_tokens_destroy(&tokens);
  *out = tokens;
  return status;
}

void ot_tokens_destroy(ot_tokens **tokens) {
  if (!*tokens) return;
  if ((*tokens)->bin >= 0) close((*tokens)->bin);
  if ((*tokens)->idx >= 0) close((*tokens)->idx);
  free(*tokens);
  *tokens = NULL;
}

const ot_tokens_about *ot_tokens_describe(const ot_tokens *tokens) { return &tokens->about; }

// ---- reading ----

// Widens `raw` [count] to int64 so that every type is judged alike.
static int64_t widen(ot_shard_type type, const uint8_t *raw, int64_t i) {
  switch (type) {
    case OT_SHARD_U8:
      return raw[i];
    case OT_SHARD_I8:
      return ((const int8_t *)raw)[i];
    case OT_SHARD_I16:
      return ((const int16_t *)(const void *)raw)[i];
    case OT_SHARD_U16:
      return ((const uint16_t *)(const void *)raw)[i];
    case OT_SHARD_I32:
      return ((const int32_t *)(const void *)raw)[i];
    case OT_SHARD_U32:
      return ((const uint32_t *)(const void *)raw)[i];
    case OT_SHARD_I64:
      return ((const int64_t *)(const void *)raw)[i];
  }
  OT_UNREACHABLE();
}

// Ids of the common types as int32 with the largest seen as unsigned, so that negative ones stand
// out as well; loops without branches, which the compiler vectorises.
static uint32_t convert_u16(const uint16_t *raw, int64_t count, int32_t *ids) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < count; i++) {
    const uint32_t id = raw[i];
    ids[i] = (int32_t)id;
    largest = id > largest ? id : largest;
  }
  return largest;
}

static uint32_t convert_32(const uint32_t *raw, int64_t count, int32_t *ids) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < count; i++) {
    ids[i] = (int32_t)raw[i];
    largest = raw[i] > largest ? raw[i] : largest;
  }
  return largest;
}

static uint32_t convert_any(ot_shard_type type, const uint8_t *raw, int64_t count, int32_t *ids) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < count; i++) {
    const int64_t id = widen(type, raw, i);
    const uint32_t seen = id < 0 || id > INT32_MAX ? UINT32_MAX : (uint32_t)id;
    ids[i] = (int32_t)seen;
    largest = seen > largest ? seen : largest;
  }
  return largest;
}

static uint32_t convert(ot_shard_type type, const uint8_t *raw, int64_t count, int32_t *ids) {
  if (type == OT_SHARD_U16) return convert_u16((const uint16_t *)(const void *)raw, count, ids);
  if (type == OT_SHARD_I32 || type == OT_SHARD_U32) {
    return convert_32((const uint32_t *)(const void *)raw, count, ids);
  }
  return convert_any(type, raw, count, ids);
}

static ot_status fail_at_bad_id(const ot_tokens *t, int64_t first, const uint8_t *raw,
                                int64_t limit) {
  int64_t i = 0;
  while (widen(t->type, raw, i) >= 0 && widen(t->type, raw, i) < limit) i++;
  return ot_fail(OT_ENVIRONMENT, "%s: token %lld (byte %lld) has id %lld; allowed: 0 to %lld",
                 t->bin_path, (long long)(first + i),
                 (long long)(t->data_start + (first + i) * t->about.token_bytes),
                 (long long)widen(t->type, raw, i), (long long)limit - 1);
}

ot_status ot_tokens_read(const ot_tokens *tokens, int64_t first, int64_t count, int32_t *ids) {
  OT_ASSERT(first >= 0 && count >= 0 && first <= tokens->about.tokens - count);
  const int64_t size = tokens->about.token_bytes;
  const int64_t limit = tokens->vocab_size > 0 ? tokens->vocab_size : (int64_t)INT32_MAX + 1;
  _Alignas(8) uint8_t raw[BLOCK * 8];
  for (int64_t done = 0; done < count; done += BLOCK) {
    const int64_t n = count - done < BLOCK ? count - done : BLOCK;
    OT_TRY(ot_disk_read_at(tokens->bin, tokens->bin_path,
                           tokens->data_start + (first + done) * size, raw, n * size));
    const uint32_t largest = convert(tokens->type, raw, n, ids + done);
    if (largest >= limit) return fail_at_bad_id(tokens, first + done, raw, limit);
  }
  return OT_OK;
}
