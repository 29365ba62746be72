// SPDX-License-Identifier: Apache-2.0
// Who holds what, and whether it is the same. At creation the ranks tell each other the keys of all
// their units, once. A comparison hashes the units that have replicas, folds the hashes of units
// with the same holders into one word, and gathers these; only where words differ are the hashes of
// all units exchanged (replica_findings.c).
#include "audit/replicas.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "audit/replica_state.h"
#include "base/sort.h"
#include "host/clock.h"

// ---- what ranks tell each other ----

ot_status ot_replicas_gather(ot_replicas *r, const int64_t *mine, int64_t *all, int64_t count) {
  if (r->ranks == 1) {
    memcpy(all, mine, (size_t)count * sizeof *all);
    return OT_OK;
  }
  const ot_comm_call call = {.kind = OT_COMM_ALL_GATHER,
                             .group = OT_GROUP_WORLD,
                             .send = mine,
                             .receive = all,
                             .count = count,
                             .dtype = OT_I64,
                             .sum = OT_I64,
                             .name = "the audit of replicas"};
  return ot_comm_run(r->comm, &call);
}

static ot_status gather_largest(ot_replicas *r, int64_t mine, int *largest) {
  int64_t *const all = ot_arena_array(&r->arena, r->ranks, sizeof *all);
  OT_TRY(ot_replicas_gather(r, &mine, all, 1));
  *largest = 0;
  for (int i = 0; i < r->ranks; i++) {
    if (all[i] > *largest) *largest = (int)all[i];
  }
  return OT_OK;
}

// ---- who holds what ----

static int compare_held(const void *a, const void *b, const void *context) {
  (void)context;
  const ot_held_unit *const x = a, *const y = b;
  if (x->key != y->key) return x->key < y->key ? -1 : 1;
  return (x->rank > y->rank) - (x->rank < y->rank);
}

static ot_status gather_headers(ot_replicas *r) {
  OT_TRY(gather_largest(r, r->list.num_units, &r->most_units));
  const int64_t words = (int64_t)r->most_units * OT_HEADER_WORDS;
  ot_unit_header *const mine = ot_arena_array(&r->arena, r->most_units, sizeof *mine);
  r->headers = ot_arena_array(&r->arena, (int64_t)r->ranks * r->most_units, sizeof *r->headers);
  for (int i = 0; i < r->list.num_units; i++) {
    const ot_unit *const unit = &r->list.units[i];
    mine[i] = (ot_unit_header){.key = unit->key,
                               .kind_index = ((int64_t)unit->kind << 32) + unit->index,
                               .first = unit->first,
                               .count = unit->count};
  }
  OT_TRY(ot_replicas_gather(r, (const int64_t *)mine, (int64_t *)r->headers, words));
  r->held = ot_arena_array(&r->arena, (int64_t)r->ranks * r->most_units, sizeof *r->held);
  for (int rank = 0; rank < r->ranks; rank++) {
    const ot_unit_header *const theirs = r->headers + (int64_t)rank * r->most_units;
    for (int i = 0; i < r->most_units && theirs[i].count > 0; i++) {
      r->held[r->num_held++] = (ot_held_unit){theirs[i].key, rank, i};
    }
  }
  ot_sort(r->held, r->num_held, sizeof *r->held, (ot_ordering){compare_held, NULL}, &r->arena);
  return OT_OK;
}

// Every element of every tensor is in exactly one key, or its copy is not kept at all: otherwise
// replicas could go uncompared.
static ot_status check_keys(const ot_replicas *r, ot_arena *arena) {
  const int parts = r->list.num_parts;
  int64_t *const counts = ot_arena_array(arena, (int64_t)parts * OT_BUCKET_COPIES, sizeof *counts);
  for (int64_t i = 0; i < r->num_held; i++) {
    if (i > 0 && r->held[i].key == r->held[i - 1].key) continue;
    const ot_unit_header *const header =
        &r->headers[(int64_t)r->held[i].rank * r->most_units + r->held[i].unit];
    const int kind = (int)(header->kind_index >> 32);
    const int index = (int)(header->kind_index & 0xffffffff);
    if (kind < OT_BUCKET_COPIES) counts[kind * parts + index] += header->count;
  }
  for (int i = 0; i < parts * OT_BUCKET_COPIES; i++) {
    const ot_unit_kind kind = (ot_unit_kind)(i / parts);
    const int64_t count = r->list.part_count[i % parts];
    OT_CHECK(counts[i] == 0 || counts[i] == count, OT_BUG,
             "audit: ranks hold %lld elements of the %s of %s, which has %lld",
             (long long)counts[i], ot_unit_kind_name(kind),
             ot_unit_name(r->instance, kind, i % parts), (long long)count);
  }
  return OT_OK;
}

static uint64_t id_of_ranks(const ot_held_unit *held, int64_t count) {
  uint64_t id = XXH3_64bits(&count, sizeof count);
  for (int64_t i = 0; i < count; i++) {
    const int64_t pair[] = {(int64_t)id, held[i].rank};
    id = XXH3_64bits(pair, sizeof pair);
  }
  return id;
}

static void add_to_set(ot_replicas *r, uint64_t id, int unit) {
  int i = 0;
  while (i < r->num_sets && r->sets[i].id != id) i++;
  if (i == r->num_sets) {
    r->sets[r->num_sets++] = (ot_replica_set){
        .id = id, .units = ot_arena_array(&r->arena, r->list.num_units, sizeof(int))};
  }
  r->sets[i].units[r->sets[i].num_units++] = unit;
}

static bool is_copy(const ot_unit *unit) { return unit->kind < OT_UNIT_SCALAR; }

// Goes through the keys, in one order on all ranks.
static void find_sets(ot_replicas *r) {
  const int n = r->list.num_units;
  r->replicated = ot_arena_array(&r->arena, n + 1, sizeof *r->replicated);
  r->sets = ot_arena_array(&r->arena, n + 1, sizeof *r->sets);
  for (int64_t i = 0, end; i < r->num_held; i = end) {
    int mine = -1;
    for (end = i; end < r->num_held && r->held[end].key == r->held[i].key; end++) {
      if (r->held[end].rank == r->rank) mine = r->held[end].unit;
    }
    if (mine < 0 || end - i < 2) continue;
    r->replicated[mine] = is_copy(&r->list.units[mine]);
    add_to_set(r, id_of_ranks(r->held + i, end - i), mine);
  }
}

// ---- hashes ----

static ot_status count_bytes(ot_replicas *r) {
  int64_t mine[2] = {0, 0};
  for (int i = 0; i < r->list.num_units; i++) {
    const ot_unit *const unit = &r->list.units[i];
    if (is_copy(unit)) mine[r->replicated[i] ? 0 : 1] += unit->count * unit->size;
  }
  int64_t *const all = ot_arena_array(&r->arena, 2 * (int64_t)r->ranks, sizeof *all);
  OT_TRY(ot_replicas_gather(r, mine, all, 2));
  for (int i = 0; i < r->ranks; i++) {
    r->figures.compared_bytes += all[2 * i];
    r->figures.single_bytes += all[2 * i + 1];
  }
  return OT_OK;
}

// Of a batch field over all micro-batches of the step.
static uint64_t hash_batch(ot_replicas *r, const ot_unit *unit, int micro_batches) {
  uint64_t hash = 0;
  for (int m = 0; m < micro_batches; m++) {
    const int64_t offset = unit->offset + m * r->list.batch_stride;
    const uint64_t pair[] = {hash,
                             ot_unit_hasher_range(&r->hasher, offset, unit->count * unit->size)};
    hash = XXH3_64bits(pair, sizeof pair);
  }
  return hash;
}

// The value of a unit that is no copy.
static int64_t value_of(ot_replicas *r, const ot_unit *unit, const ot_replica_moment *moment) {
  if (unit->kind == OT_UNIT_WORD) return moment->words[unit->index];
  if (moment->micro_batches == 0) return 0;
  return (int64_t)(unit->kind == OT_UNIT_BATCH
                       ? hash_batch(r, unit, moment->micro_batches)
                       : ot_unit_hasher_range(&r->hasher, unit->offset, unit->size));
}

static void hash_units(ot_replicas *r, const ot_replica_moment *moment) {
  ot_unit_hasher_run(&r->hasher, r->values);
  for (int i = 0; i < r->list.num_units; i++) {
    const ot_unit *const unit = &r->list.units[i];
    if (!is_copy(unit)) r->values[i] = value_of(r, unit, moment);
    if (unit->kind == OT_UNIT_GRADIENT && moment->micro_batches == 0) r->values[i] = 0;
  }
}

// ---- create ----

static ot_status create(ot_replicas *r) {
  r->arena = ot_heap_arena_create(&r->heap);
  ot_units_list(r->instance, r->mesh, r->rank, &r->arena, &r->list);
  OT_TRY(gather_headers(r));
  OT_TRY(check_keys(r, &r->arena));
  find_sets(r);
  ot_unit_hasher_build(r->instance, &r->list, r->replicated, &r->arena, &r->hasher);
  OT_TRY(count_bytes(r));
  OT_TRY(gather_largest(r, r->num_sets, &r->most_sets));
  const int64_t words = 2 * (int64_t)r->most_sets + 1;
  r->values = ot_arena_array(&r->arena, r->most_units + 1, sizeof *r->values);
  r->all_values = ot_arena_array(&r->arena, (int64_t)r->ranks * r->most_units, sizeof *r->values);
  r->words = ot_arena_array(&r->arena, words * (r->ranks + 1), sizeof *r->words);
  return OT_OK;
}

ot_status ot_replicas_create(ot_trainer *trainer, ot_replicas **out) {
  const ot_team *const team = ot_trainer_team(trainer);
  ot_replicas *r = calloc(1, sizeof *r);
  OT_CHECK(r, OT_ENVIRONMENT, "out of memory for an audit");
  r->instance = ot_trainer_instance(trainer);
  r->mesh = ot_team_mesh(team);
  r->comm = ot_team_comm(team);
  r->ranks = ot_team_size(team);
  r->rank = ot_team_rank(team);
  const ot_status status = create(r);
  if (status != OT_OK) ot_replicas_destroy(&r);
  *out = r;
  return status;
}

void ot_replicas_destroy(ot_replicas **replicas) {
  if (!replicas || !*replicas) return;
  ot_heap_release(&(*replicas)->heap);
  free(*replicas);
  *replicas = NULL;
}

ot_replica_figures ot_replicas_figures(const ot_replicas *replicas) { return replicas->figures; }

// ---- compare ----

ot_replica_moment ot_replica_moment_of(const ot_trainer *trainer) {
  const ot_position position = ot_trainer_position(trainer);
  return (ot_replica_moment){.micro_batches = ot_trainer_micro_batches(trainer),
                             .words = {[OT_WORD_SEED] = ot_trainer_run(trainer)->seed,
                                       [OT_WORD_STEP] = position.step,
                                       [OT_WORD_NEXT_SAMPLE] = position.next_sample,
                                       [OT_WORD_TOKENS] = position.tokens}};
}

static uint64_t fold_set(const ot_replicas *r, const ot_replica_set *set) {
  uint64_t folded = 0;
  for (int i = 0; i < set->num_units; i++) {
    const uint64_t pair[] = {folded, (uint64_t)r->values[set->units[i]]};
    folded = XXH3_64bits(pair, sizeof pair);
  }
  return folded;
}

static int64_t samples_of(const ot_replicas *r) {
  for (int i = 0; i < r->list.num_units; i++) {
    const ot_unit *const unit = &r->list.units[i];
    if (unit->kind == OT_UNIT_BATCH && unit->index == OT_BATCH_SAMPLE_IDS) return r->values[i];
  }
  return 0;
}

typedef struct set_word {
  int64_t id, folded;
} set_word;

static int compare_words(const void *a, const void *b, const void *context) {
  (void)context;
  const set_word *const x = a, *const y = b;
  return (x->id > y->id) - (x->id < y->id);
}

// True when two ranks have different words for a set that both are in.
static bool words_differ(const ot_replicas *r, const int64_t *all, ot_arena *arena) {
  const int64_t stride = 2 * (int64_t)r->most_sets + 1;
  set_word *const words = ot_arena_array(arena, (int64_t)r->ranks * r->most_sets, sizeof *words);
  int64_t count = 0;
  for (int rank = 0; rank < r->ranks; rank++) {
    const int64_t *const theirs = all + rank * stride;
    for (int i = 0; i < r->most_sets && theirs[2 * i] != 0; i++) {
      words[count++] = (set_word){theirs[2 * i], theirs[2 * i + 1]};
    }
  }
  ot_sort(words, count, sizeof *words, (ot_ordering){compare_words, NULL}, arena);
  for (int64_t i = 1; i < count; i++) {
    if (words[i].id == words[i - 1].id && words[i].folded != words[i - 1].folded) return true;
  }
  return false;
}

static ot_status compare(ot_replicas *r, const ot_replica_moment *moment, ot_audit_report *report) {
  hash_units(r, moment);
  const int64_t stride = 2 * (int64_t)r->most_sets + 1;
  int64_t *const all = r->words + stride;
  memset(r->words, 0, (size_t)stride * sizeof *r->words);
  for (int i = 0; i < r->num_sets; i++) {
    r->words[2 * i] = (int64_t)r->sets[i].id;
    r->words[2 * i + 1] = (int64_t)fold_set(r, &r->sets[i]);
  }
  r->words[stride - 1] = samples_of(r);
  OT_TRY(ot_replicas_gather(r, r->words, all, stride));
  if (words_differ(r, all, report->arena)) {
    OT_TRY(ot_replicas_gather(r, r->values, r->all_values, r->most_units));
    OT_TRY(ot_replicas_find(r, moment, report));
  }
  if (moment->micro_batches == 0) return OT_OK;
  int64_t *const samples = ot_arena_array(report->arena, r->ranks, sizeof *samples);
  for (int i = 0; i < r->ranks; i++) samples[i] = all[(i + 1) * stride - 1];
  ot_replicas_find_shared(r, moment, samples, report);
  return OT_OK;
}

ot_status ot_replicas_compare(ot_replicas *replicas, const ot_replica_moment *moment,
                              ot_audit_report *report) {
  const double start_s = ot_clock_s();
  OT_TRY(compare(replicas, moment, report));
  replicas->figures.seconds = ot_clock_s() - start_s;
  return OT_OK;
}
