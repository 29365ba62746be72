// SPDX-License-Identifier: Apache-2.0
// Cores of this machine, and threads that stay on cores of their own. Linux places a woken thread
// on an idle core near its last one, but in a virtual machine a core that has been idle for long
// counts as taken (vcpu_is_preempted): the thread then waits on the core of the one that woke it,
// for up to a time slice of milliseconds, in each kernel of several threads and after each
// collective. A bound thread cannot.
#pragma once

#include <sched.h>
#include <stdbool.h>

// Cores that the calling thread may use, at least 1.
int ot_host_cores(void);
// The cores of each of `ranks` ranks that share them, at least 1.
int ot_host_threads(int ranks);

// The calling thread and its OpenMP threads, one to a core, where the ranks of this host use all
// their cores. Other numbers of threads leave room to avoid busy cores, and are not bound.
typedef struct ot_core_binding {
  int rank, ranks, threads;  // of this host; of each rank
  bool workers;              // OpenMP threads are bound, until ot_cores_destroy
  bool bound;                // the calling thread is, until ot_cores_release
  cpu_set_t all;             // what the calling thread may use while it is not bound
} ot_core_binding;

// Both cost two system calls, the first one also a parallel region.
void ot_cores_bind(ot_core_binding *binding);
void ot_cores_release(ot_core_binding *binding);

// Lets the OpenMP threads use all cores again. Call it on the thread that was bound.
void ot_cores_destroy(ot_core_binding *binding);
