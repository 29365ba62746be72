// SPDX-License-Identifier: Apache-2.0
// run: any machine; in builds without CUDA on an emulated GPU. Initial weights drawn on a GPU have
// the bits of those drawn on the CPU, and nothing outside of their ranges is written.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "base/status.h"
#include "device/device.h"
#include "kernels/kernels.h"

enum { ROWS = 61, COLUMNS = 83, ELEMENTS = ROWS * COLUMNS, ARENA = 1 << 17 };

// Two copies of a matrix: all of it, and a range that begins and ends within rows.
static ot_initial_draw draw_of(ot_dtype weight, ot_dtype master, bool transposed) {
  const uint64_t row_step = transposed ? 1 : COLUMNS, column_step = transposed ? ROWS : 1;
  return (ot_initial_draw){
      .normal = true,
      .scale = 0.02,
      .seed = 1234567,
      .stream = 0x9e3779b97f4a7c15u,
      .counter = 0xfffffff0u,  // passes into the upper half
      .row_step = row_step,
      .column_step = column_step,
      .columns = COLUMNS,
      .target = {{64, 0, ELEMENTS, weight}, {64 + ELEMENTS * 8 + 8, 100, ELEMENTS - 1000, master}},
      .num_targets = 2};
}

static void draw_on_gpu(const ot_initial_draw *draw, unsigned char *found) {
  ot_device *device = NULL;
  ot_stream *stream = NULL;
  void *arena = NULL;
  if (ot_device_create(OT_BACKEND_CUDA, 0, &device)) fail_msg("%s", ot_fail_message());
  assert_int_equal(ot_stream_create(device, &stream), OT_OK);
  assert_int_equal(ot_device_allocate(device, ARENA, &arena), OT_OK);
  assert_int_equal(ot_device_fill(device, arena, 0, 0xa5, ARENA), OT_OK);
  ot_kernel_draw_initial(OT_BACKEND_CUDA, ot_stream_native(stream), 1, draw, arena);
  assert_int_equal(ot_stream_synchronize(stream), OT_OK);
  assert_int_equal(ot_device_read(device, arena, 0, found, ARENA), OT_OK);
  ot_device_release(device, &arena, ARENA);
  ot_stream_destroy(&stream);
  ot_device_destroy(&device);
}

static void compare(const ot_initial_draw *draw, const char *what) {
  unsigned char *const expected = malloc(ARENA), *const found = malloc(ARENA);
  memset(expected, 0xa5, ARENA);
  ot_kernel_draw_initial(OT_BACKEND_CPU, NULL, 2, draw, expected);
  draw_on_gpu(draw, found);
  for (int i = 0; i < ARENA; i++) {
    if (expected[i] != found[i]) fail_msg("%s: byte %d", what, i);
  }
  free(expected);
  free(found);
}

static void normal_numbers_have_the_bits_of_the_cpu(void **state) {
  static const ot_dtype types[][2] = {{OT_BF16, OT_F32}, {OT_F32, OT_F32}, {OT_F64, OT_F64}};
  char what[64];
  (void)state;
  for (int i = 0; i < OT_COUNT(types); i++) {
    for (int transposed = 0; transposed < 2; transposed++) {
      const ot_initial_draw draw = draw_of(types[i][0], types[i][1], transposed);
      snprintf(what, sizeof what, "%s, transposed %d", ot_dtype_name(types[i][0]), transposed);
      compare(&draw, what);
    }
  }
}

static void constants_have_the_bits_of_the_cpu(void **state) {
  (void)state;
  ot_initial_draw draw = draw_of(OT_BF16, OT_F32, false);
  draw.normal = false;
  draw.scale = 1.0 / 3;
  compare(&draw, "a constant");
}

// The numbers are those of ot_rng_normal, which tests of base/ compare with published vectors.
static void an_element_is_the_number_of_its_counter(void **state) {
  (void)state;
  const ot_initial_draw draw = draw_of(OT_F64, OT_F64, true);
  unsigned char *const found = malloc(ARENA);
  draw_on_gpu(&draw, found);
  for (int64_t i = 0; i < ELEMENTS; i++) {
    const uint64_t counter =
        draw.counter + (uint64_t)(i / COLUMNS) + (uint64_t)(i % COLUMNS) * ROWS;
    const double expected = 0.02 * ot_rng_normal(draw.seed, draw.stream, counter);
    if (memcmp(found + 64 + i * 8, &expected, 8) != 0) fail_msg("element %lld", (long long)i);
  }
  free(found);
}

int main(void) {
  setenv("OT_TEST_DEVICE", "cuda", 1);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(normal_numbers_have_the_bits_of_the_cpu),
      cmocka_unit_test(constants_have_the_bits_of_the_cpu),
      cmocka_unit_test(an_element_is_the_number_of_its_counter),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
