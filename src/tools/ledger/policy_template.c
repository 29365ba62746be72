// SPDX-License-Identifier: Apache-2.0
// The policy of a new ledger, with a ladder below its base, and the cost of a claim.
#include <math.h>

#include "base/quote.h"
#include "base/text.h"
#include "base/text_builder.h"
#include "files/disk.h"
#include "files/output_file.h"
#include "ledger/ledger.h"

enum { SCALES = 3 };

// Parameters of a model are about proportional to layers x width^2: each scale has half of those of
// the next and half of its tokens, so a quarter of its compute. Rates are those of the base at
// every size (docs/mup.md).
static void write_scale(ot_text_builder *text, const ot_run *run, int64_t tokens, int below) {
  const ot_model *const model = &run->model;
  const double shrink = pow(2, -below / 3.0);
  const int64_t unit = 2 * model->num_heads;
  const int64_t hidden = llround((double)model->hidden_size * shrink / (double)unit) * unit;
  const int64_t layers = llround((double)model->num_layers * shrink);
  const int64_t inner = llround((double)model->intermediate_size * shrink / 8) * 8;
  ot_text_appendf(text, "  - {name: s%d, tokens: %lld", SCALES - below,
                  (long long)(tokens >> below));
  if (below > 0)
    ot_text_appendf(text,
                    ", set: {model.hidden_size: %lld, model.num_hidden_layers: %lld, "
                    "model.intermediate_size: %lld",
                    (long long)(hidden > unit ? hidden : unit),
                    (long long)(layers > 1 ? layers : 1), (long long)(inner > 8 ? inner : 8));
  if (below > 0 && !ot_parametrization_scales(&run->parametrization))
    ot_text_appendf(text,
                    ", parametrization: {name: mup, base_hidden_size: %lld, base_layers: %lld, "
                    "base_head_dim: %lld}",
                    (long long)model->hidden_size, (long long)model->num_layers,
                    (long long)model->head_dim);
  ot_text_put(text, below > 0 ? "}}\n" : "}\n");
}

static const char *policy_text(ot_arena *arena, const char *base, const ot_run *run) {
  ot_text_builder text = {.arena = arena};
  const int64_t tokens = ot_run_tokens_after(run, ot_run_total_steps(run));
  ot_text_put(&text,
              "# What a change is compared by. `orthant help ledger` explains the commands.\n"
              "base: ");
  ot_quote_yaml(&text, base);
  ot_text_appendf(
      &text,
      "\n"
      "metric: {tokens: %lld, name: nats}   # the base's validation set; data: another\n"
      "ladder:                              # full schedules; set: settings of a run\n",
      (long long)run->data.validation_tokens);
  for (int below = SCALES - 1; below >= 0; below--) write_scale(&text, run, tokens, below);
  ot_text_put(&text,
              "seeds: {base: 1000, count: 16}       # seed k of every change is the same seed\n"
              "slope: {from: budgets, factors: [0.7, 1.4], seeds: 4}\n"
              "looks: {pairs: [4, 8, 16], one_sided: 0.025}\n"
              "margins: {practical: 1.01, harmful: 0.99, neutral: 0.005, too_good: 1.3}\n"
              "candidates: each                     # lond: false discoveries of all together\n"
              "tuning: {keys: [optimizer.lr], factors: [0.7, 1, 1.4]}\n"
              "audit: all\n"
              "target: 0                            # FLOPs to extrapolate to; 0: none\n");
  return ot_text_builder_text(&text);
}

ot_status ot_ledger_begin(ot_ledger *l, const char *base) {
  const ot_config_request request = {.path = base, .presets = l->presets};
  ot_config config;
  OT_TRY(ot_config_load(&request, l->arena, &config));
  OT_TRY(ot_run_check_training(&config.run));
  OT_CHECK(
      config.run.data.num_validation == 1, OT_USAGE,
      "a ledger compares the loss on one validation set; the run has %lld (%s: data.validation)",
      (long long)config.run.data.num_validation, base);
  const char *const policy = ot_disk_join(l->arena, l->directory, "policy.yaml");
  OT_CHECK(!ot_disk_is_file(policy), OT_USAGE, "%s exists; a ledger is begun once", policy);
  OT_TRY(ot_disk_make_directory(ot_disk_join(l->arena, l->directory, "changes")));
  const char *from_here;
  OT_TRY(ot_ledger_path_from(l->arena, base, l->directory, &from_here));
  const char *const text = policy_text(l->arena, from_here, &config.run);
  OT_TRY(ot_output_file_replace(policy, text, ot_text_length(text)));
  OT_TRY(ot_ledger_open(l));
  ot_ledger_announce(l, "wrote %s", policy);
  return OT_OK;
}

ot_status ot_ledger_forecast(const ot_ledger *l, int pairs, double *change, double *base) {
  const ot_ledger_arms arms = ot_ledger_list_base(l, pairs);
  *change = *base = 0;
  for (int64_t i = 0; i < arms.count; i++) {
    ot_ledger_job job;
    if (arms.arm[i].seed > 0) continue;
    OT_TRY(ot_ledger_job_build(l, &arms.arm[i], &job));
    OT_TRY(ot_ledger_job_describe(l, &job));
    const int runs = arms.arm[i].budget == 1         ? pairs
                     : pairs < l->policy.slope.seeds ? pairs
                                                     : l->policy.slope.seeds;
    *base += job.model_flops * runs;
    if (arms.arm[i].budget == 1) *change += job.model_flops * pairs;
  }
  return OT_OK;
}
