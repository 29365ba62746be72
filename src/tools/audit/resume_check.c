// SPDX-License-Identifier: Apache-2.0
// Compares tensor by tensor, in blocks in file order.
#include <stdlib.h>
#include <string.h>

#include "audit/step_checks.h"
#include "runtime/model_files.h"

enum { BLOCK_ELEMENTS = 1 << 16, MOST_FINDINGS = 5 };

static const struct {
  ot_parameter_copy copy;
  ot_checkpoint_set set;
  const char *prefix, *name;
} kinds[] = {
    {OT_COPY_WEIGHT, OT_CHECKPOINT_MODEL, "", "weights"},
    {OT_COPY_MASTER, OT_CHECKPOINT_OPTIMIZER, "master.", "master weights"},
    {OT_COPY_MOMENT_1, OT_CHECKPOINT_OPTIMIZER, "m.", "first moments"},
    {OT_COPY_MOMENT_2, OT_CHECKPOINT_OPTIMIZER, "v.", "second moments"},
};

typedef struct resume_check {
  ot_step_audit *audit;
  ot_runtime *runtime;
  ot_arena *arena;
  ot_checkpoint *checkpoint;
  ot_weight_map map;
  void *memory, *file;  // [BLOCK_ELEMENTS] of any dtype
} resume_check;

// Number of elements of a tensor that differ.
static ot_status compare_tensor(resume_check *r, int kind, ot_weight_stage *stage, int tensor,
                                int64_t *differ) {
  const ot_safetensors *const set = ot_checkpoint_tensors(r->checkpoint, kinds[kind].set);
  const ot_weight_tensor *const t = &r->map.tensors[tensor];
  const ot_dtype dtype = ot_runtime_copy_dtype(r->runtime, kinds[kind].copy);
  const char *const name = ot_arena_format(r->arena, "%s%s", kinds[kind].prefix, t->name);
  const int found = set ? ot_safetensors_find(set, name) : -1;
  const int64_t size = ot_dtype_bytes(dtype), total = t->rows * t->cols;
  *differ = 0;
  if (found < 0) return OT_OK;  // a second moment that is not kept
  r->audit->resumed++;
  for (int64_t first = 0; first < total; first += BLOCK_ELEMENTS) {
    const int64_t count = total - first < BLOCK_ELEMENTS ? total - first : BLOCK_ELEMENTS;
    OT_TRY(
        ot_weights_assemble(stage, (ot_safetensors_range){tensor, first, count}, dtype, r->memory));
    OT_TRY(ot_checkpoint_fetch(r->checkpoint, kinds[kind].set,
                               (ot_safetensors_range){found, first, count}, dtype, r->file));
    for (int64_t i = 0; i < count; i++) {
      *differ +=
          memcmp((char *)r->memory + i * size, (char *)r->file + i * size, (size_t)size) != 0;
    }
  }
  return OT_OK;
}

static void find(resume_check *r, int kind, const ot_weight_tensor *t, int64_t differ) {
  if (r->audit->report->num_findings >= MOST_FINDINGS) return;
  ot_audit_find(r->audit->report, "resume_differs",
                ot_arena_format(r->arena, "%s of %s", kinds[kind].name, t->name),
                "a resumed run must restore all of its state",
                "%lld of %lld elements differ from the checkpoint", (long long)differ,
                (long long)(t->rows * t->cols));
}

static ot_status compare_kind(resume_check *r, int kind) {
  if (!ot_runtime_has_copy(r->runtime, kinds[kind].copy)) return OT_OK;
  const ot_weight_access access = ot_weight_access_of(r->arena, r->runtime, kinds[kind].copy);
  ot_weight_stage stage;
  ot_weight_stage_build(r->arena, &r->map, &access, &stage);
  for (int i = 0; i < r->map.num_tensors; i++) {
    int64_t differ = 0;
    OT_TRY(compare_tensor(r, kind, &stage, i, &differ));
    if (differ > 0) find(r, kind, &r->map.tensors[i], differ);
  }
  return OT_OK;
}

static ot_status compare_state(resume_check *r, const char *path) {
  const ot_graph *const whole = ot_runtime_whole_graph(r->runtime);
  OT_TRY(ot_weight_map_build(r->arena, whole->parameters, whole->num_parameters, &r->map));
  OT_TRY(ot_checkpoint_create(path, &r->checkpoint));
  r->memory = malloc(2 * BLOCK_ELEMENTS * sizeof(double));
  OT_CHECK(r->memory, OT_ENVIRONMENT, "out of memory");
  r->file = (double *)r->memory + BLOCK_ELEMENTS;
  for (int kind = 0; kind < OT_COUNT(kinds); kind++) OT_TRY(compare_kind(r, kind));
  return OT_OK;
}

static void compare_position(resume_check *r) {
  const ot_position *const position = &r->audit->before;
  const ot_manifest *const manifest = ot_checkpoint_manifest(r->checkpoint);
  const struct {
    const char *name;
    int64_t got, wanted;
  } numbers[] = {{"steps", position->step, manifest->step},
                 {"next sample", position->next_sample, manifest->next_sample},
                 {"tokens", position->tokens, manifest->tokens}};
  for (int i = 0; i < OT_COUNT(numbers); i++) {
    if (numbers[i].got == numbers[i].wanted) continue;
    ot_audit_find(r->audit->report, "resume_differs", numbers[i].name,
                  "a run that resumes elsewhere repeats or skips data",
                  "%lld, but %lld in the checkpoint", (long long)numbers[i].got,
                  (long long)numbers[i].wanted);
  }
}

static ot_status lead(resume_check *r, const char *path) {
  const ot_status status = compare_state(r, path);
  if (status == OT_OK) compare_position(r);
  ot_checkpoint_destroy(&r->checkpoint);
  free(r->memory);
  const ot_status dismissed = ot_runtime_end_reads(r->runtime);
  return status != OT_OK ? status : dismissed;
}

ot_status ot_step_check_resume(ot_step_audit *audit, const char *path) {
  resume_check r = {.audit = audit, .runtime = audit->runtime, .arena = audit->report->arena};
  return ot_world_agree(audit->world, ot_world_is_leader(audit->world)
                                          ? lead(&r, path)
                                          : ot_runtime_serve_reads(r.runtime));
}
