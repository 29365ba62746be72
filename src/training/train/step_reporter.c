// SPDX-License-Identifier: Apache-2.0
// All ranks add up the same figures; the leader writes them.
#include "train/step_reporter.h"

#include <math.h>

#include "base/backend_rules.h"
#include "base/text.h"
#include "checkpoint/checkpoint_list.h"
#include "host/clock.h"
#include "host/heap.h"

// ---- before the first step ----

// The resident memory of a process includes all its ranks, so it is compared with the plan of all.
static ot_status sum_planned(ot_step_reporter *r, const ot_session *s) {
  ot_world *const world = s->request->world;
  const ot_schedule *const schedule = ot_runtime_schedule(ot_session_runtime(s));
  const int size = ot_world_size(world);
  int64_t *const process = ot_arena_array(s->arena, size, sizeof *process);
  int64_t *const planned = ot_arena_array(s->arena, size, sizeof *planned);
  OT_TRY(ot_world_allgather(world, ot_world_process(world), process));
  const int64_t own = schedule->memory.peak_bytes + ot_evaluating_bytes(r->evaluating);
  OT_TRY(ot_world_allgather(world, own, planned));
  for (int i = 0; i < size; i++) {
    if (process[i] == process[ot_world_rank(world)]) r->planned_bytes += planned[i];
  }
  return OT_OK;
}

// An incomplete description of the machine does not end a run.
static void predict(ot_step_reporter *r, const ot_session *s) {
  const ot_schedule *const schedule = ot_runtime_schedule(ot_session_runtime(s));
  ot_comm *const comm = ot_world_comm(s->request->world);
  const ot_prediction_request request = {.run = s->run,
                                         .mesh = ot_world_mesh(s->request->world),
                                         .cluster = s->request->cluster,
                                         .threads = schedule->threads,
                                         .local_ranks = comm ? ot_comm_local_size(comm) : 1};
  if (!ot_session_leads(s) || !request.cluster) return;
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_status status = ot_prediction_check(request.cluster, schedule->backend);
  if (status == OT_OK) status = ot_prediction_build(&request, &arena, &r->prediction);
  if (status == OT_OK) {
    ot_loop_note_prediction(s->request, &r->prediction);
    ot_prediction_keep_steps(&r->prediction, s->arena);
  } else {
    r->prediction = (ot_prediction){0};
    ot_loop_note(s->request, "no predictions: %s", ot_fail_message());
  }
  ot_heap_release(&heap);
}

ot_status ot_step_reporter_begin(ot_step_reporter *r, const ot_session *s) {
  r->summary = (ot_loop_summary){.first_loss_nats = NAN, .last_loss_nats = NAN};
  OT_TRY(sum_planned(r, s));
  predict(r, s);
  return OT_OK;
}

// ---- a step ----

static bool on_gpu(const ot_session *s) {
  return !ot_backend_rules_of(ot_runtime_backend(ot_session_runtime(s)))->host;
}

static ot_runtime_memory_use use_of_memory(const ot_session *s) {
  return ot_runtime_use_of_memory(ot_session_runtime(s));
}

// For a step of `step_s`; NAN if the machine is unknown.
static double mfu_of(const ot_step_reporter *r, int micro_batches, double step_s) {
  const ot_predicted_step *const plan = ot_prediction_find(&r->prediction, micro_batches);
  return plan ? plan->model_flops / step_s / r->prediction.peak_flops : NAN;
}

static double predicted_s(const ot_step_reporter *r, int micro_batches) {
  const ot_predicted_step *const plan = ot_prediction_find(&r->prediction, micro_batches);
  return plan ? plan->expected.step_s : NAN;
}

// The health of every layer, as further keys of a step's line.
static ot_status health_metrics(const ot_session *s, ot_arena *arena, ot_metrics_step *line) {
  ot_health h;
  OT_TRY(ot_trainer_health(s->start.trainer, arena, &h));
  const struct {
    const char *prefix;
    int count;
    const ot_health_value *values;
  } groups[] = {{"gradient_norm", h.num_tensors, h.gradient_norm},
                {"update_ratio", h.num_tensors, h.update_ratio},
                {"max_activation", h.num_blocks, h.max_activation},
                {"max_attention_logit", h.num_blocks, h.max_logit}};
  ot_metric *const made =
      ot_arena_array(arena, 2 * (h.num_tensors + h.num_blocks) + 1, sizeof *made);
  for (int g = 0; g < OT_COUNT(groups); g++) {
    for (int i = 0; i < groups[g].count; i++) {
      made[line->num_health++] =
          (ot_metric){ot_arena_format(arena, "%s/%s", groups[g].prefix, groups[g].values[i].name),
                      groups[g].values[i].value};
    }
  }
  line->health = made;
  return OT_OK;
}

static ot_metrics_step line_of(const ot_step_reporter *r, const ot_session *s,
                               const ot_step_report *report, const ot_step_sums *sums) {
  const double *const exposed_s = sums->figures.exposed_axis_s;
  return (ot_metrics_step){
      .step = report->step,
      .loss_nats = report->loss,
      .data_loss_nats = report->data_loss,
      .teacher_kl_nats = report->teacher_kl,
      .gradient_norm = report->gradient_norm,
      .learning_rate = report->learning_rate,
      .tokens = report->tokens,
      .step_s = report->step_seconds,
      .tokens_per_s = (double)report->step_tokens / report->step_seconds,
      .mfu = mfu_of(r, report->micro_batches, report->step_seconds),
      .goodput = s->log.account.counted_s / (ot_clock_unix_s() - s->log.account.begin_s),
      .predicted_step_s = predicted_s(r, report->micro_batches),
      .exposed = {.tp_s = exposed_s[OT_TIMELINE_TP],
                  .cp_s = exposed_s[OT_TIMELINE_CP],
                  .ep_s = exposed_s[OT_TIMELINE_EP],
                  .pp_s = exposed_s[OT_TIMELINE_PP],
                  .dp_s = exposed_s[OT_TIMELINE_DP]},
      .bubble_fraction = sums->figures.bubble_fraction,
      .memory_planned_bytes = r->planned_bytes,
      .products_by_own_kernel = on_gpu(s) ? sums->refusals.own : -1,
      .algorithms_replaced = on_gpu(s) ? sums->refusals.replaced : -1,
      .noise_scale_tokens = report->noise_scale_tokens,
      .experts = report->experts,
  };
}

static void print_status(const ot_step_reporter *r, const ot_session *s,
                         const ot_step_report *report, const ot_runtime_memory_use *memory) {
  const int64_t total = ot_trainer_total_steps(s->start.trainer);
  const double elapsed_s = ot_clock_s() - r->begin_s;
  const double steps_s = elapsed_s - r->evaluating->after_begin_s;
  const double per_step_s = steps_s / (double)(report->step - s->begin_step);
  const ot_status_line status = {
      .step = report->step,
      .num_steps = total,
      .loss_nats = report->loss,
      .gradient_norm = report->gradient_norm,
      .tokens_per_s = (double)report->step_tokens / report->step_seconds,
      .mfu = mfu_of(r, report->micro_batches, report->step_seconds),
      .planned_mfu = mfu_of(r, report->micro_batches, predicted_s(r, report->micro_batches)),
      .memory_peak_bytes = memory->used_bytes,
      .memory_capacity_bytes = memory->capacity_bytes,
      .remaining_s = per_step_s * (double)(total - report->step) +
                     ot_evaluating_remaining_s(r->evaluating, s, report->step),
      .learning_rate = report->learning_rate,
      .step_s = report->step_seconds,
  };
  const ot_loop_event event = {.kind = OT_LOOP_STATUS, .status = &status};
  s->request->sink(s->request->context, &event);
}

static void add_means(ot_step_reporter *r, const ot_step_report *report, ot_step_sums *sums) {
  const ot_predicted_step *const plan = ot_prediction_find(&r->prediction, report->micro_batches);
  sums->figures.step_s = report->step_seconds;
  ot_step_means_add(&r->means, &sums->figures, plan ? &plan->expected : NULL);
}

// The leader's part: files and the status line.
static void write_step(const ot_step_reporter *r, ot_session *s, const ot_step_report *report,
                       ot_metrics_step *line) {
  const bool last = report->step == ot_trainer_total_steps(s->start.trainer);
  const ot_runtime_memory_use memory = use_of_memory(s);
  line->memory_peak_bytes = memory.used_bytes;
  ot_step_log_step(s, line);
  const ot_run_event first = {.kind = OT_RUN_EVENT_FIRST_STEP, .step = report->step};
  if (r->summary.steps == 1) ot_loop_log(&s->start, &first);
  if (last || ot_session_due(report->step, s->run->log.every)) print_status(r, s, report, &memory);
  ot_step_log_report(s, report->step);
}

// All ranks combine the health.
static ot_status record_step(const ot_step_reporter *r, ot_session *s, const ot_step_report *report,
                             const ot_step_sums *sums, ot_arena *arena) {
  s->log.account.counted_s += report->step_seconds;
  ot_metrics_step line = line_of(r, s, report, sums);
  if (ot_session_due(report->step, s->run->log.health_every))
    OT_TRY(health_metrics(s, arena, &line));
  if (ot_session_leads(s)) write_step(r, s, report, &line);
  return OT_OK;
}

static ot_status record(const ot_step_reporter *r, ot_session *s, const ot_step_report *step,
                        const ot_step_sums *sums) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  const ot_status status = record_step(r, s, step, sums, &arena);
  ot_heap_release(&heap);
  return status;
}

static void add_to_summary(ot_loop_summary *summary, const ot_step_report *report) {
  if (summary->steps > 0) {
    summary->later_tokens += report->step_tokens;
    summary->later_s += report->step_seconds;
  }
  if (summary->steps++ == 0) summary->first_loss_nats = report->loss;
  summary->last_loss_nats = report->loss;
  summary->tokens += report->step_tokens;
}

ot_status ot_step_reporter_add(ot_step_reporter *r, ot_session *s, const ot_step_report *report,
                               ot_step_sums *sums) {
  if (ot_session_leads(s)) ot_loop_note_products(s->request, &sums->refusals, &r->summary.refusals);
  add_means(r, report, sums);
  add_to_summary(&r->summary, report);
  return record(r, s, report, sums);
}

// ---- after the last step ----

void ot_step_reporter_print_means(const ot_step_reporter *r, const ot_session *s) {
  const char *const text =
      ot_step_means_print(&r->means, ot_world_size(s->request->world), s->arena);
  if (text) ot_loop_note(s->request, "%s", text);
}

void ot_step_reporter_print_summary(ot_step_reporter *r, const ot_session *s, int64_t saved_step) {
  ot_loop_summary *const summary = &r->summary;
  if (!ot_session_leads(s)) return;
  summary->seconds = ot_clock_s() - r->begin_s;
  const ot_runtime_memory_use memory = use_of_memory(s);
  summary->memory_peak_bytes = memory.used_bytes;
  summary->memory_capacity_bytes = memory.capacity_bytes;
  summary->memory_planned_bytes = r->planned_bytes;
  summary->lost_lines = ot_step_log_lost(s);
  const char *const directory = ot_run_directory_checkpoints(s->start.directory);
  if (saved_step >= 0) summary->checkpoint = ot_checkpoint_path(s->arena, directory, saved_step);
  const ot_loop_event event = {.kind = OT_LOOP_SUMMARY, .summary = summary};
  s->request->sink(s->request->context, &event);
}
