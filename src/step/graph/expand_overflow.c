// SPDX-License-Identifier: Apache-2.0
// Overflow passes as a loop. The body is one pass: tokens are permuted for sending, received and
// processed by the experts; the results are sent back or added to the weight gradients.
#include "graph/expand_overflow.h"

#include "graph/emit.h"

typedef struct rounds {
  ot_program *program;
  ot_arena *arena;
  ot_op op;                   // the composite
  ot_op_attributes as, rows;  // of this rank's experts; of all the rows that it sends
  int repeat;                 // the op
  int offsets, runs[2];       // of the pass
  int here, gates;            // rows received
  ot_status status;
} rounds;

// Inputs of a pass; -1 for unused ones.
typedef struct sources {
  int counts, rounds, up, down;
  int tokens, token_gates, place;
  int bias;
} sources;

static ot_op emit(rounds *r, ot_op_description description) {
  ot_op made = {.out = {-1, -1, -1, -1, -1}};
  if (r->status != OT_OK) return made;
  r->status = ot_program_emit(r->program, r->arena, r->op.part, &description, &made);
  return made;
}

static void begin(rounds *r, ot_program *program, ot_arena *arena, const ot_op *op) {
  *r = (rounds){.program = program, .arena = arena, .op = *op, .as = op->attributes};
  r->rows = r->as;
  r->rows.held_experts = r->rows.exchange_rows = 0;
  r->rows.group = (ot_group_kind)0;
  r->rows.group_size = r->rows.group_index = 0;
}

// Opens the loop, with buffers carried in or new ones as output. The plan of the pass is the first
// op of the body.
static void open(rounds *r, const sources *s, const int *carried, const int *filled) {
  const ot_op_attributes plain = {
      .threads = r->as.threads, .compute = r->as.compute, .repeated = 1};
  const int out[OT_MAX_OUTPUTS] = {filled[0], filled[1], -1, -1, -1};
  const ot_op repeat = emit(
      r, (ot_op_description){
             OT_OP_REPEAT, &plain, "experts.round", 3, {carried[0], carried[1], s->rounds}, out});
  r->repeat = r->program->num_ops - 1;
  const ot_op plan = emit(r, (ot_op_description){OT_OP_ALL_TO_ALL_V_PLAN,
                                                 &r->as,
                                                 "experts.round_home",
                                                 2,
                                                 {s->counts, repeat.out[2]},
                                                 NULL});
  r->runs[0] = plan.out[0];
  r->runs[1] = plan.out[1];
  r->offsets = plan.out[2];
}

static void close(rounds *r) {
  if (r->status != OT_OK) return;
  r->program->ops[r->repeat].attributes.repeated = r->program->num_ops - 1 - r->repeat;
}

static int exchange(rounds *r, const char *name, int rows) {
  return emit(r,
              (ot_op_description){
                  OT_OP_ALL_TO_ALL_V, &r->as, name, 3, {rows, r->runs[0], r->runs[1]}, NULL})
      .out[0];
}

// Sends `rows` back to their source positions in `home`, which is initialised already.
static void send_back(rounds *r, int rows, int home) {
  ot_op_attributes filling = r->as;
  filling.accumulate = true;
  const int out[OT_MAX_OUTPUTS] = {home, -1, -1, -1, -1};
  emit(r, (ot_op_description){
              OT_OP_ALL_TO_ALL_V_BACK, &filling, NULL, 4, {-1, rows, r->runs[0], r->runs[1]}, out});
}

static int grouped(rounds *r, ot_op_kind kind, const char *name, int rows, int weight) {
  return emit(r, (ot_op_description){kind, &r->as, name, 3, {rows, weight, r->offsets}, NULL})
      .out[0];
}

// gate|up of the received rows.
static int up_projection(rounds *r, const sources *s) {
  return emit(r, (ot_op_description){OT_OP_GROUPED_LINEAR,
                                     &r->as,
                                     "experts.round_wide",
                                     4,
                                     {r->here, s->up, r->offsets, s->bias},
                                     NULL})
      .out[0];
}

static int activate(rounds *r, int wide) {
  return emit(r,
              (ot_op_description){
                  OT_OP_GLU, &r->as, "experts.round_active", 3, {wide, r->gates, r->offsets}, NULL})
      .out[0];
}

// The rows of the pass and their gates; dispatched again from the tokens where they are not given.
static void receive(rounds *r, const sources *s, int rows, int gates) {
  if (rows < 0) {
    const ot_op made = emit(r, (ot_op_description){OT_OP_DISPATCH,
                                                   &r->rows,
                                                   "experts.round_rows",
                                                   4,
                                                   {s->tokens, s->token_gates, s->place, -1},
                                                   NULL});
    rows = made.out[0];
    gates = made.out[1];
  }
  r->here = exchange(r, "experts.round_here", rows);
  r->gates = exchange(r, "experts.round_gates", gates);
}

// ---- forward ----

static void expand_forward(rounds *r) {
  const int *const in = r->op.in;
  const sources s = {.counts = in[2], .rounds = in[3], .up = in[4], .down = in[5], .bias = in[9]};
  open(r, &s, (int[]){-1, -1}, (int[]){r->op.out[0], -1});
  receive(r, &s, in[0], in[1]);
  const int wide = up_projection(r, &s);
  const int out = grouped(r, OT_OP_GROUPED_LINEAR, "experts.round_out", activate(r, wide), s.down);
  send_back(r, out, r->op.out[0]);
}

// ---- backward ----

// Gradients of the intermediate values of one pass.
typedef struct pass_gradients {
  int d_out, wide, d_active, d_wide, d_gates;
} pass_gradients;

static pass_gradients turn_back(rounds *r, const sources *s, int d_home) {
  pass_gradients d = {.d_out = exchange(r, "experts.round_d_out", d_home)};
  d.wide = up_projection(r, s);
  d.d_active = grouped(r, OT_OP_GROUPED_LINEAR_DX, "experts.round_d_active", d.d_out, s->down);
  const ot_op made = emit(r, (ot_op_description){OT_OP_GLU_GRAD,
                                                 &r->as,
                                                 "experts.round_d_wide",
                                                 4,
                                                 {d.d_active, d.wide, r->gates, r->offsets},
                                                 NULL});
  d.d_wide = made.out[0];
  d.d_gates = made.out[1];
  return d;
}

static void expand_dx(rounds *r) {
  const int *const in = r->op.in;
  const sources s = {in[3], in[4], in[5], in[6], in[7], in[8], in[9], in[10]};
  open(r, &s, in, r->op.out);
  receive(r, &s, -1, -1);
  const pass_gradients d = turn_back(r, &s, in[2]);
  send_back(r, grouped(r, OT_OP_GROUPED_LINEAR_DX, "experts.round_d_here", d.d_wide, s.up),
            r->op.out[0]);
  send_back(r, d.d_gates, r->op.out[1]);
}

static void add_to_weight(rounds *r, int dy, int x, const int *accumulators) {
  const int out[OT_MAX_OUTPUTS] = {accumulators[0], accumulators[1], -1, -1, -1};
  emit(r, (ot_op_description){OT_OP_GROUPED_LINEAR_DW, &r->as, NULL, 3, {dy, x, r->offsets}, out});
}

static void expand_dw(rounds *r) {
  const int *const in = r->op.in;
  const sources s = {in[1], in[2], in[3], in[4], in[5], in[6], in[7], in[8]};
  open(r, &s, (int[]){-1, -1}, (int[]){-1, -1});
  receive(r, &s, -1, -1);
  const pass_gradients d = turn_back(r, &s, in[0]);
  const int *const out = r->op.out;
  add_to_weight(r, d.d_out, activate(r, d.wide), (int[]){out[1], -1});
  add_to_weight(r, d.d_wide, r->here, (int[]){out[0], out[2]});
}

ot_status ot_expand_overflow_passes(ot_program *program, ot_arena *arena, const ot_op *op) {
  rounds r;
  begin(&r, program, arena, op);
  if (op->kind == OT_OP_OVERFLOW_PASSES) expand_forward(&r);
  if (op->kind == OT_OP_OVERFLOW_PASSES_DX) expand_dx(&r);
  if (op->kind == OT_OP_OVERFLOW_PASSES_DW) expand_dw(&r);
  close(&r);
  return r.status;
}
