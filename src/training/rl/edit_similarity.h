// SPDX-License-Identifier: Apache-2.0
// Similarity of two texts, as a reward for an answer close to a gold one, such as a diff (SWE-RL
// 2502.18449): exactly CPython's difflib.SequenceMatcher(None, a, b, autojunk=False).ratio() on
// code points. 2 M / (|a| + |b|), where M is the size of the matching blocks: the longest common
// piece, leftmost in a and then in b, and those of what is left of it and right of it.
#pragma once

#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"

// Bytes of a text.
typedef struct ot_bytes {
  const char *text;  // [bytes]
  int64_t bytes;
} ot_bytes;

enum { OT_SIMILARITY_POINTS = 1 << 15 };  // of a text at most

typedef struct ot_similarity {
  int64_t matches;  // M
  double ratio;     // 0 to 1; 1 for two empty texts
} ot_similarity;

// A byte that is no part of UTF-8 counts as a code point of its own. OT_USAGE if a text is too
// long. Scratch in `arena`. Cost: at most |a| |b| a level.
ot_status ot_similarity_build(ot_bytes a, ot_bytes b, ot_arena *arena, ot_similarity *out);
