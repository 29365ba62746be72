// SPDX-License-Identifier: Apache-2.0
// The table of placement rules per op kind.
#pragma once

#include "graph/placement.h"
#include "ops/op.h"

enum { OT_MAX_PLACE_ROWS = 5 };

// The rules of one op kind. A rule has one letter per input, '>', and one per output:
//   I R P V   as in placement.h        0 1   sharded along that dimension    . absent
// An absent operand matches any letter. Every axis has one more rule: an op with only I inputs has
// only I outputs. Packed q|k|v and gate|up are sharded along dimension 1 when each of their parts
// is.
typedef struct ot_place_rule {
  bool passes;   // off its own axis, output 0 is placed like input 0, whatever that is
  bool carries;  // output i is placed like input i, or as declared where that is absent
  const char *rows[OT_MAX_PLACE_ROWS];
  const char *own[OT_MAX_PLACE_ROWS];  // on its own axis, instead of `rows`
} ot_place_rule;

// The rule set of `kind`; never null.
const ot_place_rule *ot_place_rule_of(ot_op_kind kind);

// The axis along which `op` communicates or rearranges, or OT_PLACED_AXES for none.
ot_placed_axis ot_place_own_axis(ot_op_kind kind, const ot_op_attributes *attributes);
