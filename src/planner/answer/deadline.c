// SPDX-License-Identifier: Apache-2.0
// The fewest devices that end a run in time (`orthant plan --deadline`, and the page's). Counts are
// whole hosts, and parts of one host. A bisection finds a count that is enough and whose
// predecessor is not. Times do not fall with every host, since degrees have to divide the devices:
// all smaller counts that would be enough with a fifth less work of the devices than the least of
// those tried are tried as well. Counts of which 2^k or 3 x 2^k hosts are tried first: what most
// degrees divide shows how little work it can be, and where the largest count is awkward, a smaller
// one may be enough.
#include "answer/sweep.h"
#include "base/quantity.h"
#include "base/text.h"

enum { MOST_SCANNED = 48 };

static const double spared = 0.8;  // device seconds of a count, of the least that another needs

static ot_status read_deadline(const char *text, double *seconds) {
  if (ot_quantity_parse_time(text, seconds) && *seconds > 0) return OT_OK;
  return ot_fail(OT_USAGE, "--deadline: \"%s\" is no time such as 12h, 30d or 6w", text);
}

// Counts by index from 0: 1, 2, ... devices of a host, then whole hosts, and all devices last.
static int count_of(const ot_deadline_search *s) {
  if (s->most <= s->host) return s->most;
  return s->host - 1 + (s->most + s->host - 1) / s->host;
}

static int devices_of(const ot_deadline_search *s, int index) {
  if (index + 1 < s->host) return index + 1;
  const int64_t devices = (int64_t)(index + 2 - s->host) * s->host;
  return devices < s->most ? (int)devices : s->most;
}

static ot_status try_count(const ot_deadline_search *search, int index, ot_deadline *d,
                           bool *in_time) {
  ot_deadline_trial *const trial = &d->trials[d->num_trials];
  OT_ASSERT(d->num_trials < OT_MOST_DEADLINE_TRIALS);
  trial->devices = devices_of(search, index);
  OT_TRY(search->run(search->context, trial->devices, &trial->elapsed_s));
  d->num_trials++;
  *in_time = trial->elapsed_s > 0 && trial->elapsed_s <= d->seconds;
  if (*in_time && (d->fewest == 0 || trial->devices < d->fewest)) d->fewest = trial->devices;
  return OT_OK;
}

static bool is_tried(const ot_deadline *d, int devices) {
  for (int i = 0; i < d->num_trials; i++) {
    if (d->trials[i].devices == devices) return true;
  }
  return false;
}

// The largest index below `end` of `factor` x 2^k hosts, or of devices of one host; -1: none.
static int even_index(const ot_deadline_search *s, int end, int factor) {
  for (int i = end - 1; i >= 0; i--) {
    const int devices = devices_of(s, i);
    int rest = devices < s->host ? devices : devices / s->host;
    while (rest > factor && rest % 2 == 0) rest /= 2;
    if (rest == factor && (devices < s->host || devices % s->host == 0)) return i;
  }
  return -1;
}

// Tries such counts below `enough`, and lowers it to those that are enough.
static ot_status try_even(const ot_deadline_search *search, bool *known, int *enough,
                          ot_deadline *d) {
  static const int factors[] = {1, 3};
  int found = *enough;
  for (int i = 0; i < OT_COUNT(factors); i++) {
    bool in_time;
    const int index = even_index(search, *enough, factors[i]);
    if (index < 0 || is_tried(d, devices_of(search, index))) continue;
    OT_TRY(try_count(search, index, d, &in_time));
    if (in_time && (!*known || index < found)) found = index;
    *known = *known || in_time;
  }
  *enough = found;
  return OT_OK;
}

// Tries the counts below `end` that the work of the devices may suffice for, smallest first.
static ot_status scan(const ot_deadline_search *search, int end, ot_deadline *d) {
  double least_s = 0;
  bool in_time = false;
  for (int i = 0; i < d->num_trials; i++) {
    const double device_s = d->trials[i].elapsed_s * d->trials[i].devices;
    if (device_s > 0 && (least_s == 0 || device_s < least_s)) least_s = device_s;
  }
  int first = end > MOST_SCANNED ? end - MOST_SCANNED : 0;
  while (first < end && devices_of(search, first) * d->seconds < spared * least_s) first++;
  for (int i = first; i < end && !in_time; i++) {
    if (!is_tried(d, devices_of(search, i))) OT_TRY(try_count(search, i, d, &in_time));
  }
  return OT_OK;
}

static ot_status find_devices(const ot_deadline_search *search, ot_deadline *d) {
  int enough = count_of(search) - 1, few = -1;
  bool in_time;
  OT_TRY(try_count(search, enough, d, &in_time));
  OT_TRY(try_even(search, &in_time, &enough, d));
  if (!in_time) return scan(search, enough, d);
  while (enough - few > 1) {
    const int middle = few + (enough - few) / 2;
    OT_TRY(try_count(search, middle, d, &in_time));
    if (in_time) {
      enough = middle;
    } else {
      few = middle;
    }
  }
  return scan(search, enough, d);
}

static const ot_deadline_trial *trial_of(const ot_deadline *d, int devices) {
  for (int i = 0; i < d->num_trials; i++) {
    if (d->trials[i].devices == devices) return &d->trials[i];
  }
  return NULL;
}

// The count tried that ends first; the largest if none can hold the run.
static const ot_deadline_trial *fastest(const ot_deadline *d) {
  const ot_deadline_trial *best = &d->trials[0];
  for (int i = 1; i < d->num_trials; i++) {
    const ot_deadline_trial *const t = &d->trials[i];
    if (t->elapsed_s > 0 && (best->elapsed_s == 0 || t->elapsed_s < best->elapsed_s)) best = t;
  }
  return best;
}

// The largest count below the fewest that was tried; null: none.
static const ot_deadline_trial *next_fewer(const ot_deadline *d) {
  const ot_deadline_trial *next = NULL;
  for (int i = 0; i < d->num_trials; i++) {
    const ot_deadline_trial *const t = &d->trials[i];
    if (t->devices < d->fewest && (!next || t->devices > next->devices)) next = t;
  }
  return next;
}

static void put_trial(const ot_deadline_trial *t, ot_text_builder *out) {
  ot_text_appendf(out, "%d device%s ", t->devices, ot_text_plural(t->devices, "s"));
  if (t->elapsed_s > 0) {
    ot_text_appendf(out, "take%s %s", t->devices == 1 ? "s" : "",
                    ot_figure_time(out->arena, t->elapsed_s));
  } else {
    ot_text_put(out, "cannot hold it");
  }
}

// "30 days: 40 devices take 28 days, 32 devices take 34.9 days; 9 counts were tried".
static const char *deadline_text(const ot_deadline *d, ot_arena *arena) {
  const ot_deadline_trial *const fewer = next_fewer(d);
  ot_text_builder text = {.arena = arena};
  ot_text_appendf(&text, "%s: planned for %d: ", ot_figure_time(arena, d->seconds), d->fewest);
  put_trial(trial_of(d, d->fewest), &text);
  if (fewer) {
    ot_text_put(&text, ", ");
    put_trial(fewer, &text);
  }
  ot_text_appendf(&text, "; %d count%s tried", d->num_trials, ot_text_plural(d->num_trials, "s"));
  return ot_text_builder_text(&text);
}

ot_status ot_deadline_meet(const char *time, const ot_deadline_search *search, ot_arena *arena,
                           ot_deadline *out) {
  *out = (ot_deadline){0};
  OT_TRY(read_deadline(time, &out->seconds));
  OT_TRY(find_devices(search, out));
  if (out->fewest == 0) {
    const ot_deadline_trial *const best = fastest(out);
    const double elapsed_s = best->elapsed_s;
    ot_fail(OT_FINDINGS, "--deadline: %d devices %s%s", best->devices,
            elapsed_s > 0 ? "take " : "are too few to hold the run",
            elapsed_s > 0 ? ot_figure_time(arena, elapsed_s) : "");
    return ot_fail_hint(OT_FINDINGS, "give more with --gpus, or fewer --tokens");
  }
  out->text = deadline_text(out, arena);
  return OT_OK;
}
