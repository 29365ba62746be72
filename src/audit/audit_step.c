// SPDX-License-Identifier: Apache-2.0
// The step's parts, one after the other.
#include "audit/audit_step.h"

#include "audit/batch_check.h"
#include "audit/one_rank.h"
#include "audit/resume_check.h"
#include "audit/slope_check.h"
#include "audit/update_check.h"

// ---- random streams ----

// A task that draws a mask: forward and its gradient.
static bool drops(const ot_task *task, bool forward) {
  if (task->attributes.dropout <= 0) return false;
  switch (task->op) {
    case OT_OP_DROPOUT:
    case OT_OP_ATTENTION:
    case OT_OP_ATTENTION_BLOCK:
      return forward;
    case OT_OP_DROPOUT_GRAD:
    case OT_OP_ATTENTION_GRAD:
    case OT_OP_ATTENTION_BLOCK_GRAD:
      return !forward;
    default:
      return false;
  }
}

typedef struct stream {
  uint64_t id;
  int block;
  const char *segment;
  bool ring;  // steps of a ring draw from one stream, each at its own keys
} stream;

typedef struct stream_list {
  const ot_schedule *schedule;
  uint64_t seed;
  ot_arena *arena;
  ot_audit_report *report;
  stream *streams;  // of the forward
  int64_t count, capacity;
} stream_list;

static void find_stream(stream_list *l, const stream *now, const char *what) {
  const ot_finding finding = {
      .what = "random_stream",
      .where = ot_arena_format(l->arena, "dropout of block %d, in %s", now->block, now->segment),
      .evidence = what,
      .advice = "a mask is keyed by the run's seed, the name of its tensor and the sample"};
  ot_audit_report_add(l->report, &finding, l->arena);
}

static void note_forward(stream_list *l, const stream *now) {
  for (int64_t i = 0; i < l->count; i++) {
    const stream *const before = &l->streams[i];
    const bool same_ring = before->ring && now->ring && before->block == now->block;
    if (before->id != now->id || same_ring) continue;
    find_stream(l, now,
                ot_arena_format(l->arena, "it draws the mask of another one, of block %d in %s",
                                before->block, before->segment));
    return;
  }
  l->streams = ot_arena_grow(l->arena, l->streams, l->count, &l->capacity, sizeof *l->streams);
  l->streams[l->count++] = *now;
}

static void check_gradient(stream_list *l, const stream *now) {
  for (int64_t i = 0; i < l->count; i++) {
    if (l->streams[i].id == now->id && l->streams[i].block == now->block) return;
  }
  find_stream(l, now, "the forward of the block draws no such mask");
}

static void check_entry(stream_list *l, const ot_entry *entry, bool forward) {
  const ot_segment *const segment = &l->schedule->segments[entry->segment];
  for (int t = 0; t < segment->num_tasks && l->report->num_findings == 0; t++) {
    const ot_task *const task = &segment->tasks[t];
    const stream now = {task->attributes.rng_stream, entry->block, segment->name,
                        task->op == OT_OP_ATTENTION_BLOCK};
    if (!drops(task, forward)) continue;
    if (task->attributes.seed != l->seed) find_stream(l, &now, "its seed is not the run's");
    if (forward) note_forward(l, &now);
    if (!forward) check_gradient(l, &now);
  }
}

// Of the first micro-batch; the others are keyed by their samples.
static void check_streams(const ot_trainer *trainer, ot_arena *arena, ot_audit_report *report) {
  const ot_schedule *const schedule = ot_instance_schedule(ot_trainer_instance(trainer));
  const ot_order *const order =
      &schedule->orders[ot_schedule_find_order(schedule, OT_ORDER_STEP, 0)];
  stream_list l = {.schedule = schedule,
                   .seed = (uint64_t)ot_trainer_run(trainer)->seed,
                   .arena = arena,
                   .report = report};
  for (int pass = 0; pass < 2; pass++) {
    for (int i = 0; i < order->num_entries; i++) {
      const ot_entry *const entry = &order->entries[i];
      const bool forward = entry->phase == OT_PHASE_FORWARD;
      if (entry->micro_batch == 0 && forward == (pass == 0)) check_entry(&l, entry, pass == 0);
    }
  }
}

// ---- the whole ----

enum { MOST_TENSORS = 24 };

typedef struct step_figures {
  int64_t resumed;  // tensors compared with a checkpoint
  ot_update_figures update;
  ot_slope_figures slope;
} step_figures;

static void summarize(const step_figures *f, const ot_step_report *step, ot_arena *arena,
                      ot_audit_report *report) {
  ot_json_writer json = ot_json_begin(arena, 0);
  ot_json_object(&json, NULL);
  ot_json_integer(&json, "step", step->step);
  ot_json_real(&json, "gradient_norm", step->gradient_norm);
  ot_json_real(&json, "recomputed_norm", f->update.norm);
  ot_json_integer(&json, "updates_compared", f->update.elements);
  ot_json_real(&json, "largest_update_difference", f->update.difference);
  ot_json_integer(&json, "slopes_compared", f->slope.tensors);
  ot_json_real(&json, "largest_slope_difference", f->slope.largest);
  ot_json_end(&json);
  report->figures = json.text;
  report->summary = ot_arena_format(
      arena,
      "step %lld: batches, the norm, %lld elements of the update (to %.2g of it), the slopes of "
      "%d tensors (to %.2g)",
      (long long)step->step, (long long)f->update.elements, f->update.difference, f->slope.tensors,
      f->slope.largest);
}

// Parts of the audit that had nothing to compare.
static void leave_open(const step_figures *f, const char *checkpoint, ot_arena *arena,
                       ot_audit_report *report) {
  if (checkpoint && f->resumed == 0) {
    ot_audit_report_leave_open(report, "no tensor of the checkpoint was compared", arena);
  }
  if (f->update.elements == 0) {
    ot_audit_report_leave_open(report, "no element of the update was compared", arena);
  }
  if (f->slope.tensors > 0) return;
  ot_audit_report_leave_open(
      report,
      f->slope.left_out
          ? "loss and slopes were not compared: one rank alone lacks the memory for it"
          : "no tensor has a gradient to compare a slope with",
      arena);
}

static ot_status check_slopes(ot_trainer *trainer, ot_arena *arena, ot_audit_report *report,
                              ot_slope_figures *figures) {
  ot_team *const team = ot_trainer_team(trainer);
  ot_probe_weights weights;
  ot_status status = ot_probe_weights_read(ot_trainer_instance(trainer), team, &weights);
  const ot_slope_request request = {.trainer = trainer,
                                    .weights = &weights,
                                    .most_bytes = ot_audit_bytes(trainer),
                                    .most_tensors = MOST_TENSORS};
  if (status == OT_OK && ot_team_leads(team)) {
    status = ot_slope_check(&request, arena, report, figures);
  }
  ot_probe_weights_release(&weights);
  return ot_team_agree(team, status);
}

ot_status ot_audit_step(ot_trainer *trainer, const char *checkpoint, ot_arena *arena,
                        ot_audit_report *report) {
  *report = (ot_audit_report){.audit = "step"};
  step_figures f = {0};
  ot_step_report step;
  const ot_position position = ot_trainer_position(trainer);
  check_streams(trainer, arena, report);
  if (checkpoint) OT_TRY(ot_resume_check(trainer, checkpoint, arena, report, &f.resumed));
  OT_TRY(ot_update_check(trainer, arena, report, &step, &f.update));
  OT_TRY(ot_batch_check(trainer, &position, arena, report));
  OT_TRY(check_slopes(trainer, arena, report, &f.slope));
  summarize(&f, &step, arena, report);
  leave_open(&f, checkpoint, arena, report);
  return OT_OK;
}
