// SPDX-License-Identifier: Apache-2.0
// What starts a plan: the sections of RUN.yaml, or a script that launches one rank for each device.
// Launchers are Open MPI, Slurm and the Kubernetes MPI operator as they stand; scripts stop ranks
// with USR1, so that they save, and start again what left with 75.
#pragma once

#include "base/text_builder.h"
#include "report/plan_page.h"

typedef enum ot_emit_kind {
  OT_EMIT_RUN,     // sections of RUN.yaml
  OT_EMIT_MPIRUN,  // shell script around mpirun
  OT_EMIT_SBATCH,  // Slurm batch script
  OT_EMIT_MPIJOB,  // Kubernetes MPIJob, v2beta1
  OT_EMIT_KINDS,
} ot_emit_kind;

// Reads KIND or KIND=FILE; `path` is null without a file. OT_USAGE for another kind.
ot_status ot_emit_parse(const char *text, ot_arena *arena, ot_emit_kind *kind, const char **path);

// OT_USAGE where `kind` would start this program in place of `engine`.
ot_status ot_emit_check(ot_emit_kind kind, const ot_engine *engine);

// Appends the file for the first plan of `page`, of which there must be one, and whose model must
// have a spelling in RUN.yaml.
void ot_plan_emit(const ot_plan_page *page, ot_emit_kind kind, ot_text_builder *out);
