// SPDX-License-Identifier: Apache-2.0
// The identity of a store, computed from a run and its data, and compared.
#include <string.h>

#include "base/text.h"
#include "distill/teacher_store.h"
#include "files/content_hash.h"

enum { NARROW_VOCABULARY = 1 << 17, HASHED_WINDOWS = 64 };

const char *ot_teacher_path(ot_arena *arena, const char *path) {
  const bool suffix = ot_text_ends_with(path, ".bin") || ot_text_ends_with(path, ".idx");
  const int64_t stem = ot_text_length(path) - (suffix ? 4 : 0);
  return ot_arena_format(arena, "%.*s.teacher", (int)stem, path);
}

uint64_t ot_teacher_key(const ot_teacher_header *header, int64_t window, int64_t position) {
  const uint64_t place[] = {header->seed, (uint64_t)window, (uint64_t)position};
  return ot_hash_bytes(ot_hash_text(OT_HASH_START, header->tokens), place, sizeof place);
}

// ---- the set of tokens ----

// The number of tokens and some windows, spread evenly: to tell other data at once. All windows are
// compared when they are read.
static ot_status hash_windows(ot_data_loader *loader, int64_t source, ot_micro_batch *rows,
                              ot_content_hash *hash) {
  const ot_sampler_source about = ot_data_loader_source(loader, source);
  const int64_t num = about.windows < HASHED_WINDOWS ? about.windows : HASHED_WINDOWS;
  ot_content_hash_update(hash, &about.tokens, sizeof about.tokens);
  for (int64_t i = 0; i < num; i++) {
    OT_TRY(ot_data_loader_windows(loader, source, i * about.windows / num, rows));
    ot_content_hash_update(hash, rows->tokens, rows->T * (int64_t)sizeof *rows->tokens);
  }
  return OT_OK;
}

static ot_status hash_tokens(ot_data_loader *loader, int64_t source, int64_t T,
                             char hex[OT_CONTENT_HASH_BYTES]) {
  ot_micro_batch rows = {0};
  ot_content_hash *hash = NULL;
  ot_status status = ot_micro_batch_create(1, T, &rows);
  if (status == OT_OK) status = ot_content_hash_create(&hash);
  if (status == OT_OK) status = hash_windows(loader, source, &rows, hash);
  if (status == OT_OK) ot_content_hash_print(hash, hex);
  ot_content_hash_destroy(&hash);
  ot_micro_batch_release(&rows);
  return status;
}

static int bits_for(int64_t most) {
  int bits = 1;
  while ((most >> bits) > 0) bits++;
  return bits;
}

ot_status ot_teacher_header_of(const ot_run *run, ot_data_loader *loader, int64_t source,
                               const char *teacher, ot_teacher_header *header) {
  const ot_run_distill *const d = &run->distill;
  const ot_tokenizer *const tokenizer = ot_data_loader_tokenizer(loader);
  const bool top_k = d->objective == OT_DISTILL_TOP_K;
  const int64_t draws = top_k ? OT_TEACHER_COUNTS : d->draws;
  *header = (ot_teacher_header){
      .sequence_length = run->data.sequence_length,
      .eod = tokenizer ? ot_tokenizer_eos(tokenizer) : -1,
      .vocab_size = run->model.vocab_size,
      .windows = ot_data_loader_source(loader, source).windows,
      .draws = draws,
      .ids = top_k ? d->targets : d->draws,
      .seed = (uint64_t)run->seed,
      .document_mask = run->data.document_mask,
      .top_k = top_k,
      .id_bits = run->model.vocab_size <= NARROW_VOCABULARY ? 17 : 24,
      .count_bits = bits_for(draws),
  };
  ot_text_format(header->teacher, sizeof header->teacher, "%s", teacher);
  memset(header->tokenizer, '0', sizeof header->tokenizer - 1);
  if (tokenizer) ot_tokenizer_hash(tokenizer, header->tokenizer);
  return hash_tokens(loader, source, run->data.sequence_length, header->tokens);
}

// ---- comparing ----

static ot_status check_number(const char *path, const char *what, int64_t found, int64_t wanted) {
  if (found == wanted) return OT_OK;
  ot_fail(OT_USAGE, "distill: the store was made for %s=%lld, the run has %lld (%s)", what,
          (long long)found, (long long)wanted, path);
  return ot_fail_hint(OT_USAGE, "`orthant distill targets` makes one for the run");
}

static ot_status check_hash(const char *path, const char *what, const char *found,
                            const char *wanted) {
  if (ot_text_equal(found, wanted)) return OT_OK;
  ot_fail(OT_USAGE, "distill: the store was made for another %s: hash %s, the run's is %s (%s)",
          what, found, wanted, path);
  return ot_fail_hint(OT_USAGE, "`orthant distill targets` makes one for the run");
}

ot_status ot_teacher_header_check(const char *path, const ot_teacher_header *found,
                                  const ot_teacher_header *wanted) {
  const struct {
    const char *what;
    int64_t found, wanted;
  } numbers[] = {
      {"data.sequence_length", found->sequence_length, wanted->sequence_length},
      {"data.document_mask", found->document_mask, wanted->document_mask},
      {"end-of-document id", found->eod, wanted->eod},
      {"model.vocab_size", found->vocab_size, wanted->vocab_size},
      {"distill.objective top_k", found->top_k, wanted->top_k},
      {"distill.draws", found->draws, wanted->draws},
      {"distill.targets", wanted->top_k ? found->ids : 0, wanted->top_k ? wanted->ids : 0},
      {"number of windows", found->windows, wanted->windows},
  };
  OT_TRY(check_hash(path, "tokenizer", found->tokenizer, wanted->tokenizer));
  for (int i = 0; i < OT_COUNT(numbers); i++) {
    OT_TRY(check_number(path, numbers[i].what, numbers[i].found, numbers[i].wanted));
  }
  OT_TRY(check_hash(path, "training set, or another order of it", found->tokens, wanted->tokens));
  if (wanted->teacher[0] == '\0') return OT_OK;
  return check_hash(path, "teacher", found->teacher, wanted->teacher);
}
