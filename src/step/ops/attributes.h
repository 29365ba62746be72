// SPDX-License-Identifier: Apache-2.0
// Reads an op's attributes field by field: the one table of their names, used to hash them (without
// padding bytes) and print them (without zero fields).
#pragma once

#include "base/json_writer.h"
#include "base/text_builder.h"
#include "ops/op.h"

// How `of` is computed (threads, back end, compute type), without what: for another op next to it.
ot_op_attributes ot_op_attributes_like(const ot_op_attributes *of);

uint64_t ot_attributes_hash(uint64_t hash, const ot_op_attributes *attributes);

// Appends " name=value" for each nonzero field except `threads` and `compute`, which are equal for
// a whole schedule and printed once.
void ot_attributes_print(const ot_op_attributes *attributes, ot_text_builder *builder);

// The same fields as members of the currently open object.
void ot_attributes_write_json(const ot_op_attributes *attributes, ot_json_writer *json);
