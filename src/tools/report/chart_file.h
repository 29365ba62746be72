// SPDX-License-Identifier: Apache-2.0
// The charts of a page as files of their own, from the same drawings.
#pragma once

#include "base/text_builder.h"

// A drawing of a page (chart.h).
typedef struct ot_figure {
  const char *title;    // "Gradient norm"
  const char *drawing;  // its element svg, as on the page; [bytes]
  int64_t bytes;
} ot_figure;

typedef struct ot_figure_list {
  int64_t count, capacity;
  ot_figure *figure;  // [count]
} ot_figure_list;

// Adds the drawing that `out` holds from byte `first` on, with memory of `out`; none: nothing.
void ot_figure_add(ot_figure_list *list, const char *title, const ot_text_builder *out,
                   int64_t first);

// The name of its file: "gradient_norm.svg".
const char *ot_figure_file(const ot_figure *figure, ot_arena *arena);

// The figure as an SVG file with its title, style and legend: light, and dark where the viewer asks
// for it. Needs no variables of CSS, which few viewers but browsers know.
void ot_figure_print(const ot_figure *figure, ot_text_builder *out);
