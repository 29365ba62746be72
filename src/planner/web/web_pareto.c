// SPDX-License-Identifier: Apache-2.0
// Points of time and memory: more plans than the answer shows, and what was rejected why.
#include "web/web_parts.h"

// More plans cost more: fewer configurations are out of the running early.
enum { PLANS = 40 };

void ot_web_put_range(const ot_job *job, const ot_estimate *e, ot_json_writer *w) {
  ot_doubt doubt;
  ot_doubt_find(&(ot_doubt_request){.job = job, .candidate = &e->candidate}, &doubt);
  const ot_interval range = ot_interval_80(e->step_s, doubt.step_variance);
  ot_json_array(w, "interval80");
  ot_json_real(w, NULL, range.low);
  ot_json_real(w, NULL, range.high);
  ot_json_end(w);
}

static void put_point(const ot_job *job, const ot_estimate *e, ot_json_writer *w) {
  ot_json_object(w, NULL);
  ot_candidate_write_json(&e->candidate, w);
  ot_json_real(w, "step_seconds", e->step_s);
  ot_json_real(w, "mfu", e->mfu);
  ot_json_integer(w, "memory_bytes", e->memory.reserved + e->memory.context);
  ot_web_put_range(job, e, w);
  ot_json_end(w);
}

static void put_rejection(const ot_rejection *r, ot_json_writer *w) {
  static const char *const kinds[] = {"memory", "slower", "rule"};
  ot_json_object(w, NULL);
  ot_candidate_write_json(&r->candidate, w);
  ot_json_text(w, "kind", kinds[r->kind]);
  ot_json_text(w, "reason", r->reason);
  ot_json_real(w, "least_seconds", r->bound.step_s);
  ot_json_integer(w, "least_bytes", r->bound.peak);
  ot_json_end(w);
}

ot_status ot_web_pareto(ot_web *web, const ot_node *request, ot_json_writer *w) {
  (void)request;
  const ot_search_request search = {
      .job = web->page.job, .top = PLANS, .plans_only = true, .distinct = true};
  ot_search found;
  OT_TRY(ot_search_build(&search, &web->call, &found));
  ot_json_array(w, "plans");
  for (int i = 0; i < found.num_plans; i++) put_point(web->page.job, &found.plans[i], w);
  ot_json_end(w);
  ot_json_array(w, "rejected");
  for (int i = 0; i < found.num_rejections; i++) put_rejection(&found.rejections[i], w);
  ot_json_end(w);
  return OT_OK;
}
