// SPDX-License-Identifier: Apache-2.0
// Facts of a run as short texts.
#include "report/run_page.h"

#include <math.h>

#include "base/quantity.h"
#include "base/text.h"

const char *ot_run_page_time(ot_arena *arena, double seconds) {
  char text[64];
  if (!isfinite(seconds)) return "-";
  if (fabs(seconds) < 1e-6) return "0 s";
  if (seconds < 0) {
    ot_seconds_print(text, sizeof text, -seconds);
    return ot_arena_format(arena, "-%s", text);
  }
  ot_seconds_print(text, sizeof text, seconds);
  return ot_arena_format(arena, "%s", text);
}

static const char *end_of(const ot_run_attempt *last, const ot_run_page *page, ot_arena *arena) {
  if (page->record->account.restarting) return "being restarted";
  if (isfinite(last->failure_s)) return "failed";
  if (isnan(last->stop_s)) {
    if (page->alive) return ot_arena_format(arena, "running (%s)", page->holder);
    if (!page->holder) return "running or killed";
    return ot_arena_format(arena, "killed, or running on another machine (%s)", page->holder);
  }
  if (ot_text_equal(last->reason, "end")) return "finished";
  if (ot_text_equal(last->reason, "signal")) return "stopped by a signal";
  if (ot_text_equal(last->reason, "numeric")) return "ended: loss or gradients not usable";
  return "failed";
}

const char *ot_run_page_state(const ot_run_page *page, ot_arena *arena) {
  const ot_run_account *const a = &page->record->account;
  if (a->num_attempts > 0) return end_of(&a->attempts[a->num_attempts - 1], page, arena);
  if (page->alive) return ot_arena_format(arena, "running (%s)", page->holder);
  const int64_t total = ot_run_page_total(page);
  if (total > 0 && page->record->last_step >= total) return "finished";
  return page->record->num_steps > 0 ? "not finished" : "not started";
}

const char *ot_run_page_model(const ot_run_page *page, ot_arena *arena) {
  if (!page->run) return "unknown";
  const char *const type = page->run->model.model_type;
  const char *const source = page->run->model_source;
  const char *const size = ot_figure_count(arena, (double)page->parameters);
  if (!source || !source[0]) return ot_arena_format(arena, "%s, %s parameters", type, size);
  return ot_arena_format(arena, "%s (%s), %s parameters", source, type, size);
}

const char *ot_run_page_mesh(const ot_run_page *page, ot_arena *arena) {
  static const ot_axis axes[] = {OT_AXIS_PP, OT_AXIS_DP_REPLICATE, OT_AXIS_DP_SHARD, OT_AXIS_CP,
                                 OT_AXIS_TP, OT_AXIS_EP,           OT_AXIS_ETP};
  const ot_run_account *const a = &page->record->account;
  const int64_t ranks = a->num_attempts > 0 ? a->attempts[a->num_attempts - 1].ranks : -1;
  ot_text_builder text = {.arena = arena};
  if (!page->mesh && ranks < 0) return "unknown";
  ot_text_appendf(&text, "%lld rank%s", (long long)(page->mesh ? page->mesh->ranks : ranks),
                  ot_text_plural(page->mesh ? page->mesh->ranks : ranks, "s"));
  const char *separator = " (";
  for (int i = 0; page->mesh && i < OT_COUNT(axes); i++) {
    const int degree = page->mesh->degree[axes[i]];
    if (degree == 1) continue;
    ot_text_appendf(&text, "%s%s %d", separator, ot_axis_name(axes[i]), degree);
    separator = " x ";
  }
  if (separator[1] == 'x') ot_text_put(&text, ")");
  return ot_text_builder_text(&text);
}

int64_t ot_run_page_total(const ot_run_page *page) {
  return page->run ? ot_run_total_steps(page->run) : 0;
}

// By the largest remainders.
void ot_run_page_tenths(const ot_run_account *account, int64_t *tenths) {
  double rest[OT_ACCOUNT_ITEMS];
  int64_t missing = 1000;
  for (int i = 0; i < OT_ACCOUNT_ITEMS; i++) {
    const double share = account->item_s[i] / account->wall_s;
    const double exact = share >= 0 && share <= 1 ? 1000 * share : 0;
    tenths[i] = (int64_t)floor(exact);
    rest[i] = exact - floor(exact);
    missing -= tenths[i];
  }
  for (; missing > 0 && missing <= OT_ACCOUNT_ITEMS; missing--) {
    int most = 0;
    for (int i = 1; i < OT_ACCOUNT_ITEMS; i++)
      if (rest[i] > rest[most]) most = i;
    tenths[most]++;
    rest[most] = -1;
  }
}

static const char *start_text(const ot_run_event *e, ot_arena *arena) {
  const int64_t repeated = e->last_step - e->step;
  ot_text_builder text = {.arena = arena};
  ot_text_appendf(&text, "start at step %lld on %lld rank%s", (long long)e->step,
                  (long long)e->ranks, ot_text_plural(e->ranks, "s"));
  if (e->from[0] && !ot_text_equal(e->from, "nothing")) ot_text_appendf(&text, " from %s", e->from);
  if (repeated > 0)
    ot_text_appendf(&text, ", %lld step%s to repeat", (long long)repeated,
                    ot_text_plural(repeated, "s"));
  return ot_text_builder_text(&text);
}

static const char *failure_text(const ot_run_event *e, ot_arena *arena) {
  ot_text_builder text = {.arena = arena};
  ot_text_appendf(&text, "failure: %s", e->failure);
  if (e->rank >= 0) ot_text_appendf(&text, ", rank %lld", (long long)e->rank);
  if (e->host[0]) ot_text_appendf(&text, " on %s", e->host);
  if (e->exit >= 0) ot_text_appendf(&text, ", exit %lld", (long long)e->exit);
  if (e->detail[0]) ot_text_appendf(&text, ": %.200s", e->detail);
  return ot_text_builder_text(&text);
}

const char *ot_run_page_event(const ot_run_event *e, ot_arena *arena) {
  const long long step = (long long)e->step;
  switch (e->kind) {
    case OT_RUN_EVENT_START:
      return start_text(e, arena);
    case OT_RUN_EVENT_FAILURE:
      return failure_text(e, arena);
    case OT_RUN_EVENT_STOP:
      return ot_arena_format(arena, "stop at step %lld: %s", step, e->reason);
    case OT_RUN_EVENT_RESTART:
      return ot_arena_format(arena, "restart on %lld rank%s after waiting %s", (long long)e->ranks,
                             ot_text_plural(e->ranks, "s"), ot_run_page_time(arena, e->waited_s));
    case OT_RUN_EVENT_REWIND:
      return ot_arena_format(arena, "back from step %lld to step %lld", (long long)e->last_step,
                             step);
    case OT_RUN_EVENT_SAVE_FAILED:
      return ot_arena_format(arena, "save of step %lld failed: %s", step, e->reason);
    case OT_RUN_EVENT_FALLBACK:
      return ot_arena_format(arena, "loaded step %lld instead of a newer checkpoint: %s", step,
                             e->reason);
    case OT_RUN_EVENT_STRAGGLER:
      return ot_arena_format(arena, "step %lld: rank %lld on %s is slow, %.2f x the median", step,
                             (long long)e->rank, e->host, e->slowdown);
    case OT_RUN_EVENT_SPIKE:
      return ot_arena_format(
          arena, "step %lld: %s is an outlier (z %.3g), samples %lld to %lld: %s", step, e->name,
          e->z, (long long)e->first_sample, (long long)e->last_sample, e->action);
    default:
      return NULL;
  }
}

ot_run_means ot_run_page_means(const ot_run_page *page) {
  const ot_run_record *const record = page->record;
  const ot_run_totals *const t = record->later.steps > 0 ? &record->later : &record->totals;
  ot_run_means m = {NAN, NAN, NAN, NAN, NAN, NAN};
  if (t->step_s > 0) {
    m.step_s = t->step_s / (double)t->steps;
    m.tokens_per_s = t->tokens / t->step_s;
  }
  if (t->mfu_of_s > 0) m.mfu = t->mfu_s / t->mfu_of_s;
  if (t->predicted_s > 0) {
    const double faster = t->predicted_of_s / t->predicted_s;
    m.predicted_step_s = m.step_s / faster;
    m.predicted_tokens_per_s = m.tokens_per_s * faster;
    if (t->predicted_mfu_s > 0) m.predicted_mfu = t->predicted_mfu_s / t->predicted_s;
  }
  return m;
}
