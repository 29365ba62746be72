// SPDX-License-Identifier: Apache-2.0
// Samples of records: lists of sequences are sorted by all that a sequence has, so that equal lists
// are equal element by element, however the sequences were divided.
#include <string.h>

#include "base/sort.h"
#include "judge/same_step.h"

typedef struct sample {
  const ot_step_record *record;
  int64_t first, count;  // rows
} sample;

typedef struct sample_list {
  int64_t count;
  sample *list;  // [count]
} sample_list;

// ---- what a row has ----

typedef double field_of(const ot_step_rows *rows, int64_t first, int64_t row);

static double id_of(const ot_step_rows *rows, int64_t first, int64_t row) {
  (void)first;
  return rows->ids[row];
}

static double target_of(const ot_step_rows *rows, int64_t first, int64_t row) {
  (void)first;
  return rows->targets[row];
}

static double position_of(const ot_step_rows *rows, int64_t first, int64_t row) {
  (void)first;
  return rows->positions[row];
}

static double document_of(const ot_step_rows *rows, int64_t first, int64_t row) {
  return (double)(rows->documents[row] - first);
}

static double weight_of(const ot_step_rows *rows, int64_t first, int64_t row) {
  (void)first;
  return (double)rows->weights[row];
}

static const struct {
  const char *name;  // in words
  field_of *of;
} fields[] = {{"id", id_of},
              {"target", target_of},
              {"position", position_of},
              {"first token of its document", document_of},
              {"weight", weight_of}};

static double value_of(const sample *s, int field, int64_t at) {
  return fields[field].of(s->record->rows, s->first, s->first + at);
}

// ---- lists ----

static int compare_samples(const void *left, const void *right, const void *context) {
  const sample *const a = left, *const b = right;
  (void)context;
  if (a->count != b->count) return a->count < b->count ? -1 : 1;
  for (int f = 0; f < OT_COUNT(fields); f++) {
    for (int64_t i = 0; i < a->count; i++) {
      const double x = value_of(a, f, i), y = value_of(b, f, i);
      if (x != y) return x < y ? -1 : 1;
    }
  }
  return 0;
}

static sample_list list_samples(const ot_step_record *record, ot_arena *scratch) {
  const ot_step_rows *const rows = record->rows;
  sample_list out = {.list = ot_arena_array(scratch, rows->count, sizeof *out.list)};
  for (int64_t r = 0; r < rows->count; r++) {
    if (rows->sequences[r] == r) out.list[out.count++] = (sample){record, r, 0};
    out.list[out.count - 1].count++;
  }
  ot_sort(out.list, out.count, sizeof *out.list, (ot_ordering){compare_samples, NULL}, scratch);
  return out;
}

// Leaves in both sorted lists only what the other one lacks.
static void cancel(sample_list *a, sample_list *b) {
  int64_t i = 0, k = 0, left = 0, right = 0;
  while (i < a->count || k < b->count) {
    const int order = i == a->count   ? 1
                      : k == b->count ? -1
                                      : compare_samples(&a->list[i], &b->list[k], NULL);
    if (order < 0) a->list[left++] = a->list[i];
    if (order > 0) b->list[right++] = b->list[k];
    i += order <= 0;
    k += order >= 0;
  }
  a->count = left;
  b->count = right;
}

// ---- the message ----

// "DIR/rank-00000.safetensors: tensor batch/0.ids, sequence 2".
static const char *place_of(const sample *s, ot_arena *scratch) {
  const ot_step_rows *const rows = s->record->rows;
  const ot_step_batch *const batch = &rows->batch[rows->batches[s->first]];
  return ot_arena_format(
      scratch, "%s: tensor batch/%d.ids, sequence %lld",
      s->record->step->ranks[batch->rank].tensor_file, batch->micro,
      (long long)((s->first - batch->first_row) / (batch->rows / batch->sequences)));
}

static int64_t count_equal(const sample *a, const sample *b) {
  int64_t equal = 0;
  for (int f = 0; f < OT_COUNT(fields); f++) {
    for (int64_t i = 0; i < a->count; i++) equal += value_of(a, f, i) == value_of(b, f, i);
  }
  return equal;
}

// The sample of `list` with the most values of `s`, or null.
static const sample *find_nearest(const sample *s, const sample_list *list) {
  const sample *nearest = NULL;
  int64_t most = -1;
  for (int64_t i = 0; i < list->count; i++) {
    if (list->list[i].count != s->count) continue;
    const int64_t equal = count_equal(s, &list->list[i]);
    if (equal > most) nearest = &list->list[i];
    most = equal > most ? equal : most;
  }
  return nearest;
}

static ot_status fail_nearest(const sample *a, const sample *b, ot_arena *scratch) {
  for (int f = 0; f < OT_COUNT(fields); f++) {
    for (int64_t i = 0; i < a->count; i++) {
      const double x = value_of(a, f, i), y = value_of(b, f, i);
      if (x != y)
        return ot_same_step_fail("the %s of token %lld is %.9g (%s) and %.9g (%s)", fields[f].name,
                                 (long long)i, x, place_of(a, scratch), y, place_of(b, scratch));
    }
  }
  OT_UNREACHABLE();
}

static ot_status fail_sample(const sample_list *a, const sample_list *b, ot_arena *scratch) {
  const sample *const one = a->count > 0 ? &a->list[0] : &b->list[0];
  const sample_list *const others = a->count > 0 ? b : a;
  const sample *const nearest = find_nearest(one, others);
  if (nearest) return fail_nearest(one, nearest, scratch);
  return ot_same_step_fail(
      "%lld sequences of the first record are not in the "
      "second and %lld of the second not in the first, such as that of %lld tokens (%s)",
      (long long)a->count, (long long)b->count, (long long)one->count, place_of(one, scratch));
}

ot_status ot_same_samples_check(const ot_step_record *first, const ot_step_record *second,
                                ot_arena *scratch) {
  sample_list a = list_samples(first, scratch), b = list_samples(second, scratch);
  cancel(&a, &b);
  return a.count > 0 || b.count > 0 ? fail_sample(&a, &b, scratch) : OT_OK;
}

// ---- samples of one record ----

// Lists the samples of a group of equal ones, less the one that comes first.
static void add_group(const sample *group, int64_t count, ot_repeated_samples *out,
                      ot_repeated_sample *list) {
  int64_t earliest = group[0].first;
  for (int64_t i = 1; i < count; i++)
    earliest = group[i].first < earliest ? group[i].first : earliest;
  for (int64_t i = 0; i < count; i++) {
    if (group[i].first != earliest)
      list[out->count++] = (ot_repeated_sample){group[i].first, earliest};
  }
}

ot_repeated_samples ot_same_samples_repeated(const ot_step_record *record, int64_t least,
                                             ot_arena *arena) {
  const sample_list all = list_samples(record, arena);
  ot_repeated_sample *const list = ot_arena_array(arena, all.count, sizeof *list);
  ot_repeated_samples out = {.list = list};
  for (int64_t i = 0, end; i < all.count; i = end) {
    for (end = i + 1; end < all.count; end++) {
      if (compare_samples(&all.list[i], &all.list[end], NULL) != 0) break;
    }
    if (all.list[i].count >= least) add_group(&all.list[i], end - i, &out, list);
  }
  return out;
}

// ---- the same division ----

static bool equal_words(const int32_t *a, const int32_t *b, int64_t count) {
  return memcmp(a, b, (size_t)count * sizeof *a) == 0;
}

bool ot_same_batches(const ot_step_rows *a, const ot_step_rows *b) {
  bool same = a->count == b->count && a->num_batches == b->num_batches;
  for (int64_t i = 0; same && i < a->num_batches; i++) {
    const ot_step_batch *const x = &a->batch[i], *const y = &b->batch[i];
    same = x->dp_rank == y->dp_rank && x->micro == y->micro && x->rows == y->rows;
  }
  return same && equal_words(a->ids, b->ids, a->count) &&
         equal_words(a->targets, b->targets, a->count) &&
         equal_words(a->positions, b->positions, a->count) &&
         equal_words(a->sequences, b->sequences, a->count) &&
         equal_words(a->documents, b->documents, a->count) &&
         memcmp(a->weights, b->weights, (size_t)a->count * sizeof *a->weights) == 0;
}
