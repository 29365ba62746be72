// SPDX-License-Identifier: Apache-2.0
// Initial weights: counter-based, keyed by HF tensor name and element index, so that no layout and
// no order of parameters changes them.
#include <stdlib.h>

#include "base/rng.h"
#include "base/text.h"
#include "train/instance.h"

// Index of element (row, col) of a part in its HF tensor.
static uint64_t hf_index(const ot_parameter *parameter, const ot_parameter_part *part, int64_t row,
                         int64_t col) {
  const int64_t out = part->hf_first + row;
  return (uint64_t)(part->transposed ? col * part->hf_rows + out : out * parameter->cols + col);
}

static void fill_part(const ot_parameter *parameter, const ot_parameter_part *part, uint64_t seed,
                      double *values) {
  const uint64_t stream = ot_hash_text(OT_HASH_START, part->hf_name);
#pragma omp parallel for
  for (int64_t row = 0; row < part->rows; row++) {
    for (int64_t col = 0; col < parameter->cols; col++) {
      const uint64_t index = hf_index(parameter, part, row, col);
      const double x = parameter->initial == OT_INITIAL_ONE    ? 1
                       : parameter->initial == OT_INITIAL_ZERO ? 0
                                                               : ot_rng_normal(seed, stream, index);
      const bool normal = parameter->initial == OT_INITIAL_NORMAL;
      values[row * parameter->cols + col] = normal ? parameter->initial_std * x : x;
    }
  }
}

// Converts [n] doubles to `dtype` in place of `to`.
static void convert(const double *values, int64_t n, ot_dtype dtype, void *to) {
  for (int64_t i = 0; i < n; i++) {
    if (dtype == OT_F64) ((double *)to)[i] = values[i];
    if (dtype == OT_F32) ((float *)to)[i] = (float)values[i];
    if (dtype == OT_BF16) ((uint16_t *)to)[i] = ot_bf16_from_float((float)values[i]);
  }
}

static void write_part(ot_instance *instance, int index, const ot_parameter_part *part,
                       const double *values, void *buffer) {
  const int64_t n = part->rows * ot_instance_shape(instance)->parameters[index].cols;
  const ot_parameter_copy copies[] = {OT_COPY_WEIGHT, OT_COPY_MASTER};
  for (int i = 0; i < 2; i++) {
    if (!ot_instance_has_copy(instance, copies[i])) continue;
    const ot_parameter_rows range = {index, copies[i], part->first_row, part->rows};
    convert(values, n, ot_instance_copy_dtype(instance, copies[i]), buffer);
    ot_instance_write(instance, &range, buffer);
  }
}

static ot_status initialize_part(ot_instance *instance, int index, const ot_parameter_part *part,
                                 uint64_t seed) {
  const ot_parameter *const parameter = &ot_instance_shape(instance)->parameters[index];
  const size_t n = (size_t)(part->rows * parameter->cols);
  double *const values = malloc(2 * n * sizeof *values);
  OT_CHECK(values, OT_ENVIRONMENT, "initialisation of %s: out of memory", part->hf_name);
  fill_part(parameter, part, seed, values);
  write_part(instance, index, part, values, values + n);
  free(values);
  return OT_OK;
}

void ot_instance_zero_moments(ot_instance *instance) {
  const ot_schedule *const schedule = ot_instance_schedule(instance);
  for (int i = 0; i < schedule->num_regions; i++) {
    const ot_region *const region = &schedule->regions[i];
    if (!ot_text_starts_with(region->name, "moment_")) continue;
    ot_executor_fill(ot_instance_executor(instance), region->offset, 0, region->bytes);
  }
}

ot_status ot_instance_initialize(ot_instance *instance, uint64_t seed) {
  const ot_graph *const graph = ot_instance_shape(instance);
  for (int i = 0; i < graph->num_parameters; i++) {
    for (int k = 0; k < graph->parameters[i].num_parts; k++) {
      OT_TRY(initialize_part(instance, i, &graph->parameters[i].parts[k], seed));
    }
  }
  ot_instance_zero_moments(instance);
  return OT_OK;
}

// ---- after a load ----

static ot_status widen(ot_instance *instance, int index) {
  const ot_parameter *const parameter = &ot_instance_shape(instance)->parameters[index];
  const int64_t n = ot_parameter_elements(parameter);
  uint16_t *const narrow = malloc((size_t)n * (sizeof(uint16_t) + sizeof(float)) + sizeof(float));
  OT_CHECK(narrow, OT_ENVIRONMENT, "master weights of %s: out of memory", parameter->name);
  float *const wide = (float *)(void *)(narrow + (n + n % 2));
  const ot_parameter_rows from = {index, OT_COPY_WEIGHT, 0, parameter->rows};
  const ot_parameter_rows to = {index, OT_COPY_MASTER, 0, parameter->rows};
  ot_instance_read(instance, &from, narrow);
  for (int64_t i = 0; i < n; i++) wide[i] = ot_bf16_to_float(narrow[i]);
  ot_instance_write(instance, &to, wide);
  free(narrow);
  return OT_OK;
}

ot_status ot_instance_reset_optimizer(ot_instance *instance) {
  const ot_graph *const graph = ot_instance_shape(instance);
  for (int i = 0; i < graph->num_parameters; i++) {
    if (graph->parameters[i].tied_to >= 0 || !ot_instance_has_copy(instance, OT_COPY_MASTER)) {
      continue;
    }
    OT_TRY(widen(instance, i));
  }
  ot_instance_zero_moments(instance);
  return OT_OK;
}
