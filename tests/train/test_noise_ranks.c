// SPDX-License-Identifier: Apache-2.0
// run: ranks=2,4,8 as threads. The gradient noise figures of a step, against gradients of each
// small batch computed on one rank alone, in float64.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/text.h"
#include "data/data_loader.h"
#include "runtime/noise_scale.h"
#include "support/audit_case.h"
#include "train/trainer_state.h"

enum { BATCH = 8, MAX_ELEMENTS = 40000 };

// Selected parameters, and the result.
typedef struct measure {
  bool without_norms, without_kv;  // of which tp holds copies
  int small;                       // number of small batches
  int64_t targets;                 // of all small batches
  bool known;
  ot_noise_sample sample;
} measure;

// ---- on ranks ----

static ot_status step_on_ranks(audit_rank *rank) {
  measure *const m = rank->context;
  ot_step_report report;
  OT_TRY(audit_step(rank, &report));
  ot_noise_sample sample;
  const bool known =
      ot_noise_sample_read(ot_trainer_runtime(rank->trainer), rank->trainer->transfer, &sample);
  OT_CHECK(isnan(report.noise_scale_tokens) || report.noise_scale_tokens > 0, OT_BUG, "negative");
  if (rank->rank != rank->ranks - 1) return OT_OK;
  m->known = known;
  if (known) m->sample = sample;
  return OT_OK;
}

// ---- on one rank ----

static bool counts(const measure *m, const ot_parameter *p, int part) {
  const char *const name = p->parts[part].hf_name;
  if (p->kind == OT_PARAMETER_EMBEDDING && ot_text_equal(name, "model.embed_tokens.weight")) {
    return false;  // tied in these tests
  }
  const bool kv = ot_text_find(name, "k_proj") != NULL || ot_text_find(name, "v_proj") != NULL;
  return !(m->without_norms && p->kind == OT_PARAMETER_VECTOR) && !(m->without_kv && kv);
}

// The gradient of the selected parameters in HF order; returns the number of elements.
static int64_t read_gradient(const measure *m, ot_runtime *runtime, double *to) {
  const ot_graph *const graph = ot_runtime_whole_graph(runtime);
  int64_t count = 0;
  for (int i = 0; i < graph->num_parameters; i++) {
    const ot_parameter *const p = &graph->parameters[i];
    for (int k = 0; k < p->num_parts; k++) {
      if (!counts(m, p, k)) continue;
      const ot_parameter_rows rows = {i, OT_COPY_GRADIENT, p->parts[k].first_row, p->parts[k].rows};
      assert_true(count + rows.rows * p->cols <= MAX_ELEMENTS);
      assert_int_equal(ot_runtime_read(runtime, &rows, to + count), OT_OK);
      count += rows.rows * p->cols;
    }
  }
  return count;
}

static int64_t load(const ot_micro_batch *rows, int micro_batch, ot_runtime *runtime) {
  const void *const fields[] = {rows->tokens, rows->targets, rows->positions, rows->doc_starts,
                                rows->sample_ids};
  for (int i = 0; i < OT_COUNT(fields); i++) {
    ot_runtime_load_batch(runtime, OT_MODE_TRAIN, micro_batch, (ot_batch_field)i, fields[i]);
  }
  return rows->num_targets;
}

// Small batch k has samples k, k + small, k + 2 small, ...: those of dp rank k.
static ot_status gradient_alone(audit_rank *rank, ot_data_loader *loader, ot_micro_batch *rows,
                                int k) {
  const measure *const m = rank->context;
  ot_runtime *const runtime = ot_trainer_runtime(rank->trainer);
  const int micro_batches = BATCH / m->small;
  for (int i = 0; i < micro_batches; i++) {
    OT_TRY(ot_data_loader_train(loader, k + (int64_t)i * m->small, rows));
    load(rows, i, runtime);
  }
  ot_executor *const executor = ot_runtime_executor(runtime);
  ot_executor_set_scalar(executor, OT_SCALAR_LEARNING_RATE, 0);
  ot_executor_set_scalar(executor, OT_SCALAR_TARGETS, (double)m->targets);
  return ot_runtime_run(runtime, OT_MODE_TRAIN, micro_batches);
}

static int64_t count_targets(const measure *m, ot_data_loader *loader, ot_micro_batch *rows,
                             int k) {
  int64_t targets = 0;
  for (int i = 0; i < BATCH / m->small; i++) {
    assert_int_equal(ot_data_loader_train(loader, k + (int64_t)i * m->small, rows), OT_OK);
    targets += rows->num_targets;
  }
  return targets;
}

static ot_status measure_alone(audit_rank *rank, ot_data_loader *loader, ot_micro_batch *rows) {
  static double gradient[MAX_ELEMENTS], whole[MAX_ELEMENTS];
  measure *const m = rank->context;
  m->sample = (ot_noise_sample){0};
  for (int i = 0; i < MAX_ELEMENTS; i++) whole[i] = 0;
  for (int k = 0; k < m->small; k++) m->targets += count_targets(m, loader, rows, k);
  for (int k = 0; k < m->small; k++) {
    const double share = (double)count_targets(m, loader, rows, k) / (double)m->targets;
    OT_TRY(gradient_alone(rank, loader, rows, k));
    const int64_t count = read_gradient(m, ot_trainer_runtime(rank->trainer), gradient);
    for (int64_t i = 0; i < count; i++) {
      m->sample.local_squares += gradient[i] * gradient[i];
      whole[i] += gradient[i];
    }
    m->sample.share_squares += share * share;
  }
  for (int i = 0; i < MAX_ELEMENTS; i++) m->sample.whole_squares += whole[i] * whole[i];
  m->sample.targets = (double)m->targets;
  return OT_OK;
}

static ot_status step_alone(audit_rank *rank) {
  ot_data_loader *loader = NULL;
  ot_micro_batch rows;
  OT_TRY(ot_data_loader_create(rank->run, &loader));
  OT_TRY(ot_micro_batch_create(1, rank->run->data.sequence_length, &rows));
  const ot_status status = measure_alone(rank, loader, &rows);
  ot_micro_batch_release(&rows);
  ot_data_loader_destroy(&loader);
  return status;
}

// ---- cases ----

static void must_agree(double found, double expected, const char *what) {
  if (fabs(found - expected) > 1e-9 * fabs(expected)) {
    fail_msg("%s: %.15g instead of %.15g", what, found, expected);
  }
}

static void check(audit_request request, measure expected) {
  measure found = {0};
  request.model = audit_model(1, true);
  request.batch = BATCH;
  request.micro_batch = 1;
  request.documents = request.fp64 = true;
  audit_request alone = {.model = request.model,
                         .batch = BATCH / expected.small,
                         .micro_batch = 1,
                         .documents = true,
                         .fp64 = true};
  if (audit_run(&request, step_on_ranks, &found) != OT_OK) fail_msg("%s", ot_fail_message());
  if (audit_run(&alone, step_alone, &expected) != OT_OK) fail_msg("%s", ot_fail_message());
  const char *const what = audit_describe(&request);
  assert_true(found.known);
  must_agree(found.sample.targets, expected.sample.targets, what);
  must_agree(found.sample.share_squares, expected.sample.share_squares, what);
  must_agree(found.sample.local_squares, expected.sample.local_squares, what);
  must_agree(found.sample.whole_squares, expected.sample.whole_squares, what);
  assert_true(expected.sample.share_squares > 1. / expected.small);  // numbers of targets differ
}

static void a_rank_is_a_small_batch(void **state) {
  (void)state;
  check((audit_request){.dp_shard = 2, .zero = 1}, (measure){.small = 2});
  check((audit_request){.dp_replicate = 4}, (measure){.small = 4});
  check((audit_request){.dp_replicate = 2, .dp_shard = 2, .zero = 3}, (measure){.small = 4});
  check((audit_request){.pp = 2, .dp_shard = 2, .zero = 1}, (measure){.small = 2});
}

static void a_micro_batch_is_a_small_batch_if_each_is_reduced(void **state) {
  (void)state;
  const audit_request two = {.dp_shard = 2, .zero = 2, .accumulate = OT_ACCUMULATE_SHARDED};
  const audit_request four = {.dp_shard = 4, .zero = 3, .accumulate = OT_ACCUMULATE_SHARDED};
  check(two, (measure){.small = 8});
  check(four, (measure){.small = 8});
}

static void copies_of_tensor_parallelism_are_left_out(void **state) {
  (void)state;
  check((audit_request){.tp = 2, .dp_shard = 2, .zero = 1},
        (measure){.small = 2, .without_norms = true, .without_kv = true});
  check((audit_request){.tp = 2, .pp = 2, .dp_replicate = 2},
        (measure){.small = 2, .without_norms = true, .without_kv = true});
}

static void one_rank_or_cp_shards_have_no_estimate(void **state) {
  (void)state;
  const audit_request requests[] = {{.tp = 2}, {.cp = 2, .dp_shard = 2, .zero = 1}, {.pp = 2}};
  for (int i = 0; i < OT_COUNT(requests); i++) {
    audit_request request = requests[i];
    measure found = {.known = true};
    request.model = audit_model(1, true);
    request.batch = BATCH;
    request.micro_batch = 1;
    if (audit_run(&request, step_on_ranks, &found) != OT_OK) fail_msg("%s", ot_fail_message());
    assert_false(found.known);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_rank_is_a_small_batch),
      cmocka_unit_test(a_micro_batch_is_a_small_batch_if_each_is_reduced),
      cmocka_unit_test(copies_of_tensor_parallelism_are_left_out),
      cmocka_unit_test(one_rank_or_cp_shards_have_no_estimate),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
