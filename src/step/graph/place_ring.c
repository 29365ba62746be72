// SPDX-License-Identifier: Apache-2.0
// One pass over the ops; counts hops and processed blocks of each value.
#include "graph/place_ring.h"

#include "ops/catalog.h"

// State of a value: the rank that it comes from and what it includes.
typedef struct ring_state {
  int hops;  // of keys, or of gradients of keys
  int met;   // blocks included in a sum, 0 when it is complete; for gradients of keys also when
             // complete
} ring_state;

typedef struct ring {
  const ot_program *program;
  ring_state *travels;  // [values of the program]
} ring;

static ring_state of(const ring *r, int value) {
  return value < 0 ? (ring_state){0} : r->travels[value];
}

static void set(ring *r, int value, ring_state t) {
  if (value >= 0) r->travels[value] = t;
}

static const char *name_of(const ring *r, int value) { return r->program->values[value].name; }

// The keys that a block reads as number `met` must come from the rank that many places back.
static ot_status check_keys(const ring *r, const ot_op *op, int keys, int met) {
  const ot_op_attributes *const a = &op->attributes;
  const int hops = of(r, keys).hops;
  OT_CHECK(a->context_size > 1 && hops < a->context_size, OT_BUG,
           "program %s: op %s reads %s after %d hops around %d ranks", r->program->name,
           ot_op_info_of(op->kind)->name, name_of(r, keys), hops, a->context_size);
  const int from = (a->context_index + a->context_size - hops) % a->context_size;
  OT_CHECK(from == a->key_index, OT_BUG,
           "program %s: op %s reads %s as the keys of rank %d, but they are those of rank %d",
           r->program->name, ot_op_info_of(op->kind)->name, name_of(r, keys), a->key_index, from);
  OT_CHECK(hops == met, OT_BUG,
           "program %s: op %s reads %s as block %d, but they have made %d hops", r->program->name,
           ot_op_info_of(op->kind)->name, name_of(r, keys), met, hops);
  return OT_OK;
}

// A sum over all blocks is an ordinary value.
static ring_state with_one_more(const ot_op *op, ring_state before) {
  const int met = before.met + 1;
  return (ring_state){.met = met < op->attributes.context_size ? met : 0};
}

static ot_status check_whole(const ring *r, const ot_op *op, int value) {
  OT_CHECK(of(r, value).met == 0, OT_BUG,
           "program %s: op %s reads %s, which includes only %d blocks", r->program->name,
           ot_op_info_of(op->kind)->name, name_of(r, value), of(r, value).met);
  return OT_OK;
}

static ot_status visit_block(ring *r, const ot_op *op) {
  enum { KEYS = 1, O_BEFORE = 4, LSE_BEFORE = 5 };
  const ring_state before = of(r, op->in[O_BEFORE]);
  OT_TRY(check_keys(r, op, op->in[KEYS], before.met));
  OT_CHECK(of(r, op->in[LSE_BEFORE]).met == before.met, OT_BUG,
           "program %s: op %s merges %s and %s of different steps", r->program->name,
           ot_op_info_of(op->kind)->name, name_of(r, op->in[O_BEFORE]),
           name_of(r, op->in[LSE_BEFORE]));
  set(r, op->out[0], with_one_more(op, before));
  set(r, op->out[1], with_one_more(op, before));
  return OT_OK;
}

static ot_status visit_block_grad(ring *r, const ot_op *op) {
  enum { KEYS = 2, O = 5, LSE = 6, DQ_BEFORE = 7, DKV_BEFORE = 8 };
  const ring_state keys = of(r, op->in[KEYS]);
  const ring_state dq = of(r, op->in[DQ_BEFORE]);
  const ring_state dkv = of(r, op->in[DKV_BEFORE]);
  OT_TRY(check_whole(r, op, op->in[O]));
  OT_TRY(check_whole(r, op, op->in[LSE]));
  OT_TRY(check_keys(r, op, op->in[KEYS], dq.met));
  OT_CHECK(dkv.hops == keys.hops && dkv.met == keys.hops, OT_BUG,
           "program %s: op %s adds to gradients of keys after %d hops and %d blocks, the keys have "
           "made %d",
           r->program->name, ot_op_info_of(op->kind)->name, dkv.hops, dkv.met, keys.hops);
  set(r, op->out[0], with_one_more(op, dq));
  set(r, op->out[1], (ring_state){.hops = keys.hops, .met = dkv.met + 1});
  return OT_OK;
}

static ot_status visit_join(ring *r, const ot_op *op) {
  const ring_state dkv = of(r, op->in[1]);
  const int size = op->attributes.context_size;
  OT_TRY(check_whole(r, op, op->in[0]));
  OT_CHECK(dkv.met == size && dkv.hops == size, OT_BUG,
           "program %s: %s has %d hops and %d blocks, expected %d of each", r->program->name,
           name_of(r, op->in[1]), dkv.hops, dkv.met, size);
  return OT_OK;
}

static ot_status visit(ring *r, const ot_op *op) {
  switch (op->kind) {
    case OT_OP_ATTENTION_BLOCK:
      return visit_block(r, op);
    case OT_OP_ATTENTION_BLOCK_GRAD:
      return visit_block_grad(r, op);
    case OT_OP_QKV_JOIN:
      return visit_join(r, op);
    case OT_OP_SHIFT: {
      const ring_state t = of(r, op->in[0]);
      set(r, op->out[0], (ring_state){.hops = t.hops + 1, .met = t.met});
      return OT_OK;
    }
    default:
      break;
  }
  for (int i = 0; i < OT_MAX_INPUTS; i++) {
    if (op->in[i] >= 0) OT_TRY(check_whole(r, op, op->in[i]));
  }
  return OT_OK;
}

ot_status ot_place_ring_check(const ot_program *program, ot_arena *scratch) {
  ring r = {program, ot_arena_array(scratch, program->num_values, sizeof *r.travels)};
  for (int i = 0; i < program->num_ops; i++) OT_TRY(visit(&r, &program->ops[i]));
  return OT_OK;
}
