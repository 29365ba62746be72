// SPDX-License-Identifier: Apache-2.0
// From differing hashes to a finding: the tensor, the axes, the ranks (the minority; all if there
// is none), and the first element that differs, found by hashing ever smaller ranges.
#include <string.h>
#include <xxhash.h>

#include "audit/replica_state.h"
#include "base/sort.h"
#include "base/text_builder.h"
#include "checkpoint/elements.h"

enum {
  MAX_FINDINGS = 64,  // one fault may reach every tensor
  MAX_MEASURED = 8,   // findings for which the first element is located
  MAX_LISTED = 16,    // ranks in a sentence
  FAN = 64,           // subranges hashed at a time
};

// Units of one key, on the ranks [first, end) of r->held.
typedef struct group {
  int64_t first, end;
  ot_unit_kind kind;
  int index;
  int64_t from, count;
  int64_t usual;  // value of most ranks, when `majority`
  bool majority, all_differ;
  int usual_rank, odd_rank;  // the lowest of each
} group;

static const ot_unit_header *header_of(const ot_replicas *r, int64_t held) {
  return &r->headers[(int64_t)r->held[held].rank * r->most_units + r->held[held].unit];
}

static int64_t value_of(const ot_replicas *r, int64_t held) {
  return r->all_values[(int64_t)r->held[held].rank * r->most_units + r->held[held].unit];
}

// ---- groups that differ ----

static int64_t count_value(const ot_replicas *r, const group *g, int64_t value) {
  int64_t count = 0;
  for (int64_t i = g->first; i < g->end; i++) count += value_of(r, i) == value;
  return count;
}

static void vote(const ot_replicas *r, group *g) {
  int64_t most = 0;
  for (int64_t i = g->first; i < g->end; i++) {
    const int64_t count = count_value(r, g, value_of(r, i));
    if (count > most) g->usual = value_of(r, i);
    if (count > most) most = count;
  }
  g->majority = 2 * most > g->end - g->first;
  g->all_differ = most == 1 && g->end - g->first > 2;
  g->usual_rank = g->odd_rank = -1;
  for (int64_t i = g->first; i < g->end; i++) {
    int *const lowest = value_of(r, i) == g->usual ? &g->usual_rank : &g->odd_rank;
    if (*lowest < 0) *lowest = r->held[i].rank;
  }
}

// Ordered by closeness to the cause.
static const struct {
  int severity;
  const char *what, *advice;
} words_of[OT_UNIT_KINDS] = {
    [OT_UNIT_WEIGHT] = {7, "weights_differ",
                        "go back to the last checkpoint before this step; if only these weights "
                        "differ, suspect the memory of the odd rank's machine"},
    [OT_UNIT_GRADIENT] = {3, "gradients_differ",
                          "a reduction over these ranks is missing or used corrupt data; compare "
                          "with a run without this axis"},
    [OT_UNIT_MOMENT_1] = {4, "moments_differ", "go back to the last checkpoint before this step"},
    [OT_UNIT_MOMENT_2] = {5, "moments_differ", "go back to the last checkpoint before this step"},
    [OT_UNIT_MASTER] = {6, "master_differs", "go back to the last checkpoint before this step"},
    [OT_UNIT_SCALAR] = {2, "scalar_differs",
                        "what depends on it (clipping, learning rate) differs between "
                        "ranks"},
    [OT_UNIT_BATCH] = {1, "batch_differs",
                       "ranks that share tokens must load the same tokens; compare the "
                       "data files of their machines"},
    [OT_UNIT_WORD] = {0, "counter_differs",
                      "the ranks are not at the same position of the run; start them from one "
                      "checkpoint"},
};

static int compare_groups(const void *a, const void *b, const void *context) {
  (void)context;
  const group *const x = a, *const y = b;
  if (x->kind != y->kind) return words_of[x->kind].severity - words_of[y->kind].severity;
  if (x->index != y->index) return x->index - y->index;
  if (x->from != y->from) return x->from < y->from ? -1 : 1;
  return (x->first > y->first) - (x->first < y->first);
}

static int list_groups(const ot_replicas *r, ot_arena *arena, group **out) {
  group *groups = NULL;
  int64_t capacity = 0, end;
  int count = 0;
  for (int64_t i = 0; i < r->num_held; i = end) {
    for (end = i + 1; end < r->num_held && r->held[end].key == r->held[i].key;) end++;
    const ot_unit_header *const header = header_of(r, i);
    group g = {.first = i,
               .end = end,
               .kind = (ot_unit_kind)(header->kind_index >> 32),
               .index = (int)(header->kind_index & 0xffffffff),
               .from = header->first,
               .count = header->count};
    if (count_value(r, &g, value_of(r, i)) == end - i) continue;
    vote(r, &g);
    groups = ot_arena_grow(arena, groups, count, &capacity, sizeof *groups);
    groups[count++] = g;
  }
  ot_sort(groups, count, sizeof *groups, (ot_ordering){compare_groups, NULL}, arena);
  *out = groups;
  return count;
}

// ---- the first element that differs ----

static const ot_unit *own_unit(const ot_replicas *r, const group *g) {
  for (int64_t i = g->first; i < g->end; i++) {
    if (r->held[i].rank == r->rank) return &r->list.units[r->held[i].unit];
  }
  return NULL;
}

// First element of subrange `i` of FAN of [low, high).
static int64_t subrange_start(int64_t low, int64_t high, int i) {
  return low + (high - low) * i / FAN;
}

typedef struct difference {
  int64_t element;     // offset in the part
  int64_t odd, usual;  // bits
} difference;

// Bisects between the two ranks; ranks without the unit join the all-gather. `all` [ranks * FAN].
static ot_status find_element(ot_replicas *r, const group *g, int64_t *all, difference *found) {
  const ot_unit *const unit = own_unit(r, g);
  const int64_t *const odd = all + (int64_t)g->odd_rank * FAN;
  const int64_t *const usual = all + (int64_t)g->usual_rank * FAN;
  int64_t low = 0, high = g->count, mine[FAN];
  while (high - low > 1) {
    for (int i = 0; i < FAN; i++) {
      const int64_t from = subrange_start(low, high, i), to = subrange_start(low, high, i + 1);
      mine[i] = unit ? (int64_t)ot_unit_hasher_range(&r->hasher, unit->offset + from * unit->size,
                                                     (to - from) * unit->size)
                     : 0;
    }
    OT_TRY(ot_replicas_gather(r, mine, all, FAN));
    int part = 0;
    while (part < FAN - 1 && odd[part] == usual[part]) part++;
    const int64_t begin = subrange_start(low, high, part);
    high = subrange_start(low, high, part + 1);
    low = begin;
  }
  memset(mine, 0, sizeof mine);
  if (unit) {
    ot_executor_read(ot_runtime_executor(r->runtime), unit->offset + low * unit->size, mine,
                     unit->size);
  }
  OT_TRY(ot_replicas_gather(r, mine, all, FAN));
  *found = (difference){.element = g->from + low, .odd = odd[0], .usual = usual[0]};
  return OT_OK;
}

// Words are compared directly.
static void find_word(const ot_replicas *r, const group *g, difference *found) {
  *found = (difference){0};
  for (int64_t i = g->first; i < g->end; i++) {
    if (r->held[i].rank == g->odd_rank) found->odd = value_of(r, i);
    if (r->held[i].rank == g->usual_rank) found->usual = value_of(r, i);
  }
}

static double number_of(const ot_replicas *r, ot_unit_kind kind, int64_t bits) {
  const ot_dtype dtype =
      kind < OT_UNIT_SCALAR ? ot_runtime_copy_dtype(r->runtime, (ot_parameter_copy)kind) : OT_F64;
  double number;
  ot_elements_convert(dtype, &bits, OT_F64, &number, 1);
  return number;
}

// ---- texts ----

static void put_ranks(const ot_replicas *r, const group *g, bool odd, ot_text_builder *text) {
  int count = 0;
  for (int64_t i = g->first; i < g->end; i++) count += (value_of(r, i) != g->usual) == odd;
  ot_text_put(text, count > 1 ? "ranks" : "rank");
  int listed = 0;
  for (int64_t i = g->first; i < g->end && listed < MAX_LISTED; i++) {
    if ((value_of(r, i) != g->usual) != odd) continue;
    ot_text_appendf(text, " %d", r->held[i].rank);
    listed++;
  }
  if (count > listed) ot_text_appendf(text, " and %d more", count - listed);
}

static const ot_axis axes[] = {OT_AXIS_DP_REPLICATE, OT_AXIS_DP_SHARD, OT_AXIS_CP, OT_AXIS_TP,
                               OT_AXIS_PP};

// True if the coordinates of the two ranks differ only along `axis`.
static bool only_along(const ot_mesh *mesh, ot_axis axis, int a, int b) {
  for (int i = 0; i < OT_COUNT(axes); i++) {
    const bool same = ot_mesh_coordinate(mesh, a, axes[i]) == ot_mesh_coordinate(mesh, b, axes[i]);
    if (same != (axes[i] != axis)) return false;
  }
  return true;
}

static bool differs_along(const ot_replicas *r, const group *g, ot_axis axis) {
  for (int64_t i = g->first; i < g->end; i++) {
    for (int64_t k = i + 1; k < g->end; k++) {
      if (value_of(r, i) == value_of(r, k)) continue;
      if (only_along(r->mesh, axis, r->held[i].rank, r->held[k].rank)) return true;
    }
  }
  return false;
}

// "tp", "dp_shard and cp"; "the ranks" if no axis applies.
static const char *axes_of(const ot_replicas *r, const group *g, ot_arena *arena) {
  ot_text_builder text = {.arena = arena};
  for (int i = 0; i < OT_COUNT(axes); i++) {
    if (!differs_along(r, g, axes[i])) continue;
    if (text.length > 0) ot_text_put(&text, " and ");
    ot_text_put(&text, ot_axis_name(axes[i]));
  }
  return text.length > 0 ? ot_text_builder_text(&text) : "the ranks";
}

static void put_moment(const ot_replica_moment *moment, ot_text_builder *text) {
  if (moment->micro_batches == 0) {
    ot_text_put(text, "before the first step");
  } else {
    ot_text_appendf(text, "%s step %lld", moment->before_update ? "before the update of" : "after",
                    (long long)moment->words[OT_WORD_STEP]);
  }
}

static void put_values(const ot_replicas *r, const group *g, const difference *d,
                       ot_text_builder *text) {
  if (g->kind == OT_UNIT_WORD) {
    ot_text_appendf(text, ": %lld on rank %d, %lld on rank %d", (long long)d->odd, g->odd_rank,
                    (long long)d->usual, g->usual_rank);
    return;
  }
  if (g->kind != OT_UNIT_SCALAR) {
    ot_text_appendf(text, ", first at element %lld", (long long)d->element);
  }
  ot_text_appendf(text, ": %.9g on rank %d, %.9g on rank %d", number_of(r, g->kind, d->odd),
                  g->odd_rank, number_of(r, g->kind, d->usual), g->usual_rank);
}

static void write_ranks(const ot_replicas *r, const group *g, const char *key, bool odd,
                        ot_json_writer *json) {
  ot_json_array(json, key);
  for (int64_t i = g->first; i < g->end; i++) {
    if ((value_of(r, i) != g->usual) == odd) ot_json_integer(json, NULL, r->held[i].rank);
  }
  ot_json_end(json);
}

static const char *details_of(const ot_replicas *r, const group *g, const ot_replica_moment *moment,
                              ot_arena *arena) {
  ot_json_writer json = ot_json_begin(arena, 0);
  ot_json_object(&json, NULL);
  ot_json_integer(&json, "step", moment->words[OT_WORD_STEP]);
  ot_json_text(&json, "of", ot_unit_kind_name(g->kind));
  ot_json_integer(&json, "first_element", g->from);
  ot_json_integer(&json, "elements", g->count);
  ot_json_array(&json, "axes");
  for (int i = 0; i < OT_COUNT(axes); i++) {
    if (differs_along(r, g, axes[i])) ot_json_text(&json, NULL, ot_axis_name(axes[i]));
  }
  ot_json_end(&json);
  ot_json_boolean(&json, "majority", g->majority);
  write_ranks(r, g, "ranks", true, &json);
  write_ranks(r, g, "other_ranks", false, &json);
  ot_json_end(&json);
  return json.text;
}

static const char *evidence_of(const ot_replicas *r, const group *g,
                               const ot_replica_moment *moment, const difference *d,
                               ot_arena *arena) {
  ot_text_builder text = {.arena = arena};
  put_moment(moment, &text);
  ot_text_appendf(&text, ", over %s: ", axes_of(r, g, arena));
  put_ranks(r, g, true, &text);
  ot_text_put(&text, g->all_differ ? " and " : " against ");
  put_ranks(r, g, false, &text);
  if (g->all_differ) ot_text_put(&text, ", no two the same");
  if (!g->majority && !g->all_differ) {
    ot_text_put(&text, " (no majority says which is right)");
  }
  if (d) put_values(r, g, d, &text);
  return ot_text_builder_text(&text);
}

static const char *where_of(const ot_replicas *r, const group *g, ot_arena *arena) {
  const char *const name = ot_unit_name(r->runtime, g->kind, g->index);
  if (g->kind >= OT_UNIT_SCALAR) return name;
  return ot_arena_format(arena, "%s of %s", ot_unit_kind_name(g->kind), name);
}

ot_status ot_replicas_find(ot_replicas *r, const ot_replica_moment *moment,
                           ot_audit_report *report) {
  group *groups;
  ot_arena *const arena = report->arena;
  const int count = list_groups(r, arena, &groups);
  int64_t *const all = ot_arena_array(arena, (int64_t)r->ranks * FAN, sizeof *all);
  for (int i = 0; i < count && i < MAX_FINDINGS; i++) {
    const group *const g = &groups[i];
    const bool kept = g->kind != OT_UNIT_BATCH && !moment->before_update;
    const bool measured = i < MAX_MEASURED && kept;
    difference d;
    if (measured && g->kind == OT_UNIT_WORD) find_word(r, g, &d);
    if (measured && g->kind != OT_UNIT_WORD) OT_TRY(find_element(r, g, all, &d));
    ot_audit_find(report, words_of[g->kind].what, where_of(r, g, arena), words_of[g->kind].advice,
                  "%s", evidence_of(r, g, moment, measured ? &d : NULL, arena))
        ->details = details_of(r, g, moment, arena);
  }
  if (count > MAX_FINDINGS) {
    report->summary = ot_arena_format(arena, "%d tensors differ; the first %d are listed", count,
                                      (int)MAX_FINDINGS);
  }
  return OT_OK;
}

// ---- samples ----

static bool same_place(const ot_mesh *mesh, int a, int b) {
  return ot_mesh_coordinate(mesh, a, OT_AXIS_DP_SHARD) ==
             ot_mesh_coordinate(mesh, b, OT_AXIS_DP_SHARD) &&
         ot_mesh_coordinate(mesh, a, OT_AXIS_DP_REPLICATE) ==
             ot_mesh_coordinate(mesh, b, OT_AXIS_DP_REPLICATE);
}

void ot_replicas_find_shared(ot_replicas *r, const ot_replica_moment *moment,
                             const int64_t *samples, ot_audit_report *report) {
  for (int a = 0; a < r->ranks; a++) {
    for (int b = a + 1; b < r->ranks; b++) {
      if (samples[a] != samples[b] || same_place(r->mesh, a, b)) continue;
      ot_text_builder text = {.arena = report->arena};
      put_moment(moment, &text);
      ot_audit_find(report, "samples_shared",
                    ot_arena_format(report->arena, "ranks %d and %d", a, b),
                    "each data-parallel rank must read its own samples",
                    "%s: data-parallel ranks %d and %d trained on the same samples",
                    ot_text_builder_text(&text), a, b);
      return;
    }
  }
}
