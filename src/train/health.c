// SPDX-License-Identifier: Apache-2.0
// Each rank's sums stand in slots of their own, to be added over slots and ranks; a part of which
// several ranks have copies counts as often above the line of a ratio as below. The schedule has
// added the squares over all ranks already, because the clip factor needs them.
#include "train/health.h"

#include <math.h>
#include <string.h>

#include "train/exchange.h"

// A region of float64 values, [*count].
static double *read_region(ot_instance *instance, const char *name, ot_arena *arena,
                           int64_t *count) {
  const ot_region *const region = ot_schedule_region(ot_instance_schedule(instance), name);
  *count = region->bytes / (int64_t)sizeof(double);
  double *const values = ot_arena_array(arena, *count + 1, sizeof *values);
  ot_executor_read(ot_instance_executor(instance), region->offset, values, region->bytes);
  return values;
}

// ---- over ranks ----

static ot_status sum_values(ot_comm *comm, double *values, int64_t count) {
  ot_exchange *exchange = NULL;
  OT_TRY(ot_exchange_create(comm, count + 1, &exchange));
  const size_t bytes = (size_t)count * sizeof *values;
  memcpy(ot_exchange_words(exchange), values, bytes);
  const ot_status status = ot_exchange_sum(exchange, count);
  memcpy(values, ot_exchange_words(exchange), bytes);
  ot_exchange_destroy(&exchange);
  return status;
}

static ot_status merge_values(ot_exchange *exchange, int rank, int ranks, double *values,
                              int64_t count) {
  double *const all = (double *)ot_exchange_words(exchange);
  memcpy(all + rank * count, values, (size_t)count * sizeof *values);
  OT_TRY(ot_exchange_merge(exchange, ranks * count));
  for (int64_t i = 0; i < ranks * count; i++) values[i % count] = fmax(values[i % count], all[i]);
  return OT_OK;
}

// The largest over the ranks of each of `values`, none of which is negative.
static ot_status largest_values(ot_comm *comm, double *values, int64_t count) {
  if (!comm) return OT_OK;
  const int ranks = ot_comm_size(comm);
  ot_exchange *exchange = NULL;
  OT_TRY(ot_exchange_create(comm, ranks * count + 1, &exchange));
  const ot_status status = merge_values(exchange, ot_comm_rank(comm), ranks, values, count);
  ot_exchange_destroy(&exchange);
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

static ot_status read_tensors(ot_instance *instance, ot_comm *comm, ot_arena *arena,
                              ot_health *health) {
  const ot_graph *const graph = ot_instance_shape(instance);
  const int slots = ot_instance_schedule(instance)->slots_per_part;
  int64_t num_squares, num_updates;
  const double *const squares = read_region(instance, "squares", arena, &num_squares);
  double *const updates = read_region(instance, "updates", arena, &num_updates);
  OT_TRY(sum_values(comm, updates, num_updates));
  int64_t part = 0;
  for (int i = 0; i < graph->num_parameters; i++) {
    for (int k = 0; k < graph->parameters[i].num_parts; k++, part++) {
      const char *const name = graph->parameters[i].parts[k].hf_name;
      const double *const update = updates + 2 * part * slots;
      const double norm = sqrt(sum_slots(squares + part * slots, slots, 1));
      const double ratio = ratio_of(sum_slots(update, slots, 2), sum_slots(update + 1, slots, 2));
      health->gradient_norm[part] = (ot_health_value){name, norm};
      health->update_ratio[part] = (ot_health_value){name, ratio};
    }
  }
  return OT_OK;
}

static ot_status read_blocks(ot_instance *instance, ot_comm *comm, ot_arena *arena,
                             ot_health *health) {
  const ot_graph *const graph = ot_instance_shape(instance);
  int64_t count;
  double *const maxima = read_region(instance, "statistics", arena, &count);
  OT_TRY(largest_values(comm, maxima, count));
  for (int i = 0; i < graph->num_blocks; i++) {
    const double *const m = maxima + (int64_t)i * OT_BLOCK_STATISTICS;
    const char *const name = graph->blocks[i].name;
    health->max_activation[i] = (ot_health_value){name, m[OT_STATISTIC_MAX_ACTIVATION]};
    health->max_logit[i] = (ot_health_value){name, m[OT_STATISTIC_MAX_LOGIT]};
  }
  return OT_OK;
}

ot_status ot_health_read(ot_instance *instance, ot_comm *comm, ot_arena *arena, ot_health *health) {
  const int parts = ot_instance_schedule(instance)->num_parts;
  const int blocks = ot_instance_shape(instance)->num_blocks;
  *health = (ot_health){
      .num_tensors = parts,
      .gradient_norm = ot_arena_array(arena, parts, sizeof(ot_health_value)),
      .update_ratio = ot_arena_array(arena, parts, sizeof(ot_health_value)),
      .num_blocks = blocks,
      .max_activation = ot_arena_array(arena, blocks, sizeof(ot_health_value)),
      .max_logit = ot_arena_array(arena, blocks, sizeof(ot_health_value)),
  };
  OT_TRY(read_tensors(instance, comm, arena, health));
  return read_blocks(instance, comm, arena, health);
}
