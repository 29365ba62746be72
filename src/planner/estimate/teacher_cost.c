// SPDX-License-Identifier: Apache-2.0
// A live teacher in estimates and bounds. Its price depends on the micro-batch alone, so each size
// is priced once.
#include "estimate/teacher_cost.h"

#include "base/extremes.h"

ot_status ot_teacher_cost_find(ot_estimator *e, const ot_candidate *candidate,
                               ot_teacher_price *out) {
  const ot_job *const job = &e->job;
  *out = (ot_teacher_price){0};
  if (!ot_job_has_teacher(job)) return OT_OK;
  for (int64_t i = 0; i < e->num_teachers; i++) {
    *out = e->teachers[i].price;
    if (e->teachers[i].micro_batch_size == candidate->micro_batch_size) return OT_OK;
  }
  ot_run_lists lists;
  ot_run run;
  ot_candidate_run(job, candidate, &lists, &run);
  OT_TRY(job->teacher->price(job->teacher->context, &run, &e->cluster, e->threads, out));
  e->teachers = ot_arena_grow(e->arena, e->teachers, e->num_teachers, &e->teachers_capacity,
                              sizeof *e->teachers);
  e->teachers[e->num_teachers++] = (ot_priced_teacher){candidate->micro_batch_size, *out};
  return OT_OK;
}

void ot_teacher_cost_add(const ot_job *job, const ot_teacher_price *price, ot_estimate *out) {
  const ot_candidate *const c = &out->candidate;
  if (price->parameters == 0) return;
  out->teacher_s = ot_teacher_wait_s(price, ot_run_teacher_ranks(job->run), c->dp, c->micro_batches,
                                     out->step_s);
  out->step_s += out->teacher_s;
  out->bubble_fraction = out->bubble_s / out->step_s;
}

ot_status ot_teacher_cost_bound(ot_estimator *e, const ot_candidate *c, ot_estimate_bound *out) {
  ot_teacher_price price;
  const int ranks = ot_run_teacher_ranks(e->job.run);
  OT_TRY(ot_teacher_cost_find(e, c, &price));
  if (price.parameters == 0) return OT_OK;
  out->step_s += ot_teacher_wait_s(&price, ranks, c->dp, c->micro_batches, out->step_s);
  const bool together = ranks == 0 && c->pp == 1;
  out->peak = together ? out->peak + price.bytes : ot_larger_whole(out->peak, price.bytes);
  return OT_OK;
}
