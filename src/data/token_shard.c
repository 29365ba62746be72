// SPDX-License-Identifier: Apache-2.0
// Opens a shard by format, checks a Megatron index completely, reads and checks ids, and finds
// documents.
#include "data/token_shard.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "data/shard_meta.h"
#include "files/disk.h"
#include "files/steady_file.h"

struct ot_token_shard {
  ot_token_shard_info about;
  char bin_path[OT_PATH_BYTES];
  char idx_path[OT_PATH_BYTES];
  ot_steady_file bin;
  ot_steady_file idx;
  int64_t data_start;  // byte of the first token in .bin
  ot_shard_type type;
  int64_t vocab_size;      // 0: unknown
  int64_t document_table;  // position of the document table in .idx
  int64_t offset_table;    // position of the byte offsets in .idx
  bool plain_documents;    // document d is sequence d
};

enum {
  BLOCK = 2048,
  INDEX_BLOCK = 1024,
  LLMC_HEADER_BYTES = 1024,
  GPT2_EOD = 50256,
  LLAMA3_EOD = 128000
};

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

static void set_type(ot_token_shard *t, ot_shard_type type) {
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

static ot_status document_start(const ot_token_shard *tokens, int64_t document, int64_t *start) {
  int64_t sequence = document;
  if (!tokens->plain_documents) {
    OT_TRY(ot_steady_file_read(&tokens->idx, tokens->document_table + 8 * document, &sequence, 8));
  }
  int64_t offset = tokens->about.tokens * tokens->about.token_bytes;
  if (sequence >= 0 && sequence < tokens->about.sequences) {
    OT_TRY(ot_steady_file_read(&tokens->idx, tokens->offset_table + 8 * sequence, &offset, 8));
  }
  *start = offset / tokens->about.token_bytes;
  return OT_OK;
}

static ot_status find_document(const ot_token_shard *tokens, int64_t position, int64_t *document) {
  int64_t low = 0, high = tokens->about.documents;
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    int64_t start;
    OT_TRY(document_start(tokens, middle, &start));
    if (start <= position) {
      low = middle;
    } else {
      high = middle;
    }
  }
  *document = low;
  return OT_OK;
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

static ot_status open_headerless(ot_token_shard *t) {
  t->about.format = OT_DATA_NANOGPT;
  set_type(t, OT_SHARD_U16);
  OT_CHECK(t->bin.bytes % 2 == 0, OT_ENVIRONMENT,
           "%s: %lld bytes are not a whole number of 16-bit tokens", t->bin_path,
           (long long)t->bin.bytes);
  t->about.tokens = t->bin.bytes / 2;
  return OT_OK;
}

static ot_status open_without_index(ot_token_shard *t, ot_data_format format) {
  OT_TRY(ot_steady_file_open(t->bin_path, &t->bin));
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
                      "headerless 16-bit tokens (nanoGPT) need data.format: nanogpt");
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

static ot_status open_files(ot_token_shard *t, const ot_token_shard_request *request) {
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

// ---- content ----

static ot_status hash_file(const ot_steady_file *file, char hex[OT_CONTENT_HASH_BYTES]) {
  return ot_content_hash_file(file->descriptor, file->path, file->bytes, hex);
}

static ot_status hash_content(ot_token_shard *t) {
  char hashes[2 * OT_CONTENT_HASH_BYTES] = "";
  OT_TRY(hash_file(&t->bin, hashes));
  if (t->bin.bytes <= OT_CONTENT_WHOLE_BYTES) OT_TRY(ot_shard_check_hash(t->bin_path, hashes));
  if (t->about.idx_path) OT_TRY(hash_file(&t->idx, hashes + OT_CONTENT_HASH_BYTES - 1));
  ot_content_hash_memory(hashes, ot_text_length(hashes), t->about.hash);
  return OT_OK;
}

static ot_status fill(ot_token_shard *t, const ot_token_shard_request *request) {
  t->bin.descriptor = t->idx.descriptor = -1;
  t->vocab_size = request->vocab_size;
  t->about = (ot_token_shard_info){
      .bin_path = t->bin_path, .documents = -1, .sequences = -1, .eod = request->eod};
  OT_TRY(open_files(t, request));
  // The scripts of llm.c write the id before each document, those of nanoGPT after it.
  const bool begins = t->about.format == OT_DATA_LLMC;
  t->about.boundary = request->boundary != OT_BOUNDARY_AUTO ? request->boundary
                      : begins                              ? OT_BOUNDARY_START
                                                            : OT_BOUNDARY_END;
  OT_TRY(hash_content(t));
  if (t->vocab_size == 0 || t->bin.bytes > OT_TOKEN_SHARD_CHECKED_BYTES) return OT_OK;
  ot_token_shard_scan_result ignored;
  return ot_token_shard_scan(t, &ignored);
}

ot_status ot_token_shard_create(const ot_token_shard_request *request, ot_token_shard **out) {
  *out = NULL;
  ot_token_shard *tokens = calloc(1, sizeof *tokens);
  OT_CHECK(tokens, OT_ENVIRONMENT, "out of memory (%s)", request->path);
  const ot_status status = fill(tokens, request);
  if (status != OT_OK) ot_token_shard_destroy(&tokens);
  *out = tokens;
  return status;
}

void ot_token_shard_destroy(ot_token_shard **tokens) {
  if (!*tokens) return;
  ot_steady_file_close(&(*tokens)->bin);
  ot_steady_file_close(&(*tokens)->idx);
  free(*tokens);
  *tokens = NULL;
}

const ot_token_shard_info *ot_token_shard_describe(const ot_token_shard *tokens) {
  return &tokens->about;
}

// ---- reading ----

// Converts raw[i] to int64 so that every dtype is checked alike.
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

// Ids of common dtypes as int32, with the maximum as unsigned, which also reveals negative ones;
// branch-free loops that the compiler vectorises.
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

static ot_status fail_at_bad_id(const ot_token_shard *t, int64_t first, const uint8_t *raw,
                                int64_t limit) {
  int64_t i = 0;
  while (widen(t->type, raw, i) >= 0 && widen(t->type, raw, i) < limit) i++;
  return ot_fail(OT_ENVIRONMENT, "%s: token %lld (byte %lld) has id %lld; allowed: 0 to %lld",
                 t->bin_path, (long long)(first + i),
                 (long long)(t->data_start + (first + i) * t->about.token_bytes),
                 (long long)widen(t->type, raw, i), (long long)limit - 1);
}

ot_status ot_token_shard_read(const ot_token_shard *tokens, int64_t first, int64_t count,
                              int32_t *ids) {
  OT_ASSERT(first >= 0 && count >= 0 && first <= tokens->about.tokens - count);
  const int64_t size = tokens->about.token_bytes;
  const int64_t limit = tokens->vocab_size > 0 ? tokens->vocab_size : (int64_t)INT32_MAX + 1;
  _Alignas(8) uint8_t raw[BLOCK * 8];
  for (int64_t done = 0; done < count; done += BLOCK) {
    const int64_t n = count - done < BLOCK ? count - done : BLOCK;
    OT_TRY(ot_steady_file_read(&tokens->bin, tokens->data_start + (first + done) * size, raw,
                               n * size));
    const uint32_t largest = convert(tokens->type, raw, n, ids + done);
    if (largest >= limit) return fail_at_bad_id(tokens, first + done, raw, limit);
  }
  return OT_OK;
}

static ot_status boundaries_by_index(const ot_token_shard *t, const ot_token_shard_span *span,
                                     ot_token_shard_boundary_sink sink, void *context) {
  int64_t document;
  OT_TRY(find_document(t, span->first, &document));
  int64_t last = span->first;
  while (++document < t->about.documents) {
    int64_t start;
    OT_TRY(document_start(t, document, &start));
    if (start >= span->first + span->count) break;
    // Empty documents start where the next one does.
    if (start > last) sink(context, start);
    last = start;
  }
  return OT_OK;
}

ot_status ot_token_shard_boundaries(const ot_token_shard *tokens, const ot_token_shard_span *span,
                                    ot_token_shard_boundary_sink sink, void *context) {
  if (span->count == 0) return OT_OK;
  if (tokens->about.documents >= 0) return boundaries_by_index(tokens, span, sink, context);
  const bool begins = tokens->about.boundary == OT_BOUNDARY_START;
  for (int64_t i = 1; i < span->count; i++) {
    const int32_t here = i + 1 < span->count ? span->ids[i] : span->last;
    if ((begins ? here : span->ids[i - 1]) == tokens->about.eod) sink(context, span->first + i);
  }
  return OT_OK;
}

// ---- without an index: all tokens, in order ----

typedef struct walk {
  const ot_token_shard *tokens;
  ot_token_shard_document_sink sink;  // may be null
  void *context;
  int64_t documents;  // completed so far
  int64_t start;      // first token of the current document
  int32_t max_id;
} walk;

static ot_status end_document(walk *w, int64_t end) {
  const int64_t first = w->start;
  w->start = end;
  const int64_t document = w->documents++;
  return w->sink ? w->sink(w->context, document, first, end - first) : OT_OK;
}

static ot_status walk_block(walk *w, const int32_t *ids, int64_t first, int64_t count) {
  const bool by_eod = w->tokens->about.documents < 0;
  const int64_t eod = w->tokens->about.eod;
  const bool begins = w->tokens->about.boundary == OT_BOUNDARY_START;
  for (int64_t i = 0; i < count; i++) {
    if (ids[i] > w->max_id) w->max_id = ids[i];
    if (!by_eod || ids[i] != eod) continue;
    const int64_t end = first + i + !begins;
    if (end > w->start) OT_TRY(end_document(w, end));
  }
  return OT_OK;
}

static ot_status walk_tokens(walk *w) {
  const ot_token_shard *const t = w->tokens;
  int32_t ids[BLOCK];
  for (int64_t first = 0; first < t->about.tokens; first += BLOCK) {
    const int64_t n = t->about.tokens - first < BLOCK ? t->about.tokens - first : BLOCK;
    OT_TRY(ot_token_shard_read(t, first, n, ids));
    OT_TRY(walk_block(w, ids, first, n));
  }
  // Tokens after the last boundary form a document, too.
  const bool open_end = t->about.documents < 0 && w->start < t->about.tokens;
  return open_end ? end_document(w, t->about.tokens) : OT_OK;
}

// ---- public ----

ot_status ot_token_shard_each_document(const ot_token_shard *tokens,
                                       ot_token_shard_document_sink sink, void *context) {
  if (tokens->about.documents < 0) {
    walk w = {.tokens = tokens, .sink = sink, .context = context};
    return walk_tokens(&w);
  }
  int64_t start = 0;
  for (int64_t i = 0; i < tokens->about.documents; i++) {
    int64_t end;
    OT_TRY(document_start(tokens, i + 1, &end));
    OT_TRY(sink(context, i, start, end - start));
    start = end;
  }
  return OT_OK;
}

typedef struct search {
  int64_t wanted;
  int64_t first, count;  // of the requested document, once found
  int64_t documents;     // documents seen
} search;

static ot_status look_at(void *context, int64_t document, int64_t first, int64_t count) {
  search *const s = context;
  s->documents++;
  if (document != s->wanted) return OT_OK;
  s->first = first;
  s->count = count;
  return OT_OK;
}

static ot_status check_document(const ot_token_shard *t, int64_t document, int64_t documents) {
  OT_CHECK(document >= 0 && document < documents, OT_USAGE,
           "%s has no document %lld; it has %lld, counted from 0", t->bin_path, (long long)document,
           (long long)documents);
  return OT_OK;
}

ot_status ot_token_shard_document(const ot_token_shard *tokens, int64_t document, int64_t *first,
                                  int64_t *count) {
  if (tokens->about.documents < 0) {
    search s = {.wanted = document};
    OT_TRY(ot_token_shard_each_document(tokens, look_at, &s));
    *first = s.first;
    *count = s.count;
    return check_document(tokens, document, s.documents);
  }
  OT_TRY(check_document(tokens, document, tokens->about.documents));
  int64_t end;
  OT_TRY(document_start(tokens, document, first));
  OT_TRY(document_start(tokens, document + 1, &end));
  *count = end - *first;
  return OT_OK;
}

ot_status ot_token_shard_scan(const ot_token_shard *tokens, ot_token_shard_scan_result *result) {
  walk w = {.tokens = tokens, .max_id = -1};
  OT_TRY(walk_tokens(&w));
  result->max_id = w.max_id;
  result->documents = tokens->about.documents >= 0 ? tokens->about.documents : w.documents;
  return OT_OK;
}
