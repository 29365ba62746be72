// SPDX-License-Identifier: Apache-2.0
// On a terminal one line that is written over, elsewhere a line from time to time.
#include "cli/plan_progress.h"

#include <stdio.h>
#include <unistd.h>

#include "base/quantity.h"
#include "host/clock.h"

typedef struct progress {
  double begin_s, next_s;
  bool terminal, shown;
} progress;

static void show(void *context, const ot_search *so_far) {
  static const double every_s[] = {10, 0.5};
  progress *const p = context;
  const double now_s = ot_clock_s();
  char best[32] = "none";
  if (now_s < p->next_s) return;
  p->next_s = now_s + every_s[p->terminal];
  p->shown = true;
  if (so_far->num_plans > 0) ot_seconds_print(best, sizeof best, so_far->plans[0].step_s);
  fprintf(stderr, "%ssearching for %.0f s: %lld of %lld configurations simulated, best step %s%s",
          p->terminal ? "\r" : "", now_s - p->begin_s, (long long)so_far->num_simulated,
          (long long)so_far->num_candidates, best, p->terminal ? "\033[K" : "\n");
}

ot_status ot_plan_answer(const ot_plan_build *build, ot_arena *arena, ot_plan_page *out) {
  static const double silent_s = 2;
  const double now_s = ot_clock_s();
  progress p = {now_s, now_s + silent_s, isatty(STDERR_FILENO) != 0, false};
  ot_plan_build watched = *build;
  watched.progress = show;
  watched.progress_context = &p;
  const ot_status status = ot_plan_page_build(&watched, arena, out);
  if (p.terminal && p.shown) fprintf(stderr, "\r\033[K");
  return status;
}
