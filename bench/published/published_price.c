// SPDX-License-Identifier: Apache-2.0
// One row at a time: an estimator for its job, and the estimates that its rules ask for.
#include "published_price.h"

#include "device/heap.h"

bool ot_published_has_step(const ot_published_row *row) { return row->usable == 1; }

bool ot_published_has_memory(const ot_published_row *row) { return row->memory_gb > 0; }

// The peak as the source measures it, in GB of its own: what nvidia-smi shows includes the context
// of the device; the rest is what the allocator holds. GiB where the source says so.
static double memory_of(const ot_published_row *row, const ot_memory_estimate *memory) {
  const bool smi = ot_published_mentions(row->memory_def, "nvidia-smi") ||
                   ot_published_mentions(row->memory_def, "GPU memory");
  const bool binary = ot_published_mentions(row->memory_def, "GiB") ||
                      ot_published_mentions(row->memory_def, "MiB");
  const double bytes = (double)memory->reserved + (smi ? (double)memory->context : 0);
  return bytes / (binary ? 1024.0 * 1024 * 1024 : 1e9);
}

// The mildest recompute that fits, where the source leaves it open.
static ot_status estimate_open(ot_estimator *estimator, ot_candidate *candidate, ot_estimate *out) {
  for (int r = OT_RECOMPUTE_NONE; r <= OT_RECOMPUTE_FULL; r++) {
    candidate->recompute = (ot_recompute)r;
    OT_TRY(ot_estimate_build(estimator, candidate, out));
    if (out->fits) break;
  }
  return OT_OK;
}

// Half of the layers recomputed, half not: the mean of both.
static ot_status estimate_half(ot_estimator *estimator, ot_candidate *candidate, ot_estimate *out) {
  ot_estimate whole;
  candidate->recompute = OT_RECOMPUTE_FULL;
  OT_TRY(ot_estimate_build(estimator, candidate, &whole));
  candidate->recompute = OT_RECOMPUTE_NONE;
  OT_TRY(ot_estimate_build(estimator, candidate, out));
  out->step_s = 0.5 * (out->step_s + whole.step_s);
  out->memory.reserved = (out->memory.reserved + whole.memory.reserved) / 2;
  return OT_OK;
}

static ot_status price_row(ot_published_setup *setup, const ot_published_row *row,
                           ot_arena *scratch, ot_published_price *out) {
  ot_published_job job;
  OT_TRY(ot_published_job_build(setup, row, &job));
  out->engine = job.engine.name;
  OT_TRY(ot_candidate_check(&job.job, &job.candidate));
  ot_estimator *estimator = NULL;
  OT_TRY(ot_estimator_build(&job.job, scratch, &estimator));
  if (job.every_other_layer) {
    OT_TRY(estimate_half(estimator, &job.candidate, &out->estimate));
  } else if (job.recompute_open) {
    OT_TRY(estimate_open(estimator, &job.candidate, &out->estimate));
  } else {
    OT_TRY(ot_estimate_build(estimator, &job.candidate, &out->estimate));
  }
  out->priced = true;
  out->step_s = out->estimate.step_s;
  out->memory_gb = memory_of(row, &out->estimate.memory);
  return OT_OK;
}

ot_status ot_published_price_all(ot_published_setup *setup, const ot_published_rows *rows,
                                 ot_arena *arena, ot_published_prices *out) {
  *out =
      (ot_published_prices){.price = ot_arena_array(arena, rows->num_rows + 1, sizeof *out->price)};
  for (int64_t i = 0; i < rows->num_rows; i++) {
    const ot_published_row *const row = &rows->row[i];
    if (!ot_published_has_step(row) && !ot_published_has_memory(row)) continue;
    ot_published_price *const price = &out->price[out->num_rows++];
    price->row = row;
    ot_heap heap = {0};
    ot_arena scratch = ot_heap_arena_create(&heap);
    const ot_status status = price_row(setup, row, &scratch, price);
    if (status != OT_OK) price->reason = ot_arena_format(arena, "%s", ot_fail_message());
    ot_heap_release(&heap);
    if (status == OT_BUG) return status;
  }
  return OT_OK;
}
