// SPDX-License-Identifier: Apache-2.0
// Elements that every page repeats.
#include "report/page_frame.h"

#include "report/markup.h"

void ot_page_begin(ot_text_builder *out, const char *title, const char *heading, const char *text) {
  ot_text_put(out,
              "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
              "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n");
  ot_markup_element(out, "title", title);
  ot_text_put(out, "\n<style>\n");
  ot_text_appendf(out,
                  ":root{color-scheme:light dark;%s}\n"
                  "@media(prefers-color-scheme:dark){:root{%s}}\n",
                  ot_colours_light, ot_colours_dark);
  for (int i = 0; ot_chart_style[i]; i++) ot_text_put(out, ot_chart_style[i]);
  for (int i = 0; ot_page_style[i]; i++) ot_text_put(out, ot_page_style[i]);
  ot_text_put(out, "</style>\n</head>\n<body>\n<header>\n");
  ot_markup_element(out, "h1", heading);
  ot_markup_element(out, "p class=\"dim\"", text);
  ot_text_put(out, "\n</header>\n");
}

void ot_page_navigation(ot_text_builder *out, bool begins) {
  ot_text_put(out, begins ? "<nav aria-label=\"Sections\"><ul>\n" : "</ul></nav>\n<main>\n");
}

void ot_page_link(ot_text_builder *out, const char *id, const char *name) {
  ot_text_appendf(out, "<li><a href=\"#%s\">%s</a></li>\n", id, name);
}

void ot_page_section(ot_text_builder *out, const char *id, const char *title, const char *reading) {
  ot_text_appendf(out, "<section id=\"%s\" aria-labelledby=\"%s-title\">\n", id, id);
  ot_text_appendf(out, "<h2 id=\"%s-title\">%s</h2>\n", id, title);
  if (!reading) return;
  ot_markup_element(out, "p class=\"read\"", reading);
  ot_text_put(out, "\n");
}

void ot_page_section_end(ot_text_builder *out) { ot_text_put(out, "</section>\n"); }

void ot_page_tile(ot_text_builder *out, const char *figure, const char *what) {
  ot_text_put(out, "<div class=\"tile\">");
  ot_markup_element(out, "b", figure);
  ot_markup_element(out, "span", what);
  ot_text_put(out, "</div>\n");
}

void ot_page_fold(ot_text_builder *out, const char *what) {
  ot_text_put(out, "<details><summary>");
  ot_markup_text(out, what);
  ot_text_put(out, "</summary><div class=\"scroll\" tabindex=\"0\">\n");
}

void ot_page_fold_end(ot_text_builder *out) { ot_text_put(out, "</div></details>\n"); }

void ot_page_text(ot_text_builder *out, const char *what, const char *text) {
  ot_page_fold(out, what);
  ot_text_put(out, "<pre>");
  ot_markup_text(out, text);
  ot_text_put(out, "</pre>\n");
  ot_page_fold_end(out);
}
