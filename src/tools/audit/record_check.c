// SPDX-License-Identifier: Apache-2.0
// Records the step and has it judged (judge/judge.h), which shares no formula and no kernel with
// the trainer. The record is a folder for temporary files that every rank must see; its files are
// gone when the verdict is reached.
#include "audit/step_checks.h"
#include "audit/temporary_folder.h"
#include "audit/variant.h"
#include "base/extremes.h"
#include "base/text.h"
#include "files/config_file.h"
#include "files/disk.h"
#include "host/heap.h"
#include "judge/judge.h"
#include "train/step_recording.h"

// Parameters times tokens of the step. The judge computes it on the CPU, and some of it once for
// each of about 20 hypotheses: some 15 s on one core.
static const double most_products = 1e10;

// ---- whether ----

// Bytes of the record, at most: weights, two moments and master weights before and after the step,
// and gradients, on each rank.
static double record_bytes(const ot_step_audit *a) {
  const ot_dtype widest = ot_run_compute(&a->run->precision);
  return 9 * (double)ot_dtype_bytes(widest) * (double)ot_model_parameters(&a->run->model) *
         ot_world_size(a->world);
}

static bool is_too_large(const ot_step_audit *a) {
  const int64_t asked = ot_trainer_get_hooks(a->trainer)->audit_bytes;
  const double bytes = asked > 0 ? (double)asked : 0x1p30;
  const double tokens =
      (double)a->run->batch.global_batch_size * (double)a->run->data.sequence_length;
  return record_bytes(a) > bytes ||
         (double)ot_model_parameters(&a->run->model) * tokens > most_products;
}

// Why the step of this run is not judged, or null.
static const char *reason_against(const ot_step_audit *a) {
  const ot_model *const model = &a->run->model;
  const ot_run_precision *const p = &a->run->precision;
  const double dropout = ot_larger(ot_larger(model->embedding_dropout, model->attention_dropout),
                                   model->residual_dropout);
  const bool wide = ot_dtype_bytes(p->gradients) >= 4 && ot_dtype_bytes(p->reduce) >= 4;
  const struct {
    bool holds;
    const char *why;
  } rows[] = {
      {ot_run_has_teacher(a->run), "a teacher's targets are not recorded"},
      {dropout > 0, "dropout is not computed again"},
      {ot_parametrization_scales(&a->run->parametrization), "factors of mup are not recorded"},
      {!wide, "gradients are rounded to fewer bits than they are computed in"},
      {model->moe.num_experts > 0 && model->moe.routing != OT_MOE_DROPLESS,
       "dropped tokens are not recorded"},
      {model->moe.num_experts > 0 &&
           (ot_dtype_bytes(p->compute) < 4 || ot_dtype_bytes(p->params) < 4),
       "rounding may choose other experts for some tokens"},
      {is_too_large(a), "the model and the batch are too large to compute the step once more"},
  };
  for (int i = 0; i < OT_COUNT(rows); i++)
    if (rows[i].holds) return rows[i].why;
  return NULL;
}

// ---- the step ----

// The failure is no longer this thread's.
static void leave_open(ot_step_audit *a, const char *what) {
  a->open = ot_arena_format(a->report->arena, "%s: %s", what, ot_fail_message());
}

// *recorded: the folder holds the whole record. A failure of the record alone is none of the step.
static ot_status compute_recorded(ot_step_audit *a, const char *folder, bool *recorded) {
  *recorded = ot_step_recording_begin(a->trainer, folder) == OT_OK;
  if (!*recorded) {
    leave_open(a, "the step could not be recorded where all ranks see it");
    return ot_trainer_step(a->trainer, &a->step);
  }
  const ot_status status = ot_trainer_step(a->trainer, &a->step);
  if (status != OT_OK) return ot_step_recording_end(a->trainer, status, &a->step);
  *recorded = ot_step_recording_end(a->trainer, OT_OK, &a->step) == OT_OK;
  if (!*recorded) leave_open(a, "the record of the step could not be completed");
  return OT_OK;
}

// ---- the verdict ----

static void carry(ot_step_audit *a, const ot_judge_report *r) {
  for (int i = 0; i < r->num_findings; i++)
    ot_audit_find_judged(a->report, &r->findings[i], "the step");
  for (int i = 0; i < r->num_tensors; i++)
    a->gradient_error = ot_larger(a->gradient_error, r->tensors[i].ratio);
  a->gradients = r->num_tensors;
  a->judged = r->verdict != OT_VERDICT_INCONCLUSIVE;
  if (!a->judged) a->open = ot_arena_format(a->report->arena, "%s", r->open);
}

// Whether the model that the judge reads is that of the run. Settings that config.json of its
// family cannot say are lost.
static bool is_same_model(const ot_step_audit *a, const char *folder, ot_arena *arena) {
  const ot_config_request request = {0};
  ot_config_model *const read = ot_arena_take(arena, sizeof *read);
  const char *const path = ot_disk_join(arena, folder, "config.json");
  return ot_config_load_model(path, &request, arena, read) == OT_OK &&
         ot_model_hash(&read->model) == ot_model_hash(&a->run->model);
}

// Whether the step draws a large part of the samples of a source.
static bool may_repeat(const ot_step_audit *a, ot_arena *arena) {
  const ot_data_loader *const loader = ot_trainer_data_loader(a->trainer);
  const int64_t sources = ot_data_loader_num_sources(loader);
  int64_t *const before = ot_arena_array(arena, sources, sizeof *before);
  int64_t *const after = ot_arena_array(arena, sources, sizeof *after);
  ot_data_loader_count_drawn(loader, a->before.next_sample, before);
  ot_data_loader_count_drawn(loader, ot_trainer_position(a->trainer).next_sample, after);
  bool any = false;
  for (int64_t i = 0; i < sources; i++)
    any = any || 4 * (after[i] - before[i]) > ot_data_loader_source(loader, i).windows;
  return any;
}

static void judge_record(ot_step_audit *a, const char *folder, ot_arena *arena) {
  const ot_judge_request request = {
      .record = folder, .may_repeat = may_repeat(a, arena), .threads = ot_variant_threads(a->run)};
  ot_judge_report report;
  const ot_status status = ot_judge_record(&request, arena, &report);
  if (status == OT_OK) carry(a, &report);
  if (status != OT_OK) leave_open(a, "the record could not be judged");
}

// On the leader. A step that the judge cannot compute is left to the other checks.
static void judge(ot_step_audit *a, const char *folder) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  const bool same = is_same_model(a, folder, &arena);
  if (same) judge_record(a, folder, &arena);
  if (!same) a->left_out = "config.json does not have all settings of the model";
  ot_heap_release(&heap);
}

// All ranks learn whether the judge reached a verdict.
static ot_status reach_verdict(ot_step_audit *a, const char *folder) {
  const bool leads = ot_world_is_leader(a->world);
  ot_world_set_timeout(a->world, 0);
  if (leads) judge(a, folder);
  double judged = leads && a->judged;
  OT_TRY(ot_world_allreduce(a->world, &judged, 1));
  a->judged = judged > 0;
  return OT_OK;
}

static ot_status compute_judged(ot_step_audit *a, const char *folder) {
  bool recorded;
  OT_TRY(compute_recorded(a, folder, &recorded));
  return recorded ? reach_verdict(a, folder) : OT_OK;
}

ot_status ot_step_check_record(ot_step_audit *a) {
  char folder[OT_WORLD_TEXT] = "";
  a->left_out = reason_against(a);
  if (a->left_out) return ot_trainer_step(a->trainer, &a->step);
  if (ot_temporary_folder_create(a->world, folder) != OT_OK) {
    leave_open(a, "the step was not recorded");
    return ot_trainer_step(a->trainer, &a->step);
  }
  const ot_status status = compute_judged(a, folder);
  if (ot_world_is_leader(a->world)) ot_disk_remove(folder);
  return status;
}
