// SPDX-License-Identifier: Apache-2.0
// The kernel tables that are linked, one list for each compute type. Looked up when an executor is
// created, never during a step, so a walk is fast enough.
#include "ops/kernels.h"

#include <stddef.h>

#include "ops/linear.h"

// Each table is declared in the header of its operators; a list ends in NULL.
static const ot_kernel_entry *const tables_f32[] = {
    ot_linear_cpu_f32,
    NULL,
};
static const ot_kernel_entry *const tables_f64[] = {
    ot_linear_cpu_f64,
    NULL,
};

ot_kernel ot_kernel_cpu(ot_op_kind kind, ot_dtype compute) {
  if (compute != OT_F32 && compute != OT_F64) return NULL;
  const ot_kernel_entry *const *table = compute == OT_F64 ? tables_f64 : tables_f32;
  for (; *table; table++) {
    for (const ot_kernel_entry *entry = *table; entry->run; entry++) {
      if (entry->kind == kind) return entry->run;
    }
  }
  return NULL;
}
