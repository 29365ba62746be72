// SPDX-License-Identifier: Apache-2.0
// The run settings of a candidate, limited to the keys that a plan decides.
#include "answer/plan_page.h"
#include "base/text.h"
#include "describe/run_keys.h"

static const char *const parallel[] = {"tp", "pp",           "vpp",  "cp",       "ep",        "etp",
                                       "dp", "dp_replicate", "zero", "pipeline", "recompute", NULL};
static const char *const batch[] = {"global_batch_size", "micro_batch_size", NULL};
static const char *const precision[] = {"compute", "params", "gradients", "master",
                                        "moments", "reduce", NULL};

static void move_key(ot_node *from, const char *key, ot_arena *arena, ot_node *to) {
  ot_node *const child = ot_node_child(from, key);
  OT_ASSERT(child != NULL);
  ot_node_remove(from, child);
  child->next = NULL;
  ot_node_put(arena, to, key, child);
}

// Moves the children of `section` called `keys` to a new section of `out`.
static void move_keys(ot_node *settings, const char *section, const char *const *keys,
                      ot_arena *arena, ot_node *out) {
  ot_node *const from = ot_node_child(settings, section);
  ot_node *const to = ot_node_put(arena, out, section, ot_node_create(arena, OT_NODE_MAP));
  for (int i = 0; keys[i]; i++) move_key(from, keys[i], arena, to);
}

// Further choices that the plan was priced with, where they affect `p`.
static void move_choices(ot_node *settings, const ot_run_parallel *p, ot_arena *arena,
                         ot_node *out) {
  ot_node *const from = ot_node_child(settings, "parallel");
  ot_node *const to = ot_node_child(out, "parallel");
  if (p->cp > 1) move_key(from, "context", arena, to);
  if (p->zero == 3) move_key(from, "prefetch", arena, to);
  if (p->zero == 3) move_key(from, "reshard", arena, to);
  if (p->ep * p->etp > 1) move_key(from, "expert_buffer", arena, to);
  if (p->num_recompute_modules > 0) move_key(from, "recompute_modules", arena, to);
  if (p->layout[0] != '\0') move_key(from, "layout", arena, to);
}

bool ot_setting_is_given(const ot_node *node) {
  return node && node->source && ot_text_starts_with(node->source, "--set");
}

// Moves the remaining settings that the user changed with --set: the plans depend on them.
static void move_changes(const ot_node *given, ot_node *settings, ot_arena *arena, ot_node *out) {
  for (const ot_node *section = given->first; section; section = section->next) {
    const bool own = ot_text_equal(section->key, "model") || ot_text_equal(section->key, "data");
    ot_node *const from = ot_node_child(settings, section->key);
    if (own || !from) continue;
    if (section->kind != OT_NODE_MAP) {
      if (ot_setting_is_given(section)) move_key(settings, section->key, arena, out);
      continue;
    }
    for (const ot_node *key = section->first; key; key = key->next) {
      if (!ot_setting_is_given(key) || !ot_node_child(from, key->key)) continue;
      ot_node *to = ot_node_child(out, section->key);
      if (!to) to = ot_node_put(arena, out, section->key, ot_node_create(arena, OT_NODE_MAP));
      move_key(from, key->key, arena, to);
    }
  }
}

// The ranks of a live teacher, unless the user gave them.
static void move_teacher_ranks(const ot_run *run, ot_node *settings, ot_arena *arena,
                               ot_node *out) {
  ot_node *const from = ot_run_teacher_section(settings), *const to = ot_run_teacher_section(out);
  const bool left = ot_node_child(from, "teacher_ranks") != NULL;
  if (!to || !left || ot_run_teacher_ranks(run) == 0) return;
  move_key(from, "teacher_ranks", arena, to);
}

// Stages on different devices have layers by their rates, which training does not know:
// "Et*20|t*11L".
static const char *layout_of(const ot_plan_page *page, const ot_candidate *candidate,
                             ot_arena *arena) {
  int *layers, chunks;
  ot_text_builder text = {.arena = arena};
  if (ot_estimate_chunks(page->estimator, candidate, arena, &layers, &chunks) != OT_OK) return "";
  for (int i = 0; i < chunks; i++) {
    ot_text_appendf(&text, "%s%s", i > 0 ? "|" : "", i == 0 ? "E" : "");
    if (layers[i] > 0) ot_text_appendf(&text, "t*%d", layers[i]);
    if (i + 1 == chunks) ot_text_put(&text, "L");
  }
  return ot_text_builder_text(&text);
}

// The device that the plan was priced for; auto where Orthant does not run.
static ot_run_device device_of(const ot_device_kind *device) {
  if (ot_device_is_host(device)) return OT_DEVICE_CPU;
  return ot_device_may_train(device) ? OT_DEVICE_CUDA : OT_DEVICE_AUTO;
}

ot_node *ot_plan_sections(const ot_plan_page *page, const ot_candidate *candidate,
                          ot_arena *arena) {
  ot_job job = *page->job;
  job.run = page->run;
  ot_run_lists lists;
  ot_run run;
  ot_candidate_run(&job, candidate, &lists, &run);
  if (run.device == OT_DEVICE_AUTO) run.device = device_of(&page->job->cluster->device);
  if (candidate->crosses == OT_CROSSES_PP) run.parallel.layout = layout_of(page, candidate, arena);
  ot_node *const settings = ot_run_write(&run, arena);
  ot_node *const out = ot_node_create(arena, OT_NODE_MAP);
  ot_node_put(arena, out, "model",
              page->model_source ? ot_node_text(arena, page->model_source)
                                 : ot_model_write_config(page->job->model, arena));
  move_keys(settings, "parallel", parallel, arena, out);
  move_choices(settings, &run.parallel, arena, out);
  move_keys(settings, "batch", batch, arena, out);
  move_keys(settings, "precision", precision, arena, out);
  move_key(settings, "device", arena, out);
  if (page->settings) move_changes(page->settings, settings, arena, out);
  move_teacher_ranks(&run, settings, arena, out);
  return out;
}
