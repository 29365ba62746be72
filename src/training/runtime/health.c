// SPDX-License-Identifier: Apache-2.0
// Each rank's sums are in its own slots, which are added over slots and ranks; parts that several
// ranks copy count equally often in the numerator and denominator of a ratio. The squares have been
// all-reduced already, because the clip factor needs them. Spikes: z = (x - median) / (1.4826 MAD);
// for normal values MAD is 0.6745 standard deviations.
#include "runtime/health.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/host_allreduce.h"

// The regions of float64 values that health needs; they lie next to each other.
typedef struct tables {
  double *maxima, *updates, *squares;  // regions "statistics", "updates", "squares"
  int64_t num_maxima, num_updates;
} tables;

static tables read_tables(ot_runtime *runtime, ot_arena *arena) {
  const ot_schedule *const schedule = ot_runtime_schedule(runtime);
  const ot_region *const maxima = ot_schedule_region(schedule, "statistics");
  const ot_region *const updates = ot_schedule_region(schedule, "updates");
  const ot_region *const squares = ot_schedule_region(schedule, "squares");
  const int64_t bytes = squares->offset + squares->bytes - maxima->offset;
  double *const values = ot_arena_array(arena, bytes / 8 + 1, sizeof *values);
  OT_ASSERT(maxima->offset < updates->offset && updates->offset < squares->offset);
  ot_executor_read(ot_runtime_executor(runtime), maxima->offset, values, bytes);
  return (tables){.maxima = values,
                  .updates = values + (updates->offset - maxima->offset) / 8,
                  .squares = values + (squares->offset - maxima->offset) / 8,
                  .num_maxima = maxima->bytes / 8,
                  .num_updates = updates->bytes / 8};
}

// ---- over ranks ----

static ot_status sum_values(ot_comm *comm, double *values, int64_t count) {
  ot_host_allreduce *exchange = NULL;
  OT_TRY(ot_host_allreduce_create(comm, count + 1, &exchange));
  const size_t bytes = (size_t)count * sizeof *values;
  memcpy(ot_host_allreduce_words(exchange), values, bytes);
  const ot_status status = ot_host_allreduce_reals(exchange, count);
  memcpy(values, ot_host_allreduce_words(exchange), bytes);
  ot_host_allreduce_destroy(&exchange);
  return status;
}

static ot_status merge_values(ot_host_allreduce *exchange, int rank, int ranks, double *values,
                              int64_t count) {
  double *const all = (double *)ot_host_allreduce_words(exchange);
  memcpy(all + rank * count, values, (size_t)count * sizeof *values);
  OT_TRY(ot_host_allreduce_integers(exchange, ranks * count));
  for (int64_t i = 0; i < ranks * count; i++) values[i % count] = fmax(values[i % count], all[i]);
  return OT_OK;
}

// The maximum over ranks of each of the nonnegative `values`.
static ot_status largest_values(ot_comm *comm, double *values, int64_t count) {
  if (!comm) return OT_OK;
  const int ranks = ot_comm_size(comm);
  ot_host_allreduce *exchange = NULL;
  OT_TRY(ot_host_allreduce_create(comm, ranks * count + 1, &exchange));
  const ot_status status = merge_values(exchange, ot_comm_rank(comm), ranks, values, count);
  ot_host_allreduce_destroy(&exchange);
  return status;
}

// ---- by name ----

static double sum_slots(const double *values, int slots, int stride) {
  double sum = 0;
  for (int i = 0; i < slots; i++) sum += values[i * stride];
  return sum;
}

static double ratio_of(double squares, double of_squares) {
  return of_squares > 0 ? sqrt(squares / of_squares) : 0;
}

// The slots of a part. Ranks of ep number the parts of their own experts from 0, each in separate
// slots.
typedef struct part_slots {
  int64_t first;  // over all parts and slots
  int count;
} part_slots;

static part_slots slots_of_expert(const ot_schedule *schedule, const ot_parameter *local,
                                  int64_t before, int k) {
  const int slots = schedule->slots_per_part;
  const int held = schedule->group[OT_GROUP_EXPERT_SHARD].size;
  const int pieces = held > 1 ? held : 1;
  return (part_slots){(before + k % local->num_parts) * slots + k / local->num_parts * pieces,
                      pieces};
}

static ot_status read_tensors(ot_runtime *runtime, ot_comm *comm, const tables *t,
                              ot_health *health) {
  const ot_graph *const graph = ot_runtime_any_graph(runtime), *const whole =
                                                                   ot_runtime_whole_graph(runtime);
  const ot_schedule *const schedule = ot_runtime_schedule(runtime);
  const int slots = ot_runtime_schedule(runtime)->slots_per_part;
  OT_TRY(sum_values(comm, t->updates, t->num_updates));
  int64_t part = 0, before = 0;
  for (int i = 0; i < graph->num_parameters; i++) {
    const ot_parameter *const local = &graph->parameters[i];
    for (int k = 0; k < whole->parameters[i].num_parts; k++, part++) {
      const char *const name = whole->parameters[i].parts[k].hf_name;
      const bool cut = local->num_parts < whole->parameters[i].num_parts;
      const part_slots s = cut ? slots_of_expert(schedule, local, before, k)
                               : (part_slots){(before + k) * slots, slots};
      const double *const update = t->updates + 2 * s.first;
      const double norm = sqrt(sum_slots(t->squares + s.first, s.count, 1));
      const double ratio =
          ratio_of(sum_slots(update, s.count, 2), sum_slots(update + 1, s.count, 2));
      health->gradient_norm[part] = (ot_health_value){name, norm};
      health->update_ratio[part] = (ot_health_value){name, ratio};
    }
    before += local->num_parts;
  }
  return OT_OK;
}

static ot_status read_blocks(ot_runtime *runtime, ot_comm *comm, const tables *t,
                             ot_health *health) {
  const ot_graph *const graph = ot_runtime_any_graph(runtime);
  OT_TRY(largest_values(comm, t->maxima, t->num_maxima));
  for (int i = 0; i < graph->num_blocks; i++) {
    const double *const m = t->maxima + (int64_t)i * OT_BLOCK_STATISTICS;
    const char *const name = graph->blocks[i].name;
    health->max_activation[i] = (ot_health_value){name, m[OT_STATISTIC_MAX_ACTIVATION]};
    health->max_logit[i] = (ot_health_value){name, m[OT_STATISTIC_MAX_LOGIT]};
  }
  return OT_OK;
}

static int count_parts(const ot_graph *graph) {
  int parts = 0;
  for (int i = 0; i < graph->num_parameters; i++) parts += graph->parameters[i].num_parts;
  return parts;
}

ot_status ot_health_read(ot_runtime *runtime, ot_comm *comm, ot_arena *arena, ot_health *health) {
  const int parts = count_parts(ot_runtime_whole_graph(runtime));
  const int blocks = ot_runtime_any_graph(runtime)->num_blocks;
  *health = (ot_health){
      .num_tensors = parts,
      .gradient_norm = ot_arena_array(arena, parts, sizeof(ot_health_value)),
      .update_ratio = ot_arena_array(arena, parts, sizeof(ot_health_value)),
      .num_blocks = blocks,
      .max_activation = ot_arena_array(arena, blocks, sizeof(ot_health_value)),
      .max_logit = ot_arena_array(arena, blocks, sizeof(ot_health_value)),
  };
  const tables t = read_tables(runtime, arena);
  OT_TRY(read_tensors(runtime, comm, &t, health));
  return read_blocks(runtime, comm, &t, health);
}

// ---- non-finite numbers ----

// The first block of this rank with a non-finite output; num_blocks: none.
static int first_nonfinite_block(ot_runtime *runtime, ot_arena *arena) {
  const int num_blocks = ot_runtime_any_graph(runtime)->num_blocks;
  const tables t = read_tables(runtime, arena);
  for (int i = 0; i < num_blocks; i++) {
    const double *const m = t.maxima + (int64_t)i * OT_BLOCK_STATISTICS;
    if (!isfinite(m[OT_STATISTIC_MAX_ACTIVATION]) || !isfinite(m[OT_STATISTIC_MAX_LOGIT])) return i;
  }
  return num_blocks;
}

// Over ranks: the first such block and the lowest rank that has it, {block, rank}.
static ot_status find_block(ot_runtime *runtime, ot_comm *comm, ot_arena *arena, int places[2]) {
  places[0] = first_nonfinite_block(runtime, arena);
  places[1] = 0;
  if (!comm) return OT_OK;
  const int ranks = ot_comm_size(comm);
  double *const all = ot_arena_array(arena, ranks + 1, sizeof *all);
  for (int i = 0; i < ranks; i++) all[i] = i == ot_comm_rank(comm) ? places[0] : 0;
  OT_TRY(sum_values(comm, all, ranks));
  for (int i = 0; i < ranks; i++) {
    if (i > 0 && (int)all[i] >= places[0]) continue;
    places[0] = (int)all[i];
    places[1] = i;
  }
  return OT_OK;
}

// The first block in backward order with non-finite gradients; null: none.
static const char *last_nonfinite_block(const ot_graph *whole, const ot_health *health) {
  const char *block = NULL;
  int tensor = 0;
  for (int i = 0; i < whole->num_parameters; i++) {
    const ot_parameter *const p = &whole->parameters[i];
    for (int k = 0; k < p->num_parts; k++, tensor++) {
      if (!isfinite(health->gradient_norm[tensor].value)) block = whole->blocks[p->block].name;
    }
  }
  return block;
}

static const char *describe_tensors(const ot_health *health, ot_arena *arena) {
  const char *first = NULL;
  int count = 0;
  for (int i = 0; i < health->num_tensors; i++) {
    if (isfinite(health->gradient_norm[i].value)) continue;
    if (!first) first = health->gradient_norm[i].name;
    count++;
  }
  if (!first) return "each gradient on its own is finite";
  return ot_arena_format(arena,
                         "the gradients of %d of %d tensors are not finite, first that of %s",
                         count, health->num_tensors, first);
}

ot_status ot_health_find_nonfinite(ot_runtime *runtime, ot_comm *comm, ot_arena *arena,
                                   ot_nonfinite_location *place) {
  int places[2];
  ot_health health;
  OT_TRY(find_block(runtime, comm, arena, places));
  OT_TRY(ot_health_read(runtime, comm, arena, &health));
  const char *const tensors = describe_tensors(&health, arena);
  const bool forward = places[0] < health.num_blocks;
  const bool alone = !comm || ot_comm_size(comm) == 1;
  *place = (ot_nonfinite_location){.text = tensors, .rank = forward || alone ? places[1] : -1};
  place->block = forward ? health.max_activation[places[0]].name
                         : last_nonfinite_block(ot_runtime_whole_graph(runtime), &health);
  if (!place->block) return OT_OK;
  const char *const rank = place->rank < 0 ? "on an unknown rank (the gradients are reduced)"
                                           : ot_arena_format(arena, "on rank %d", place->rank);
  place->text =
      ot_arena_format(arena, "the first non-finite %s is that of %s, %s; %s",
                      forward ? "output" : "gradient of the backward", place->block, rank, tensors);
  return OT_OK;
}

static int compare(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median_of(double *values, int64_t n) {
  qsort(values, (size_t)n, sizeof *values, compare);
  return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

static double measure(const ot_spike_monitor *monitor, double value) {
  const int64_t n = monitor->count < OT_SPIKE_WINDOW ? monitor->count : OT_SPIKE_WINDOW;
  double sorted[OT_SPIKE_WINDOW];
  if (n < OT_SPIKE_LEAST) return 0;
  for (int64_t i = 0; i < n; i++) sorted[i] = monitor->values[i];
  const double median = median_of(sorted, n);
  for (int64_t i = 0; i < n; i++) sorted[i] = fabs(monitor->values[i] - median);
  const double deviation = fmax(1.4826 * median_of(sorted, n), 1e-3 * fabs(median));
  return deviation > 0 ? (value - median) / deviation : 0;
}

bool ot_spike_add(ot_spike_monitor *monitor, double value) {
  static const double once = 20, twice = 8;
  if (!isfinite(value)) return false;
  const bool before = monitor->high;
  monitor->z = measure(monitor, value);
  monitor->high = monitor->z > twice;
  monitor->values[monitor->count++ % OT_SPIKE_WINDOW] = value;
  return monitor->z > once || (monitor->high && before);
}
