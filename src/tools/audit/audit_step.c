// SPDX-License-Identifier: Apache-2.0
// `audit step`: judges one training step (step_checks.h), compares its batches with the data and
// its start state with the checkpoint that it was resumed from. Also checks randomness: every
// dropout must draw from its own stream with the run's seed, and its gradient from the same stream.
// Works on any number of ranks, one included; agreement of replicas is checked by `audit ranks`.
#include "audit/audit.h"
#include "audit/step_checks.h"
#include "base/text_builder.h"

// ---- random streams ----

// A task that draws a dropout mask: forward, or its gradient.
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
  bool ring;  // steps of ring attention share a stream, each with its own keys
} stream;

typedef struct stream_list {
  const ot_schedule *schedule;
  uint64_t seed;
  ot_audit_report *report;
  stream *streams;  // of the forward
  int64_t count, capacity;
} stream_list;

static void find_stream(stream_list *l, const stream *now, const char *what) {
  ot_audit_find(
      l->report, "random_stream",
      ot_arena_format(l->report->arena, "dropout of block %d, in %s", now->block, now->segment),
      "a mask is keyed by the run's seed, the name of its tensor and the sample", "%s", what);
}

static void note_forward(stream_list *l, const stream *now) {
  for (int64_t i = 0; i < l->count; i++) {
    const stream *const before = &l->streams[i];
    const bool same_ring = before->ring && now->ring && before->block == now->block;
    if (before->id != now->id || same_ring) continue;
    find_stream(
        l, now,
        ot_arena_format(l->report->arena, "it draws the mask of another dropout, in block %d of %s",
                        before->block, before->segment));
    return;
  }
  l->streams =
      ot_arena_grow(l->report->arena, l->streams, l->count, &l->capacity, sizeof *l->streams);
  l->streams[l->count++] = *now;
}

static void check_gradient(stream_list *l, const stream *now) {
  for (int64_t i = 0; i < l->count; i++) {
    if (l->streams[i].id == now->id && l->streams[i].block == now->block) return;
  }
  find_stream(l, now, "the forward pass of the block draws no such mask");
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

// Checks the streams of the first micro-batch; the others are keyed by their samples.
static void check_streams(const ot_step_audit *a) {
  const ot_schedule *const schedule = ot_runtime_schedule(a->runtime);
  const ot_order *const order =
      &schedule->orders[ot_schedule_find_order(schedule, OT_ORDER_STEP, 0)];
  stream_list l = {.schedule = schedule, .seed = (uint64_t)a->run->seed, .report = a->report};
  for (int pass = 0; pass < 2; pass++) {
    for (int i = 0; i < order->num_entries; i++) {
      const ot_entry *const entry = &order->entries[i];
      const bool forward = entry->phase == OT_PHASE_FORWARD;
      if (entry->micro_batch == 0 && forward == (pass == 0)) check_entry(&l, entry, pass == 0);
    }
  }
}

// ---- the audit ----

static void summarize(const ot_step_audit *a) {
  ot_json_writer json = ot_json_begin(a->report->arena, 0);
  ot_json_object(&json, NULL);
  ot_json_integer(&json, "step", a->step.step);
  ot_json_real(&json, "gradient_norm", a->step.gradient_norm);
  ot_json_real(&json, "recomputed_norm", a->norm);
  ot_json_boolean(&json, "judged", a->judged);
  ot_json_integer(&json, "gradients_compared", a->gradients);
  ot_json_real(&json, "largest_gradient_error", a->gradient_error);
  ot_json_integer(&json, "updates_compared", a->elements);
  ot_json_real(&json, "largest_update_difference", a->update_difference);
  ot_json_integer(&json, "slopes_compared", a->slopes);
  ot_json_real(&json, "largest_slope_difference", a->slope_difference);
  ot_json_end(&json);
  a->report->figures = json.text;
  ot_text_builder text = {.arena = a->report->arena};
  ot_text_appendf(&text, "step %lld: batches, the norm", (long long)a->step.step);
  if (a->judged)
    ot_text_appendf(&text, ", judged: loss, %d gradients (up to %.2g own errors), update",
                    a->gradients, a->gradient_error);
  if (a->elements > 0)
    ot_text_appendf(&text, ", %lld elements of the update (to %.2g of it)", (long long)a->elements,
                    a->update_difference);
  if (a->slopes > 0)
    ot_text_appendf(&text, ", the slopes of %d tensors (to %.2g)", a->slopes, a->slope_difference);
  if (a->left_out) ot_text_appendf(&text, "; the step was not judged: %s", a->left_out);
  a->report->summary = ot_text_builder_text(&text);
}

// Checks that had nothing to compare.
static void leave_open(const ot_step_audit *a, const char *checkpoint) {
  if (checkpoint && a->resumed == 0) {
    ot_audit_inconclusive(a->report, "no tensor of the checkpoint was compared");
  }
  if (a->open) ot_audit_inconclusive(a->report, "%s", a->open);
  if (a->judged) return;
  if (a->elements == 0) {
    ot_audit_inconclusive(a->report, "no element of the update was compared");
  }
  if (a->slopes > 0) return;
  ot_audit_inconclusive(
      a->report, a->slopes_left_out ? "loss and slopes were not compared: one rank lacks the memory"
                                    : "no tensor has a gradient to compare a slope with");
}

ot_status ot_audit_step(const ot_audit_request *request, ot_arena *arena, ot_audit_report *report) {
  ot_trainer *const trainer = request->trainer;
  *report = (ot_audit_report){.audit = "step", .arena = arena};
  ot_step_audit a = {.trainer = trainer,
                     .world = ot_trainer_world(trainer),
                     .run = ot_trainer_run(trainer),
                     .runtime = ot_trainer_runtime(trainer),
                     .report = report,
                     .before = ot_trainer_position(trainer)};
  check_streams(&a);
  if (request->checkpoint) OT_TRY(ot_step_check_resume(&a, request->checkpoint));
  OT_TRY(ot_step_check_update(&a));
  OT_TRY(ot_step_check_batches(&a));
  OT_TRY(ot_step_check_slopes(&a));
  summarize(&a);
  leave_open(&a, request->checkpoint);
  return OT_OK;
}
