// SPDX-License-Identifier: Apache-2.0
// The state of the copies in memory, shared by memory_*.c. Private to these.
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "base/failure.h"
#include "files/disk.h"
#include "host/heap.h"
#include "state/memory_copies.h"
#include "state/memory_slot.h"

// The copies of another rank, which this one keeps, too.
typedef struct ot_memory_replica {
  int rank;
  ot_memory_slot slot[2];
} ot_memory_replica;

struct ot_memory_copies {
  ot_memory_request request;
  ot_heap heap;
  ot_arena arena;
  char path[OT_PATH_BYTES];
  int folder;
  int rank, size;
  int64_t *machine;  // [size] hosts of the ranks
  int64_t *bytes;    // [size] of their states
  int local_rank, local_size;
  int hosts;
  int *partners;  // [size] keep copies of the ranks on another host; -1: none
  int partner;    // keeps this rank's copies, too; -1: none
  int num_replicas;
  ot_memory_replica *replicas;  // [num_replicas]
  uint64_t layout;
  uint64_t history, attempt;
  ot_memory_slot slot[2];
  int newest;  // slot of the last copy
  bool on;

  pthread_t thread;
  bool joined;  // no thread to join
  atomic_bool running;
  double take_s;  // when the copy began
  ot_memory_head head;
  ot_memory_account account;
};

// Maps the file of this rank's copies or of a replica.
ot_status ot_memory_reserve(ot_memory_copies *c, int rank, ot_memory_slot slot[2]);

// Sends a file to `to`, or receives one of slot->bytes bytes: the copy first, its head when all of
// it has arrived. Several calls with different peers may be started by one rank in the order of
// the receiving ranks. Blocks.
ot_status ot_memory_send(ot_memory_copies *c, const ot_memory_slot *slot, int to);
ot_status ot_memory_receive(ot_memory_copies *c, ot_memory_slot *slot, int from);

// Sends slot `index` to the partner and receives the replicas.
ot_status ot_memory_exchange(ot_memory_copies *c, int index);

// Whether a rank of this host keeps copies of `rank`, and whether this rank owns the files of
// `rank` that its host has: the rank that keeps its copies does, for others one rank of the host.
bool ot_memory_is_kept(const ot_memory_copies *c, int rank);
bool ot_memory_owns(const ot_memory_copies *c, int rank);

// True on all ranks if `held` is on all. Collective over the world.
ot_status ot_memory_all(ot_memory_copies *c, bool held, bool *all);
// The first text that is not empty, from the rank that has it, on all ranks.
ot_status ot_memory_share_text(ot_memory_copies *c, char *text, int64_t bytes);
