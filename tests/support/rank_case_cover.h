// SPDX-License-Identifier: Apache-2.0
// Pairwise covering arrays under constraints: every compatible pair of levels of two factors occurs
// in some row. Greedy, row by row (Cohen et al. 1997, "The AETG system"), without randomness: the
// same request gives the same rows on every machine.
#pragma once

#include <stdbool.h>

#include "base/arena.h"

enum { COVER_FACTORS = 24, COVER_LEVELS = 64 };

// One row: index of a level for each factor, -1 if still open.
typedef struct cover_row {
  int level[COVER_FACTORS];
} cover_row;

// False only if no valid row agrees with the closed factors of `row`. May return true wrongly for
// rows with open factors; must be exact for closed rows.
typedef bool (*cover_rule)(const cover_row *row);

typedef struct cover_request {
  int num_factors;
  const int *levels;  // [num_factors] number of levels of each, up to COVER_LEVELS
  cover_rule fits;
  int num_given;
  const cover_row *given;  // [num_given] required rows, as far as they are closed
} cover_request;

typedef struct cover_array {
  int num_rows;
  cover_row *rows;  // [num_rows] closed; the given ones first
  int pairs;        // pairs of levels of two factors that some row can contain
  int covered;      // pairs that the rows contain
  int impossible;   // pairs that no row can contain
} cover_array;

// Closes `row`; `turn` selects among equal choices for its open factors. False if impossible.
bool cover_close(const cover_request *request, int turn, cover_row *row);

void cover_build(const cover_request *request, ot_arena *arena, cover_array *out);
