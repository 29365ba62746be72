// SPDX-License-Identifier: Apache-2.0
// run: any machine. Changes that make a job fit, against searches of the changed job.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "advise/remedy.h"
#include "support/paper_job.h"

static const ot_candidate nothing_given = {
    .zero = -1, .pipeline = (ot_pipeline)-1, .recompute = (ot_recompute)-1};

static bool says(const ot_remedies *remedies, const char *start) {
  for (int i = 0; i < remedies->num; i++) {
    if (strncmp(remedies->text[i], start, strlen(start)) == 0) return true;
  }
  return false;
}

// 8.03 G x 16 bytes do not fit on one device of 80 GB under any split.
static void more_devices_help_where_states_do_not_fit(void **state) {
  (void)state;
  paper_job p;
  ot_remedies remedies;
  paper_job_create("llama3-8b", 1, 8, 1024, &p);
  p.job.given = nothing_given;
  if (ot_remedies_build(&p.job, NULL, &p.arena, &remedies) != OT_OK)
    fail_msg("%s", ot_fail_message());
  assert_int_equal(remedies.num, 1);
  if (!says(&remedies, "with 2 devices: ")) fail_msg("%s", remedies.text[0]);
  paper_job_destroy(&p);
}

// Unsharded states do not fit on a device; sharded ones do.
static void a_fixed_value_is_named(void **state) {
  (void)state;
  paper_job p;
  ot_remedies remedies;
  paper_job_create("llama3-8b", 8, 8, 1024, &p);
  p.job.given = nothing_given;
  p.job.given.zero = 0;
  p.job.given.tp = p.job.given.pp = p.job.given.cp = 1;
  if (ot_remedies_build(&p.job, NULL, &p.arena, &remedies) != OT_OK)
    fail_msg("%s", ot_fail_message());
  assert_true(says(&remedies, "without --zero: tp 1 pp 1"));
  assert_false(says(&remedies, "without --recompute"));
  paper_job_destroy(&p);
}

// 16 bytes a parameter do not fit, 12 do; no other change keeps the devices.
static void a_precision_of_fewer_bytes_is_named_before_more_devices(void **state) {
  (void)state;
  paper_job p;
  ot_remedies remedies;
  paper_job_create("gpt2-xl", 1, 8, 1024, &p);
  p.job.given = nothing_given;
  p.cluster.device.memory_bytes = 25000000000;
  if (ot_remedies_build(&p.job, NULL, &p.arena, &remedies) != OT_OK)
    fail_msg("%s", ot_fail_message());
  assert_int_equal(remedies.num, 2);
  assert_memory_equal(remedies.text[0], "with --precision bf16-bf16-moments: ", 36);
  assert_memory_equal(remedies.text[1], "with 2 devices: ", 16);
  assert_string_equal(remedies.change[0].precision, "bf16-bf16-moments");
  assert_true(remedies.change[0].plan.fits);
  paper_job_destroy(&p);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_precision_of_fewer_bytes_is_named_before_more_devices),
      cmocka_unit_test(more_devices_help_where_states_do_not_fit),
      cmocka_unit_test(a_fixed_value_is_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
