// SPDX-License-Identifier: Apache-2.0
// An arena and an empty folder for each test of a file:
//   cmocka_unit_test_setup_teardown(TEST, open_directory, close_directory)
#pragma once

#include "support/arena_fixture.h"
#include "support/scratch.h"

static char directory[SCRATCH_BYTES];

static inline int open_directory(void **state) {
  scratch_create(directory);
  return begin(state);
}

static inline int close_directory(void **state) {
  scratch_destroy(directory);
  return finish(state);
}
