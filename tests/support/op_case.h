// SPDX-License-Identifier: Apache-2.0
// One execution of one op in a test: operands of the given types between canaries; outputs and
// workspace poisoned with NaN before each run; and the checks that every operator must pass. Values
// are read and written as double for every storage type. Failures end the cmocka test.
#pragma once

#include "kernels/kernels.h"
#include "ops/catalog.h"
#include "ops/operands.h"

// Set kind, attributes and the input types (and the types of outputs that the op does not infer:
// accumulators and effects), then call ot_case_create.
typedef struct ot_case {
  ot_op_kind kind;
  ot_op_attributes attributes;
  ot_op_types types;
  uint32_t fixed_inputs;      // bit i: clones keep input i's type (float64 scalars)
  uint32_t statistic_inputs;  // bit i: clones store input i in the compute type (rstd, tables)
  int64_t roundings;          // products that one run adds to a bf16 accumulator; 0: one
  ot_tensor in[OT_MAX_INPUTS];
  ot_tensor out[OT_MAX_OUTPUTS];
} ot_case;

// Infers the outputs, allocates, fills every real input with normal numbers of a fixed seed
// (rounded to bf16, so every storage type holds them exactly) and every integer input with zeros.
// Effects and accumulators start at zero, other outputs at NaN.
void ot_case_create(ot_case *c);
void ot_case_destroy(ot_case *c);

// Poisons the outputs that the op overwrites, runs the kernel and checks all canaries.
void ot_case_run(ot_case *c);

// Runs cases [count] as one launch of a device that takes several calls at once; outputs keep what
// they hold until they are overwritten.
void ot_case_run_joined(ot_case *cases, int count);

// Like ot_case_run, but output 0 shares storage with a copy of input 0; both keep their own memory.
void ot_case_run_in_place(ot_case *c);

// The same with output `output` and input 0.
void ot_case_run_over_first(ot_case *c, int output);

double ot_case_get(const ot_tensor *tensor, int64_t i);
void ot_case_set(const ot_tensor *tensor, int64_t i, double value);
// Sets real element i to scale * normal(stream, i) + shift, rounded to bf16.
void ot_case_fill(const ot_tensor *tensor, uint64_t stream, double scale, double shift);

// Sets element i to ((37 i + 11 stream) mod 29 - 14) / 8, the inputs of fixtures/torch_values.py.
void ot_case_pattern(const ot_tensor *tensor, int64_t stream);

// Fails unless max|tensor - expected| <= tolerance * max(max|expected|, 1e-30); names the operand.
void ot_case_expect(const ot_tensor *tensor, const double *expected, double tolerance,
                    const char *name);

// Copies `from` (created, any state) to another compute type. Real inputs are stored as `storage`
// except those in the two masks; accumulators become `compute`; effects and integers keep their
// type; other outputs are inferred. Values are copied. The caller destroys the clone.
void ot_case_clone(const ot_case *from, ot_dtype compute, ot_dtype storage, ot_case *clone);

// Converts the accumulators of a created case to bf16 and keeps their values. Returns their number.
int ot_case_narrow(ot_case *c);

// Runs clones of a float64 case: in float32 against float64 within tolerance_f32; with real
// operands stored as bf16 within tolerance_bf16; in float32 and float64 with 1, 2, 3 and 8 threads,
// which must agree bit for bit. Tolerances are relative to the largest magnitude of each output. A
// bf16 accumulator, overwritten or added to, must equal the float32 one rounded once, or be as
// close as the roundings of the device's library allow (op_device_has_library).
void ot_case_check_precisions(const ot_case *c, double tolerance_f32, double tolerance_bf16);

// Runs a float64 case and the op's VJP steps for random output gradients. Compares every input and
// parameter gradient with central differences of the forward kernel. Runs each step with and
// without partial, with accumulators both overwritten and added to.
void ot_case_check_gradients(ot_case *c, double step, double tolerance);

// Runs the op in float64, float32 and float32 with storage in bf16, and then each VJP step that can
// write an output of the op again: with the bits of the op, also in place, and without a change of
// its gradients.
void ot_case_check_written_again(const ot_case *c);
