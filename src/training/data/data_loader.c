// SPDX-License-Identifier: Apache-2.0
// One sampler for training, one per validation set; the tokenizer provides the end-of-document id.
#include "data/data_loader.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "base/text_builder.h"
#include "data/shard_meta.h"
#include "host/heap.h"

struct ot_data_loader {
  const ot_run *run;
  ot_tokenizer *tokenizer;  // null if the run has none
  ot_sampler *train;
  ot_sampler **validation;  // [run->data.num_validation]
};

// ---- micro-batches ----

static ot_status read_rows(const ot_sampler *sampler, int64_t first, ot_micro_batch *rows) {
  for (int64_t b = 0; b < rows->B; b++) rows->sample_ids[b] = first + b;
  const ot_sample_rows to = {.tokens = rows->tokens,
                             .targets = rows->targets,
                             .positions = rows->positions,
                             .doc_starts = rows->doc_starts};
  return ot_sampler_read(sampler, rows->sample_ids, rows->B, &to, &rows->num_targets);
}

// ---- create ----

static int64_t samples_before(const ot_run *run, int64_t step) {
  return ot_run_tokens_after(run, step) / run->data.sequence_length;
}

static ot_sampler_request sampler_request(const ot_data_loader *loader) {
  const ot_run *const run = loader->run;
  return (ot_sampler_request){
      .seed = (uint64_t)run->seed,
      .sequence_length = run->data.sequence_length,
      .document_mask = run->data.document_mask,
      .format = run->data.format,
      .vocab_size = run->model.vocab_size,
      .eod = loader->tokenizer ? ot_tokenizer_eos(loader->tokenizer) : -1,
      .boundary = run->data.document_boundary,
  };
}

static ot_status create_train(ot_data_loader *loader) {
  const ot_run_data *const data = &loader->run->data;
  const int64_t count = data->num_mixtures + 1;
  ot_sampler_mixture *const mixtures = calloc((size_t)count, sizeof *mixtures);
  OT_CHECK(mixtures, OT_ENVIRONMENT, "out of memory");
  mixtures[0] = (ot_sampler_mixture){.sources = data->train, .num_sources = data->num_train};
  for (int64_t i = 1; i < count; i++) {
    const ot_data_mixture *const from = &data->mixtures[i - 1];
    mixtures[i] = (ot_sampler_mixture){.from_sample = samples_before(loader->run, from->from_step),
                                       .sources = from->sources,
                                       .num_sources = from->num_sources};
  }
  ot_sampler_request request = sampler_request(loader);
  request.mixtures = mixtures;
  request.num_mixtures = count;
  const ot_status status = ot_sampler_create(&request, &loader->train);
  free(mixtures);
  return status;
}

static ot_status create_validation(ot_data_loader *loader) {
  const ot_run_data *const data = &loader->run->data;
  loader->validation = calloc((size_t)data->num_validation + 1, sizeof *loader->validation);
  OT_CHECK(loader->validation, OT_ENVIRONMENT, "out of memory");
  for (int64_t i = 0; i < data->num_validation; i++) {
    const ot_data_source source = {.path = data->validation[i].path, .weight = 1};
    const ot_sampler_mixture mixture = {.sources = &source, .num_sources = 1};
    ot_sampler_request request = sampler_request(loader);
    request.mixtures = &mixture;
    request.num_mixtures = 1;
    request.sequential = true;
    OT_TRY(ot_sampler_create(&request, &loader->validation[i]));
  }
  return OT_OK;
}

static ot_status create_tokenizer(ot_data_loader *loader) {
  const ot_run *const run = loader->run;
  if (run->data.tokenizer[0] == '\0') return OT_OK;
  OT_TRY(ot_tokenizer_create(run->data.tokenizer, &loader->tokenizer));
  // Other entries without a row matter only where they occur, which the shards' checks find.
  const int32_t eos = ot_tokenizer_eos(loader->tokenizer);
  OT_CHECK(eos < run->model.vocab_size, OT_USAGE,
           "model: vocab_size=%lld leaves no row for the token that ends documents, %d of the "
           "tokenizer's %lld entries (%s)",
           (long long)run->model.vocab_size, eos,
           (long long)ot_tokenizer_vocab_size(loader->tokenizer), run->data.tokenizer);
  return OT_OK;
}

static ot_status check_origin(const ot_data_loader *loader, const char *path, ot_arena *arena) {
  const ot_run_data *const data = &loader->run->data;
  ot_shard_origin origin;
  char hash[OT_CONTENT_HASH_BYTES];
  OT_TRY(ot_shard_origin_read(path, arena, &origin));
  ot_tokenizer_hash(loader->tokenizer, hash);
  if (!origin.found || ot_text_equal(origin.tokenizer_hash, hash)) return OT_OK;
  ot_fail(OT_USAGE, "data: %s was tokenized with %s (hash %s), not with %s (hash %s)", path,
          origin.tokenizer, origin.tokenizer_hash, data->tokenizer, hash);
  return ot_fail_hint(OT_USAGE,
                      "set data.tokenizer to it, or tokenize again; --set "
                      "data.tokenizer_check=false trains on these ids anyway");
}

// Checks that token files with a record of their tokenizer used the run's.
static ot_status check_origins(const ot_data_loader *loader, ot_arena *arena) {
  const ot_run_data *const data = &loader->run->data;
  if (!loader->tokenizer || !data->tokenizer_check) return OT_OK;
  for (int64_t i = 0; i < ot_sampler_num_sources(loader->train); i++) {
    OT_TRY(check_origin(loader, ot_sampler_source_at(loader->train, i).path, arena));
  }
  for (int64_t i = 0; i < data->num_validation; i++) {
    OT_TRY(check_origin(loader, data->validation[i].path, arena));
  }
  return OT_OK;
}

// A short source among others is padded; if all are short, every sequence would be.
static ot_status check_length(const ot_data_loader *loader) {
  const int64_t T = loader->run->data.sequence_length;
  ot_sampler_source longest = ot_sampler_source_at(loader->train, 0);
  for (int64_t i = 1; i < ot_sampler_num_sources(loader->train); i++) {
    const ot_sampler_source source = ot_sampler_source_at(loader->train, i);
    if (source.tokens > longest.tokens) longest = source;
  }
  if (longest.tokens > T) return OT_OK;
  ot_fail(OT_USAGE, "data: sequence_length=%lld exceeds the data: %s has %lld tokens", (long long)T,
          longest.path, (long long)longest.tokens);
  return ot_fail_hint(OT_USAGE, "a sequence needs one token more than its length: at most %lld",
                      (long long)longest.tokens - 1);
}

static ot_status create(ot_data_loader *loader) {
  OT_CHECK(loader->run->data.num_train > 0, OT_USAGE,
           "data.train is not given: nothing to train on");
  OT_TRY(create_tokenizer(loader));
  OT_TRY(create_train(loader));
  OT_TRY(check_length(loader));
  OT_TRY(create_validation(loader));
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  const ot_status status = check_origins(loader, &arena);
  ot_heap_release(&heap);
  return status;
}

ot_status ot_data_loader_create(const ot_run *run, ot_data_loader **out) {
  *out = calloc(1, sizeof **out);
  OT_CHECK(*out, OT_ENVIRONMENT, "out of memory");
  (*out)->run = run;
  const ot_status status = create(*out);
  if (status != OT_OK) ot_data_loader_destroy(out);
  return status;
}

void ot_data_loader_destroy(ot_data_loader **loader) {
  if (!loader || !*loader) return;
  ot_sampler_destroy(&(*loader)->train);
  for (int64_t i = 0; (*loader)->validation && i < (*loader)->run->data.num_validation; i++) {
    ot_sampler_destroy(&(*loader)->validation[i]);
  }
  free((*loader)->validation);
  ot_tokenizer_destroy(&(*loader)->tokenizer);
  free(*loader);
  *loader = NULL;
}

// ---- reading ----

int64_t ot_data_loader_tokens(const ot_data_loader *loader) {
  int64_t tokens = 0;
  for (int64_t i = 0; i < ot_sampler_num_sources(loader->train); i++) {
    tokens += ot_sampler_source_at(loader->train, i).tokens;
  }
  return tokens;
}

static uint64_t hash_sources(uint64_t hash, const ot_sampler *sampler) {
  for (int64_t i = 0; i < ot_sampler_num_sources(sampler); i++) {
    const ot_sampler_source source = ot_sampler_source_at(sampler, i);
    hash = ot_hash_text(hash, source.path);
    hash = ot_hash_text(hash, source.hash);
  }
  return hash;
}

uint64_t ot_data_loader_hash(const ot_data_loader *loader) {
  uint64_t hash = hash_sources(OT_HASH_START, loader->train);
  for (int64_t i = 0; i < loader->run->data.num_validation; i++) {
    hash = hash_sources(hash, loader->validation[i]);
  }
  return hash;
}

int64_t ot_data_loader_num_files(const ot_data_loader *loader) {
  return ot_sampler_num_sources(loader->train) + loader->run->data.num_validation +
         (loader->tokenizer != NULL);
}

ot_data_file ot_data_loader_file(const ot_data_loader *loader, int64_t index) {
  const int64_t num_train = ot_sampler_num_sources(loader->train);
  const int64_t num_shards = num_train + loader->run->data.num_validation;
  char hash[OT_CONTENT_HASH_BYTES];
  if (index == num_shards) {
    ot_tokenizer_hash(loader->tokenizer, hash);
    return (ot_data_file){loader->run->data.tokenizer, ot_hash_text(OT_HASH_START, hash)};
  }
  const ot_sampler_source source =
      index < num_train ? ot_sampler_source_at(loader->train, index)
                        : ot_data_loader_validation_source(loader, index - num_train);
  return (ot_data_file){source.bin_path, ot_hash_text(OT_HASH_START, source.hash)};
}

const ot_run *ot_data_loader_run(const ot_data_loader *loader) { return loader->run; }

void ot_data_loader_count_drawn(const ot_data_loader *loader, int64_t samples, int64_t *drawn) {
  ot_sampler_count_drawn(loader->train, samples, drawn);
}

ot_sampler_source ot_data_loader_validation_source(const ot_data_loader *loader, int64_t set) {
  return ot_sampler_source_at(loader->validation[set], 0);
}

ot_status ot_data_loader_train(ot_data_loader *loader, int64_t first, ot_micro_batch *rows) {
  return read_rows(loader->train, first, rows);
}

int64_t ot_data_loader_num_sources(const ot_data_loader *loader) {
  return ot_sampler_num_sources(loader->train);
}

ot_sampler_source ot_data_loader_source(const ot_data_loader *loader, int64_t source) {
  return ot_sampler_source_at(loader->train, source);
}

void ot_data_loader_locate(const ot_data_loader *loader, int64_t sample, ot_sample_place *place) {
  ot_sampler_locate(loader->train, sample, place);
}

ot_status ot_data_loader_windows(ot_data_loader *loader, int64_t source, int64_t first,
                                 ot_micro_batch *rows) {
  const int64_t T = rows->T, windows = ot_sampler_source_at(loader->train, source).windows;
  rows->num_targets = 0;
  for (int64_t b = 0; b < rows->B; b++) {
    const ot_sample_rows at = {.tokens = rows->tokens + b * T,
                               .targets = rows->targets + b * T,
                               .positions = rows->positions + b * T,
                               .doc_starts = rows->doc_starts + b * T};
    const bool inside = first + b < windows;
    int64_t targets;
    OT_TRY(ot_sampler_read_window(loader->train, source, inside ? first + b : windows - 1, &at,
                                  &targets));
    rows->sample_ids[b] = first + b;
    for (int64_t t = 0; !inside && t < T; t++) at.targets[t] = -1;
    if (inside) rows->num_targets += targets;
  }
  return OT_OK;
}

int64_t ot_data_loader_validation_rows(const ot_data_loader *loader, int set) {
  const int64_t rows = ot_sampler_num_rows(loader->validation[set]);
  const int64_t T = loader->run->data.sequence_length;
  const int64_t limit = loader->run->data.validation_tokens;
  const int64_t wanted = (limit + T - 1) / T;
  return limit > 0 && wanted < rows ? wanted : rows;
}

ot_status ot_data_loader_validation(ot_data_loader *loader, int set, int64_t first,
                                    ot_micro_batch *rows) {
  OT_TRY(read_rows(loader->validation[set], first, rows));
  // The last micro-batch may extend beyond the evaluated range.
  const int64_t limit = ot_data_loader_validation_rows(loader, set);
  for (int64_t b = 0; b < rows->B; b++) {
    if (first + b < limit) continue;
    for (int64_t t = 0; t < rows->T; t++) rows->targets[b * rows->T + t] = -1;
  }
  return OT_OK;
}

const ot_tokenizer *ot_data_loader_tokenizer(const ot_data_loader *loader) {
  return loader->tokenizer;
}

// ---- display ----

static void append_token(const ot_data_loader *loader, const ot_micro_batch *rows, int64_t t,
                         ot_text_builder *text) {
  int64_t length = 0;
  const uint8_t *const bytes =
      loader->tokenizer ? ot_tokenizer_bytes(loader->tokenizer, rows->tokens[t], &length) : NULL;
  if (t == 0 || rows->positions[t] == 0) ot_text_appendf(text, "%s[document]", t > 0 ? "\n" : "");
  if (bytes) {
    ot_text_append(text, (const char *)bytes, length);
  } else {
    ot_text_appendf(text, " %d", rows->tokens[t]);
  }
  if (rows->targets[t] < 0) ot_text_appendf(text, "[masked]");
}

ot_status ot_data_loader_decode(const ot_data_loader *loader, const ot_micro_batch *rows,
                                ot_arena *arena, const char **text) {
  ot_sample_place place;
  ot_text_builder builder = {.arena = arena};
  ot_sampler_locate(loader->train, rows->sample_ids[0], &place);
  ot_text_appendf(&builder, "sample %ld: %s, epoch %ld, window %ld, tokens %ld to %ld\n",
                  rows->sample_ids[0], place.path, place.epoch, place.window, place.first,
                  place.first + place.count);
  for (int64_t t = 0; t < rows->T; t++) append_token(loader, rows, t, &builder);
  *text = ot_text_builder_text(&builder);
  return OT_OK;
}
