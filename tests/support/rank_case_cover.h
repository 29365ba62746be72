// SPDX-License-Identifier: Apache-2.0
// Pairwise covering arrays under constraints: rows of choices such that any two levels of any two
// factors that can go together do so in some row. Greedy, row by row (Cohen et al. 1997, "The AETG
// system"), without randomness: the same request gives the same rows everywhere.
#pragma once

#include <stdbool.h>

#include "base/arena.h"

enum { COVER_FACTORS = 24, COVER_LEVELS = 64 };

// One choice: index of a level for each factor, -1 where it is still open.
typedef struct cover_row {
  int level[COVER_FACTORS];
} cover_row;

// True unless no row that agrees with `row` where it is closed can be. May say true too often for
// rows with open factors, never false, and must be exact for closed ones.
typedef bool (*cover_rule)(const cover_row *row);

typedef struct cover_request {
  int num_factors;
  const int *levels;  // [num_factors] number of levels of each, up to COVER_LEVELS
  cover_rule fits;
  int num_given;
  const cover_row *given;  // [num_given] rows that must be there, as far as they are closed
} cover_request;

typedef struct cover_array {
  int num_rows;
  cover_row *rows;  // [num_rows] closed; the given ones first
  int pairs;        // of levels of two factors that some row can have
  int covered;      // of those, by the rows
  int impossible;   // pairs that no row can have
} cover_array;

// Closes `row`, its open factors in turn `turn`. False when that cannot be.
bool cover_close(const cover_request *request, int turn, cover_row *row);

void cover_build(const cover_request *request, ot_arena *arena, cover_array *out);
