// SPDX-License-Identifier: Apache-2.0
// ctest: first
// run: any machine; in builds without CUDA on an emulated GPU. Whole training steps by the CUDA
// kernels: in float64 against PyTorch, in every precision against the CPU's kernels, and their bits
// in whatever order threads and streams run.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/text.h"
#include "support/op_device.h"
#include "support/parity_case.h"

// The families whose operators all have CUDA kernels; with OT_TESTS=full all of them are run, else
// the first ones.
static const char *const families[] = {"gpt2",
                                       "llama-packed",
                                       "qwen3-sliding",
                                       "gemma2",
                                       "mixtral-balanced",
                                       "deepseek-v3",
                                       "gpt2-packed",
                                       "gpt2-untied",
                                       "llama",
                                       "llama-tied-bias",
                                       "llama3.1",
                                       "llama-linear",
                                       "qwen2-sliding",
                                       "qwen3",
                                       "qwen3-sliding-packed",
                                       "olmo2",
                                       "mistral",
                                       "gemma2-packed",
                                       "gemma3",
                                       "gemma3-packed",
                                       "smollm3",
                                       "phi3",
                                       "olmo3",
                                       "llama-residuals",
                                       "gemma3-odd-residuals",
                                       "mixtral",
                                       "mixtral-packed",
                                       "qwen3-moe",
                                       "qwen3-moe-residuals",
                                       "qwen2-moe",
                                       "olmoe",
                                       "gpt-oss",
                                       "gpt-oss-packed",
                                       "deepseek-v3-yarn",
                                       "kimi-k2",
                                       "glm4-moe",
                                       "glm4-moe-plain"};

enum { FIRST_FAMILIES = 6 };

static int num_families(void) {
  const char *const text = getenv("OT_TESTS");
  return text && strcmp(text, "full") == 0 ? OT_COUNT(families) : FIRST_FAMILIES;
}

static parity_request request_of(const char *name, ot_dtype compute, ot_dtype storage) {
  return (parity_request){.name = name,
                          .config = "config.json",
                          .compute = compute,
                          .storage = storage,
                          .backend = OT_BACKEND_CUDA,
                          .micro_batch_size = PARITY_BATCH,
                          .threads = 2};
}

static void float64_agrees_with_pytorch_within_1e_10(void **state) {
  (void)state;
  for (int i = 0; i < num_families(); i++) {
    const parity_request request = request_of(families[i], OT_F64, OT_F64);
    const char *worst = "";
    parity_case c;
    parity_create(&request, &c);
    const double logits = parity_logits_error(&c, "f64");
    parity_step(&c, 1);
    const double reference = parity_reference_loss(&c, "f64");
    const double loss = fabs(parity_loss(&c) - reference) / fabs(reference);
    const double gradients = parity_gradient_error(&c, "f64", &worst);
    printf("%-22s logits %.1e  loss %.1e  gradients %.1e (%s)\n", families[i], logits, loss,
           gradients, worst);
    if (!(logits <= 1e-10)) fail_msg("%s: logits off by %.3e", families[i], logits);
    if (!(loss <= 1e-10)) fail_msg("%s: loss off by %.3e", families[i], loss);
    if (!(gradients <= 1e-10)) fail_msg("%s: %s off by %.3e", families[i], worst, gradients);
    parity_destroy(&c);
  }
}

static void run_case(const parity_request *request, parity_case *c) {
  parity_create(request, c);
  parity_step(c, 1);
}

static double loss_error(parity_case *c, parity_case *other) {
  return fabs(parity_loss(c) / parity_loss(other) - 1);
}

static void check_against_cpu(const char *family, ot_dtype type, double tolerance) {
  const parity_request request = request_of(family, type, type);
  parity_request on_cpu = request;
  parity_case c, other;
  const char *worst = "";
  on_cpu.backend = OT_BACKEND_CPU;
  run_case(&request, &c);
  run_case(&on_cpu, &other);
  const double loss = loss_error(&c, &other);
  const double gradients = parity_distance(&c, &other, &worst);
  if (!(loss <= tolerance)) fail_msg("%s: loss off by %.3e", family, loss);
  if (!(gradients <= tolerance)) fail_msg("%s: %s off by %.3e", family, worst, gradients);
  parity_destroy(&c);
  parity_destroy(&other);
}

static void float64_and_float32_agree_with_the_cpu(void **state) {
  (void)state;
  for (int i = 0; i < num_families(); i++) {
    check_against_cpu(families[i], OT_F64, 1e-12);
    check_against_cpu(families[i], OT_F32, 1e-5);
  }
}

// Whether the tokens of the last step chose the same experts.
static bool routes_alike(parity_case *c, parity_case *other) {
  double sums[OT_EXPERT_SUMS] = {0}, others[OT_EXPERT_SUMS] = {0};
  if (c->model.moe.num_experts == 0) return true;
  ot_runtime_expert_sums(c->runtime, sums);
  ot_runtime_expert_sums(other->runtime, others);
  return fabs(sums[OT_EXPERT_LOAD_ENTROPY] - others[OT_EXPERT_LOAD_ENTROPY]) <= 1e-9 &&
         fabs(sums[OT_EXPERT_LOAD_MAX] - others[OT_EXPERT_LOAD_MAX]) <= 1e-9;
}

// bf16 is within 2e-2 of float64, or twice as far as on the CPU: roundings fall otherwise. Where a
// token that is nearly indifferent chooses another expert than in float64, the gradients are those
// of another function, and only the loss is compared. Returns whether all was compared.
static bool check_bf16(const char *family) {
  const parity_request request = request_of(family, OT_F32, OT_BF16);
  parity_request on_cpu = request, exact = request_of(family, OT_F64, OT_F64);
  parity_case c, other, reference;
  const char *worst = "", *of_cpu = "";
  on_cpu.backend = exact.backend = OT_BACKEND_CPU;
  run_case(&request, &c);
  run_case(&on_cpu, &other);
  run_case(&exact, &reference);
  const double loss = loss_error(&c, &other);
  const double gradients = parity_distance(&c, &reference, &worst);
  const double cpu = parity_distance(&other, &reference, &of_cpu);
  printf("%-22s bf16 from the CPU's loss %.1e, from float64 %.1e (%s), the CPU's %.1e (%s)\n",
         family, loss, gradients, worst, cpu, of_cpu);
  if (!(loss <= 2e-2)) fail_msg("%s: loss off by %.3e", family, loss);
  const bool alike = routes_alike(&c, &reference);
  if (!alike) printf("%-22s a token chooses another expert than in float64\n", family);
  if (alike && !(gradients <= fmax(2e-2, 2 * cpu)))
    fail_msg("%s: %s off by %.3e", family, worst, gradients);
  parity_destroy(&c);
  parity_destroy(&other);
  parity_destroy(&reference);
  return alike;
}

static void bf16_is_as_exact_as_on_the_cpu(void **state) {
  (void)state;
  int apart = 0;
  for (int i = 0; i < num_families(); i++) apart += !check_bf16(families[i]);
  assert_in_range(apart, 0, num_families() / 5);
}

static uint64_t bits_of_steps(const parity_request *request, int steps,
                              ot_executor_graphs *graphs) {
  parity_case c;
  parity_create(request, &c);
  for (int step = 1; step <= steps; step++) parity_step(&c, step);
  const uint64_t bits = parity_bits(&c);
  *graphs = ot_executor_count_graphs(ot_runtime_executor(c.runtime));
  parity_destroy(&c);
  return bits;
}

static uint64_t bits_of_two_steps(const parity_request *request) {
  ot_executor_graphs graphs;
  return bits_of_steps(request, 2, &graphs);
}

// On the emulated GPU, each seed is another order of threads, blocks and streams.
static void bits_do_not_depend_on_the_order_of_threads(void **state) {
  (void)state;
  const char *const some[] = {"gpt2", "llama-packed"};
  for (int i = 0; i < OT_COUNT(some); i++) {
    const parity_request request = request_of(some[i], OT_F32, OT_BF16);
    op_device_set_order(0);
    const uint64_t bits = bits_of_two_steps(&request);
    for (int seed = 1; seed <= 20; seed++) {
      op_device_set_order(seed);
      if (bits_of_two_steps(&request) != bits)
        fail_msg("%s: other bits with seed %d", some[i], seed);
    }
  }
}

static void recompute_changes_no_bit(void **state) {
  (void)state;
  parity_request request = request_of("llama", OT_F32, OT_BF16);
  const uint64_t bits = bits_of_two_steps(&request);
  request.recompute = OT_RECOMPUTE_SELECTIVE;
  assert_int_equal(bits_of_two_steps(&request), bits);
  request.recompute = OT_RECOMPUTE_FULL;
  assert_int_equal(bits_of_two_steps(&request), bits);
}

// Kernels run one by one in the first step, are captured in the second and launched from then on.
static void graphs_change_no_bit(void **state) {
  (void)state;
  for (int i = 0; i < num_families(); i++) {
    parity_request request = request_of(families[i], OT_F32, OT_BF16);
    request.micro_batch_size = PARITY_BATCH / 2;
    ot_executor_graphs with, without;
    const uint64_t bits = bits_of_steps(&request, 3, &with);
    request.no_graphs = true;
    const bool equal = bits_of_steps(&request, 3, &without) == bits;
    if (!equal) fail_msg("%s: graphs change bits", families[i]);
    if (with.captured == 0 || with.refused > 0)
      fail_msg("%s: %d graphs, %d refused", families[i], with.captured, with.refused);
    assert_int_equal(without.captured, 0);
  }
}

int main(void) {
  setenv("OT_TEST_DEVICE", "cuda", 1);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(float64_agrees_with_pytorch_within_1e_10),
      cmocka_unit_test(float64_and_float32_agree_with_the_cpu),
      cmocka_unit_test(bf16_is_as_exact_as_on_the_cpu),
      cmocka_unit_test(bits_do_not_depend_on_the_order_of_threads),
      cmocka_unit_test(recompute_changes_no_bit),
      cmocka_unit_test(graphs_change_no_bit),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
