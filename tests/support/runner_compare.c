// SPDX-License-Identifier: Apache-2.0
// Assembles tensors of all ranks as their placements say, and compares two runs.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/text.h"
#include "describe/groups.h"
#include "support/runner_state.h"

static void expect_close(const char *what, const double *a, const double *b, int64_t n,
                         double tolerance) {
  double largest = 1e-30, worst = 0;
  int64_t where = 0;
  for (int64_t i = 0; i < n; i++) {
    largest = fmax(largest, fabs(a[i]));
    const double error = fabs(a[i] - b[i]);
    if (error <= worst) continue;
    worst = isnan(error) ? INFINITY : error;
    where = i;
  }
  bool numbers = true;
  for (int64_t i = 0; i < n; i++) numbers = numbers && !isnan(a[i]) && !isnan(b[i]);
  if (numbers && worst <= tolerance * largest) return;
  fail_msg("%s[%lld]: whole %.17g, split %.17g (%.3g of the largest)", what, (long long)where,
           a[where], b[where], worst / largest);
}

// ---- hidden states ----

// The boundary value `which` (output, or its gradient) of `block`, [B*T, C].
static double *whole_rows(runner *r, int block, bool gradient) {
  const int64_t C = r->request.model->hidden_size;
  const int64_t T = r->request.sequence_length;
  const int64_t t = T / r->request.cp;
  double *const rows =
      ot_arena_array(&r->arena, r->request.micro_batch_size * T * C, sizeof(double));
  for (int i = 0; i < r->ranks; i++) {
    const runner_rank *const rank = &r->rank[i];
    const ot_program *const program = runner_program(rank, block);
    const int value = gradient ? program->d_output : program->output;
    const ot_tensor tensor = {rank->value[block][value], program->values[value].type};
    const int64_t own = tensor.type.dim[0];
    for (int64_t k = 0; k < own * C; k++) {
      const int64_t row = i % r->request.tp * own + k / C;
      const int64_t place = row / t * T + runner_place(r, i, row % t);
      rows[place * C + k % C] = ot_case_get(&tensor, k);
    }
  }
  return rows;
}

// ---- gradients of HF tensors ----

typedef struct hf_tensor {
  const char *name;
  int64_t rows, cols;
  double *gradient;
  bool *covered;
} hf_tensor;

typedef struct hf_set {
  ot_arena *arena;
  int count;
  hf_tensor tensor[256];
} hf_set;

static hf_tensor *find_tensor(hf_set *set, const ot_parameter_part *part) {
  for (int i = 0; i < set->count; i++) {
    if (ot_text_equal(set->tensor[i].name, part->hf_name)) return &set->tensor[i];
  }
  assert_true(set->count < OT_COUNT(set->tensor));
  hf_tensor *const made = &set->tensor[set->count++];
  const int64_t n = part->hf_rows * part->hf_cols;
  *made = (hf_tensor){.name = part->hf_name,
                      .rows = part->hf_rows,
                      .cols = part->hf_cols,
                      .gradient = ot_arena_array(set->arena, n, sizeof(double)),
                      .covered = ot_arena_array(set->arena, n, sizeof(bool))};
  return made;
}

// Element `i` of the gradient of parameter `index` on one rank, added over all its uses.
static double own_gradient(const runner *r, const runner_rank *rank, int index, int64_t i) {
  const ot_graph *const graph = &rank->graph;
  double sum = 0;
  for (int k = 0; k < graph->num_parameters; k++) {
    if (k != index && graph->parameters[k].tied_to != index) continue;
    const ot_tensor tensor = {rank->gradient[k], {r->request.compute, 1, {i + 1, 0, 0, 0}}};
    assert_true(rank->added[k]);
    sum += ot_case_get(&tensor, i);
  }
  return sum;
}

static ot_mesh mesh_of(const runner *r) {
  ot_mesh mesh = {.vpp = 1};
  for (int i = 0; i < OT_AXIS_COUNT; i++) mesh.degree[i] = 1;
  mesh.degree[OT_AXIS_TP] = r->request.tp;
  mesh.degree[OT_AXIS_CP] = r->request.cp;
  assert_int_equal(ot_mesh_check(&mesh), OT_OK);
  return mesh;
}

// Reduction over the ranks that the part specifies, and over cp.
static double summed_gradient(const runner *r, int rank, int parameter, int part, int64_t i) {
  const ot_mesh mesh = mesh_of(r);
  const int sum_group = r->rank[rank].graph.parameters[parameter].parts[part].sum_group;
  int over[RUNNER_MAX_RANKS] = {rank}, pieces[RUNNER_MAX_RANKS];
  const int64_t kv_heads = r->request.model->num_kv_heads;
  const int n =
      sum_group < 0 ? 1 : ot_group_ranks(&mesh, (ot_group_kind)sum_group, kv_heads, rank, over);
  double sum = 0;
  for (int a = 0; a < n; a++) {
    const int c = ot_group_ranks(&mesh, OT_GROUP_CONTEXT_SUM, kv_heads, over[a], pieces);
    for (int b = 0; b < c; b++) sum += own_gradient(r, &r->rank[pieces[b]], parameter, i);
  }
  return sum;
}

static void add_part(runner *r, int rank, int parameter, int index, hf_set *set) {
  const ot_parameter *const p = &r->rank[rank].graph.parameters[parameter];
  const ot_parameter_part *const part = &p->parts[index];
  if (!part->counted) return;
  hf_tensor *const tensor = find_tensor(set, part);
  assert_true(tensor->rows == part->hf_rows && tensor->cols == part->hf_cols);
  for (int64_t i = 0; i < part->rows * p->cols; i++) {
    const int64_t row = part->hf_first + i / p->cols;
    const int64_t col = part->hf_first_col + i % p->cols;
    assert_true(row < tensor->rows && col < tensor->cols);
    const int64_t at = row * tensor->cols + col;
    if (tensor->covered[at]) fail_msg("%s: element %lld twice", tensor->name, (long long)at);
    tensor->covered[at] = true;
    tensor->gradient[at] =
        summed_gradient(r, rank, parameter, index, part->first_row * p->cols + i);
  }
}

static hf_set *gradients_of(runner *r) {
  hf_set *const set = ot_arena_take(&r->arena, sizeof *set);
  set->arena = &r->arena;
  for (int i = 0; i < r->request.tp; i++) {
    const ot_graph *const graph = &r->rank[i].graph;
    for (int p = 0; p < graph->num_parameters; p++) {
      for (int k = 0; k < graph->parameters[p].num_parts; k++) add_part(r, i, p, k, set);
    }
  }
  for (int i = 0; i < set->count; i++) {
    const hf_tensor *const tensor = &set->tensor[i];
    for (int64_t e = 0; e < tensor->rows * tensor->cols; e++) {
      if (!tensor->covered[e]) fail_msg("%s: no rank holds element %d", tensor->name, (int)e);
    }
  }
  return set;
}

static void expect_gradients(runner *whole, runner *split, double tolerance) {
  const hf_set *const a = gradients_of(whole);
  hf_set *const b = gradients_of(split);
  assert_int_equal(a->count, b->count);
  for (int i = 0; i < a->count; i++) {
    const hf_tensor *const x = &a->tensor[i];
    const ot_parameter_part same = {.hf_name = x->name, .hf_rows = x->rows, .hf_cols = x->cols};
    const hf_tensor *const y = find_tensor(b, &same);
    assert_true(x->rows == y->rows && x->cols == y->cols);
    expect_close(x->name, x->gradient, y->gradient, x->rows * x->cols, tolerance);
  }
}

// ---- scalars of the step ----

// All tp ranks with one cp index hold the same sum.
static double scalar_sum(const runner *r, ot_step_scalar scalar) {
  double sum = 0;
  for (int i = 0; i < r->ranks; i++) {
    const double mine = r->rank[i].scalars[scalar];
    assert_true(mine == r->rank[i / r->request.tp * r->request.tp].scalars[scalar]);
    if (i % r->request.tp == 0) sum += mine;
  }
  return sum;
}

static double largest_statistic(const runner *r, int index) {
  double largest = r->rank[0].statistics[index];
  for (int i = 1; i < r->ranks; i++) largest = fmax(largest, r->rank[i].statistics[index]);
  return largest;
}

static void expect_numbers(const runner *whole, const runner *split, double tolerance) {
  const ot_step_scalar sums[] = {OT_SCALAR_LOSS, OT_SCALAR_EVALUATE_LOSS,
                                 OT_SCALAR_EVALUATE_TOKENS};
  for (int i = 0; i < OT_COUNT(sums); i++) {
    const double a = scalar_sum(whole, sums[i]), b = scalar_sum(split, sums[i]);
    expect_close("a sum of the step", &a, &b, 1, tolerance);
  }
  for (int i = 0; i < whole->rank[0].graph.num_blocks * OT_BLOCK_STATISTICS; i++) {
    const double a = largest_statistic(whole, i), b = largest_statistic(split, i);
    expect_close("a maximum of a block", &a, &b, 1, tolerance);
  }
}

void runner_expect_equal(runner *whole, runner *split, double tolerance) {
  const int n = whole->rank[0].graph.num_blocks;
  const int64_t elements = whole->request.micro_batch_size * whole->request.sequence_length *
                           whole->request.model->hidden_size;
  const bool trains = whole->request.mode == OT_MODE_TRAIN;
  for (int b = 0; b + 1 < n; b++) {
    const char *const name = whole->rank[0].graph.blocks[b].name;
    for (int gradient = 0; gradient <= (trains ? 1 : 0); gradient++) {
      expect_close(
          ot_arena_format(&whole->arena, "%s of %s", gradient ? "gradient" : "output", name),
          whole_rows(whole, b, gradient), whole_rows(split, b, gradient), elements, tolerance);
    }
  }
  expect_numbers(whole, split, tolerance);
  if (trains) expect_gradients(whole, split, tolerance);
}
