// SPDX-License-Identifier: Apache-2.0
// Failing system calls on demand. A test that uses this file replaces the C library's open, pwrite,
// fallocate, fsync, close, rename, renameat2, mkdir and unlink by versions that count calls and
// fail the chosen one.
#pragma once

// Makes the `call`-th call from now on (counted from 1) fail with `error`; 0: no call fails.
// Restarts the count.
void faults_arm(int call, int error);

// Ends the process at the `call`-th call from now on, before that call has an effect.
void faults_crash(int call);

// Number of calls since faults_arm or faults_crash.
int faults_count(void);

// Limits each pwrite to `bytes` bytes (0: no limit).
void faults_short_writes(long bytes);

// Effect of a call on a file or directory, in call order since faults_watch.
typedef enum faults_kind { FAULTS_CREATE, FAULTS_WRITE, FAULTS_SYNC, FAULTS_RENAME } faults_kind;
typedef struct faults_event {
  faults_kind kind;
  char path[512];  // FAULTS_RENAME: the old name
} faults_event;

// Starts a record of at most 4096 events; later ones are dropped.
void faults_watch(void);
// Ends the record and returns its events, their number in `count`.
const faults_event *faults_events(int *count);
