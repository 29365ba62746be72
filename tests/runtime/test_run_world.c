// SPDX-License-Identifier: Apache-2.0
// ctest: threads
// run: any machine. Host-side communication between ranks between steps. Ranks are threads, so they
// report errors as a status; the test's thread asserts.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/text.h"
#include "runtime/run_world.h"

enum { RANKS = 8 };

static const ot_run_parallel parallel = {
    .tp = 2, .pp = 1, .vpp = 1, .cp = 2, .ep = 1, .etp = 1, .dp_replicate = 1, .zero = 1};

typedef ot_status (*team_test)(ot_world *world);

static ot_status with_team(ot_comm *comm, void *context) {
  const team_test *const test = context;
  ot_world *world = NULL;
  OT_TRY(ot_world_create(&parallel, comm, &world));
  const ot_status status = (*test)(world);
  ot_world_destroy(&world);
  return status;
}

static ot_status run(team_test test) { return ot_comm_run_threads(RANKS, with_team, &test); }

static void must(ot_status status) {
  if (status != OT_OK) fail_msg("%s (%s)", ot_fail_message(), ot_fail_chain());
}

static ot_status check_places(ot_world *world) {
  const int rank = ot_world_rank(world);
  OT_CHECK(ot_world_size(world) == RANKS, OT_BUG, "size");
  OT_CHECK(ot_world_index(world, OT_AXIS_TP) == rank % 2, OT_BUG, "tp");
  OT_CHECK(ot_world_index(world, OT_AXIS_CP) == rank / 2 % 2, OT_BUG, "cp");
  OT_CHECK(ot_world_data_index(world) == rank / 4, OT_BUG, "dp");
  OT_CHECK(ot_world_data_degree(world) == 2, OT_BUG, "dp degree");
  OT_CHECK(ot_world_is_leader(world) == (rank == 0), OT_BUG, "leader");
  return OT_OK;
}

static void ranks_know_their_places(void **state) {
  (void)state;
  must(run(check_places));
}

static ot_status check_words(ot_world *world) {
  const int rank = ot_world_rank(world);
  char text[OT_WORLD_TEXT] = "the view of another rank";
  if (rank == 0) ot_text_format(text, sizeof text, "runs/a/checkpoints/step-00000003");
  OT_TRY(ot_world_broadcast(world, text));
  OT_CHECK(strcmp(text, "runs/a/checkpoints/step-00000003") == 0, OT_BUG, "got \"%s\"", text);

  int64_t all[RANKS];
  OT_TRY(ot_world_allgather(world, -1000 + rank, all));
  for (int i = 0; i < RANKS; i++) OT_CHECK(all[i] == -1000 + i, OT_BUG, "rank %d", i);

  // Added in rank order: 1e16 absorbs each later term.
  double values[2] = {rank == 0 ? 1e16 : 1, rank};
  OT_TRY(ot_world_allreduce(world, values, 2));
  OT_CHECK(values[0] == 1e16 && values[1] == 28, OT_BUG, "%.17g %.17g", values[0], values[1]);
  return OT_OK;
}

static void texts_and_sums_reach_every_rank(void **state) {
  (void)state;
  must(run(check_words));
}

static ot_status fail_on_two_ranks(ot_world *world) {
  const int rank = ot_world_rank(world);
  ot_status status = OT_OK;
  if (rank == 5) status = ot_fail(OT_ENVIRONMENT, "no room for rank five");
  if (rank == 6) status = ot_fail(OT_USAGE, "another failure");
  OT_TRY(ot_world_agree(world, status));
  return ot_fail(OT_BUG, "rank %d went on", rank);
}

static void all_ranks_end_with_the_first_failure(void **state) {
  (void)state;
  assert_int_equal(run(fail_on_two_ranks), OT_ENVIRONMENT);
  assert_non_null(strstr(ot_fail_message(), "rank 5 on "));
  assert_non_null(strstr(ot_fail_message(), "no room for rank five"));
}

static ot_status differ(ot_world *world) {
  return ot_world_check_equal(world, ot_world_rank(world) == 3 ? 1 : 2, "the settings of the run");
}

static void ranks_that_differ_are_named(void **state) {
  (void)state;
  assert_int_equal(run(differ), OT_RANKS);
  assert_non_null(strstr(ot_fail_message(), "rank 3"));
  assert_non_null(strstr(ot_fail_message(), "the settings of the run"));
}

static ot_status read_another_file(ot_world *world) {
  const int rank = ot_world_rank(world);
  OT_TRY(ot_world_check_file(world, "data/same.bin", 7));
  OT_TRY(ot_world_check_file(world, "data/on_few.bin", rank % 3 == 1 ? 7 : 0));
  return ot_world_check_file(world, "data/train.bin", rank == 4 || rank == 6 ? 1 : 2);
}

static void a_file_that_differs_on_a_rank_is_named_with_the_host(void **state) {
  (void)state;
  char host[64] = "";
  assert_int_equal(run(read_another_file), OT_RANKS);
  assert_int_equal(gethostname(host, sizeof host - 1), 0);
  assert_non_null(strstr(ot_fail_message(), "rank 4 on "));
  assert_non_null(strstr(ot_fail_message(), host));
  assert_non_null(
      strstr(ot_fail_message(), "data/train.bin has another content here than on rank 0"));
  assert_non_null(strstr(ot_fail_hint_text(), "copy the file from one host"));
}

static void a_world_that_does_not_fit_is_refused(void **state) {
  (void)state;
  const team_test test = check_places;
  assert_int_equal(ot_comm_run_threads(6, with_team, (void *)&test), OT_RANKS);
  assert_non_null(strstr(ot_fail_message(), "6 ranks are not a multiple"));
}

static void null_ranks_are_one_rank(void **state) {
  (void)state;
  char text[OT_WORLD_TEXT] = "kept";
  double value = 2;
  int64_t all[1];
  must(ot_world_broadcast(NULL, text));
  must(ot_world_allreduce(NULL, &value, 1));
  must(ot_world_allgather(NULL, 7, all));
  must(ot_world_check_equal(NULL, 7, "nothing"));
  assert_string_equal(text, "kept");
  assert_true(value == 2 && all[0] == 7);
  assert_int_equal(ot_world_agree(NULL, OT_USAGE), OT_USAGE);
  assert_true(ot_world_is_leader(NULL) && ot_world_threads(NULL) >= 1);
  assert_int_equal(ot_world_data_degree(NULL), 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ranks_know_their_places),
      cmocka_unit_test(texts_and_sums_reach_every_rank),
      cmocka_unit_test(all_ranks_end_with_the_first_failure),
      cmocka_unit_test(ranks_that_differ_are_named),
      cmocka_unit_test(a_file_that_differs_on_a_rank_is_named_with_the_host),
      cmocka_unit_test(a_world_that_does_not_fit_is_refused),
      cmocka_unit_test(null_ranks_are_one_rank),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
