// SPDX-License-Identifier: Apache-2.0
// ctest: device
// run: serial. Hashes of bits: the published outputs of splitmix64, every storage type, sums over
// calls, any number of threads; one bit or two exchanged elements change the hash.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "support/op_case.h"

static ot_case case_of(ot_dtype type, int64_t n) {
  ot_case c = {.kind = OT_OP_CHECKSUM,
               .attributes = {.threads = 2, .compute = type == OT_F64 ? OT_F64 : OT_F32},
               .types = {.in = {ot_type_vector(type, n)}, .out = {ot_type_vector(OT_I64, 1)}}};
  ot_case_create(&c);
  return c;
}

static uint64_t hash(ot_case *c) {
  uint64_t s;
  ot_case_run(c);
  memcpy(&s, c->out[0].data, sizeof s);
  return s;
}

// The first outputs of splitmix64 with seed 0 (S. Vigna, prng.di.unimi.it).
static void zeros_are_the_outputs_of_splitmix64(void **state) {
  static const uint64_t outputs[] = {0xe220a8397b1dcdaf, 0x6e789e6aa1b965f4, 0x06c45d188009454f};
  static const ot_dtype types[] = {OT_BF16, OT_F32, OT_F64};
  (void)state;
  for (int t = 0; t < 3; t++) {
    uint64_t expected = 0;
    for (int64_t n = 1; n <= 3; n++) {
      ot_case c = case_of(types[t], n);
      for (int64_t i = 0; i < n; i++) ot_case_set(&c.in[0], i, 0);
      expected += outputs[n - 1];
      assert_true(hash(&c) == expected);
      ot_case_destroy(&c);
    }
  }
}

static void every_bit_counts(void **state) {
  enum { N = 70001 };
  (void)state;
  ot_case c = case_of(OT_F32, N);
  uint32_t *const bits = c.in[0].data;
  const uint64_t before = hash(&c);
  bits[N - 1] ^= 1;
  assert_true(hash(&c) != before);
  bits[N - 1] ^= 1;
  const uint32_t kept = bits[5];
  assert_true(kept != bits[6]);
  bits[5] = bits[6];
  bits[6] = kept;
  assert_true(hash(&c) != before);
  bits[6] = bits[5];
  bits[5] = kept;
  for (int threads = 1; threads <= 8; threads++) {
    c.attributes.threads = threads;
    assert_true(hash(&c) == before);
  }
  c.attributes.accumulate = true;
  assert_true(hash(&c) == 2 * before);
  ot_case_destroy(&c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(zeros_are_the_outputs_of_splitmix64),
      cmocka_unit_test(every_bit_counts),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
