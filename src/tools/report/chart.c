// SPDX-License-Identifier: Apache-2.0
// Writes SVG directly, with coordinates rounded to a tenth of a unit.
#include "report/chart.h"

#include "base/math.h"
#include "report/markup.h"

void ot_chart_begin(ot_text_builder *out, double height, const char *label) {
  ot_text_appendf(out,
                  "<div class=\"scroll\" tabindex=\"0\"><svg viewBox=\"0 0 %d %.0f\" role=\"img\" "
                  "aria-label=\"",
                  OT_CHART_WIDTH, height);
  ot_markup_text(out, label);
  ot_text_put(out, "\">\n");
}

void ot_chart_end(ot_text_builder *out) { ot_text_put(out, "</svg></div>\n"); }

void ot_chart_box(ot_text_builder *out, const char *class, ot_box box, const char *title) {
  ot_text_appendf(out, "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"",
                  class, box.x, box.y, box.width, box.height);
  if (!title) {
    ot_text_put(out, "/>\n");
    return;
  }
  ot_text_put(out, ">");
  ot_markup_element(out, "title", title);
  ot_text_put(out, "</rect>\n");
}

void ot_chart_line(ot_text_builder *out, const char *class, ot_box box) {
  ot_text_appendf(out, "<line class=\"%s\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n",
                  class, box.x, box.y, box.x + box.width, box.y + box.height);
}

void ot_chart_text(ot_text_builder *out, const char *class, double x, double y, const char *text) {
  ot_text_appendf(out, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\">", class, x, y);
  ot_markup_text(out, text);
  ot_text_put(out, "</text>\n");
}

void ot_chart_slanted(ot_text_builder *out, double x, double y, const char *text) {
  ot_text_appendf(out, "<text class=\"dim\" transform=\"translate(%.1f %.1f) rotate(-32)\">", x, y);
  ot_markup_text(out, text);
  ot_text_put(out, "</text>\n");
}

enum { KEY_COLUMNS = 3, KEY_ROW = 22, KEY_LEFT = 8, KEY_BOX = 11 };

double ot_chart_keys_height(int count) {
  return (double)((count + KEY_COLUMNS - 1) / KEY_COLUMNS * KEY_ROW);
}

void ot_chart_keys(ot_text_builder *out, double y, const ot_chart_key *keys, int count) {
  const double width = (OT_CHART_WIDTH - KEY_LEFT) / (double)KEY_COLUMNS;
  for (int i = 0; i < count; i++) {
    const double left = KEY_LEFT + i % KEY_COLUMNS * width;
    const double bottom = y + (i / KEY_COLUMNS + 1) * KEY_ROW - 6;
    ot_chart_box(out, keys[i].class, (ot_box){left, bottom - KEY_BOX + 1, KEY_BOX, KEY_BOX}, NULL);
    ot_chart_text(out, "", left + KEY_BOX + 6, bottom,
                  ot_arena_format(out->arena, "%s: %s", keys[i].name, keys[i].value));
  }
}

// ---- scales ----

static const double most = 1e300;  // of a range with ticks

static double position(const ot_scale *scale, double value) {
  if (!scale->log) return value;
  return ot_log2(value > scale->minimum ? value : scale->minimum);
}

double ot_scale_at(const ot_scale *scale, double value) {
  const double low = position(scale, scale->minimum), high = position(scale, scale->maximum);
  const double share = high > low ? (position(scale, value) - low) / (high - low) : 0;
  return scale->from + share * (scale->to - scale->from);
}

// The largest power of ten that is at most `value`, in (0, most].
static double power_below(double value) {
  double power = 1;
  while (power > value) power /= 10;
  while (power * 10 <= value) power *= 10;
  return power;
}

// Powers of ten times the first `factors` of 1, 2 and 5.
static int log_ticks(const ot_scale *scale, int factors, double *ticks) {
  static const double factor[] = {1, 2, 5};
  int count = 0;
  for (double power = power_below(scale->minimum); power <= scale->maximum; power *= 10) {
    for (int i = 0; i < factors; i++) {
      const double t = power * factor[i];
      if (t >= scale->minimum && t <= scale->maximum && count < OT_SCALE_TICKS) ticks[count++] = t;
    }
  }
  return count;
}

static int even_ticks(const ot_scale *scale, int wanted, double *ticks) {
  int count = 0;
  const double rough = (scale->maximum - scale->minimum) / wanted;
  if (!(rough > 0)) return 0;
  const double power = power_below(rough);
  const double step = rough > 5 * power ? 10 * power : rough > 2 * power ? 5 * power : 2 * power;
  const int64_t first = (int64_t)(scale->minimum / step);
  for (int64_t i = first; (double)i * step <= scale->maximum * (1 + 1e-9); i++) {
    if ((double)i * step < scale->minimum || count == OT_SCALE_TICKS) continue;
    ticks[count++] = (double)i * step;
  }
  return count;
}

int ot_scale_ticks(const ot_scale *scale, int wanted, double *ticks) {
  enum { FEWEST = 3 };
  // Measured values of a damaged or foreign file may have any size.
  if (!(scale->maximum - scale->minimum < most)) return 0;
  if (!scale->log) return even_ticks(scale, wanted, ticks);
  if (!(scale->minimum > 0)) return 0;
  const int powers = log_ticks(scale, 1, ticks);
  if (powers >= FEWEST) return powers;
  const int count = log_ticks(scale, 3, ticks);
  return count >= FEWEST ? count : even_ticks(scale, wanted, ticks);
}

const char *ot_tick_text(ot_arena *arena, double tick,
                         const char *(*figure)(ot_arena *arena, double value)) {
  return tick == 0 ? "0" : figure(arena, tick);
}
