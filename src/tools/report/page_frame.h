// SPDX-License-Identifier: Apache-2.0
// The frame that all pages share: head with the style, navigation, sections, tiles.
#pragma once

#include <stdbool.h>

#include "base/text_builder.h"

// The style sheet in parts, null after the last: for wide and narrow screens, and print; and of
// charts, on a page or as a file.
extern const char *const ot_page_style[], *const ot_chart_style[];

// The colours of both, "--NAME:VALUE;...". Colour-blind readers can tell those of terms apart.
extern const char ot_colours_light[], ot_colours_dark[];

// From the beginning to the end of the page's header: `heading`, and `text` below it.
void ot_page_begin(ot_text_builder *out, const char *title, const char *heading, const char *text);

// A link of the navigation, between ot_page_navigation(out, true) and (out, false).
void ot_page_navigation(ot_text_builder *out, bool begins);
void ot_page_link(ot_text_builder *out, const char *id, const char *name);

// `reading` says how to read it; null: nothing to say.
void ot_page_section(ot_text_builder *out, const char *id, const char *title, const char *reading);
void ot_page_section_end(ot_text_builder *out);

// A large figure and what it is, inside <div class="tiles">.
void ot_page_tile(ot_text_builder *out, const char *figure, const char *what);

// A table that is unfolded by a click on `what`.
void ot_page_fold(ot_text_builder *out, const char *what);
void ot_page_fold_end(ot_text_builder *out);

// Lines of text that are unfolded in the same way, as they are printed.
void ot_page_text(ot_text_builder *out, const char *what, const char *text);
