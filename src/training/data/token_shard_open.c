// SPDX-License-Identifier: Apache-2.0
// Opens a shard by format and checks a Megatron index completely.
#include <string.h>

#include "base/text.h"
#include "data/token_shard_parts.h"

enum { INDEX_BLOCK = 1024, LLMC_HEADER_BYTES = 1024, GPT2_EOD = 50256, LLAMA3_EOD = 128000 };

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

static const struct shard_type {
  const char *name;
  int bytes;
} shard_types[] = {
    [OT_SHARD_U8] = {"uint8", 1},   [OT_SHARD_I8] = {"int8", 1},   [OT_SHARD_I16] = {"int16", 2},
    [OT_SHARD_U16] = {"uint16", 2}, [OT_SHARD_I32] = {"int32", 4}, [OT_SHARD_U32] = {"uint32", 4},
    [OT_SHARD_I64] = {"int64", 8},
};

static void set_type(ot_token_shard *t, ot_shard_type type) {
  t->type = type;
  t->about.dtype = shard_types[type].name;
  t->about.token_bytes = shard_types[type].bytes;
}

// ---- the .idx of a Megatron shard ----

// Checked completely on opening, in blocks, and searched in place.

typedef struct index_header {
  int64_t sequences;  // S
  int64_t entries;    // D, documents + 1
  int64_t bytes;      // file size
} index_header;

static ot_status read_header(ot_token_shard *t, index_header *h) {
  h->bytes = t->idx.bytes;
  OT_CHECK(h->bytes >= OT_SHARD_HEADER_BYTES, OT_ENVIRONMENT,
           "%s: truncated: %lld bytes, the header alone has %d", t->idx_path, (long long)h->bytes,
           OT_SHARD_HEADER_BYTES);
  uint8_t raw[OT_SHARD_HEADER_BYTES];
  OT_TRY(ot_steady_file_read(&t->idx, 0, raw, sizeof raw));
  OT_CHECK(memcmp(raw, ot_shard_magic, sizeof ot_shard_magic) == 0, OT_ENVIRONMENT,
           "%s: byte 0: not a Megatron index (magic number)", t->idx_path);
  uint64_t version, sequences, entries;
  memcpy(&version, raw + OT_SHARD_VERSION_AT, 8);
  memcpy(&sequences, raw + OT_SHARD_SEQUENCES_AT, 8);
  memcpy(&entries, raw + OT_SHARD_DOCUMENTS_AT, 8);
  OT_CHECK(version == OT_SHARD_VERSION, OT_ENVIRONMENT, "%s: byte 9: version %llu, expected %d",
           t->idx_path, (unsigned long long)version, OT_SHARD_VERSION);
  const uint8_t type = raw[OT_SHARD_TYPE_AT];
  OT_CHECK((type >= OT_SHARD_U8 && type <= OT_SHARD_I64) || type == OT_SHARD_U16, OT_ENVIRONMENT,
           "%s: byte 17: token type %d is not supported; allowed: 1 to 5 and 8", t->idx_path, type);
  set_type(t, (ot_shard_type)type);
  const uint64_t room = (uint64_t)(h->bytes - OT_SHARD_HEADER_BYTES);
  OT_CHECK(sequences <= room / 12 && entries <= room / 8 && entries >= 1 &&
               12 * sequences + 8 * entries == room,
           OT_ENVIRONMENT,
           "%s: byte 18: %llu sequences and %llu documents do not fill a file of %lld bytes",
           t->idx_path, (unsigned long long)sequences, (unsigned long long)(entries - 1),
           (long long)h->bytes);
  h->sequences = (int64_t)sequences;
  h->entries = (int64_t)entries;
  return OT_OK;
}

// Sequences must cover .bin without gaps, in order.
static ot_status check_sequences(ot_token_shard *t, const index_header *h) {
  int32_t lengths[INDEX_BLOCK];
  int64_t offsets[INDEX_BLOCK];
  int64_t end = 0;
  for (int64_t first = 0; first < h->sequences; first += INDEX_BLOCK) {
    const int64_t n = h->sequences - first < INDEX_BLOCK ? h->sequences - first : INDEX_BLOCK;
    OT_TRY(ot_steady_file_read(&t->idx, OT_SHARD_HEADER_BYTES + 4 * first, lengths, 4 * n));
    OT_TRY(ot_steady_file_read(&t->idx, t->offset_table + 8 * first, offsets, 8 * n));
    for (int64_t i = 0; i < n; i++) {
      OT_CHECK(lengths[i] >= 0, OT_ENVIRONMENT, "%s: byte %lld: sequence %lld has length %d",
               t->idx_path, (long long)(OT_SHARD_HEADER_BYTES + 4 * (first + i)),
               (long long)(first + i), lengths[i]);
      OT_CHECK(offsets[i] == end, OT_ENVIRONMENT,
               "%s: byte %lld: sequence %lld begins at byte %lld of the tokens, expected %lld",
               t->idx_path, (long long)(t->offset_table + 8 * (first + i)), (long long)(first + i),
               (long long)offsets[i], (long long)end);
      end += lengths[i] * t->about.token_bytes;
      OT_CHECK(end <= t->bin.bytes, OT_ENVIRONMENT,
               "%s: truncated: %lld bytes, but the index has sequence %lld end at byte %lld",
               t->bin_path, (long long)t->bin.bytes, (long long)(first + i), (long long)end);
    }
  }
  OT_CHECK(end == t->bin.bytes, OT_ENVIRONMENT, "%s: %lld bytes, but the index covers %lld",
           t->bin_path, (long long)t->bin.bytes, (long long)end);
  t->about.tokens = end / t->about.token_bytes;
  return OT_OK;
}

static ot_status check_documents(ot_token_shard *t, const index_header *h) {
  int64_t table[INDEX_BLOCK];
  int64_t last = 0;
  t->plain_documents = h->entries == h->sequences + 1;
  for (int64_t first = 0; first < h->entries; first += INDEX_BLOCK) {
    const int64_t n = h->entries - first < INDEX_BLOCK ? h->entries - first : INDEX_BLOCK;
    OT_TRY(ot_steady_file_read(&t->idx, t->document_table + 8 * first, table, 8 * n));
    for (int64_t i = 0; i < n; i++) {
      const int64_t at = first + i;
      const bool right = table[i] >= last && table[i] <= h->sequences &&
                         (at > 0 || table[i] == 0) &&
                         (at + 1 < h->entries || table[i] == h->sequences);
      OT_CHECK(right, OT_ENVIRONMENT,
               "%s: byte %lld: document %lld begins with sequence %lld; expected 0 first, %lld at "
               "the end, never less than before",
               t->idx_path, (long long)(t->document_table + 8 * at), (long long)at,
               (long long)table[i], (long long)h->sequences);
      last = table[i];
      t->plain_documents = t->plain_documents && table[i] == at;
    }
  }
  return OT_OK;
}

static ot_status read_index(ot_token_shard *tokens) {
  index_header h = {0};
  OT_TRY(read_header(tokens, &h));
  tokens->offset_table = OT_SHARD_HEADER_BYTES + 4 * h.sequences;
  tokens->document_table = tokens->offset_table + 8 * h.sequences;
  tokens->about.sequences = h.sequences;
  tokens->about.documents = h.entries - 1;
  OT_TRY(check_sequences(tokens, &h));
  return check_documents(tokens, &h);
}

static ot_status open_megatron(ot_token_shard *t) {
  t->about.format = OT_DATA_MEGATRON;
  t->about.idx_path = t->idx_path;
  OT_TRY(ot_steady_file_open(t->idx_path, &t->idx));
  OT_TRY(ot_steady_file_open(t->bin_path, &t->bin));
  return read_index(t);
}

// The header of an llm.c file, or null.
static const llmc_kind *read_llmc_header(const ot_token_shard *t, int32_t header[3]) {
  const int64_t length = 3 * (int64_t)sizeof *header;
  if (t->bin.bytes < length || ot_steady_file_read(&t->bin, 0, header, length) != OT_OK)
    return NULL;
  for (size_t i = 0; i < sizeof llmc_kinds / sizeof *llmc_kinds; i++) {
    if (header[0] == llmc_kinds[i].magic) return &llmc_kinds[i];
  }
  return NULL;
}

static ot_status open_llmc(ot_token_shard *t, const llmc_kind *kind, const int32_t header[3]) {
  t->about.format = OT_DATA_LLMC;
  if (t->about.eod < 0) t->about.eod = kind->eod;
  OT_CHECK(header[1] == kind->version, OT_ENVIRONMENT, "%s: byte 4: version %d, expected %d",
           t->bin_path, header[1], kind->version);
  set_type(t, kind->type);
  const int64_t expected = LLMC_HEADER_BYTES + header[2] * t->about.token_bytes;
  OT_CHECK(header[2] >= 0 && t->bin.bytes == expected, OT_ENVIRONMENT,
           "%s: the header says %d tokens (%lld bytes), but the file has %lld bytes", t->bin_path,
           header[2], (long long)expected, (long long)t->bin.bytes);
  t->data_start = LLMC_HEADER_BYTES;
  t->about.tokens = header[2];
  return OT_OK;
}

// A file without a header is what the user says; what contradicts that is an error.
static ot_status refuse_headerless(const ot_token_shard *t, const char *what, const char *hint) {
  ot_fail(OT_ENVIRONMENT, "%s: %s", t->bin_path, what);
  return ot_fail_hint(OT_ENVIRONMENT, "%s", hint);
}

static ot_status check_no_header(const ot_token_shard *t) {
  static const uint8_t numpy[] = {0x93, 'N', 'U', 'M', 'P', 'Y'};
  int32_t header[3];
  uint8_t head[sizeof numpy] = {0};
  if (read_llmc_header(t, header))
    return refuse_headerless(t, "byte 0: the header of llm.c, so not headerless tokens",
                             "data.format: llmc reads it");
  if (t->bin.bytes < (int64_t)sizeof head) return OT_OK;
  OT_TRY(ot_steady_file_read(&t->bin, 0, head, sizeof head));
  if (memcmp(head, numpy, sizeof numpy) != 0) return OT_OK;
  return refuse_headerless(t, "byte 0: the header of a NumPy file, so not headerless tokens",
                           "write its array with tofile()");
}

// In a file of 32-bit tokens every second 16-bit value is the upper half of an id, mostly 0.
static ot_status check_not_wide(const ot_token_shard *t) {
  enum { LEAST = 64 };
  uint16_t raw[OT_TOKEN_SHARD_BLOCK];
  uint16_t lower = 0, upper = 0;
  const char *const hint = "data.format: nanogpt32 reads 32-bit tokens";
  if (t->vocab_size > UINT16_MAX + 1) {
    ot_fail(OT_ENVIRONMENT, "%s: 16-bit tokens cannot hold a vocabulary of %lld (model.vocab_size)",
            t->bin_path, (long long)t->vocab_size);
    return ot_fail_hint(OT_ENVIRONMENT, "%s", hint);
  }
  const int64_t count = t->about.tokens < OT_COUNT(raw) ? t->about.tokens / 2 * 2 : OT_COUNT(raw);
  if (count < LEAST) return OT_OK;
  OT_TRY(ot_steady_file_read(&t->bin, 0, raw, 2 * count));
  for (int64_t i = 0; i < count; i += 2) {
    lower |= raw[i];
    upper |= raw[i + 1];
  }
  if (upper != 0 || lower == 0) return OT_OK;
  return refuse_headerless(t, "every second 16-bit value is 0, as in 32-bit tokens", hint);
}

static ot_status open_headerless(ot_token_shard *t, ot_data_format format) {
  const bool wide = format == OT_DATA_NANOGPT32;
  t->about.format = format;
  set_type(t, wide ? OT_SHARD_U32 : OT_SHARD_U16);
  const int64_t size = t->about.token_bytes;
  OT_CHECK(t->bin.bytes % size == 0, OT_ENVIRONMENT,
           "%s: %lld bytes are not a whole number of %lld-bit tokens", t->bin_path,
           (long long)t->bin.bytes, (long long)(8 * size));
  t->about.tokens = t->bin.bytes / size;
  OT_TRY(check_no_header(t));
  return wide ? OT_OK : check_not_wide(t);
}

static ot_status open_without_index(ot_token_shard *t, ot_data_format format) {
  OT_TRY(ot_steady_file_open(t->bin_path, &t->bin));
  if (format == OT_DATA_NANOGPT || format == OT_DATA_NANOGPT32) return open_headerless(t, format);
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
  return ot_fail_hint(
      OT_ENVIRONMENT,
      "headerless tokens (nanoGPT) need data.format: nanogpt (16 bits) or nanogpt32");
}

// From PREFIX, PREFIX.bin or PREFIX.idx to the paths of both files.
static ot_status name_files(ot_token_shard *t, const char *path) {
  const int64_t length = (int64_t)strlen(path);
  OT_CHECK(length > 0 && length + 8 < OT_PATH_BYTES, OT_USAGE,
           "not the path of a token shard: \"%s\"", path);
  const bool has_suffix = ot_text_ends_with(path, ".bin") || ot_text_ends_with(path, ".idx");
  const int stem = (int)(has_suffix ? length - 4 : length);
  ot_text_format(t->bin_path, OT_PATH_BYTES, "%.*s.bin", stem, path);
  ot_text_format(t->idx_path, OT_PATH_BYTES, "%.*s.idx", stem, path);
  // A file with another name: tokens without an index, or "x.bin" given as the prefix of
  // "x.bin.bin".
  if (!has_suffix && !ot_disk_is_file(t->bin_path) && ot_disk_is_file(path)) {
    ot_text_format(t->bin_path, OT_PATH_BYTES, "%s", path);
  }
  return OT_OK;
}

ot_status ot_token_shard_open_files(ot_token_shard *t, const ot_token_shard_request *request) {
  OT_TRY(name_files(t, request->path));
  const bool has_index = ot_disk_is_file(t->idx_path);
  const bool has_bin = ot_disk_is_file(t->bin_path);
  if (!has_bin) {
    ot_fail(OT_ENVIRONMENT, "no token shard here: %s does not exist (%s)", t->bin_path,
            request->path);
    return ot_fail_hint(OT_ENVIRONMENT, "`orthant tokenize` creates one from text");
  }
  const bool megatron =
      request->format == OT_DATA_MEGATRON || (request->format == OT_DATA_AUTO && has_index);
  return megatron ? open_megatron(t) : open_without_index(t, request->format);
}
