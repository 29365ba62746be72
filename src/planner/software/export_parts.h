// SPDX-License-Identifier: Apache-2.0
// Shared by the writers of other software's configurations.
#pragma once

#include "software/export.h"

// State of one export.
typedef struct ot_exporter {
  const ot_export *plan;
  const ot_job *job;
  const ot_model *model;
  const ot_candidate *candidate;
  const ot_engine *engine;
  int hosts, ranks_per_host;
  ot_text_builder *out;
} ot_exporter;

ot_status ot_export_megatron(const ot_exporter *e);
ot_status ot_export_torchtitan(const ot_exporter *e);
ot_status ot_export_deepspeed(const ot_exporter *e);
ot_status ot_export_nanotron(const ot_exporter *e);

// The first lines: what the script starts, and how it is used; `arguments` follow its name.
void ot_export_begin(const ot_exporter *e, const char *software, const char *arguments);

// "torchrun --nnodes 4 ...", continued over two lines and ending in a blank.
void ot_export_launcher(const ot_exporter *e);

// A line of a flag, indented, and its value; conversions as ot_text_format.
void ot_export_flag(const ot_exporter *e, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

// OT_USAGE unless the software can be configured for the precision of the job: one of `names`,
// separated by '|'.
ot_status ot_export_precision(const ot_exporter *e, const char *software, const char *names);

// OT_USAGE for what no writer but Megatron's expresses: latent attention, windows, soft caps,
// sinks, layers without rotary positions, norms after the sub-layers.
ot_status ot_export_plain_model(const ot_exporter *e, const char *software);

// OT_USAGE, naming `what` of the model and the software.
ot_status ot_export_refuse(const ot_exporter *e, const char *software, const char *what);
