// SPDX-License-Identifier: Apache-2.0
// run: any machine. The rules of mup: steps against PyTorch in float64 with the published rules, as
// multipliers (tools/make_mup_fixtures.py); initial weights against the table of docs/mup.md; at
// the base sizes, the bits of the standard parametrization.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/text.h"
#include "host/library_settings.h"
#include "support/parity_case.h"

static parity_request plain(const char *name) {
  return (parity_request){.name = name,
                          .config = "config.json",
                          .compute = OT_F64,
                          .storage = OT_F64,
                          .micro_batch_size = PARITY_BATCH,
                          .threads = 2};
}

// ---- steps ----

// Muon adds 1e-7 to a norm that is 1e-3 or more here, whether a weight includes a constant or not.
static void compare_steps(const char *mup, double tolerance) {
  const bool muon = ot_text_starts_with(mup, "muon-");
  parity_request request = plain(muon ? mup + 5 : mup);
  request.mup = mup;
  const char *worst = "";
  parity_case c;
  parity_create(&request, &c);
  double loss = 0;
  for (int step = 1; step <= parity_mup_steps(&c); step++) {
    parity_step(&c, step);
    loss = fmax(loss, fabs(parity_loss(&c) / parity_mup_loss(&c, step) - 1));
  }
  const double error = parity_after_error(&c, &worst);
  printf("%-18s loss %.1e  weights %.1e (%s)\n", mup, loss, error, worst);
  if (!(loss <= tolerance)) fail_msg("%s: a loss is off by %.3e", mup, loss);
  if (!(error <= tolerance)) fail_msg("%s: %s is off by %.3e", mup, worst, error);
  parity_destroy(&c);
}

static void steps_of_adamw_agree_with_pytorch(void **state) {
  (void)state;
  static const char *const cases[] = {"gpt2",      "llama",   "llama-tied-bias",
                                      "gemma2",    "olmo2",   "qwen3",
                                      "qwen2-moe", "gpt-oss", "deepseek-v3"};
  for (int i = 0; i < OT_COUNT(cases); i++) compare_steps(cases[i], 1e-10);
}

static void steps_of_muon_agree_with_pytorch(void **state) {
  (void)state;
  compare_steps("muon-llama", 1e-5);
  compare_steps("muon-deepseek-v3", 1e-5);
}

// ---- the base ----

static ot_parametrization mup_of(const ot_model *model) {
  return (ot_parametrization){.name = OT_PARAMETRIZATION_MUP,
                              .base_hidden_size = model->hidden_size,
                              .base_layers = model->num_layers,
                              .base_head_dim = model->head_dim,
                              .base_kv_heads = model->num_kv_heads,
                              .base_q_lora_rank = model->mla.q_rank,
                              .base_kv_lora_rank = model->mla.kv_rank,
                              .depth_alpha = 0.7};
}

// Bits of random weights and two steps.
static uint64_t bits_of(const char *name, ot_optimizer_name optimizer, bool mup) {
  parity_request request = plain(name);
  request.compute = request.storage = OT_F32;
  request.optimizer = optimizer;
  if (mup) request.parametrize = mup_of;
  parity_case c;
  parity_create(&request, &c);
  assert_int_equal(ot_runtime_initialize(c.runtime, 5), OT_OK);
  parity_step(&c, 1);
  parity_step(&c, 2);
  const uint64_t bits = parity_bits(&c);
  parity_destroy(&c);
  return bits;
}

static void base_sizes_give_the_bits_of_standard(void **state) {
  (void)state;
  for (int i = 0; parity_cases[i]; i++) {
    const ot_optimizer_name optimizer = i % 2 ? OT_OPTIMIZER_ADAMW : OT_OPTIMIZER_MUON;
    if (bits_of(parity_cases[i], optimizer, true) == bits_of(parity_cases[i], optimizer, false)) {
      continue;
    }
    fail_msg("%s: mup at the base sizes differs from standard", parity_cases[i]);
  }
}

// ---- initial weights ----

// What `mup` multiplies the initial values of a tensor by, a norm's gain with its offset; 0: not
// looked at.
typedef struct initial {
  const char *name;
  double factor;
} initial;

static ot_parametrization half(const ot_model *model) {
  ot_parametrization p = mup_of(model);
  p.base_hidden_size = 12;
  p.base_layers = 1;
  p.base_head_dim = model->family == OT_FAMILY_GEMMA2 ? 0 : 2;
  p.base_q_lora_rank = model->mla.q_rank > 0 ? 2 : 0;
  p.base_kv_lora_rank = model->mla.kv_rank > 0 ? 3 : 0;
  p.depth_alpha = 1;
  return p;
}

static void read_initial(const char *name, bool mup, parity_case *c) {
  parity_request request = plain(name);
  if (mup) request.parametrize = half;
  parity_create(&request, c);
  assert_int_equal(ot_runtime_initialize(c->runtime, 5), OT_OK);
}

static const double *rows_of(parity_case *c, int parameter, const ot_parameter_part *part) {
  const ot_parameter *const p = &ot_runtime_any_graph(c->runtime)->parameters[parameter];
  double *const values = ot_arena_array(&c->arena, part->rows * p->cols, sizeof *values);
  const ot_parameter_rows range = {parameter, OT_COPY_WEIGHT, part->first_row, part->rows};
  assert_int_equal(ot_runtime_read(c->runtime, &range, values), OT_OK);
  return values;
}

static void expect_initial(const char *model, const initial *expected, int count) {
  parity_case standard, mup;
  read_initial(model, false, &standard);
  read_initial(model, true, &mup);
  const ot_graph *const graph = ot_runtime_any_graph(mup.runtime);
  const double offset = mup.model.norm_offset;
  int seen = 0;
  for (int i = 0; i < graph->num_parameters; i++) {
    const ot_parameter *const p = &graph->parameters[i];
    for (int k = 0; k < p->num_parts; k++) {
      const int64_t elements = p->parts[k].rows * p->cols;
      const double *const a = rows_of(&standard, i, &p->parts[k]);
      const double *const b = rows_of(&mup, i, &p->parts[k]);
      double factor = 1;
      for (int e = 0; e < count; e++) {
        if (!ot_text_matches(p->parts[k].hf_name, expected[e].name)) continue;
        factor = expected[e].factor;
        seen |= 1 << e;
      }
      const double by = p->initial == OT_INITIAL_GAIN ? offset : 0;
      for (int64_t n = 0; n < elements && factor > 0; n++) {
        if (fabs(b[n] + by - factor * (a[n] + by)) <= 1e-12) continue;
        fail_msg("%s: %s starts at %.9g, standard at %.9g, expected %.9g times that", model,
                 p->parts[k].hf_name, b[n], a[n], factor);
      }
    }
  }
  assert_int_equal(seen, (1 << count) - 1);
  parity_destroy(&standard);
  parity_destroy(&mup);
}

// llama: 18 wide, 2 layers, heads of 6. olmo2: the same, with norms after branches and of queries.
// deepseek-v3: 18 wide, 2 layers, heads of 9, ranks 7 and 9. gemma2: 20 wide, 3 layers, tied.
// gpt2: 18 wide, 2 layers, tied; standard divides by sqrt(2 layers), mup by that of the base.
static void initial_weights_follow_the_rules(void **state) {
  (void)state;
  const double wide = sqrt(12.0 / 18), query = sqrt(2.0 / 6);
  const initial llama[] = {{"*q_proj.weight", wide * query}, {"*k_proj.weight", wide},
                           {"*v_proj.weight", wide},         {"*o_proj.weight", wide / 2},
                           {"*gate_proj.weight", wide},      {"*up_proj.weight", wide},
                           {"*down_proj.weight", wide / 2},  {"lm_head.weight", 12.0 / 18}};
  const initial olmo[] = {{"*_proj.weight", wide},
                          {"*q_norm.weight", query},
                          {"*post_attention_layernorm.weight", 0.5},
                          {"*post_feedforward_layernorm.weight", 0.5},
                          {"lm_head.weight", 12.0 / 18}};
  const initial latent[] = {{"*_a_proj*weight", wide},
                            {"*q_b_proj.weight", sqrt(2.0 / 7) * sqrt(2.0 / 9)},
                            {"*kv_b_proj.weight", sqrt(3.0 / 9)},
                            {"*gate_proj.weight", wide},
                            {"*up_proj.weight", wide},
                            {"*o_proj.weight", wide / 2},
                            {"*down_proj.weight", wide / 2},
                            {"*mlp.gate.weight", 12.0 / 18},
                            {"lm_head.weight", 12.0 / 18}};
  const double narrow = sqrt(12.0 / 20);
  const initial gemma[] = {{"*_proj.weight", narrow},
                           {"*embed_tokens.weight", narrow},
                           {"*post_attention_layernorm.weight", 1 / 3.0},
                           {"*post_feedforward_layernorm.weight", 1 / 3.0},
                           {"model.norm.weight", narrow}};
  const initial gpt2[] = {{"*attn.c_attn.weight", 0},  // the name of all three
                          {"*c_proj.weight", wide / 2 * sqrt(2)},
                          {"*c_fc.weight", wide},
                          {"*ln_f.weight", 12.0 / 18}};
  expect_initial("llama", llama, OT_COUNT(llama));
  expect_initial("olmo2", olmo, OT_COUNT(olmo));
  expect_initial("deepseek-v3", latent, OT_COUNT(latent));
  expect_initial("gemma2", gemma, OT_COUNT(gemma));
  expect_initial("gpt2", gpt2, OT_COUNT(gpt2));
}

int main(int count, char **words) {
  (void)count;
  ot_libraries_configure(words);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(steps_of_adamw_agree_with_pytorch),
      cmocka_unit_test(steps_of_muon_agree_with_pytorch),
      cmocka_unit_test(base_sizes_give_the_bits_of_standard),
      cmocka_unit_test(initial_weights_follow_the_rules),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
