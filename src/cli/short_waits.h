// SPDX-License-Identifier: Apache-2.0
// How long threads of OpenMP spin before they sleep when they wait for work. A thread that spins
// takes its core from whoever else runs there; its default in libgomp is milliseconds.
#pragma once

// Makes waiting threads sleep after tens of microseconds, unless the environment says how they wait
// (OMP_WAIT_POLICY, GOMP_SPINCOUNT or KMP_BLOCKTIME). To be called first in main, with its `words`:
// an OpenMP library reads these variables when it is loaded and has no call for them, so the
// program starts itself anew, in the same process, with the variables set. Where that cannot be
// done (no /proc), threads wait as the library has it.
void ot_short_waits(char **words);
