// SPDX-License-Identifier: Apache-2.0
// run: any machine. The compiled step against transformers + PyTorch on random models of every
// family: logits, loss, every gradient, weights after two steps. float64 within 1e-10 of the
// modules without their float32 casts, float32 within 1e-5 of the unmodified modules.
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

static parity_request plain(const char *name, ot_dtype compute) {
  return (parity_request){.name = name,
                          .config = "config.json",
                          .compute = compute,
                          .storage = compute,
                          .micro_batch_size = PARITY_BATCH,
                          .threads = 2};
}

static void compare(const parity_request *request, double tolerance) {
  const char *const suffix = request->compute == OT_F64 ? "f64" : "f32";
  const char *worst = "";
  parity_case c;
  parity_create(request, &c);
  const double logits = parity_logits_error(&c, suffix);
  parity_step(&c, 1);
  const double reference = parity_reference_loss(&c, suffix);
  const double loss = fabs(parity_loss(&c) - reference) / fabs(reference);
  const double gradients = parity_gradient_error(&c, suffix, &worst);
  printf("%-22s %s  logits %.1e  loss %.1e  gradients %.1e (%s)\n", request->name, suffix, logits,
         loss, gradients, worst);
  if (!(logits <= tolerance)) fail_msg("%s: logits off by %.3e", request->name, logits);
  if (!(loss <= tolerance)) fail_msg("%s: loss off by %.3e", request->name, loss);
  if (!(gradients <= tolerance)) fail_msg("%s: %s off by %.3e", request->name, worst, gradients);
  parity_destroy(&c);
}

static void float64_agrees_with_pytorch_within_1e_10(void **state) {
  (void)state;
  for (int i = 0; parity_cases[i]; i++) {
    const parity_request request = plain(parity_cases[i], OT_F64);
    compare(&request, 1e-10);
  }
}

static void float32_agrees_with_pytorch_within_1e_5(void **state) {
  (void)state;
  for (int i = 0; parity_cases[i]; i++) {
    const parity_request request = plain(parity_cases[i], OT_F32);
    compare(&request, 1e-5);
  }
}

static void configurations_of_transformers_4_mean_the_same(void **state) {
  (void)state;
  const char *const cases[] = {
      "gpt2",          "llama",       "llama3.1",         "llama-linear", "qwen3-sliding",
      "mistral",       "gemma2",      "gemma3",           "mixtral",      "qwen3-moe",
      "olmoe",         "deepseek-v3", "deepseek-v3-yarn", "smollm3",      "phi3",
      "qwen2-moe",     "olmo3",       "gpt-oss",          "kimi-k2",      "glm4-moe",
      "glm4-moe-plain"};
  for (int i = 0; i < OT_COUNT(cases); i++) {
    parity_request request = plain(cases[i], OT_F64);
    request.config = "config_v4.json";
    compare(&request, 1e-10);
  }
}

static void two_steps_of_adamw_agree_with_pytorch(void **state) {
  (void)state;
  const char *const cases[] = {"gpt2", "llama", "qwen3-moe"};
  for (int i = 0; i < OT_COUNT(cases); i++) {
    const parity_request request = plain(cases[i], OT_F64);
    const char *worst = "";
    parity_case c;
    parity_create(&request, &c);
    for (int step = 1; step <= 2; step++) {
      parity_step(&c, step);
      const double norm =
          ot_executor_scalar(ot_runtime_executor(c.runtime), OT_SCALAR_GRADIENT_NORM);
      assert_true(fabs(norm / parity_reference_norm(&c, step) - 1) < 1e-10);
    }
    const double error = parity_after_error(&c, &worst);
    if (!(error <= 1e-10)) fail_msg("%s: %s off by %.3e after two steps", cases[i], worst, error);
    parity_destroy(&c);
  }
}

int main(int count, char **words) {
  (void)count;
  ot_libraries_configure(words);  // the kernels that the command runs
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(float64_agrees_with_pytorch_within_1e_10),
      cmocka_unit_test(float32_agrees_with_pytorch_within_1e_5),
      cmocka_unit_test(configurations_of_transformers_4_mean_the_same),
      cmocka_unit_test(two_steps_of_adamw_agree_with_pytorch),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
