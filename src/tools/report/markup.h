// SPDX-License-Identifier: Apache-2.0
// HTML and SVG as text: tags are written unchanged, texts are escaped.
#pragma once

#include "base/text_builder.h"

// Appends `text` with & < > " ' escaped and control characters as blanks.
void ot_markup_text(ot_text_builder *out, const char *text);

// Appends <TAG>text</TAG>, escaped; `tag` may have attributes: "td class=\"n\"".
void ot_markup_element(ot_text_builder *out, const char *tag, const char *text);

// Rows of a table with two columns: a heading cell and a value.
void ot_markup_pair(ot_text_builder *out, const char *name, const char *value);

// A list of texts: "ol" or "ul".
void ot_markup_list(ot_text_builder *out, const char *tag, const char *const *texts, int count);
