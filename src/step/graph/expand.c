// SPDX-License-Identifier: Apache-2.0
// Ring attention and norms over sharded rows, forward and backward.
#include "graph/expand.h"

#include "graph/emit.h"
#include "graph/expand_overflow.h"
#include "graph/place.h"
#include "ops/attributes.h"

typedef struct expansion {
  ot_program *program;
  ot_arena *arena;
  ot_op op;          // the composite
  const char *name;  // of its output
  ot_op_attributes plain, travel;
  int keys;  // the keys held now
  ot_status status;
} expansion;

static bool is_rounds(const ot_op *op) {
  return op->kind == OT_OP_OVERFLOW_PASSES || op->kind == OT_OP_OVERFLOW_PASSES_DX ||
         op->kind == OT_OP_OVERFLOW_PASSES_DW;
}

static bool is_norm(const ot_op *op) {
  return op->kind == OT_OP_HEAD_NORM || op->kind == OT_OP_HEAD_NORM_GRAD;
}

bool ot_op_is_composite(const ot_op *op) {
  const bool attention = op->kind == OT_OP_ATTENTION || op->kind == OT_OP_ATTENTION_GRAD;
  return ((attention || is_norm(op)) && op->attributes.group_size > 1) || is_rounds(op);
}

static int emit(expansion *e, const ot_op_description *description, ot_op *made) {
  if (e->status != OT_OK) return -1;
  e->status = ot_program_emit(e->program, e->arena, e->op.part, description, made);
  return e->status == OT_OK ? made->out[0] : -1;
}

static const char *step_name(const expansion *e, const char *what, int step) {
  return ot_arena_format(e->arena, "%s.%s.%d", e->name, what, step);
}

static void begin(expansion *e) {
  const int value = e->op.out[0];
  e->name = e->program->values[value].name;
  e->plain = e->op.attributes;
  e->plain.group = (ot_group_kind)0;
  e->plain.group_size = e->plain.group_index = 0;
  e->travel = ot_op_attributes_like(&e->op.attributes);
  e->travel.sequence_length = e->plain.sequence_length;
  e->travel.group = e->op.attributes.group;
  e->travel.group_size = e->op.attributes.group_size;
  e->travel.group_index = e->op.attributes.group_index;
}

static void slice_keys(expansion *e, int qkv) {
  ot_op made;
  e->keys = emit(
      e, &(ot_op_description){OT_OP_KV_SLICE, &e->plain, step_name(e, "keys", 0), 1, {qkv}, NULL},
      &made);
}

static int shift(expansion *e, const char *what, int step, int x) {
  ot_op made;
  return emit(e,
              &(ot_op_description){OT_OP_SHIFT, &e->travel, step_name(e, what, step), 1, {x}, NULL},
              &made);
}

// Attributes of the attention block after `hops` hops.
static ot_op_attributes block_attributes(const expansion *e, int hops) {
  ot_op_attributes attributes = e->plain;
  const int c = attributes.context_size;
  attributes.key_index = (attributes.context_index + c - hops) % c;
  return attributes;
}

// ---- norms over sharded rows ----

// Means over whole rows: each rank's contribution, all-reduced.
static int whole_means(expansion *e, const int in[5]) {
  ot_op made;
  const int part = emit(e,
                        &(ot_op_description){OT_OP_HEAD_MEANS,
                                             &e->op.attributes,
                                             step_name(e, "means", 0),
                                             5,
                                             {in[0], in[1], in[2], in[3], in[4]},
                                             NULL},
                        &made);
  return emit(
      e,
      &(ot_op_description){OT_OP_ALL_REDUCE, &e->travel, step_name(e, "means", 1), 1, {part}, NULL},
      &made);
}

static void expand_norm(expansion *e) {
  const int *const in = e->op.in;  // qkv, wq, wk
  ot_op made;
  begin(e);
  const int means = whole_means(e, (int[]){in[0], -1, -1, -1, -1});
  emit(e,
       &(ot_op_description){
           OT_OP_HEAD_NORM, &e->plain, e->name, 4, {in[0], in[1], in[2], means}, e->op.out},
       &made);
}

static void expand_norm_grad(expansion *e) {
  const int *const in = e->op.in;  // dy, qkv, wq, wk, rstd
  ot_op made;
  begin(e);
  const int means = whole_means(e, (int[]){in[1], in[0], in[2], in[3], in[4]});
  emit(e,
       &(ot_op_description){OT_OP_HEAD_NORM_GRAD,
                            &e->plain,
                            e->name,
                            6,
                            {in[0], in[1], in[2], in[3], in[4], means},
                            e->op.out},
       &made);
}

// ---- forward ----

static void expand_attention(expansion *e) {
  const ot_op *const op = &e->op;
  const int c = op->attributes.context_size;
  const ot_dtype stored = e->program->values[op->out[0]].type.dtype;
  const bool narrows = stored != op->attributes.compute;
  ot_op block = {.out = {-1, -1}};
  begin(e);
  slice_keys(e, op->in[0]);
  for (int j = 0; j < c && e->status == OT_OK; j++) {
    const int next = j + 1 < c ? shift(e, "keys", j + 1, e->keys) : -1;
    const ot_op_attributes attributes = block_attributes(e, j);
    const bool last = j + 1 == c;
    const int out[OT_MAX_OUTPUTS] = {last && !narrows ? op->out[0] : -1, last ? op->out[1] : -1,
                                     op->out[2], -1, -1};
    emit(e,
         &(ot_op_description){OT_OP_ATTENTION_BLOCK,
                              &attributes,
                              step_name(e, "block", j),
                              7,
                              {op->in[0], e->keys, op->in[1], op->in[2], block.out[0], block.out[1],
                               j == 0 ? op->in[3] : -1},
                              out},
         &block);
    e->keys = next;
  }
  if (!narrows) return;
  const int out[OT_MAX_OUTPUTS] = {op->out[0], -1, -1, -1, -1};
  ot_op made;
  emit(e, &(ot_op_description){OT_OP_CAST, &e->plain, e->name, 1, {block.out[0]}, out}, &made);
}

// ---- backward ----

static void expand_attention_grad(expansion *e) {
  const ot_op *const op = &e->op;
  const int c = op->attributes.context_size;
  const int *const in = op->in;  // do, qkv, doc_start, sample_ids, o, lse
  ot_op block = {.out = {-1, -1}};
  begin(e);
  slice_keys(e, in[1]);
  for (int j = 0; j < c && e->status == OT_OK; j++) {
    const int next = j + 1 < c ? shift(e, "keys", j + 1, e->keys) : -1;
    const int dkv = j > 0 ? shift(e, "d_keys", j, block.out[1]) : -1;
    const ot_op_attributes attributes = block_attributes(e, j);
    emit(
        e,
        &(ot_op_description){OT_OP_ATTENTION_BLOCK_GRAD,
                             &attributes,
                             step_name(e, "block", j),
                             9,
                             {in[0], in[1], e->keys, in[2], in[3], in[4], in[5], block.out[0], dkv},
                             NULL},
        &block);
    e->keys = next;
  }
  const int home = shift(e, "d_keys", c, block.out[1]);
  ot_op made;
  emit(e,
       &(ot_op_description){OT_OP_QKV_JOIN, &e->plain, e->name, 2, {block.out[0], home}, op->out},
       &made);
}

static ot_status expand_over_group(ot_program *program, ot_arena *arena, const ot_op *op) {
  expansion e = {.program = program, .arena = arena, .op = *op};
  if (op->kind == OT_OP_ATTENTION) expand_attention(&e);
  if (op->kind == OT_OP_ATTENTION_GRAD) expand_attention_grad(&e);
  if (op->kind == OT_OP_HEAD_NORM) expand_norm(&e);
  if (op->kind == OT_OP_HEAD_NORM_GRAD) expand_norm_grad(&e);
  return e.status;
}

ot_status ot_program_expand(ot_program *program, ot_arena *arena) {
  const ot_op *const ops = program->ops;
  const int num_ops = program->num_ops;
  program->ops = NULL;
  program->num_ops = 0;
  program->ops_capacity = 0;
  for (int i = 0; i < num_ops; i++) {
    if (!ot_op_is_composite(&ops[i])) {
      ot_program_add_op(program, arena, &ops[i]);
      continue;
    }
    program->modules = ops[i].modules;
    if (is_rounds(&ops[i])) {
      OT_TRY(ot_expand_overflow_passes(program, arena, &ops[i]));
    } else {
      OT_TRY(expand_over_group(program, arena, &ops[i]));
    }
  }
  return OT_OK;
}
