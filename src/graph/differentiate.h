// SPDX-License-Identifier: Apache-2.0
// Derives the backward ops of a program from the catalog's VJP tables: walks the forward ops in
// reverse and appends, for each, the ops of its input gradients (I) and weight gradients (W).
// Gradients of a value with several uses add up in the order in which the uses are met (last
// first), in one fused op where the VJP takes a partial sum, by an add where it does not.
#pragma once

#include "graph/program.h"

// Extends `program` in place; sets d_output (unless it is a head) and d_input (unless it is the
// first block). Gradients of parameters are stored in the type `accumulators`. New names are made
// in `arena`.
ot_status ot_program_differentiate(ot_program *program, ot_arena *arena, ot_dtype accumulators);

// The gradient accumulator of the parameter value `parameter`, made on first use with `dtype`: one
// for each parameter of the block, whatever the number of its uses.
int ot_program_accumulator(ot_program *program, ot_arena *arena, int parameter, ot_dtype dtype);
