// SPDX-License-Identifier: Apache-2.0
// Drawing charts as SVG: boxes, lines and texts in units of the drawing, scales and their ticks.
// Colours and fonts are classes of the page's style (page_style.c), so that one drawing serves
// light and dark.
#pragma once

#include <stdbool.h>

#include "base/text_builder.h"

enum { OT_CHART_WIDTH = 960, OT_SCALE_TICKS = 32 };

typedef struct ot_box {
  double x, y, width, height;
} ot_box;

// Begins a drawing of OT_CHART_WIDTH x `height`; `label` describes it for screen readers.
void ot_chart_begin(ot_text_builder *out, double height, const char *label);
void ot_chart_end(ot_text_builder *out);

// `title` is the tooltip; null: none.
void ot_chart_box(ot_text_builder *out, const char *class, ot_box box, const char *title);

// From (x, y) to (x + width, y + height).
void ot_chart_line(ot_text_builder *out, const char *class, ot_box box);

// By `class`, texts start at x, end there ("e"), or are centred there ("m").
void ot_chart_text(ot_text_builder *out, const char *class, double x, double y, const char *text);

// A text that ends upwards to the right of (x, y), where it starts: a narrow column's heading.
void ot_chart_slanted(ot_text_builder *out, double x, double y, const char *text);

// A legend in the drawing, in rows of three keys from `y` on: a box of a class, a name and a value.
typedef struct ot_chart_key {
  const char *class, *name, *value;
} ot_chart_key;
double ot_chart_keys_height(int count);
void ot_chart_keys(ot_text_builder *out, double y, const ot_chart_key *keys, int count);

// Maps [minimum, maximum] to [from, to].
typedef struct ot_scale {
  bool log;
  double minimum, maximum;  // minimum > 0 with log
  double from, to;
} ot_scale;

double ot_scale_at(const ot_scale *scale, double value);

// Round values within the scale, about `wanted` of them: 1, 2 or 5 times powers of ten; with log
// powers of ten, where there are fewer than three also 2 and 5 times those, and within a factor of
// a few the values of a scale without log.
//   ticks  [OT_SCALE_TICKS]
int ot_scale_ticks(const ot_scale *scale, int wanted, double *ticks);

// The label of a tick: "0", or the text of `figure`.
const char *ot_tick_text(ot_arena *arena, double tick,
                         const char *(*figure)(ot_arena *arena, double value));
