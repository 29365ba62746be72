// SPDX-License-Identifier: Apache-2.0
// From a request to memory, and the addresses of parameters in it.
#include "train/instance.h"

#include <sched.h>
#include <stdlib.h>

#include "base/text.h"
#include "schedule/segment.h"

struct ot_instance {
  ot_model model;
  unsigned modes;
  ot_heap heap;
  ot_graph graphs[OT_MODES];
  const ot_graph *shape;
  ot_schedule schedule;
  ot_executor *executor;
  int64_t *bucket[OT_COPY_MASTER + 1];  // [num_blocks] arena offset of each copy's bucket
};

int ot_instance_cores(void) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  const int cores = CPU_COUNT(&set);
  return cores > 0 ? cores : 1;
}

// ---- planning ----

static ot_status build_graph(const ot_instance_request *request, ot_mode mode, ot_arena *arena,
                             ot_graph *graph) {
  const bool decode = mode == OT_MODE_DECODE;
  const ot_graph_request wanted = {
      .model = request->model,
      .mode = mode,
      .micro_batch_size = request->micro_batch_size,
      .sequence_length = decode ? 1 : request->sequence_length,
      .cache_positions = request->cache_positions,
      .compute = request->compute,
      .storage = request->storage,
      .head_chunk_rows = request->head_chunk_rows,
      .threads = request->threads > 0 ? request->threads : ot_instance_cores(),
      .seed = request->seed,
  };
  return ot_graph_build(&wanted, arena, graph);
}

ot_status ot_instance_plan(const ot_instance_request *request, ot_arena *arena, ot_graph *graphs,
                           ot_schedule *schedule) {
  ot_schedule_request wanted = {
      .run = request->run,
      .micro_batches = request->micro_batches,
      .num_micro_batches = request->num_micro_batches,
      .split_backward = request->split_backward,
      .guard_bytes = request->guard_bytes,
  };
  for (int mode = 0; mode < OT_MODES; mode++) {
    if (!((request->modes >> mode) & 1u)) continue;
    OT_TRY(build_graph(request, (ot_mode)mode, arena, &graphs[mode]));
    wanted.graphs[mode] = &graphs[mode];
  }
  return ot_schedule_build(&wanted, arena, schedule);
}

// ---- create ----

static void find_buckets(ot_instance *instance, ot_arena *arena) {
  static const char *const names[] = {"weights", "gradients", "moment_1", "moment_2", "master"};
  const ot_schedule *const schedule = &instance->schedule;
  for (int copy = 0; copy <= OT_COPY_MASTER; copy++) {
    int64_t *const offsets = ot_arena_array(arena, schedule->num_blocks, sizeof *offsets);
    instance->bucket[copy] = offsets;
    for (int b = 0; b < schedule->num_blocks; b++) {
      offsets[b] = -1;
      const char *const name =
          ot_arena_format(arena, "%s.%s", names[copy], instance->shape->blocks[b].name);
      for (int i = 0; i < schedule->num_regions; i++) {
        if (!ot_text_equal(schedule->regions[i].name, name)) continue;
        offsets[b] = schedule->regions[i].offset;
        break;
      }
    }
  }
}

static ot_status create(ot_instance *instance, const ot_instance_request *request) {
  instance->model = *request->model;
  instance->modes = request->modes;
  ot_arena arena = ot_heap_arena_create(&instance->heap);
  ot_instance_request own = *request;
  own.model = &instance->model;
  OT_TRY(ot_instance_plan(&own, &arena, instance->graphs, &instance->schedule));
  ot_heap scratch = {0};
  ot_arena check_arena = ot_heap_arena_create(&scratch);
  const ot_status checked = ot_schedule_check(&instance->schedule, &check_arena);
  ot_heap_release(&scratch);
  OT_TRY(checked);
  for (int mode = OT_MODES - 1; mode >= 0; mode--) {
    if (mode != OT_MODE_PREFILL && ((request->modes >> mode) & 1u)) {
      instance->shape = &instance->graphs[mode];
    }
  }
  OT_ASSERT(instance->shape != NULL);
  find_buckets(instance, &arena);
  const ot_executor_options options = {.poison = request->poison};
  return ot_executor_create(&instance->schedule, &options, &instance->executor);
}

ot_status ot_instance_create(const ot_instance_request *request, ot_instance **out) {
  *out = calloc(1, sizeof **out);
  OT_CHECK(*out, OT_ENVIRONMENT, "out of memory");
  const ot_status status = create(*out, request);
  if (status != OT_OK) ot_instance_destroy(out);
  return status;
}

void ot_instance_destroy(ot_instance **instance) {
  if (!instance || !*instance) return;
  ot_executor_destroy(&(*instance)->executor);
  ot_heap_release(&(*instance)->heap);
  free(*instance);
  *instance = NULL;
}

const ot_schedule *ot_instance_schedule(const ot_instance *instance) { return &instance->schedule; }

ot_executor *ot_instance_executor(ot_instance *instance) { return instance->executor; }

const ot_graph *ot_instance_graph(const ot_instance *instance, ot_mode mode) {
  OT_ASSERT((instance->modes >> mode) & 1u);
  return &instance->graphs[mode];
}

const ot_graph *ot_instance_shape(const ot_instance *instance) { return instance->shape; }

// ---- parameters ----

bool ot_instance_has_copy(const ot_instance *instance, ot_parameter_copy copy) {
  return instance->bucket[copy][0] >= 0;
}

ot_dtype ot_instance_copy_dtype(const ot_instance *instance, ot_parameter_copy copy) {
  const ot_graph_request *const request = &instance->shape->request;
  return copy == OT_COPY_WEIGHT ? request->storage : request->compute;
}

static int64_t rows_offset(const ot_instance *instance, const ot_parameter_rows *range,
                           int64_t *bytes) {
  const ot_parameter *const parameter = &instance->shape->parameters[range->parameter];
  const int64_t size = ot_dtype_bytes(ot_instance_copy_dtype(instance, range->copy));
  const int64_t bucket = instance->bucket[range->copy][parameter->block];
  OT_ASSERT(bucket >= 0);
  OT_ASSERT(range->first_row >= 0 && range->first_row + range->rows <= parameter->rows);
  *bytes = range->rows * parameter->cols * size;
  return bucket + (parameter->offset + range->first_row * parameter->cols) * size;
}

void ot_instance_read(const ot_instance *instance, const ot_parameter_rows *range, void *to) {
  int64_t bytes;
  const int64_t offset = rows_offset(instance, range, &bytes);
  ot_executor_read(instance->executor, offset, to, bytes);
}

void ot_instance_write(ot_instance *instance, const ot_parameter_rows *range, const void *from) {
  int64_t bytes;
  const int64_t offset = rows_offset(instance, range, &bytes);
  ot_executor_write(instance->executor, offset, from, bytes);
}

// ---- batches ----

static const ot_region *order_region(const ot_instance *instance, ot_mode mode, const char *name) {
  for (int i = 0; i < instance->schedule.num_regions; i++) {
    const ot_region *const region = &instance->schedule.regions[i];
    const bool mine = !region->persistent && region->order == (int)ot_order_of_mode(mode);
    if (mine && ot_text_equal(region->name, name)) return region;
  }
  OT_UNREACHABLE();
}

void ot_instance_load_batch(ot_instance *instance, ot_mode mode, int micro_batch,
                            ot_batch_field field, const void *data) {
  const ot_graph *const graph = ot_instance_graph(instance, mode);
  const ot_tensor_type type = ot_graph_batch_type(graph, field);
  const int64_t offset = order_region(instance, mode, "batch")->offset +
                         micro_batch * ot_segment_batch_bytes(graph) +
                         ot_segment_batch_offset(graph, field);
  ot_executor_write(instance->executor, offset, data, ot_type_bytes(&type));
}

void ot_instance_read_result(const ot_instance *instance, ot_mode mode, ot_result result, void *to,
                             int64_t bytes) {
  const ot_graph *const graph = ot_instance_graph(instance, mode);
  const int64_t offset =
      order_region(instance, mode, "result")->offset + ot_segment_result_offset(graph, result);
  ot_executor_read(instance->executor, offset, to, bytes);
}

ot_status ot_instance_run(ot_instance *instance, ot_mode mode, int micro_batches) {
  const int order =
      ot_schedule_find_order(&instance->schedule, ot_order_of_mode(mode), micro_batches);
  OT_ASSERT(order >= 0);
  return ot_executor_run(instance->executor, order);
}
