// SPDX-License-Identifier: Apache-2.0
// Which ranks read the same batches: ranks that differ only on axes of tensor, context, pipeline or
// expert parallelism. Axes are known by the words in their names. Where they are not, ranks with
// equal batches are taken for copies.
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "files/content_hash.h"
#include "judge/recorded_parts.h"

enum { LOAD_BYTES = 1 << 16 };

static const char *const data_words[] = {"dp",   "ddp",       "fsdp",  "hsdp",  "edp",
                                         "data", "replicate", "shard", "batch", "zero"};
static const char *const model_words[] = {
    "tp",      "cp",   "pp",       "sp",    "ep",       "etp",    "mp",      "vpp",  "tensor",
    "context", "pipe", "pipeline", "stage", "sequence", "expert", "ulysses", "ring", "model"};

static bool is_letter_or_digit(char c) { return ot_is_letter(c) || ot_is_digit(c); }

// Whether one of the words of `name`, such as dp and shard in "dp_shard2", is in `words` [count].
static bool has_word(const char *name, const char *const *words, int count) {
  while (*name != '\0') {
    int length = 0;
    while (is_letter_or_digit(name[length])) length++;
    int letters = length;
    while (letters > 0 && ot_is_digit(name[letters - 1])) letters--;
    for (int i = 0; i < count; i++)
      if (ot_text_length(words[i]) == letters && ot_text_starts_with(name, words[i])) return true;
    name += length > 0 ? length : 1;
  }
  return false;
}

// Marks the axes with different batches; returns whether some axis is neither known to be one nor
// not to be one. "dp_shard_cp" has both words: it counts where no other axis does.
static bool mark_data_axes(ot_recorded_step *step) {
  bool found = false, unknown = step->world > 1 && step->num_axes == 0;
  for (int i = 0; i < step->num_axes; i++) {
    ot_recorded_axis *const axis = &step->axes[i];
    const bool data = has_word(axis->name, data_words, OT_COUNT(data_words));
    const bool model = has_word(axis->name, model_words, OT_COUNT(model_words));
    axis->data = data && !model;
    found = found || (axis->data && axis->size > 1);
    unknown = unknown || (!data && !model && axis->size > 1);
  }
  for (int i = 0; i < step->num_axes && !found; i++)
    step->axes[i].data = has_word(step->axes[i].name, data_words, OT_COUNT(data_words));
  return unknown;
}

// ---- ranks ----

typedef struct rank_key {
  int rank;
  int at[OT_RECORDED_AXES];          // coordinates on the axes with different batches, else 0
  char hash[OT_CONTENT_HASH_BYTES];  // of its batches, or empty
} rank_key;

static int compare_keys(const void *a, const void *b) {
  const rank_key *const x = a, *const y = b;
  const int order = memcmp(x->at, y->at, sizeof x->at);
  return order != 0 ? order : strcmp(x->hash, y->hash);
}

static int compare_keys_and_ranks(const void *a, const void *b) {
  const rank_key *const x = a, *const y = b;
  const int order = compare_keys(a, b);
  return order != 0 ? order : (x->rank > y->rank) - (x->rank < y->rank);
}

static ot_status hash_tensor(const ot_recorded_reading *reading, const ot_recorded_entry *entry,
                             ot_content_hash *hash) {
  _Alignas(8) char block[LOAD_BYTES];
  const int64_t bytes = ot_dtype_bytes(entry->tensor.dtype), most = LOAD_BYTES / bytes;
  const int64_t head[] = {entry->tensor.micro, entry->piece.elements};
  ot_content_hash_update(hash, head, sizeof head);
  ot_content_hash_update(hash, entry->tensor.name, ot_text_length(entry->tensor.name));
  for (int64_t first = 0; first < entry->piece.elements; first += most) {
    const int64_t left = entry->piece.elements - first, count = left < most ? left : most;
    const ot_recorded_range range = {first, count, entry->tensor.dtype};
    OT_TRY(ot_recorded_load(reading->step, &entry->tensor, &entry->piece, range, block));
    ot_content_hash_update(hash, block, count * bytes);
  }
  return OT_OK;
}

// The entries of a rank are together, in the order of its file.
static ot_status hash_batches(const ot_recorded_reading *reading, rank_key *keys) {
  ot_content_hash *hash = NULL;
  ot_status status = OT_OK;
  for (int64_t i = 0; i < reading->num_entries && status == OT_OK; i++) {
    const ot_recorded_entry *const entry = &reading->entries[i];
    const bool last = i + 1 == reading->num_entries || entry[1].piece.rank != entry->piece.rank;
    if (hash == NULL) status = ot_content_hash_create(&hash);
    if (status == OT_OK && entry->tensor.kind == OT_RECORDED_BATCH)
      status = hash_tensor(reading, entry, hash);
    if (last && status == OT_OK) ot_content_hash_print(hash, keys[entry->piece.rank].hash);
    if (last) ot_content_hash_destroy(&hash);
  }
  ot_content_hash_destroy(&hash);
  return status;
}

// Numbers the classes of equal keys in the order of their first ranks. Ranks without batches count
// for the first class where classes are known by their batches.
static void number_classes(ot_recorded_reading *reading, bool by_bytes, rank_key *keys) {
  const int world = reading->step->world;
  int *const first = ot_arena_array(reading->arena, world, sizeof *first);
  qsort(keys, (size_t)world, sizeof *keys, compare_keys_and_ranks);
  for (int i = 0, begin = 0; i < world; i++) {
    if (compare_keys(&keys[begin], &keys[i]) != 0) begin = i;
    first[keys[i].rank] = keys[begin].rank;
  }
  for (int rank = 0; rank < world; rank++) {
    if (by_bytes && reading->ranks[rank].num_batches == 0) continue;
    const bool new = first[rank] == rank;
    reading->ranks[rank].dp_rank =
        new ? reading->step->dp_size++ : reading->ranks[first[rank]].dp_rank;
  }
}

ot_status ot_recorded_group_ranks(ot_recorded_reading *reading) {
  ot_recorded_step *const step = reading->step;
  const bool by_bytes = !reading->explicit_data && mark_data_axes(step);
  rank_key *const keys = ot_arena_array(reading->arena, step->world, sizeof *keys);
  for (int rank = 0; rank < step->world; rank++) {
    keys[rank].rank = rank;
    for (int i = 0; i < step->num_axes; i++)
      if (step->axes[i].data) keys[rank].at[i] = reading->ranks[rank].coordinate[i];
  }
  if (by_bytes) OT_TRY(hash_batches(reading, keys));
  number_classes(reading, by_bytes, keys);
  if (step->dp_size == 0) step->dp_size = 1;
  return OT_OK;
}
