// SPDX-License-Identifier: Apache-2.0
// Rows of parameters through the instance, whatever the layout of its arena.
#include "runtime/weights_instance.h"

typedef struct instance_copy {
  ot_instance *instance;
  ot_parameter_copy copy;
} instance_copy;

static ot_status read_copy(void *context, const ot_weight_piece *rows, void *to) {
  const instance_copy *const c = context;
  const ot_parameter_rows range = {rows->parameter, c->copy, rows->first_row, rows->rows};
  return ot_instance_lead_read(c->instance, &range, to);
}

static void write_copy(void *context, const ot_weight_piece *rows, const void *from) {
  const instance_copy *const c = context;
  const ot_parameter_rows range = {rows->parameter, c->copy, rows->first_row, rows->rows};
  ot_instance_write(c->instance, &range, from);
}

// On another stage of a pipeline, nothing.
static bool holds(void *context, const ot_weight_piece *rows) {
  const instance_copy *const c = context;
  const int block = ot_instance_whole(c->instance)->parameters[rows->parameter].block;
  return ot_instance_held(c->instance, block, c->copy).count > 0;
}

ot_weight_access ot_weight_access_of(ot_arena *arena, ot_instance *instance,
                                     ot_parameter_copy copy) {
  instance_copy *const context = ot_arena_take(arena, sizeof *context);
  *context = (instance_copy){instance, copy};
  return (ot_weight_access){.dtype = ot_instance_copy_dtype(instance, copy),
                            .read = read_copy,
                            .write = write_copy,
                            .context = context,
                            .holds = holds};
}
