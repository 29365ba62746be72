// SPDX-License-Identifier: Apache-2.0
// The .idx of a Megatron shard: checked whole when it is opened, in blocks, and searched in place.
#include <string.h>
#include <sys/stat.h>

#include "data/tokens_parts.h"

enum { BLOCK = 1024 };

typedef struct header {
  int64_t sequences;  // S
  int64_t entries;    // D, documents + 1
  int64_t bytes;      // of the file
} header;

static ot_status read_header(ot_tokens *t, header *h) {
  struct stat about;
  OT_CHECK(fstat(t->idx, &about) == 0 && S_ISREG(about.st_mode), OT_ENVIRONMENT,
           "not a regular file (%s)", t->idx_path);
  h->bytes = about.st_size;
  OT_CHECK(h->bytes >= OT_SHARD_HEADER_BYTES, OT_ENVIRONMENT,
           "%s: truncated: %lld bytes, the header alone has %d", t->idx_path, (long long)h->bytes,
           OT_SHARD_HEADER_BYTES);
  uint8_t raw[OT_SHARD_HEADER_BYTES];
  OT_TRY(ot_disk_read_at(t->idx, t->idx_path, 0, raw, sizeof raw));
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
  ot_tokens_set_type(t, (ot_shard_type)type);
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

// Sequences must follow one another in .bin without gaps, from its first byte to its last.
static ot_status check_sequences(ot_tokens *t, const header *h) {
  int32_t lengths[BLOCK];
  int64_t offsets[BLOCK];
  int64_t end = 0;
  for (int64_t first = 0; first < h->sequences; first += BLOCK) {
    const int64_t n = h->sequences - first < BLOCK ? h->sequences - first : BLOCK;
    OT_TRY(ot_disk_read_at(t->idx, t->idx_path, OT_SHARD_HEADER_BYTES + 4 * first, lengths, 4 * n));
    OT_TRY(ot_disk_read_at(t->idx, t->idx_path, t->offset_table + 8 * first, offsets, 8 * n));
    for (int64_t i = 0; i < n; i++) {
      OT_CHECK(lengths[i] >= 0, OT_ENVIRONMENT, "%s: byte %lld: sequence %lld has length %d",
               t->idx_path, (long long)(OT_SHARD_HEADER_BYTES + 4 * (first + i)),
               (long long)(first + i), lengths[i]);
      OT_CHECK(offsets[i] == end, OT_ENVIRONMENT,
               "%s: byte %lld: sequence %lld begins at byte %lld of the tokens, expected %lld",
               t->idx_path, (long long)(t->offset_table + 8 * (first + i)), (long long)(first + i),
               (long long)offsets[i], (long long)end);
      end += lengths[i] * t->about.token_bytes;
      OT_CHECK(end <= t->bin_bytes, OT_ENVIRONMENT,
               "%s: truncated: %lld bytes, but the index has sequence %lld end at byte %lld",
               t->bin_path, (long long)t->bin_bytes, (long long)(first + i), (long long)end);
    }
  }
  OT_CHECK(end == t->bin_bytes, OT_ENVIRONMENT, "%s: %lld bytes, but the index accounts for %lld",
           t->bin_path, (long long)t->bin_bytes, (long long)end);
  t->about.tokens = end / t->about.token_bytes;
  return OT_OK;
}

static ot_status check_documents(ot_tokens *t, const header *h) {
  int64_t table[BLOCK];
  int64_t last = 0;
  t->plain_documents = h->entries == h->sequences + 1;
  for (int64_t first = 0; first < h->entries; first += BLOCK) {
    const int64_t n = h->entries - first < BLOCK ? h->entries - first : BLOCK;
    OT_TRY(ot_disk_read_at(t->idx, t->idx_path, t->document_table + 8 * first, table, 8 * n));
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

ot_status ot_tokens_read_index(ot_tokens *tokens) {
  header h = {0};
  OT_TRY(read_header(tokens, &h));
  tokens->offset_table = OT_SHARD_HEADER_BYTES + 4 * h.sequences;
  tokens->document_table = tokens->offset_table + 8 * h.sequences;
  tokens->about.sequences = h.sequences;
  tokens->about.documents = h.entries - 1;
  OT_TRY(check_sequences(tokens, &h));
  return check_documents(tokens, &h);
}

ot_status ot_tokens_document_start(const ot_tokens *tokens, int64_t document, int64_t *start) {
  int64_t sequence = document;
  if (!tokens->plain_documents) {
    OT_TRY(ot_disk_read_at(tokens->idx, tokens->idx_path, tokens->document_table + 8 * document,
                           &sequence, 8));
  }
  int64_t offset = tokens->about.tokens * tokens->about.token_bytes;
  if (sequence >= 0 && sequence < tokens->about.sequences) {
    OT_TRY(ot_disk_read_at(tokens->idx, tokens->idx_path, tokens->offset_table + 8 * sequence,
                           &offset, 8));
  }
  *start = offset / tokens->about.token_bytes;
  return OT_OK;
}

ot_status ot_tokens_find_document(const ot_tokens *tokens, int64_t position, int64_t *document) {
  int64_t low = 0, high = tokens->about.documents;
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    int64_t start;
    OT_TRY(ot_tokens_document_start(tokens, middle, &start));
    if (start <= position) {
      low = middle;
    } else {
      high = middle;
    }
  }
  *document = low;
  return OT_OK;
}
