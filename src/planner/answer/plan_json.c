// SPDX-License-Identifier: Apache-2.0
// One function per object of the document; values in SI units.
#include "answer/plan_cost.h"
#include "answer/plan_crossing.h"
#include "answer/plan_page.h"
#include "describe/pipeline_rules.h"

typedef struct document {
  const ot_plan_page *page;
  ot_arena *arena;
  ot_json_writer w;
} document;

static void put_texts(document *d, const char *key, const char *const *texts, int count) {
  ot_json_array(&d->w, key);
  for (int i = 0; i < count; i++) ot_json_text(&d->w, NULL, texts[i]);
  ot_json_end(&d->w);
}

// ---- the job ----

static void put_model(document *d) {
  const ot_job *const job = d->page->job;
  ot_json_writer *const w = &d->w;
  ot_json_object(w, "model");
  ot_json_text(w, "name", d->page->model_name);
  ot_json_integer(w, "parameters", d->page->totals->parameters);
  ot_json_integer(w, "active_parameters", d->page->totals->active_parameters);
  ot_json_real(w, "flops_per_token", d->page->totals->flops_per_token);
  ot_json_end(w);
  ot_json_object(w, "cluster");
  ot_json_text(w, "name", job->cluster->name);
  ot_json_text(w, "device", job->cluster->device.name);
  ot_json_integer(w, "devices", ot_job_all_devices(job));
  ot_json_integer(w, "memory_bytes", job->cluster->device.memory_bytes);
  ot_json_integer(w, "usable_memory_bytes", ot_device_capacity(&job->cluster->device));
  ot_json_real(w, "peak_flops_per_second", job->cluster->device.flops[job->recipe.products]);
  ot_json_array(w, "levels");
  for (int i = 0; i < job->cluster->num_levels; i++) {
    const ot_link_level *const level = &job->cluster->level[i];
    ot_json_object(w, NULL);
    ot_json_text(w, "name", level->name);
    ot_json_integer(w, "size", level->size);
    ot_json_real(w, "bytes_per_second", level->bytes_per_s);
    ot_json_real(w, "latency_seconds", level->latency_s);
    ot_json_end(w);
  }
  ot_json_end(w);
  ot_mixed_cluster_write_json(job, w);
  ot_json_end(w);
}

static void put_job(document *d) {
  const ot_job *const job = d->page->job;
  ot_json_writer *const w = &d->w;
  ot_json_text(w, "engine", job->engine->name);
  ot_json_text(w, "precision", job->recipe.name);
  ot_json_integer(w, "global_batch_size", job->global_batch_size);
  ot_json_integer(w, "sequence_length", job->sequence_length);
  ot_json_real(w, "tokens", job->tokens);
  ot_json_real(w, "memory_margin", job->memory_margin);
  put_texts(d, "assumed", d->page->notes, d->page->num_notes);
  ot_json_text(w, "mfu_convention", "model FLOPs, causal half of attention");
}

static void put_model_totals(document *d) {
  const ot_model_totals *const totals = d->page->totals;
  ot_json_writer *const w = &d->w;
  ot_json_object(w, "bill");
  ot_json_real(w, "bytes_per_parameter", totals->bytes_per_parameter);
  ot_json_integer(w, "weight_bytes", totals->weight_bytes);
  ot_json_integer(w, "gradient_bytes", totals->gradient_bytes);
  ot_json_integer(w, "optimizer_bytes", totals->optimizer_bytes);
  ot_json_integer(w, "state_bytes", totals->state_bytes);
  ot_json_integer(w, "min_devices_for_state", totals->min_devices_for_state);
  ot_json_end(w);
}

// Limits of one kind of device.
static void put_crossovers(const ot_limits *l, ot_json_writer *w) {
  ot_json_integer(w, "crossover_devices", l->crossover_devices);
  ot_json_integer(w, "crossover_flat_devices", l->crossover_flat_devices);
  ot_json_integer(w, "crossover_critical_devices", l->crossover_critical_devices);
  ot_json_integer(w, "crossover_replicated_devices", l->crossover_replicated_devices);
  ot_json_real(w, "floor_forward_tokens_per_device", l->floor.forward);
  ot_json_real(w, "floor_backward_tokens_per_device", l->floor.backward);
  ot_json_real(w, "tensor_ways", l->tensor_ways);
}

static void put_limits(document *d) {
  const ot_limits *const l = d->page->limits;
  ot_json_writer *const w = &d->w;
  ot_json_object(w, "limits");
  ot_json_integer(w, "batch_floor_devices", l->batch_floor_devices);
  ot_json_real(w, "critical_batch_tokens", l->critical_batch_tokens);
  ot_json_real(w, "flops_per_second_per_device", l->flops_per_s);
  ot_json_real(w, "step_flops_per_second_per_device", l->step_flops_per_s);
  if (!ot_cluster_is_mixed(d->page->job->cluster)) put_crossovers(l, w);
  ot_json_end(w);
}

// ---- plans ----

void ot_candidate_write_json(const ot_candidate *c, ot_json_writer *w) {
  ot_json_integer(w, "tp", c->tp);
  ot_json_integer(w, "pp", c->pp);
  ot_json_integer(w, "vpp", c->vpp);
  ot_json_integer(w, "cp", c->cp);
  ot_json_integer(w, "ep", c->ep);
  ot_json_integer(w, "etp", c->etp);
  ot_json_integer(w, "dp", c->dp);
  ot_json_integer(w, "dp_shard", c->dp_shard);
  ot_json_integer(w, "zero", c->zero);
  ot_json_integer(w, "micro_batch_size", c->micro_batch_size);
  ot_json_integer(w, "micro_batches", c->micro_batches);
  ot_json_text(w, "pipeline", ot_pipeline_name(c->pipeline));
  ot_json_text(w, "recompute", ot_recompute_names[c->recompute]);
  ot_json_array(w, "recompute_modules");
  for (int m = 0; m < (int)OT_RECOMPUTE_MODULES; m++) {
    if (c->modules & OT_MODULE_SET(m)) ot_json_text(w, NULL, ot_recompute_module_names[m]);
  }
  ot_json_end(w);
  if (c->crosses) ot_json_text(w, "crosses", ot_crossing_names[c->crosses]);
}

void ot_memory_write_json(const ot_memory_estimate *m, ot_json_writer *w) {
  ot_json_object(w, "memory");
  ot_json_integer(w, "weights", m->weights);
  ot_json_integer(w, "gradients", m->gradients);
  ot_json_integer(w, "optimizer", m->optimizer);
  ot_json_integer(w, "activations", m->activations);
  ot_json_integer(w, "gathered", m->gathered);
  ot_json_integer(w, "buffers", m->buffers);
  ot_json_integer(w, "teacher", m->teacher);
  ot_json_integer(w, "peak", m->peak);
  ot_json_integer(w, "reserved", m->reserved);
  ot_json_integer(w, "context", m->context);
  ot_json_integer(w, "used", m->reserved + m->context);
  ot_json_integer(w, "capacity", m->capacity);
  ot_json_integer(w, "allowed", m->allowed);
  ot_json_integer(w, "stage", m->stage);
  ot_json_end(w);
}

static void put_speed(const ot_job *job, const ot_estimate *e, ot_json_writer *w) {
  const int devices = ot_job_all_devices(job);
  ot_json_real(w, "step_seconds", e->step_s);
  ot_json_real(w, "mfu", e->mfu);
  ot_json_real(w, "hfu", e->hfu);
  ot_json_real(w, "model_tflops_per_device", e->model_flops / e->step_s / devices * 1e-12);
  ot_json_real(w, "tokens_per_second_per_device", e->tokens_per_s / devices);
  ot_json_real(w, "bubble_fraction", e->bubble_fraction);
  ot_json_object(w, "exposed_seconds");
  for (int i = 0; i < OT_TIMELINE_AXES; i++) {
    ot_json_real(w, ot_timeline_axis_name((ot_timeline_axis)i), e->exposed_s[i]);
  }
  ot_json_end(w);
  ot_json_object(w, "step_terms_seconds");
  ot_json_real(w, "compute", e->compute_s);
  ot_json_real(w, "recompute", e->recompute_s);
  ot_json_real(w, "update", e->update_s);
  ot_json_real(w, "bubble", e->bubble_s);
  ot_json_real(w, "teacher", e->teacher_s);
  ot_json_real(w, "launches", e->host_s);
  ot_json_end(w);
}

void ot_estimate_write_json(const ot_job *job, const ot_estimate *e, ot_json_writer *w) {
  ot_candidate_write_json(&e->candidate, w);
  ot_json_boolean(w, "fits", e->fits);
  ot_memory_write_json(&e->memory, w);
  put_speed(job, e, w);
  ot_crossing_write_json(job, e, w);
}

static void put_range(document *d, const char *key, ot_interval interval) {
  ot_json_array(&d->w, key);
  ot_json_real(&d->w, NULL, interval.low);
  ot_json_real(&d->w, NULL, interval.high);
  ot_json_end(&d->w);
}

static void put_interval(document *d, const ot_page_plan *plan, const char *key,
                         ot_interval (*interval)(double value, double variance)) {
  const ot_memory_estimate *const m = &plan->estimate->memory;
  const double step_variance = plan->doubt.step_variance;
  const double memory_variance = plan->doubt.memory_variance;
  ot_json_object(&d->w, key);
  put_range(d, "step_seconds", interval(plan->estimate->step_s, step_variance));
  put_range(d, "peak", interval((double)m->peak, memory_variance));
  put_range(d, "used", interval((double)(m->reserved + m->context), memory_variance));
  ot_json_end(&d->w);
}

static void put_intervals(document *d, const ot_page_plan *plan) {
  ot_json_writer *const w = &d->w;
  put_interval(d, plan, "interval80", ot_interval_80);
  put_interval(d, plan, "interval95", ot_interval_95);
  put_texts(d, "doubts", plan->doubt.reason, plan->doubt.num_reasons);
  ot_json_boolean(w, "equal_to_best", plan->equal);
}

static void put_cost(document *d, const ot_page_plan *plan) {
  ot_json_writer *const w = &d->w;
  if (d->page->price <= 0) return;
  const ot_plan_cost cost = ot_plan_cost_of(d->page, plan);
  ot_json_object(w, "cost");
  ot_json_real(w, "price_per_device_hour", d->page->price);
  ot_json_real(w, "device_hours", cost.device_hours);
  ot_json_real(w, "dollars", cost.dollars);
  put_range(d, "interval80", ot_interval_80(cost.dollars, plan->doubt.step_variance));
  put_range(d, "interval95", ot_interval_95(cost.dollars, plan->doubt.step_variance));
  if (cost.kwh > 0) ot_json_real(w, "kwh", cost.kwh);
  ot_json_end(w);
}

static void put_plan(document *d, const char *key, const ot_page_plan *plan) {
  const ot_estimate *const e = plan->estimate;
  ot_json_writer *const w = &d->w;
  ot_json_object(w, key);
  ot_estimate_write_json(d->page->job, e, w);
  put_intervals(d, plan);
  put_cost(d, plan);
  put_texts(d, "why", plan->why.text, plan->why.num);
  ot_json_text(w, "basis", d->page->basis);
  ot_json_text(w, "doubt", plan->warning);
  put_texts(d, "beyond_published", plan->beyond.text, plan->beyond.num);
  if (d->page->run) {
    ot_node_write_json(ot_plan_sections(d->page, &e->candidate, d->arena), "run", w);
  } else {
    ot_json_null(w, "run");
  }
  ot_json_end(w);
}

static void put_compared(document *d) {
  ot_json_writer *const w = &d->w;
  if (d->page->num_compared == 0) return;
  ot_json_array(w, "compared");
  for (int i = 0; i < d->page->num_compared; i++) {
    const ot_page_compared *const c = &d->page->compared[i];
    ot_json_object(w, NULL);
    ot_json_text(w, "name", c->name);
    put_plan(d, "plan", &c->plan);
    put_texts(d, "first", c->first.text, c->first.num);
    ot_json_end(w);
  }
  ot_json_end(w);
}

static void put_deadline(document *d) {
  const ot_deadline *const deadline = d->page->deadline;
  ot_json_writer *const w = &d->w;
  if (!deadline) return;
  ot_json_object(w, "deadline");
  ot_json_real(w, "seconds", deadline->seconds);
  ot_json_array(w, "trials");
  for (int i = 0; i < deadline->num_trials; i++) {
    ot_json_object(w, NULL);
    ot_json_integer(w, "devices", deadline->trials[i].devices);
    ot_json_real(w, "elapsed_seconds", deadline->trials[i].elapsed_s);
    ot_json_end(w);
  }
  ot_json_end(w);
  ot_json_end(w);
}

// A step of null: no plan that fits is faster than those before.
static void put_teacher(document *d) {
  const ot_teacher_split *const t = d->page->teacher;
  ot_json_writer *const w = &d->w;
  if (!t) return;
  ot_json_object(w, "teacher");
  ot_json_integer(w, "parameters", t->price.parameters);
  ot_json_integer(w, "ranks", ot_run_teacher_ranks(&t->run));
  ot_json_real(w, "sequence_seconds", t->price.micro_batch_s);
  ot_json_integer(w, "sequence_bytes", t->price.bytes);
  ot_json_array(w, "choices");
  for (int i = 0; i < t->num_choices; i++) {
    const double step_s = t->choices[i].step_s;
    ot_json_object(w, NULL);
    ot_json_integer(w, "ranks", t->choices[i].ranks);
    if (step_s > 0) ot_json_real(w, "step_seconds", step_s);
    if (step_s == 0) ot_json_null(w, "step_seconds");
    ot_json_end(w);
  }
  ot_json_end(w);
  ot_json_end(w);
}

static void put_plans(document *d) {
  ot_json_writer *const w = &d->w;
  ot_json_array(w, "plans");
  for (int i = 0; i < d->page->num_plans; i++) put_plan(d, NULL, &d->page->plans[i]);
  ot_json_end(w);
  if (d->page->imported) put_plan(d, "imported", d->page->imported);
  if (d->page->simpler) ot_json_text(w, "simpler", d->page->simpler);
  if (d->page->uneven) ot_json_text(w, "uneven_chunks", d->page->uneven);
  put_compared(d);
}

// ---- the whole run ----

static void put_goodput(document *d) {
  const ot_goodput *const g = d->page->goodput;
  ot_json_writer *const w = &d->w;
  ot_json_integer(w, "steps", d->page->steps);
  if (!g) return;
  ot_json_object(w, "goodput");
  ot_json_real(w, "productive", g->productive);
  ot_json_real(w, "checkpoints", g->checkpoints);
  ot_json_real(w, "recovery", g->recovery);
  ot_json_real(w, "lost", g->lost);
  ot_json_real(w, "mtbf_seconds", g->mtbf_s);
  ot_json_real(w, "checkpoint_interval_seconds", g->interval_s);
  ot_json_real(w, "elapsed_seconds", g->elapsed_s);
  ot_json_real(w, "interruptions", g->interruptions);
  ot_json_integer(w, "spares", g->spares);
  ot_json_end(w);
}

// ---- rejected candidates ----

static void put_rejection(document *d, const ot_rejection *r) {
  static const char *const kinds[] = {"memory", "slower", "rule"};
  ot_json_writer *const w = &d->w;
  ot_json_object(w, NULL);
  ot_candidate_write_json(&r->candidate, w);
  ot_json_text(w, "kind", kinds[r->kind]);
  ot_json_text(w, "reason", r->reason);
  ot_json_end(w);
}

static void put_search(document *d) {
  const ot_search *const s = d->page->search;
  ot_json_writer *const w = &d->w;
  ot_json_array(w, "rejected");
  for (int i = 0; i < s->num_rejections; i++) put_rejection(d, &s->rejections[i]);
  ot_json_end(w);
  ot_json_object(w, "search");
  ot_json_integer(w, "candidates", s->num_candidates);
  ot_json_integer(w, "simulated", s->num_simulated);
  ot_json_integer(w, "rejected_by_memory", s->num_rejected[OT_REJECTED_MEMORY]);
  ot_json_integer(w, "rejected_as_slower", s->num_rejected[OT_REJECTED_SLOWER]);
  ot_json_integer(w, "rejected_by_rule", s->num_rejected[OT_REJECTED_RULE]);
  ot_json_end(w);
}

static void put_refusal(document *d) {
  const ot_estimate *const nearest = &d->page->search->nearest;
  ot_json_writer *const w = &d->w;
  if (d->page->num_plans > 0) return;
  ot_json_object(w, "nearest");
  ot_candidate_write_json(&nearest->candidate, w);
  ot_memory_write_json(&nearest->memory, w);
  ot_json_end(w);
  put_texts(d, "remedies", d->page->remedies, d->page->num_remedies);
}

const char *ot_plan_json(const ot_plan_page *page, ot_arena *arena) {
  document d = {page, arena, ot_json_begin(arena, 2)};
  ot_json_object(&d.w, NULL);
  put_model(&d);
  put_job(&d);
  put_model_totals(&d);
  put_limits(&d);
  if (page->calibration) ot_calibration_write(page->calibration, &d.w);
  put_teacher(&d);
  put_plans(&d);
  put_goodput(&d);
  put_deadline(&d);
  put_search(&d);
  put_refusal(&d);
  ot_json_end(&d.w);
  return d.w.text;
}
