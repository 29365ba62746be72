// SPDX-License-Identifier: Apache-2.0
// The fewest devices that end a run in time (`orthant plan --deadline`, and the page's): the most
// are halved while the run ends in time, then three quarters of the last are tried.
#include "answer/sweep.h"
#include "base/quantity.h"
#include "base/text.h"

static ot_status read_deadline(const char *text, double *seconds) {
  if (ot_quantity_parse_time(text, seconds) && *seconds > 0) return OT_OK;
  return ot_fail(OT_USAGE, "--deadline: \"%s\" is no time such as 12h, 30d or 6w", text);
}

static ot_status try_devices(const ot_deadline_search *search, int devices, ot_deadline *d,
                             bool *in_time) {
  ot_deadline_trial *const trial = &d->trials[d->num_trials];
  OT_ASSERT(d->num_trials < OT_MOST_DEADLINE_TRIALS);
  trial->devices = devices;
  OT_TRY(search->run(search->context, devices, &trial->elapsed_s));
  d->num_trials++;
  *in_time = trial->elapsed_s > 0 && trial->elapsed_s <= d->seconds;
  if (*in_time) d->fewest = devices;
  return OT_OK;
}

static ot_status find_devices(const ot_deadline_search *search, ot_deadline *d) {
  bool in_time = true;
  for (int n = search->most; n >= 1; n /= 2) {
    OT_TRY(try_devices(search, n, d, &in_time));
    if (!in_time) break;
    if (n % 2 != 0) return OT_OK;
  }
  if (d->fewest == 0 || d->fewest % 4 != 0) return OT_OK;
  return try_devices(search, d->fewest / 4 * 3, d, &in_time);
}

static const char *deadline_text(const ot_deadline *d, ot_arena *arena) {
  ot_text_builder text = {.arena = arena};
  ot_text_appendf(&text, "%s:", ot_figure_time(arena, d->seconds));
  for (int i = 0; i < d->num_trials; i++) {
    const ot_deadline_trial *const t = &d->trials[i];
    ot_text_appendf(&text, "%s %d devices %s", i > 0 ? "," : "", t->devices,
                    t->elapsed_s > 0 ? "take" : "are too few to hold it");
    if (t->elapsed_s > 0) ot_text_appendf(&text, " %s", ot_figure_time(arena, t->elapsed_s));
  }
  ot_text_appendf(&text, "; planned for %d", d->fewest);
  return ot_text_builder_text(&text);
}

ot_status ot_deadline_meet(const char *time, const ot_deadline_search *search, ot_arena *arena,
                           ot_deadline *out) {
  *out = (ot_deadline){0};
  OT_TRY(read_deadline(time, &out->seconds));
  OT_TRY(find_devices(search, out));
  if (out->fewest == 0) {
    const double elapsed_s = out->trials[0].elapsed_s;
    ot_fail(OT_FINDINGS, "--deadline: %d devices %s%s", search->most,
            elapsed_s > 0 ? "take " : "are too few to hold the run",
            elapsed_s > 0 ? ot_figure_time(arena, elapsed_s) : "");
    return ot_fail_hint(OT_FINDINGS, "give more with --gpus, or fewer --tokens");
  }
  out->text = deadline_text(out, arena);
  return OT_OK;
}
