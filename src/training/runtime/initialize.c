// SPDX-License-Identifier: Apache-2.0
// Initial weights: counter-based RNG keyed by HF tensor name and element index in that tensor, so
// layout, parameter order and number of ranks do not change them. Only the elements of this rank
// are drawn, on its device.
#include "base/text.h"
#include "runtime/model_runtime.h"

// Elements [first, end) of a bucket.
typedef struct range {
  int64_t first, end;
} range;

static range intersect(range a, range b) {
  return (range){a.first > b.first ? a.first : b.first, a.end < b.end ? a.end : b.end};
}

// Index of element (row, col) of a part in its HF tensor.
static uint64_t hf_index(const ot_parameter_part *part, int64_t row, int64_t col) {
  const int64_t out = part->hf_first + row;
  const int64_t in = part->hf_first_col + col;
  return (uint64_t)(part->transposed ? in * part->hf_rows + out : out * part->hf_cols + in);
}

// Adds what this rank holds of elements `all` of a bucket in one copy of its weights.
static void add_target(ot_runtime *runtime, int block, ot_parameter_copy copy, range all,
                       ot_initial_draw *draw) {
  const ot_bucket_range held = ot_runtime_held_range(runtime, block, copy);
  const range mine = intersect(all, (range){held.first, held.first + held.count});
  const ot_dtype dtype = ot_runtime_copy_dtype(runtime, copy);
  if (mine.first >= mine.end) return;
  draw->target[draw->num_targets++] =
      (ot_initial_target){.offset = held.offset + (mine.first - held.first) * ot_dtype_bytes(dtype),
                          .first = mine.first - all.first,
                          .end = mine.end - all.first,
                          .dtype = dtype};
}

static void initialize_part(ot_runtime *runtime, const ot_parameter *parameter,
                            const ot_parameter_part *part, uint64_t seed) {
  const int64_t begin = parameter->offset + part->first_row * parameter->cols;
  const range all = {begin, begin + part->rows * parameter->cols};
  ot_initial_draw draw = {.normal = parameter->initial == OT_INITIAL_NORMAL,
                          .scale = part->initial,
                          .seed = seed,
                          .stream = ot_hash_text(OT_HASH_START, part->hf_name),
                          .counter = hf_index(part, 0, 0),
                          .columns = parameter->cols};
  draw.row_step = hf_index(part, 1, 0) - draw.counter;
  draw.column_step = hf_index(part, 0, 1) - draw.counter;
  add_target(runtime, parameter->block, OT_COPY_WEIGHT, all, &draw);
  add_target(runtime, parameter->block, OT_COPY_MASTER, all, &draw);
  if (draw.num_targets > 0) ot_executor_draw(ot_runtime_executor(runtime), &draw);
}

void ot_runtime_zero_moments(ot_runtime *runtime) {
  const ot_schedule *const schedule = ot_runtime_schedule(runtime);
  for (int i = 0; i < schedule->num_regions; i++) {
    const ot_region *const region = &schedule->regions[i];
    if (!ot_text_starts_with(region->name, "moment_")) continue;
    ot_executor_fill(ot_runtime_executor(runtime), region->offset, 0, region->bytes);
  }
}

ot_status ot_runtime_initialize(ot_runtime *runtime, uint64_t seed) {
  const ot_graph *const graph = ot_runtime_any_graph(runtime);
  for (int i = 0; i < graph->num_parameters; i++) {
    const ot_parameter *const parameter = &graph->parameters[i];
    for (int k = 0; k < parameter->num_parts; k++) {
      initialize_part(runtime, parameter, &parameter->parts[k], seed);
    }
  }
  ot_runtime_zero_moments(runtime);
  return OT_OK;
}

// ---- after loading weights ----

enum { BLOCK = 1 << 14 };  // elements of one copy from and to the device, on the stack

static void widen(ot_runtime *runtime, int block) {
  ot_executor *const executor = ot_runtime_executor(runtime);
  const ot_bucket_range from = ot_runtime_held_range(runtime, block, OT_COPY_WEIGHT);
  const ot_bucket_range to = ot_runtime_held_range(runtime, block, OT_COPY_MASTER);
  uint16_t narrow[BLOCK];
  float wide[BLOCK];
  for (int64_t done = 0; done < to.count; done += BLOCK) {
    const int64_t n = to.count - done < BLOCK ? to.count - done : BLOCK;
    const int64_t skipped = to.first - from.first + done;
    ot_executor_read(executor, from.offset + skipped * 2, narrow, n * 2);
    for (int64_t i = 0; i < n; i++) wide[i] = ot_bf16_to_float(narrow[i]);
    ot_executor_write(executor, to.offset + done * 4, wide, n * 4);
  }
}

ot_status ot_runtime_reset_optimizer(ot_runtime *runtime) {
  for (int i = 0; i < ot_runtime_any_graph(runtime)->num_blocks; i++) widen(runtime, i);
  ot_runtime_zero_moments(runtime);
  return OT_OK;
}
