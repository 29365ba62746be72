// SPDX-License-Identifier: Apache-2.0
// Chooses the writer, and holds what the writers share.
#include "software/export.h"

#include <stdarg.h>

#include "base/quote.h"
#include "base/text.h"
#include "software/export_parts.h"

void ot_export_begin(const ot_exporter *e, const char *software, const char *arguments) {
  ot_text_put(e->out, "#!/bin/bash\n");
  ot_quote_comment_line(e->out, e->plan->summary);
  ot_text_appendf(e->out, "# %s. Usage, on each of %d host%s:\n#   ", software, e->hosts,
                  ot_text_plural(e->hosts, "s"));
  if (e->hosts > 1) ot_text_put(e->out, "MASTER_ADDR=HOST NODE_RANK=0... ");
  ot_text_appendf(e->out, "bash THIS%s%s\nset -eu\n", arguments[0] != '\0' ? " " : "", arguments);
}

void ot_export_launcher(const ot_exporter *e) {
  ot_text_appendf(e->out, "torchrun --nnodes %d --nproc-per-node %d", e->hosts, e->ranks_per_host);
  if (e->hosts > 1) {
    ot_text_put(e->out,
                " --node-rank \"${NODE_RANK:-0}\" \\\n"
                "  --master-addr \"${MASTER_ADDR:-localhost}\" --master-port "
                "\"${MASTER_PORT:-29500}\"");
  }
  ot_text_put(e->out, " \\\n  ");
}

void ot_export_flag(const ot_exporter *e, const char *name, const char *format, ...) {
  char value[512];
  va_list arguments;
  va_start(arguments, format);
  ot_text_format_list(value, sizeof value, format, arguments);
  va_end(arguments);
  ot_text_appendf(e->out, "  --%s%s%s\n", name, value[0] != '\0' ? " " : "", value);
}

ot_status ot_export_refuse(const ot_exporter *e, const char *software, const char *what) {
  return ot_fail(OT_USAGE, "--emit %s: %s of %s cannot be configured",
                 ot_software_names[e->engine->software], what, software);
}

ot_status ot_export_precision(const ot_exporter *e, const char *software, const char *names) {
  const ot_recipe *const r = &e->job->recipe, *const named = ot_recipe_find(r->name);
  const bool moments = named && named->moment_bytes != r->moment_bytes;
  if (moments && e->engine->software != OT_SOFTWARE_MEGATRON)
    return ot_export_refuse(e, software, "the dtype of moments");
  if (ot_choice_matches(names, r->name)) return OT_OK;
  ot_fail(OT_USAGE, "--emit %s: %s cannot be configured for the precision %s",
          ot_software_names[e->engine->software], software, r->name);
  return ot_fail_hint(OT_USAGE, "--precision %s", names);
}

ot_status ot_export_plain_model(const ot_exporter *e, const char *software) {
  const ot_model *const m = e->model;
  const char *what = NULL;
  if (m->residuals.block_size > 0) what = "attention residuals";
  if (m->norm_placement != OT_NORM_PRE || m->norm_offset != 0) what = "the norms";
  if (m->qk_norm == OT_QK_NORM_ROW) what = "norms over all queries";
  if (m->score_soft_cap != 0 || m->logit_soft_cap != 0) what = "soft caps";
  if (m->embedding_scale != 1) what = "the scale of embeddings";
  if (m->sinks) what = "attention sinks";
  if (m->glu_limit != 0 || m->moe.biases || m->moe.shared_gate) what = "the MLP";
  for (int64_t i = 0; i < m->num_layers; i++) {
    if (m->window[i] > 0) what = "sliding windows";
    if (m->no_rope[i] && !m->learned_positions) what = "layers without rotary positions";
  }
  return what ? ot_export_refuse(e, software, what) : OT_OK;
}

ot_status ot_export_write(const ot_export *plan, ot_text_builder *out) {
  const int ranks = plan->job->devices;
  ot_exporter e = {.plan = plan,
                   .job = plan->job,
                   .model = plan->job->model,
                   .candidate = plan->candidate,
                   .engine = plan->job->engine,
                   .ranks_per_host = plan->ranks_per_host < ranks ? plan->ranks_per_host : ranks,
                   .out = out};
  OT_CHECK(ranks % e.ranks_per_host == 0, OT_USAGE,
           "--emit %s: %d devices are not whole hosts of %d", ot_software_names[e.engine->software],
           ranks, e.ranks_per_host);
  e.hosts = ranks / e.ranks_per_host;
  switch (e.engine->software) {
    case OT_SOFTWARE_MEGATRON:
      return ot_export_megatron(&e);
    case OT_SOFTWARE_TORCHTITAN:
      return ot_export_torchtitan(&e);
    case OT_SOFTWARE_DEEPSPEED:
      return ot_export_deepspeed(&e);
    case OT_SOFTWARE_NANOTRON:
      return ot_export_nanotron(&e);
    case OT_SOFTWARE_NONE:
    case OT_SOFTWARES:
      break;
  }
  return ot_fail(OT_USAGE, "--emit: engine %s has no configuration that can be written",
                 e.engine->name);
}
