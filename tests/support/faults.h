// SPDX-License-Identifier: Apache-2.0
// Failing system calls on demand. A test that uses this file replaces the C library's open, pwrite,
// fallocate, fsync, close, rename, renameat2, mkdir and unlink by versions that count calls and
// fail the chosen one; ftruncate and rmdir are recorded only.
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

// Effect of a call that succeeded on a file or directory, in call order since faults_watch.
typedef enum faults_kind {
  FAULTS_CREATE,  // open of a file that did not exist
  FAULTS_MAKE,    // mkdir
  FAULTS_WRITE,   // pwrite
  FAULTS_EXTEND,  // fallocate
  FAULTS_CUT,     // ftruncate
  FAULTS_SYNC,    // fsync of a file or directory
  FAULTS_RENAME,  // rename, renameat2
  FAULTS_REMOVE   // unlink, rmdir
} faults_kind;
typedef struct faults_event {
  faults_kind kind;
  char path[512];  // FAULTS_RENAME: the old name
  char to[512];    // FAULTS_RENAME: the new name
  unsigned flags;  // FAULTS_RENAME: those of renameat2
  // FAULTS_WRITE: what was written where; FAULTS_EXTEND: the range; FAULTS_CUT: `bytes` is the
  // size.
  long offset, bytes;
  const void *data;
  int covered;  // FAULTS_SYNC: events that had happened when it began
} faults_event;

// Starts a record. The events of the last one are released.
void faults_watch(void);
// Number of events of the record so far.
int faults_watched(void);
// Ends the record and returns its events, their number in `count`.
const faults_event *faults_events(int *count);
