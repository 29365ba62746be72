// SPDX-License-Identifier: Apache-2.0
// Initial weights: counter-based RNG keyed by HF tensor name and element index in that tensor, so
// layout, parameter order and number of ranks do not change them. Generates only the elements of
// this rank, in blocks.
#include "base/rng.h"
#include "base/text.h"
#include "runtime/model_runtime.h"

enum { BLOCK = 1 << 12 };  // elements of one copy to the device, on the stack

// Elements [first, end) of a bucket.
typedef struct range {
  int64_t first, end;
} range;

static range intersect(range a, range b) {
  return (range){a.first > b.first ? a.first : b.first, a.end < b.end ? a.end : b.end};
}

static range held(const ot_runtime *runtime, int block, ot_parameter_copy copy) {
  const ot_bucket_range r = ot_runtime_held_range(runtime, block, copy);
  return (range){r.first, r.first + r.count};
}

// Index of element (row, col) of a part in its HF tensor.
static uint64_t hf_index(const ot_parameter_part *part, int64_t row, int64_t col) {
  const int64_t out = part->hf_first + row;
  const int64_t in = part->hf_first_col + col;
  return (uint64_t)(part->transposed ? in * part->hf_rows + out : out * part->hf_cols + in);
}

// Elements of a part in range `at` of the bucket, row by row.
static void fill(const ot_parameter *parameter, const ot_parameter_part *part, uint64_t seed,
                 range at, double *values) {
  const int64_t begin = parameter->offset + part->first_row * parameter->cols;
  const int64_t n = at.end - at.first;
  if (parameter->initial != OT_INITIAL_NORMAL) {
    for (int64_t i = 0; i < n; i++) values[i] = part->initial;
    return;
  }
  ot_rng_counters counters = {.seed = seed,
                              .stream = ot_hash_text(OT_HASH_START, part->hf_name),
                              .step = hf_index(part, 0, 1) - hf_index(part, 0, 0)};
  for (int64_t done = 0, count; done < n; done += count) {
    const int64_t at_part = at.first + done - begin;
    const int64_t row = at_part / parameter->cols, col = at_part % parameter->cols;
    count = parameter->cols - col < n - done ? parameter->cols - col : n - done;
    counters.first = hf_index(part, row, col);
    ot_rng_normals(&counters, count, values + done);
  }
  for (int64_t i = 0; i < n; i++) values[i] *= part->initial;
}

// Converts [n] doubles to `dtype`.
static void convert(const double *values, int64_t n, ot_dtype dtype, void *to) {
  for (int64_t i = 0; i < n; i++) {
    if (dtype == OT_F64) ((double *)to)[i] = values[i];
    if (dtype == OT_F32) ((float *)to)[i] = (float)values[i];
    if (dtype == OT_BF16) ((uint16_t *)to)[i] = ot_bf16_from_float((float)values[i]);
  }
}

// Generates elements `at` of the bucket, at most BLOCK, and stores them in every copy that holds
// them.
static void make(ot_runtime *runtime, int index, const ot_parameter_part *part, uint64_t seed,
                 range at) {
  static const ot_parameter_copy copies[] = {OT_COPY_WEIGHT, OT_COPY_MASTER};
  const ot_parameter *const parameter = &ot_runtime_any_graph(runtime)->parameters[index];
  double values[BLOCK], stored[BLOCK];
  fill(parameter, part, seed, at, values);
  for (int i = 0; i < OT_COUNT(copies); i++) {
    const ot_bucket_range there = ot_runtime_held_range(runtime, parameter->block, copies[i]);
    const range mine = intersect(at, held(runtime, parameter->block, copies[i]));
    if (mine.first >= mine.end) continue;
    const ot_dtype dtype = ot_runtime_copy_dtype(runtime, copies[i]);
    const int64_t size = ot_dtype_bytes(dtype), n = mine.end - mine.first;
    convert(values + (mine.first - at.first), n, dtype, stored);
    ot_executor_write(ot_runtime_executor(runtime),
                      there.offset + (mine.first - there.first) * size, stored, n * size);
  }
}

static void initialize_part(ot_runtime *runtime, int index, const ot_parameter_part *part,
                            uint64_t seed) {
  const ot_parameter *const parameter = &ot_runtime_any_graph(runtime)->parameters[index];
  const int threads = ot_runtime_any_graph(runtime)->request.threads;
  const int64_t begin = parameter->offset + part->first_row * parameter->cols;
  // Master copies have the same shards as weights, so these determine the range.
  const range all = intersect((range){begin, begin + part->rows * parameter->cols},
                              held(runtime, parameter->block, OT_COPY_WEIGHT));
#pragma omp parallel for num_threads(threads)
  for (int64_t first = all.first; first < all.end; first += BLOCK) {
    const int64_t end = first + BLOCK < all.end ? first + BLOCK : all.end;
    make(runtime, index, part, seed, (range){first, end});
  }
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
    for (int k = 0; k < graph->parameters[i].num_parts; k++) {
      initialize_part(runtime, i, &graph->parameters[i].parts[k], seed);
    }
  }
  ot_runtime_zero_moments(runtime);
  return OT_OK;
}

// ---- after loading weights ----

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
