// SPDX-License-Identifier: Apache-2.0
// run: ranks=1,2,4 as threads. A variant on one rank has the weights of every layout, bit for bit;
// omitted layers are zero; a model beyond the audit's memory limit is rejected; variants and
// probes compute on the device of their run.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "audit/layout_probe.h"
#include "audit/variant.h"
#include "base/text.h"
#include "device/device.h"
#include "support/audit_case.h"

static const audit_request layouts[] = {
    {.dp_shard = 1},
    {.tp = 2},
    {.pp = 2, .dp_replicate = 2},
    {.cp = 2, .dp_shard = 2, .zero = 1},
    {.dp_shard = 4, .zero = 3, .bf16 = true},
};

static audit_request layout_at(int i, bool tied) {
  audit_request request = layouts[i];
  request.model = audit_model(2, tied);
  request.batch = 4;
  request.micro_batch = 1;
  return request;
}

// All weights of a parameter; the caller frees them.
static double *weights_of(ot_runtime *runtime, int parameter) {
  const ot_parameter *const p = &ot_runtime_whole_graph(runtime)->parameters[parameter];
  double *const values = malloc((size_t)ot_parameter_elements(p) * sizeof *values);
  const ot_parameter_rows all = {parameter, OT_COPY_WEIGHT, 0, p->rows};
  if (ot_variant_read(runtime, all, values) != OT_OK) abort();
  return values;
}

static bool is_zero(const double *values, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    if (values[i] != 0) return false;
  }
  return true;
}

// Initial weights depend only on the seed and the tensor names.
static ot_status check_initial(ot_runtime *runtime, int64_t seed) {
  const ot_graph *const graph = ot_runtime_whole_graph(runtime);
  double **const got = malloc((size_t)graph->num_parameters * sizeof *got);
  int differ = 0;
  for (int i = 0; i < graph->num_parameters; i++) got[i] = weights_of(runtime, i);
  OT_TRY(ot_runtime_initialize(runtime, (uint64_t)seed));
  for (int i = 0; i < graph->num_parameters; i++) {
    const bool own = graph->parameters[i].tied_to < 0;
    const int64_t count = own ? ot_parameter_elements(&graph->parameters[i]) : 0;
    double *const wanted = weights_of(runtime, i);
    for (int64_t k = 0; k < count; k++) differ += got[i][k] != wanted[k];
    if (own && is_zero(wanted, count)) differ++;
    free(got[i]);
    free(wanted);
  }
  free(got);
  OT_CHECK(differ == 0, OT_BUG, "%d weights differ", differ);
  return OT_OK;
}

static ot_status compare_weights(audit_rank *rank) {
  const ot_run one = ot_variant_one_rank(rank->trainer);
  const ot_variant variant = {.of = rank->trainer, .run = &one, .one_rank = true};
  ot_trainer *trainer = NULL;
  OT_TRY(ot_variant_create(&variant, &trainer));
  ot_status status = OT_OK;
  if ((trainer != NULL) != ot_world_is_leader(rank->world))
    status = ot_fail(OT_BUG, "on a wrong rank");
  if (trainer && status == OT_OK) {
    status = check_initial(ot_trainer_runtime(trainer), rank->run->seed);
  }
  ot_trainer_destroy(&trainer);
  return ot_world_agree(rank->world, status);
}

static void a_variant_on_one_rank_has_the_weights_of_every_layout(void **state) {
  (void)state;
  for (int i = 0; i < OT_COUNT(layouts); i++) {
    const audit_request request = layout_at(i, i % 2 == 0);
    if (audit_run(&request, compare_weights, NULL) != OT_OK) {
      fail_msg("%s: %s", audit_describe(&request), ot_fail_message());
    }
  }
}

// Omits layer 1 and the MLP of layer 0; unties the head.
static ot_status keep_one_layer(audit_rank *rank) {
  ot_run still = ot_variant_fixed_weights(rank->trainer);
  still.model.tie_word_embeddings = false;
  const ot_variant variant = {.of = rank->trainer, .run = &still};
  ot_trainer *trainer = NULL;
  OT_TRY(ot_variant_create(&variant, &trainer));
  ot_runtime *const to = ot_trainer_runtime(trainer);
  OT_TRY(ot_variant_keep_layers(ot_trainer_runtime(rank->trainer), to, 1, true));
  const ot_graph *const graph = ot_runtime_whole_graph(to);
  int wrong = 0;
  for (int i = 0; i < graph->num_parameters; i++) {
    const ot_parameter *const p = &graph->parameters[i];
    const bool left_out = ot_text_starts_with(p->name, "layers.1.") ||
                          ot_text_matches(p->name, "layers.0.*down.weight");
    double *const values = weights_of(to, i);
    wrong += is_zero(values, ot_parameter_elements(p)) != left_out;
    free(values);
  }
  ot_trainer_destroy(&trainer);
  OT_CHECK(wrong == 0, OT_BUG, "%d parameters of %d", wrong, graph->num_parameters);
  return OT_OK;
}

static void omitted_layers_are_zero(void **state) {
  (void)state;
  for (int i = 0; i < OT_COUNT(layouts); i++) {
    const audit_request request = layout_at(i, true);
    if (audit_run(&request, keep_one_layer, NULL) != OT_OK) {
      fail_msg("%s: %s", audit_describe(&request), ot_fail_message());
    }
  }
}

static ot_status ask_fits(audit_rank *rank) {
  const ot_run one = ot_variant_one_rank(rank->trainer),
               still = ot_variant_fixed_weights(rank->trainer);
  const ot_variant variants[] = {{.of = rank->trainer, .run = &one, .one_rank = true},
                                 {.of = rank->trainer, .run = &still}};
  const bool wanted = *(const bool *)rank->context;
  for (int i = 0; i < OT_COUNT(variants); i++) {
    bool fits = !wanted;
    OT_TRY(ot_variant_fits(&variants[i], &fits));
    OT_CHECK(fits == wanted, OT_BUG, "variant %d", i);
  }
  return OT_OK;
}

static void models_beyond_the_audit_limit_are_rejected(void **state) {
  (void)state;
  const ot_trainer_hooks narrow = {.audit_bytes = 1000};
  for (int fits = 0; fits < 2; fits++) {
    audit_request request = layout_at(3, false);
    bool wanted = fits == 1;
    if (!wanted) request.hooks = &narrow;
    if (audit_run(&request, ask_fits, &wanted) != OT_OK) fail_msg("%s", ot_fail_message());
  }
}

// Notes the back end of a schedule: `context` is an ot_backend of this rank.
static void note_backend(ot_schedule *schedule, ot_arena *arena, void *context) {
  (void)arena;
  *(ot_backend *)context = schedule->backend;
}

static ot_status compare_probe(audit_rank *rank) {
  const ot_backend *const noted = ot_trainer_get_hooks(rank->trainer)->context;
  const ot_backend wanted = *noted;
  const ot_layout_probe_request request = {
      .trainer = rank->trainer, .model = &rank->run->model, .rank_sequences = 1, .tokens = 8};
  ot_layout_probe *probe = NULL;
  OT_TRY(ot_layout_probe_create(&request, &probe));
  ot_layout_probe_destroy(&probe);
  OT_CHECK(*noted == wanted, OT_BUG, "the probe");
  return OT_OK;
}

static ot_status compare_devices(audit_rank *rank) {
  const ot_run one = ot_variant_one_rank(rank->trainer);
  const ot_variant variant = {.of = rank->trainer, .run = &one, .one_rank = true};
  const ot_backend wanted = ot_runtime_backend(ot_trainer_runtime(rank->trainer));
  ot_trainer *trainer = NULL;
  OT_TRY(ot_variant_create(&variant, &trainer));
  const ot_backend found = trainer ? ot_runtime_backend(ot_trainer_runtime(trainer)) : wanted;
  ot_trainer_destroy(&trainer);
  const bool on_gpu = rank->ranks == 1 && ot_device_count(OT_BACKEND_CUDA) > 0;
  OT_CHECK(wanted == (on_gpu ? OT_BACKEND_CUDA : OT_BACKEND_CPU), OT_BUG, "the run");
  OT_CHECK(found == wanted, OT_BUG, "the variant");
  return rank->ranks == 1 ? compare_probe(rank) : OT_OK;
}

// With device: auto and a GPU: several ranks run on the CPU, so one rank of them does, too.
static void variants_and_probes_compute_where_their_run_does(void **state) {
  (void)state;
  ot_backend noted = OT_BACKEND_CPU;
  const ot_trainer_hooks notes = {.amend = note_backend, .context = &noted};
  setenv("OT_TEST_DEVICE", "cuda", 1);
  for (int i = 0; i < 2; i++) {
    audit_request request = layout_at(i, true);
    if (i == 0) request.hooks = &notes;
    if (audit_run(&request, compare_devices, NULL) != OT_OK) {
      fail_msg("%s: %s", audit_describe(&request), ot_fail_message());
    }
  }
  unsetenv("OT_TEST_DEVICE");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      // First: without the variable there is no GPU, and that failure stays with the process.
      cmocka_unit_test(variants_and_probes_compute_where_their_run_does),
      cmocka_unit_test(a_variant_on_one_rank_has_the_weights_of_every_layout),
      cmocka_unit_test(omitted_layers_are_zero),
      cmocka_unit_test(models_beyond_the_audit_limit_are_rejected),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
