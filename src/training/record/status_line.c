// SPDX-License-Identifier: Apache-2.0
// Parts joined by two spaces, most important first.
#include "record/status_line.h"

#include <math.h>
#include <stdbool.h>

#include "base/quantity.h"
#include "base/text.h"

enum { PART_BYTES = 64, NUM_PARTS = 9 };

// Appends a part if it fits.
static void append_part(char *out, int64_t capacity, int64_t *length, const char *part) {
  const char *const separator = *length > 0 ? "  " : "";
  const int64_t added = ot_text_length(separator) + ot_text_length(part);
  if (*length + added >= capacity) return;
  *length += ot_text_format(out + *length, capacity - *length, "%s%s", separator, part);
}

static void print_step(char *part, const ot_status_line *status) {
  if (status->num_steps > 0)
    ot_text_format(part, PART_BYTES, "step %lld/%lld %.1f%%", (long long)status->step,
                   (long long)status->num_steps,
                   100.0 * (double)status->step / (double)status->num_steps);
  else
    ot_text_format(part, PART_BYTES, "step %lld", (long long)status->step);
}

static void print_mfu(char *part, const ot_status_line *status) {
  int64_t used = 0;
  if (!isnan(status->mfu)) used = ot_text_format(part, PART_BYTES, "MFU %.1f%%", 100 * status->mfu);
  if (used > 0 && !isnan(status->planned_mfu))
    ot_text_format(part + used, PART_BYTES - used, " (plan %.1f%%)", 100 * status->planned_mfu);
}

static void print_memory(char *part, const ot_status_line *status) {
  const double peak = (double)status->memory_peak_bytes;
  const double capacity = (double)status->memory_capacity_bytes;
  if (peak < 0) return;
  // Uses a unit that suits the capacity, or the peak if that is unknown.
  const bool giga = (capacity > 0 ? capacity : peak) >= 1e9;
  const double unit = giga ? 1e9 : 1e6;
  const char *const name = giga ? "GB" : "MB";
  if (capacity > 0)
    ot_text_format(part, PART_BYTES, "peak %.1f/%.3g %s of GPU", peak / unit, capacity / unit,
                   name);
  else
    ot_text_format(part, PART_BYTES, "peak %.1f %s resident", peak / unit, name);
}

int64_t ot_status_line_print(char *out, int64_t capacity, const ot_status_line *status,
                             int columns) {
  char parts[NUM_PARTS][PART_BYTES] = {{0}};
  print_step(parts[0], status);
  if (!isnan(status->loss_nats))
    ot_text_format(parts[1], PART_BYTES, "loss %.3f", status->loss_nats);
  if (!isnan(status->gradient_norm))
    ot_text_format(parts[2], PART_BYTES, "gnorm %.2f", status->gradient_norm);
  if (!isnan(status->tokens_per_s)) {
    char rate[PART_BYTES];
    ot_rate_print(rate, sizeof rate, status->tokens_per_s);
    ot_text_format(parts[3], PART_BYTES, "%s tok/s", rate);
  }
  if (!isnan(status->remaining_s)) {
    char left[PART_BYTES];
    ot_duration_print(left, sizeof left, status->remaining_s);
    ot_text_format(parts[4], PART_BYTES, "eta %s", left);
  }
  print_mfu(parts[5], status);
  print_memory(parts[6], status);
  if (!isnan(status->learning_rate))
    ot_text_format(parts[7], PART_BYTES, "lr %.3g", status->learning_rate);
  if (!isnan(status->step_s)) {
    char seconds[PART_BYTES];
    ot_seconds_print(seconds, sizeof seconds, status->step_s);
    ot_text_format(parts[8], PART_BYTES, "%s/step", seconds);
  }
  const int64_t room = columns > 0 && columns < capacity ? columns + 1 : capacity;
  int64_t length = 0;
  out[0] = '\0';
  for (int i = 0; i < NUM_PARTS; i++)
    if (parts[i][0] != '\0') append_part(out, room, &length, parts[i]);
  return length;
}
