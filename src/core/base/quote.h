// SPDX-License-Identifier: Apache-2.0
// Texts from files and options inside what is written: one function for each syntax, so that no
// name, path or line break becomes a command, a key or another value. Each appends to `out`.
#pragma once

#include "base/text_builder.h"

// One word of a POSIX shell, as it is where a shell would leave it alone, else in '...'. All bytes
// survive, line breaks too.
void ot_quote_shell(ot_text_builder *out, const char *word);

// The rest of a line after "# " or "// ". What ends a line in any syntax, other control characters,
// marks that reverse the direction of text, and bytes that are not UTF-8 become '?'.
void ot_quote_comment(ot_text_builder *out, const char *text);

// A whole line of a comment that begins with "# ".
void ot_quote_comment_line(ot_text_builder *out, const char *text);

// A scalar of YAML that is this text in versions 1.1 and 1.2, in every context.
void ot_quote_yaml(ot_text_builder *out, const char *text);

// A string in "...", the same for JSON, TOML and YAML. U+FFFD for each byte that is not UTF-8.
void ot_quote_string(ot_text_builder *out, const char *text);
