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

// What a call did to a file or directory, in the order of the calls since faults_watch.
typedef enum faults_kind { FAULTS_CREATE, FAULTS_WRITE, FAULTS_SYNC, FAULTS_RENAME } faults_kind;
typedef struct faults_event {
  faults_kind kind;
  char path[512];  // of FAULTS_RENAME: the old name
} faults_event;

// Starts a record of at most 4096 events; later ones are dropped.
void faults_watch(void);
// The record, and how many events it has. Ends it.
const faults_event *faults_events(int *count);
