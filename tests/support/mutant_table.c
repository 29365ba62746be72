// SPDX-License-Identifier: Apache-2.0
// All lists of bugs in one table.
#include "base/status.h"
#include "support/mutant.h"

static mutant_list list_at(int index) {
  switch (index) {
    case 0:
      return mutants_of_sums();
    case 1:
      return mutants_of_micro_batches();
    case 2:
      return mutants_of_updates();
    case 3:
      return mutants_of_data();
    case 4:
      return mutants_of_mathematics();
    case 5:
      return mutants_of_state();
    default:
      return mutants_of_experts();
  }
}

enum { LISTS = 7 };

int mutant_count(void) {
  int count = 0;
  for (int i = 0; i < LISTS; i++) count += list_at(i).count;
  return count;
}

const mutant *mutant_at(int index) {
  for (int i = 0; i < LISTS; i++) {
    const mutant_list list = list_at(i);
    if (index < list.count) return &list.mutants[index];
    index -= list.count;
  }
  OT_UNREACHABLE();
}
