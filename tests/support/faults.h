// SPDX-License-Identifier: Apache-2.0
// Failing system calls on demand. A test that uses this replaces the C library's open, pwrite,
// fsync, close, rename, renameat2, mkdir and unlink by ones that count their calls and fail the
// chosen one.
#pragma once

// From now on the `call`-th call (counted from 1) fails with `error`; 0 means none. Restarts the
// count.
void faults_arm(int call, int error);

// From now on the process ends without further ado at the `call`-th call, before it has an effect.
void faults_crash(int call);

// Calls since faults_arm or faults_crash.
int faults_count(void);

// Every pwrite writes at most `bytes` (0: no limit).
void faults_short_writes(long bytes);
