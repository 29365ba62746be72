// SPDX-License-Identifier: Apache-2.0
// Sets how long waiting OpenMP threads spin before they sleep. A spinning thread takes its core
// from other programs, and libgomp's default is milliseconds.
#pragma once

// Makes waiting threads sleep after tens of microseconds, unless the environment sets
// OMP_WAIT_POLICY, GOMP_SPINCOUNT or KMP_BLOCKTIME. Must be called first in main, with its `words`:
// an OpenMP library reads these variables only when it is loaded, so the program re-executes itself
// in the same process with the variables set. If that is impossible (no /proc), the default of the
// library remains.
void ot_openmp_set_passive(char **words);
