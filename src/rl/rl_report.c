// SPDX-License-Identifier: Apache-2.0
// Files of a run that learns from rewards, and the forecast that its figures are compared with.
#include "base/extremes.h"
#include "base/text_builder.h"
#include "checkpoint/checkpoint_list.h"
#include "files/output_file.h"
#include "rl/rl_state.h"

enum { FORECAST_UPDATES = 200 };

ot_status ot_rl_report_update(ot_rl_state *r) {
  const ot_rl_update *const u = &r->update;
  const ot_rl_record *const record = r->record;
  const ot_metric values[] = {
      {"time", r->time_s},
      {"reward", u->reward},
      {"reward_deviation", u->reward_deviation},
      {"useful_groups", u->useful},
      {"loss", u->step.loss},
      {"grad_norm", u->step.gradient_norm},
      {"lr", u->step.learning_rate},
      {"sequences", (double)u->sequences},
      {"tokens", (double)u->tokens},
      {"packed_rows", (double)u->step.rows},
      {"length", u->length},
      {"ended", u->ended},
      {"ess", u->policy.ess},
      {"ess_sequences", u->policy.sequence_ess},
      {"kl", u->policy.kl},
      {"log_ratio", u->policy.log_ratio},
      {"bounded", u->policy.zero_share},
      {"lag", r->batch_lag},
      {"lag_max", r->batch_lag_max},
      {"cancelled", (double)record->cancelled},
      {"dropped", (double)record->dropped},
      {"answer_gain", u->answer_gain},
      {"reward_failures", (double)u->failures},
  };
  const int64_t version = r->version;
  if (r->metrics) OT_TRY(ot_metrics_write_values(r->metrics, version, values, OT_COUNT(values)));
  ot_rl_tell(r, (ot_rl_event){.kind = OT_RL_EVENT_UPDATE,
                              .version = r->version,
                              .time_s = r->time_s,
                              .update = u,
                              .lag = r->batch_lag,
                              .lag_max = r->batch_lag_max});
  return OT_OK;
}

ot_status ot_rl_report_save(ot_rl_state *r) {
  if (!r->directory) return OT_OK;
  const int64_t version = r->version, every = r->run->checkpoint.every;
  if (version != r->run->steps && (every <= 0 || version % every != 0)) return OT_OK;
  const char *const directory = ot_run_directory_checkpoints(r->directory);
  const char *const path = ot_checkpoint_path(r->arena, directory, version);
  const ot_rl_record *const record = r->record;
  ot_state_request request = {.path = path,
                              .settings = r->request->settings,
                              .tokenizer = r->tokenizer,
                              .position = {version, record->sequences, record->tokens}};
  OT_TRY(ot_metrics_sync(r->metrics));
  OT_TRY(ot_rl_learner_save(ot_rl_updater_learner(r->updater), &request));
  OT_TRY(ot_run_directory_set_saved(r->directory, ""));
  r->summary->checkpoint = path;
  return ot_checkpoint_prune(r->arena, directory, r->run->checkpoint.keep);
}

ot_status ot_rl_report_open(ot_rl_state *r) {
  if (!r->request->settings) return OT_OK;
  const char *const output = r->run->output;
  ot_text_builder text = {.arena = r->arena};
  OT_TRY(ot_run_directory_create(output, &r->directory));
  OT_CHECK(ot_run_directory_found(r->directory) == OT_RUN_EMPTY, OT_USAGE,
           "%s is not empty, and runs of orthant rl are not continued (try --set output=OTHER; "
           "init: %s starts from its weights)",
           output, output);
  ot_node_print_yaml(r->request->settings, 0, &text);
  OT_TRY(ot_output_file_replace(ot_run_directory_config(r->directory), ot_text_builder_text(&text),
                                text.length));
  return ot_metrics_create(ot_run_directory_metrics(r->directory), 0, &r->metrics);
}

// What the lengths of the responses that began first say of the whole run. All of them: those that
// end first are shorter.
ot_status ot_rl_report_predict(ot_rl_state *r) {
  const int64_t count = OT_RL_FORECAST_FROM / r->fleet.group * r->fleet.group;
  bool known = count > 0 && r->summary->predicted_from == 0 && !r->request->replay;
  for (int64_t i = 0; i < count; i++) known = known && r->lengths[i] > 0;
  if (!known) return OT_OK;
  const ot_rl_lengths lengths = {.tokens = r->lengths,
                                 .count = count,
                                 .prompt_tokens = ot_rl_state_mean_prompt(r),
                                 .in_order = true};
  const ot_rl_play play = {.fleet = &r->fleet,
                           .lengths = &lengths,
                           .updates = ot_smaller_whole(r->run->steps, FORECAST_UPDATES)};
  ot_rl_record *const record = ot_arena_take(r->arena, sizeof *record);
  OT_TRY(ot_rl_play_run(&play, r->arena, record));
  ot_rl_record_forecast(&r->fleet, record, &r->summary->predicted);
  r->summary->predicted_from = count;
  return OT_OK;
}
