// SPDX-License-Identifier: Apache-2.0
// Derives the backward ops of a program from the catalog's VJP tables: walks the forward ops in
// reverse and appends, for each, the ops of its input gradients (I) and weight gradients (W).
// Gradients of a value with several uses are accumulated in the order of the walk (last use first).
// This takes one fused op where the VJP accepts a partial sum, otherwise an add.
#pragma once

#include "graph/program.h"

// Extends `program` in place; sets d_output (except for a head) and d_input (except for the first
// block). Gradients of parameters have the dtype `accumulators`. New names are allocated in
// `arena`.
ot_status ot_program_differentiate(ot_program *program, ot_arena *arena, ot_dtype accumulators);

// The gradient accumulator of the parameter value `parameter`, created on first use with `dtype`:
// one per parameter of the block, however often it is used.
int ot_program_accumulator(ot_program *program, ot_arena *arena, int parameter, ot_dtype dtype);
