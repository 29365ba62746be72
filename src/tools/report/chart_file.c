// SPDX-License-Identifier: Apache-2.0
// Resolves the colours of the page's style, once for light and once for dark.
#include "report/chart_file.h"

#include <stdlib.h>

#include "base/status.h"
#include "base/text.h"
#include "report/chart.h"
#include "report/markup.h"
#include "report/page_frame.h"

enum { HEAD = 36 };

void ot_figure_add(ot_figure_list *list, const char *title, const ot_text_builder *out,
                   int64_t first) {
  static const char end_tag[] = "</svg>";
  const char *const begin = ot_text_find(ot_text_builder_text(out) + first, "<svg ");
  if (!begin) return;
  const char *const end = ot_text_find(begin, end_tag) + ot_text_length(end_tag);
  list->figure =
      ot_arena_grow(out->arena, list->figure, list->count, &list->capacity, sizeof *list->figure);
  list->figure[list->count++] =
      (ot_figure){title, ot_arena_text(out->arena, begin, end - begin), end - begin};
}

const char *ot_figure_file(const ot_figure *figure, ot_arena *arena) {
  char *const name = ot_arena_format(arena, "%s.svg", figure->title);
  for (char *at = name; *at != '\0' && *at != '.'; at++) {
    if (*at >= 'A' && *at <= 'Z') *at = (char)(*at - 'A' + 'a');
    if ((*at < 'a' || *at > 'z') && (*at < '0' || *at > '9')) *at = '_';
  }
  return name;
}

// The value of the colour at `name`, "dim)...", in `palette`.
static void put_colour(ot_text_builder *out, const char *name, const char *palette) {
  const int64_t length = ot_text_find(name, ")") - name;
  const char *const key =
      ot_arena_format(out->arena, "--%s:", ot_arena_text(out->arena, name, length));
  const char *const found = ot_text_find(palette, key);
  OT_ASSERT(found);
  for (const char *at = found + ot_text_length(key); *at != ';' && *at != '\0'; at++)
    ot_text_append(out, at, 1);
}

static void put_rules(ot_text_builder *out, const char *rules, const char *palette) {
  static const char variable[] = "var(--";
  const char *found;
  for (; (found = ot_text_find(rules, variable)) != NULL; rules = ot_text_find(found, ")") + 1) {
    ot_text_append(out, rules, found - rules);
    put_colour(out, found + ot_text_length(variable), palette);
  }
  ot_text_put(out, rules);
}

static void put_style(ot_text_builder *out, const char *palette) {
  put_rules(out, ".ground{fill:var(--card)}", palette);
  for (int i = 0; ot_chart_style[i]; i++) put_rules(out, ot_chart_style[i], palette);
}

// The height of the drawing, which ot_chart_begin wrote.
static int height_of(const ot_figure *figure) {
  const char *at = ot_text_find(figure->drawing, "viewBox=\"0 0 ");
  OT_ASSERT(at);
  at += ot_text_length("viewBox=\"0 0 ");
  return atoi(ot_text_find(at, " "));
}

void ot_figure_print(const ot_figure *figure, ot_text_builder *out) {
  const int height = height_of(figure) + HEAD;
  const char *const body = ot_text_find(figure->drawing, ">\n") + 1;
  ot_text_appendf(out,
                  "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
                  "viewBox=\"0 %d %d %d\" role=\"img\" font-family=\"system-ui,'Segoe UI',Roboto,"
                  "'Helvetica Neue','DejaVu Sans',Arial,sans-serif\" font-size=\"13\">\n",
                  OT_CHART_WIDTH, height, -HEAD, OT_CHART_WIDTH, height);
  ot_markup_element(out, "title", figure->title);
  ot_text_put(out, "\n<style>\n");
  put_style(out, ot_colours_light);
  ot_text_put(out, "@media(prefers-color-scheme:dark){\n");
  put_style(out, ot_colours_dark);
  ot_text_put(out, "}\n</style>\n");
  ot_chart_box(out, "ground", (ot_box){0, -HEAD, OT_CHART_WIDTH, height}, NULL);
  ot_text_appendf(out, "<text class=\"strong\" x=\"8\" y=\"%d\" font-size=\"16\">", 22 - HEAD);
  ot_markup_text(out, figure->title);
  ot_text_put(out, "</text>");
  ot_text_append(out, body, figure->bytes - (body - figure->drawing));
  ot_text_put(out, "\n");
}
