// SPDX-License-Identifier: Apache-2.0
// Files of a run that learns from rewards, and the forecast that its figures are compared with.
#include <stdlib.h>

#include "base/extremes.h"
#include "base/failure.h"
#include "base/text_builder.h"
#include "checkpoint/checkpoint_list.h"
#include "files/output_file.h"
#include "rl/rl_state.h"
#include "state/state_save.h"
#include "train/loop_start.h"

enum { FORECAST_UPDATES = 200, FORECAST_REAL = 20 };

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
  if (r->metrics) ot_metrics_write_values(r->metrics, version, values, OT_COUNT(values));
  const char *const news = r->metrics ? ot_log_file_news(ot_metrics_log(r->metrics)) : NULL;
  if (news) ot_rl_tell(r, (ot_rl_event){.kind = OT_RL_EVENT_NOTE, .text = news});
  ot_rl_tell(r, (ot_rl_event){.kind = OT_RL_EVENT_UPDATE,
                              .version = r->version,
                              .time_s = r->time_s,
                              .update = u,
                              .lag = r->batch_lag,
                              .lag_max = r->batch_lag_max});
  return OT_OK;
}

static bool is_due(const ot_rl_state *r, bool now) {
  const int64_t version = r->version, every = r->run->checkpoint.every;
  if (!r->directory || version == 0 || (now && r->request->replay)) return false;
  return now || version == r->run->steps || (every > 0 && version % every == 0);
}

static ot_status save(ot_rl_state *r) {
  const int64_t version = r->version;
  const char *const directory = ot_run_directory_checkpoints(r->directory);
  const char *const path = ot_checkpoint_path(r->arena, directory, version);
  const ot_rl_record *const record = r->record;
  ot_rl_point point;
  OT_TRY(r->clock->rest(r, &point));
  ot_state_request request = {.path = path,
                              .settings = r->request->settings,
                              .tokenizer = r->tokenizer,
                              .position = {version, record->sequences, record->tokens},
                              .state = point.queue ? ot_rl_point_print(r, &point) : NULL};
  ot_metrics_sync(r->metrics);
  OT_TRY(ot_rl_learner_save(ot_rl_updater_learner(r->updater), &request));
  OT_TRY(ot_run_directory_set_saved(r->directory, ""));
  r->summary->checkpoint = path;
  r->saved = version;
  return ot_checkpoint_prune(r->arena, directory, r->run->checkpoint.keep);
}

static ot_status end_run(const ot_rl_state *r, const ot_failure *failure) {
  ot_fail(failure->status, "update %lld was not saved%s: %s", (long long)r->version,
          r->failed_saves > 1 ? ", nor were the saves before it" : "", failure->message);
  return ot_fail_hint(failure->status, "%s",
                      failure->hint[0] ? failure->hint
                                       : "older checkpoints are unchanged; the same command goes "
                                         "on from the newest one");
}

// `last`: no save follows.
static ot_status judge_failure(ot_rl_state *r, ot_status status, bool last) {
  if (status != OT_ENVIRONMENT) return status;
  ot_failure failure = {.status = OT_OK};
  ot_failure_take(&failure, status);
  r->failed_saves++;
  if (last || r->failed_saves == OT_FAILED_SAVES_MAX) return end_run(r, &failure);
  ot_rl_tell(
      r, (ot_rl_event){.kind = OT_RL_EVENT_NOTE,
                       .text = ot_arena_format(
                           r->arena,
                           "warning: update %lld was not saved: %s%s%s; training goes on, and ends "
                           "after %d failed saves in a row (%d now)",
                           (long long)r->version, failure.message, failure.hint[0] ? "; " : "",
                           failure.hint, OT_FAILED_SAVES_MAX, r->failed_saves)});
  return OT_OK;
}

ot_status ot_rl_report_save(ot_rl_state *r, bool now) {
  if (r->saved == r->version || !is_due(r, now)) return OT_OK;
  const ot_status status = save(r);
  if (status != OT_OK) return judge_failure(r, status, now || r->version == r->run->steps);
  r->failed_saves = 0;
  return OT_OK;
}

// ---- start ----

// The newest checkpoint of the run, if it has one.
static ot_status find_checkpoint(ot_rl_state *r, ot_checkpoint_found *found) {
  const char *const output = r->run->output;
  const ot_run_directory_state state = ot_run_directory_found(r->directory);
  const ot_checkpoint_search search = {.hashes = OT_CHECKPOINT_HASH_HEADERS};
  const ot_loop_request same = {.run = r->run, .settings = r->request->settings};
  *found = (ot_checkpoint_found){0};
  if (state == OT_RUN_EMPTY) return OT_OK;
  OT_CHECK(state == OT_RUN_PRESENT && !r->request->replay, OT_USAGE,
           "%s is not empty (try --set output=OTHER)", output);
  OT_TRY(
      ot_checkpoint_newest(r->arena, ot_run_directory_checkpoints(r->directory), &search, found));
  OT_CHECK(found->path || !ot_run_directory_saved(r->directory), OT_ENVIRONMENT,
           "%s has saved checkpoints, but all are missing (try --set output=OTHER)", output);
  if (!found->path) return OT_OK;
  OT_CHECK(found->manifest->state, OT_USAGE,
           "%s was not saved by a run of orthant rl that can go on (try --set output=OTHER; init: "
           "%s starts from its weights)",
           found->path, output);
  return ot_loop_compare_settings(&same, found->path, found->manifest->config, r->arena);
}

static ot_status resume(ot_rl_state *r, const ot_checkpoint_found *found) {
  const char *note = NULL;
  ot_state_request request = {.path = found->path};
  OT_TRY(ot_rl_learner_load(ot_rl_updater_learner(r->updater), &request));
  r->version = request.position.step;
  r->summary->checkpoint = found->path;
  r->saved = r->version;
  OT_TRY(ot_rl_point_read(r, found->path, found->manifest->state));
  OT_TRY(ot_run_directory_rewind(r->directory, r->version, r->arena, &note));
  const char *const notes[] = {found->note, request.note, note,
                               ot_arena_format(r->arena, "continuing after update %lld (%s)",
                                               (long long)r->version, found->path)};
  for (int i = 0; i < OT_COUNT(notes); i++) {
    if (notes[i]) ot_rl_tell(r, (ot_rl_event){.kind = OT_RL_EVENT_NOTE, .text = notes[i]});
  }
  free(request.note);
  return OT_OK;
}

ot_status ot_rl_report_open(ot_rl_state *r) {
  if (!r->request->settings) return OT_OK;
  ot_checkpoint_found found;
  ot_text_builder text = {.arena = r->arena};
  OT_TRY(ot_run_directory_create(r->run->output, &r->directory));
  OT_TRY(find_checkpoint(r, &found));
  if (found.path) OT_TRY(resume(r, &found));
  ot_node_print_yaml(r->request->settings, 0, &text);
  OT_TRY(ot_output_file_replace(ot_run_directory_config(r->directory), ot_text_builder_text(&text),
                                text.length));
  return ot_metrics_create(ot_run_directory_metrics(r->directory), r->version, &r->metrics);
}

// Lengths for a forecast, or 0: too few are known. All of those that began first: those that end
// first are shorter.
static int64_t count_lengths(const ot_rl_state *r) {
  const int64_t first = OT_RL_FORECAST_FROM / r->fleet.group * r->fleet.group;
  if (r->run->rl.clock == OT_RL_REAL) {
    const bool settled = r->version >= ot_smaller_whole(r->run->steps, FORECAST_REAL);
    return settled ? ot_smaller_whole(r->num_lengths, OT_RL_FORECAST_LATEST) : 0;
  }
  for (int64_t i = 0; i < first; i++) {
    if (r->lengths[i] == 0) return 0;
  }
  return first;
}

// Predicts the whole run from these lengths.
ot_status ot_rl_report_predict(ot_rl_state *r) {
  const int64_t count = count_lengths(r);
  if (count == 0 || r->summary->predicted_from > 0 || r->request->replay) return OT_OK;
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
