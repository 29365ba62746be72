// SPDX-License-Identifier: Apache-2.0
// Row by row: an estimator for its job, and the estimates that its rules require.
#include "published_price.h"

#include <math.h>

#include "advise/explain.h"
#include "base/text.h"
#include "base/text_builder.h"
#include "estimate/job_check.h"
#include "host/heap.h"

static const double SLACK = 2;

bool ot_published_has_step(const ot_published_row *row) { return row->usable == 1; }

bool ot_published_has_memory(const ot_published_row *row) { return row->memory_gb > 0; }

// Peak memory as sources measure it: nvidia-smi includes the context of the device, other figures
// only what the allocator holds. Tools and frameworks count in MiB, so their GB is a GiB.
static double memory_of(const ot_published_row *row, const ot_memory_estimate *memory) {
  const bool smi = ot_published_mentions(row->memory_def, "nvidia-smi") ||
                   ot_published_mentions(row->memory_def, "GPU memory");
  const double bytes = (double)memory->reserved + (smi ? (double)memory->context : 0);
  return bytes / (1024.0 * 1024 * 1024);
}

// The mildest recompute that fits, if the source leaves it open. A miss by less than SLACK counts
// as fitting: frameworks have cheaper means (offloading, recomputing norms), and no estimate is
// exact.
static ot_status estimate_open(ot_estimator *estimator, ot_candidate *candidate, ot_estimate *out) {
  for (int r = OT_RECOMPUTE_NONE; r < OT_RECOMPUTES; r++) {
    candidate->recompute = (ot_recompute)r;
    OT_TRY(ot_estimate_build(estimator, candidate, out));
    const double need = (double)(out->memory.reserved + out->memory.context);
    if (need <= SLACK * (double)out->memory.capacity) break;
  }
  return OT_OK;
}

// Half of the layers with full recompute, half without: the mean of both.
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

static ot_status estimate_stated(const ot_published_job *job, ot_estimator *estimator,
                                 const ot_candidate *stated, ot_estimate *out) {
  ot_candidate candidate = *stated;
  OT_TRY(ot_candidate_check(&job->job, &candidate));
  if (job->every_other_layer) return estimate_half(estimator, &candidate, out);
  if (job->recompute_open) return estimate_open(estimator, &candidate, out);
  return ot_estimate_build(estimator, &candidate, out);
}

// Whether an estimate is better than `best`: those that fit first, then by time.
static bool is_better(const ot_estimate *e, const ot_estimate *best) {
  if (best->step_s == 0) return true;
  const bool fits[2] = {
      (double)(e->memory.reserved + e->memory.context) <= SLACK * (double)e->memory.capacity,
      (double)(best->memory.reserved + best->memory.context) <=
          SLACK * (double)best->memory.capacity};
  return fits[0] != fits[1] ? fits[0] : e->step_s < best->step_s;
}

// What a publisher leaves open was tuned: the fastest number of chunks and micro-batch size that
// fit. If none is valid, the failure is that of the first.
static ot_status estimate_tuned(const ot_published_job *job, ot_estimator *estimator,
                                ot_estimate *out) {
  enum { MOST_MICRO_BATCH = 8 };
  const int layers = (int)job->model.num_layers / job->candidate.pp;
  const int64_t sequences = job->job.global_batch_size / job->candidate.dp;
  const int most_vpp = job->vpp_open ? layers : job->candidate.vpp;
  const int64_t most = job->micro_batch_open ? MOST_MICRO_BATCH : job->candidate.micro_batch_size;
  *out = (ot_estimate){0};
  for (int vpp = job->vpp_open ? 1 : most_vpp; vpp <= most_vpp; vpp++) {
    if (job->vpp_open && layers % vpp != 0) continue;
    for (int64_t size = job->micro_batch_open ? 1 : most; size <= most; size *= 2) {
      ot_candidate c = job->candidate;
      ot_estimate tried;
      c.vpp = vpp;
      if (job->vpp_open) c.pipeline = vpp > 1 ? OT_PIPELINE_INTERLEAVED : OT_PIPELINE_1F1B;
      c.micro_batch_size = size;
      c.micro_batches = sequences / size;
      const ot_status status = estimate_stated(job, estimator, &c, &tried);
      if (status == OT_USAGE && (vpp > 1 || size > 1)) continue;
      OT_TRY(status);
      if (is_better(&tried, out)) *out = tried;
    }
  }
  return OT_OK;
}

static ot_status estimate(const ot_published_job *job, ot_arena *scratch, ot_estimate *out) {
  ot_estimator *estimator = NULL;
  OT_TRY(ot_candidate_check(&job->job, &job->candidate));
  OT_TRY(ot_estimator_build(&job->job, scratch, &estimator));
  if (job->vpp_open || job->micro_batch_open) return estimate_tuned(job, estimator, out);
  return estimate_stated(job, estimator, &job->candidate, out);
}

// Software without a name fits what it is said to run: if whole logits do not, its loss is fused
// and takes some tokens at a time.
static ot_status estimate_unnamed(ot_published_job *job, ot_arena *scratch, ot_estimate *out) {
  enum { LOSS_ROWS = 1024 };
  static const double fused_bytes = 10;
  OT_TRY(estimate(job, scratch, out));
  const bool fits = out->memory.reserved + out->memory.context <= out->memory.capacity;
  if (fits || job->engine.chunked_loss) return OT_OK;
  job->engine.chunked_loss = true;
  job->engine.loss_rows = LOSS_ROWS;
  job->engine.kernels.loss_bytes = fmin(job->engine.kernels.loss_bytes, fused_bytes);
  return estimate(job, scratch, out);
}

// Reasons why the planner's table of published runs does not cover this one; in `arena`. The note
// that MoE runs come from one source appears for each of them and is no such reason.
static const char *beyond_of(const ot_published_job *job, ot_arena *scratch, ot_arena *arena) {
  ot_reasons beyond;
  ot_text_builder text = {.arena = arena};
  ot_explain_beyond(&job->job, &job->candidate, scratch, &beyond);
  for (int i = 0; i < beyond.num; i++) {
    if (ot_text_starts_with(beyond.text[i], "experts (")) continue;
    ot_text_appendf(&text, "%s%s", text.length > 0 ? ", " : "", beyond.text[i]);
  }
  return text.length > 0 ? ot_text_builder_text(&text) : NULL;
}

static ot_status price_row(ot_published_setup *setup, ot_arena *scratch, ot_arena *arena,
                           ot_published_price *out) {
  const ot_published_row *const row = out->row;
  ot_published_job job;
  OT_TRY(ot_published_job_build(setup, row, &job));
  const uint64_t hash = ot_cluster_hash(&job.cluster);
  if (out->priced && hash == out->cluster) return OT_OK;
  out->priced = false;
  out->cluster = hash;
  out->engine = job.engine.name;
  OT_TRY(job.unnamed ? estimate_unnamed(&job, scratch, &out->estimate)
                     : estimate(&job, scratch, &out->estimate));
  ot_doubt_find(
      &(ot_doubt_request){.job = &job.job,
                          .candidate = &out->estimate.candidate,
                          .unknown_software = job.unnamed,
                          .open = job.recompute_open || job.vpp_open || job.micro_batch_open},
      &out->doubt);
  out->priced = true;
  out->setup = setup;
  ot_traits_find(&job.job, &out->estimate, &out->traits);
  out->traits.device = ot_arena_format(arena, "%s", out->traits.device);
  if (ot_published_has_step(row)) out->beyond = beyond_of(&job, scratch, arena);
  out->step_s = out->estimate.step_s;
  out->memory_gb = memory_of(row, &out->estimate.memory);
  return OT_OK;
}

void ot_published_prices_create(const ot_published_rows *rows, ot_arena *arena,
                                ot_published_prices *out) {
  *out =
      (ot_published_prices){.price = ot_arena_array(arena, rows->num_rows + 1, sizeof *out->price)};
  for (int64_t i = 0; i < rows->num_rows; i++) {
    const ot_published_row *const row = &rows->row[i];
    if (!ot_published_has_step(row) && !ot_published_has_memory(row)) continue;
    out->price[out->num_rows++].row = row;
  }
}

ot_status ot_published_prices_update(ot_published_setup *setup, ot_arena *arena,
                                     ot_published_prices *prices) {
  for (int64_t i = 0; i < prices->num_rows; i++) {
    ot_published_price *const price = &prices->price[i];
    ot_heap heap = {0};
    ot_arena scratch = ot_heap_arena_create(&heap);
    const ot_status status = price_row(setup, &scratch, arena, price);
    ot_heap_release(&heap);
    if (status == OT_OK) continue;
    *price = (ot_published_price){.row = price->row, .engine = price->engine};
    price->reason = ot_arena_format(arena, "%s", ot_fail_message());
    if (status == OT_BUG) return status;
  }
  return OT_OK;
}

ot_status ot_published_reprice(const ot_published_price *price, const ot_calibration *calibration,
                               double *step_s, double *variance) {
  ot_heap heap = {0};
  ot_arena scratch = ot_heap_arena_create(&heap);
  ot_published_setup *const setup = ot_arena_take(&scratch, sizeof *setup);
  ot_published_price again = {.row = price->row};
  *setup = *price->setup;
  setup->calibration = calibration;
  const ot_status status = price_row(setup, &scratch, &scratch, &again);
  *step_s = again.priced ? again.step_s : 0;
  *variance = ot_calibration_correction(calibration, &price->traits).variance;
  ot_heap_release(&heap);
  return status == OT_BUG ? status : OT_OK;
}
