// SPDX-License-Identifier: Apache-2.0
// Programs as data: append, hash, print.
#include "graph/program.h"

#include "base/text.h"
#include "base/text_builder.h"
#include "ops/attributes.h"
#include "ops/catalog.h"

int ot_program_add_value(ot_program *program, ot_arena *arena, const ot_value *value) {
  program->values = ot_arena_grow(arena, program->values, program->num_values,
                                  &program->values_capacity, sizeof *program->values);
  program->values[program->num_values] = *value;
  return program->num_values++;
}

int ot_program_add_op(ot_program *program, ot_arena *arena, const ot_op *op) {
  program->ops = ot_arena_grow(arena, program->ops, program->num_ops, &program->ops_capacity,
                               sizeof *program->ops);
  program->ops[program->num_ops] = *op;
  return program->num_ops++;
}

static ot_tensor_type type_of(const ot_program *program, int value) {
  return value < 0 ? (ot_tensor_type){0} : program->values[value].type;
}

void ot_program_types(const ot_program *program, const ot_op *op, ot_op_types *types) {
  for (int i = 0; i < OT_MAX_INPUTS; i++) types->in[i] = type_of(program, op->in[i]);
  for (int i = 0; i < OT_MAX_OUTPUTS; i++) types->out[i] = type_of(program, op->out[i]);
}

bool ot_program_reads(const ot_program *program, int value, ot_part part) {
  for (int i = 0; value >= 0 && i < program->num_ops; i++) {
    if (program->ops[i].part != part) continue;
    for (int k = 0; k < OT_MAX_INPUTS; k++) {
      if (program->ops[i].in[k] == value) return true;
    }
  }
  return false;
}

// ---- stack ----

int64_t ot_program_stack_size(const ot_program *program) {
  return program->stack < 0 ? 0 : program->values[program->stack].type.dim[0];
}

int64_t ot_program_stack_end(const ot_program *program) {
  return ot_program_stack_size(program) + program->num_pushed;
}

int64_t ot_program_stack_index(const ot_program *program, int value) {
  const ot_value *const v = &program->values[value];
  const bool gradient = v->kind == OT_VALUE_GRADIENT && v->index == program->stack;
  if (program->stack >= 0 && (value == program->stack || gradient)) return 0;
  for (int i = 0; i < program->num_pushed; i++) {
    const bool there = value == program->pushed[i] || value == program->d_pushed[i];
    if (there) return ot_program_stack_size(program) + i;
  }
  return -1;
}

bool ot_program_enters_backwards(const ot_program *program, int value) {
  for (int i = 0; i < program->num_pushed; i++) {
    if (value == program->d_pushed[i]) return true;
  }
  return value == program->d_output || value == program->d_stack;
}

bool ot_program_is_pushed(const ot_program *program, int value) {
  for (int i = 0; i < program->num_pushed; i++) {
    if (value == program->pushed[i]) return true;
  }
  return false;
}

int ot_program_repeat_of(const ot_program *program, int op) {
  for (int i = op - 1; i >= 0; i--) {
    if (program->ops[i].kind != OT_OP_REPEAT) continue;
    return op - i <= program->ops[i].attributes.repeated ? i : -1;
  }
  return -1;
}

// ---- hash and print ----

static uint64_t hash_type(uint64_t hash, const ot_tensor_type *type) {
  const int64_t fields[] = {type->dtype,  type->rank,   type->dim[0],
                            type->dim[1], type->dim[2], type->dim[3]};
  return ot_hash_bytes(hash, fields, sizeof fields);
}

uint64_t ot_program_hash(const ot_program *program) {
  uint64_t hash = OT_HASH_START;
  for (int i = 0; i < program->num_values; i++) {
    const ot_value *const value = &program->values[i];
    const int64_t fields[] = {value->kind, value->index, value->first};
    hash = ot_hash_text(hash_type(ot_hash_bytes(hash, fields, sizeof fields), &value->type),
                        value->name);
  }
  for (int i = 0; i < program->num_ops; i++) {
    const ot_op *const op = &program->ops[i];
    const int32_t head[] = {(int32_t)op->kind, (int32_t)op->part};
    hash = ot_hash_bytes(hash, head, sizeof head);
    hash = ot_attributes_hash(hash, &op->attributes);
    hash = ot_hash_bytes(hash, op->in, sizeof op->in);
    hash = ot_hash_bytes(hash, op->out, sizeof op->out);
  }
  const int32_t ends[] = {program->input, program->output, program->d_output, program->d_input};
  hash = ot_hash_bytes(hash, ends, sizeof ends);
  for (int i = 0; i < program->num_pushed; i++) {
    const int32_t pushed[] = {program->pushed[i], program->d_pushed[i]};
    hash = ot_hash_bytes(hash, pushed, sizeof pushed);
  }
  const int32_t stack[] = {program->stack, program->d_stack};
  return ot_hash_bytes(hash, stack, sizeof stack);
}

static const char *value_name(const ot_program *program, int value) {
  return value < 0 ? "-" : program->values[value].name;
}

const char *ot_part_name(ot_part part) {
  static const char *const names[] = {"F", "I", "W"};
  return names[part];
}

const char *ot_program_print(const ot_program *program, ot_arena *arena) {
  ot_text_builder text = {.arena = arena};
  ot_text_appendf(&text, "program %s\n", program->name);
  for (int i = 0; i < program->num_ops; i++) {
    const ot_op *const op = &program->ops[i];
    const ot_op_info *const info = ot_op_info_of(op->kind);
    const bool repeated = ot_program_repeat_of(program, i) >= 0;
    ot_text_appendf(&text, repeated ? "  %s | %-14s" : "  %s %-16s", ot_part_name(op->part),
                    info->name);
    for (int k = 0; k < info->num_inputs; k++) {
      ot_text_appendf(&text, " %s", value_name(program, op->in[k]));
    }
    ot_text_appendf(&text, " ->");
    for (int k = 0; k < info->num_outputs; k++) {
      ot_text_appendf(&text, " %s", value_name(program, op->out[k]));
    }
    ot_attributes_print(&op->attributes, &text);
    ot_text_appendf(&text, "\n");
  }
  return ot_text_builder_text(&text);
}
