// SPDX-License-Identifier: Apache-2.0
// Reading an op's attributes field by field: the one table of their names, from which they are
// hashed (padding never counts) and printed (fields that are zero are left out).
#pragma once

#include "base/json_writer.h"
#include "base/text_builder.h"
#include "ops/op.h"

uint64_t ot_attributes_hash(uint64_t hash, const ot_op_attributes *attributes);

// Appends " name=value" for each field that is not zero, `threads` and `compute` left out: they are
// the same for a whole schedule, which prints them once.
void ot_attributes_print(const ot_op_attributes *attributes, ot_text_builder *builder);

// The same fields as members of the object that is open.
void ot_attributes_write_json(const ot_op_attributes *attributes, ot_json_writer *json);
