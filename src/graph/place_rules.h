// SPDX-License-Identifier: Apache-2.0
// The table of what ops do to placements.
#pragma once

#include "graph/placement.h"
#include "ops/op.h"

enum { OT_MAX_PLACE_ROWS = 4 };

// The rows of one op kind. A row is one letter for each input, '>', one for each output:
//   I R P V   as in placement.h        0 1   cut along that dimension        . absent
// An absent operand fits any letter. On every axis there is one row more: what reads only I makes
// only I. Packed q|k|v and gate|up are cut along dimension 1 when each of their parts is.
typedef struct ot_place_rule {
  bool passes;   // off its own axis, output 0 is placed as input 0, whatever that is
  bool carries;  // output i is placed as input i, and as it is said to be where that is absent
  const char *rows[OT_MAX_PLACE_ROWS];
  const char *own[OT_MAX_PLACE_ROWS];  // on its own axis, instead of the others
} ot_place_rule;

// The row set of `kind`; never null.
const ot_place_rule *ot_place_rule_of(ot_op_kind kind);

// The axis along which `op` communicates or rearranges, or OT_PLACED_AXES for none.
ot_placed_axis ot_place_own_axis(ot_op_kind kind, const ot_op_attributes *attributes);
