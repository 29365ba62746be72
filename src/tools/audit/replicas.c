// SPDX-License-Identifier: Apache-2.0
// Which ranks hold a unit, and whether their copies agree. At creation the ranks all-gather the
// keys of all their units, once. A comparison hashes the replicated units, folds the hashes that
// holders share into one word per rank, and all-gathers these; only if they do not cancel are the
// hashes of all units exchanged (replica_findings.c).
#include "audit/replicas.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "audit/replica_state.h"
#include "base/sort.h"
#include "host/clock.h"

// ---- all-gathers ----

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

// ---- holders ----

static int compare_held(const void *a, const void *b, const void *context) {
  (void)context;
  const ot_held_unit *const x = a, *const y = b;
  if (x->key != y->key) return x->key < y->key ? -1 : 1;
  return (x->rank > y->rank) - (x->rank < y->rank);
}

static ot_status gather_headers(ot_replicas *r) {
  const int64_t units = r->list.num_units;
  int64_t *const counts = ot_arena_array(&r->arena, r->ranks, sizeof *counts);
  OT_TRY(ot_replicas_gather(r, &units, counts, 1));
  for (int i = 0; i < r->ranks; i++) {
    if (counts[i] > r->most_units) r->most_units = (int)counts[i];
  }
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

// Checks that every element of every tensor is in exactly one key, or that its copy is not kept:
// otherwise replicas could go uncompared.
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
             ot_unit_name(r->runtime, kind, i % parts), (long long)count);
  }
  return OT_OK;
}

static bool is_copy(const ot_unit *unit) { return unit->kind < OT_UNIT_SCALAR; }

static void find_holders(ot_replicas *r) {
  const int n = r->list.num_units;
  r->holders = ot_arena_array(&r->arena, n + 1, sizeof *r->holders);
  r->place = ot_arena_array(&r->arena, n + 1, sizeof *r->place);
  r->replicated = ot_arena_array(&r->arena, n + 1, sizeof *r->replicated);
  for (int64_t first = 0, end; first < r->num_held; first = end) {
    int64_t mine = -1;
    for (end = first; end < r->num_held && r->held[end].key == r->held[first].key; end++) {
      if (r->held[end].rank == r->rank) mine = end;
    }
    if (mine < 0) continue;
    const int unit = r->held[mine].unit;
    r->holders[unit] = (int)(end - first);
    r->place[unit] = (int)(mine - first);
    r->replicated[unit] = end - first > 1 && is_copy(&r->list.units[unit]);
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

// Hash of a batch field over all micro-batches of the step.
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

// The value of a unit that is not a tensor copy.
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
  ot_units_list(r->runtime, r->mesh, r->rank, &r->arena, &r->list);
  OT_TRY(gather_headers(r));
  OT_TRY(check_keys(r, &r->arena));
  find_holders(r);
  ot_unit_hasher_build(r->runtime, &r->list, r->replicated, &r->arena, &r->hasher);
  r->weights = ot_arena_array(&r->arena, r->list.num_units + 1, sizeof *r->weights);
  for (int i = 0; i < r->list.num_units; i++)
    r->weights[i] = r->replicated[i] && r->list.units[i].kind == OT_UNIT_WEIGHT;
  ot_unit_hasher_build(r->runtime, &r->list, r->weights, &r->arena, &r->before);
  OT_TRY(count_bytes(r));
  r->values = ot_arena_array(&r->arena, r->most_units + 1, sizeof *r->values);
  r->values_before = ot_arena_array(&r->arena, r->most_units + 1, sizeof *r->values);
  memset(r->values_before, 0, (size_t)(r->most_units + 1) * sizeof *r->values);
  r->all_values = ot_arena_array(&r->arena, (int64_t)r->ranks * r->most_units, sizeof *r->values);
  return OT_OK;
}

ot_status ot_replicas_create(ot_trainer *trainer, ot_replicas **out) {
  const ot_world *const world = ot_trainer_world(trainer);
  ot_replicas *r = calloc(1, sizeof *r);
  OT_CHECK(r, OT_ENVIRONMENT, "out of memory for an audit");
  r->runtime = ot_trainer_runtime(trainer);
  r->mesh = ot_world_mesh(world);
  r->comm = ot_world_comm(world);
  r->ranks = ot_world_size(world);
  r->rank = ot_world_rank(world);
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

// The word that holder `place` of a unit and the next holder must have in common.
static uint64_t link_of(const ot_unit *unit, int place, int64_t value) {
  const uint64_t words[] = {unit->key, (uint64_t)place, (uint64_t)value};
  return XXH3_64bits(words, sizeof words);
}

// Each holder of a unit adds its link to the next holder and subtracts the link to the previous
// one: the sum over all ranks is zero if all agree, and by chance (2^-64) if some do not.
static int64_t sum_links(const ot_replicas *r, const int64_t *values) {
  uint64_t sum = 0;
  for (int i = 0; i < r->list.num_units; i++) {
    const ot_unit *const unit = &r->list.units[i];
    const int place = r->place[i];
    if (place + 1 < r->holders[i]) sum += link_of(unit, place, values[i]);
    if (place > 0) sum -= link_of(unit, place - 1, values[i]);
  }
  return (int64_t)sum;
}

static int64_t samples_of(const ot_replicas *r) {
  for (int i = 0; i < r->list.num_units; i++) {
    const ot_unit *const unit = &r->list.units[i];
    if (unit->kind == OT_UNIT_BATCH && unit->index == OT_BATCH_SAMPLE_IDS) return r->values[i];
  }
  return 0;
}

void ot_replicas_before_update(ot_replicas *replicas) {
  ot_unit_hasher_run(&replicas->before, replicas->values_before);
  replicas->is_before = true;
}

// Sums of links over all ranks: zero where the replicas agree.
typedef struct link_sums {
  uint64_t before, now;
  int64_t hashed_before;  // ranks that have hashed their weights before the update
} link_sums;

static ot_status add_links(ot_replicas *r, ot_arena *arena, int64_t *samples, link_sums *sums) {
  enum { WORDS = 4 };
  const int64_t mine[WORDS] = {sum_links(r, r->values_before), sum_links(r, r->values),
                               samples_of(r), r->is_before};
  int64_t *const all = ot_arena_array(arena, WORDS * (int64_t)r->ranks, sizeof *all);
  *sums = (link_sums){0};
  OT_TRY(ot_replicas_gather(r, mine, all, WORDS));
  for (int i = 0; i < r->ranks; i++) {
    sums->before += (uint64_t)all[WORDS * i];
    sums->now += (uint64_t)all[WORDS * i + 1];
    samples[i] = all[WORDS * i + 2];
    sums->hashed_before += all[WORDS * i + 3];
  }
  return OT_OK;
}

static ot_status compare(ot_replicas *r, const ot_replica_moment *moment, ot_audit_report *report) {
  ot_replica_moment before = *moment;
  int64_t *const samples = ot_arena_array(report->arena, r->ranks, sizeof *samples);
  link_sums sums;
  before.before_update = true;
  hash_units(r, moment);
  OT_TRY(add_links(r, report->arena, samples, &sums));
  if (sums.hashed_before == r->ranks && sums.before != 0) {
    OT_TRY(ot_replicas_gather(r, r->values_before, r->all_values, r->most_units));
    OT_TRY(ot_replicas_find(r, &before, report));
  }
  r->is_before = false;
  if (sums.now != 0) {
    OT_TRY(ot_replicas_gather(r, r->values, r->all_values, r->most_units));
    OT_TRY(ot_replicas_find(r, moment, report));
  }
  if (moment->micro_batches > 0) ot_replicas_find_shared(r, moment, samples, report);
  return OT_OK;
}

ot_status ot_replicas_compare(ot_replicas *replicas, const ot_replica_moment *moment,
                              ot_audit_report *report) {
  const double start_s = ot_clock_s();
  OT_TRY(compare(replicas, moment, report));
  replicas->figures.seconds = ot_clock_s() - start_s;
  return OT_OK;
}
