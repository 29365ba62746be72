// SPDX-License-Identifier: Apache-2.0
// What a call of ranks is: its kind, its memory, its sums; and a call under way. How calls are made
// and waited for: comm.h.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/choices.h"
#include "base/dtype.h"
#include "base/status.h"

// A rank's end of a world: see comm.h.
typedef struct ot_comm ot_comm;

// What a rank runs. `comm` is its end of the world, without groups but OT_GROUP_WORLD.
typedef ot_status (*ot_rank_main)(ot_comm *comm, void *context);

typedef enum ot_comm_kind {
  OT_COMM_ALL_GATHER,  // receive [size * count] = send [count] of all, in the order of the group
  OT_COMM_REDUCE_SCATTER,  // receive [count] = sum over ranks of block `index` of send [size *
                           // count]
  OT_COMM_ALL_REDUCE,      // receive [count] = sum over ranks of send [count]
  OT_COMM_ALL_TO_ALL,      // block j of receive [size * count] = block `index` of rank j's send
  OT_COMM_SHIFT,           // receive [count] = send [count] of rank index-1 (around the group)
  OT_COMM_SEND,            // send [count] to rank `peer`; may last until that rank receives
  OT_COMM_RECEIVE,         // receive [count] from rank `peer`
  OT_COMM_EXCHANGE,        // rows to and from each, in numbers that differ: see ot_comm_runs
  OT_COMM_BARRIER,         // nothing but waiting for each other
  OT_COMM_KINDS,
} ot_comm_kind;

// Which rows of a memory go to, or come from, each rank of the group: runs of rows, in the order in
// which they travel. The rows of `sends` for rank p, one run after the other, arrive at p in the
// rows of its `receives` for this rank, one run after the other; a rank sends to itself as to any
// other. Both sides must mean equally many rows, but may split them into runs as they like.
typedef struct ot_comm_runs {
  int runs;            // for each rank, >= 0; a run may be empty
  const int32_t *run;  // [size][runs][2] first row, number of rows; must not change until the call
                       // is done
  int64_t rows;        // that the memory has: runs lie in [0, rows)
} ot_comm_runs;

// One communication. Memory stays the call's until it is done. In place is allowed where block
// `index` is meant: all_gather with send = receive + index * count, reduce_scatter with receive =
// send + index * count, all_reduce with send = receive.
typedef struct ot_comm_call {
  ot_comm_kind kind;
  ot_group_kind group;
  int peer;  // send, receive: index in the group
  int tag;   // send, receive: which message; [0, 32767]
  const void *send;
  void *receive;
  int64_t count;     // elements, see ot_comm_kind; exchange: of a row
  ot_dtype dtype;    // of what travels; fp32, fp64, bf16, i32, i64
  ot_dtype sum;      // reductions: type of the sum; reduce_scatter: also of `receive`. fp32 or fp64
                     // for bf16, else equal to dtype
  bool sum_on_wire;  // reductions: each partial sum is rounded to dtype
  bool accumulate;   // reduce_scatter: receive += the sum, added last
  bool narrow;       // reduce_scatter: `receive` is bf16; what is put there is rounded once, after
                     // all was added
  ot_comm_runs sends, receives;  // exchange: of send [rows, count] and receive [rows, count], which
                                 // do not overlap. No row is received twice; rows of `receive` in
                                 // no run keep their content
  void *workspace;               // [ot_comm_workspace] bytes
  const char *name;              // for messages: what waits; kept until done
} ot_comm_call;

// Staging bytes that `call` needs, whatever the back end: reductions and nothing else. Aligned
// to 8.
//   reduce_scatter  size * count elements of dtype
//   all_reduce      size * ceil(count / size) elements of dtype
int64_t ot_comm_workspace(const ot_comm_call *call, int group_size);

// A call in progress. An open struct, so that it can live on the stack of its caller; must not
// move.
typedef struct ot_comm_request {
  ot_comm_call call;
  int64_t sequence;  // number of the call in its group (or between the two ranks), from 1
  // Private to comm/ from here on.
  ot_comm *end;                     // whose call it is
  struct ot_comm_request *next;     // in the list that it is in
  struct ot_comm_request *peer;     // threads: another member's request of the same call, in a ring
  struct ot_comm_request *waiting;  // next of those that threads of the rank wait for
  int64_t bytes;                    // that the member receives in the first step
  int phase, step;
  bool awaited;  // a wait follows at once: no other thread need be woken
  bool waited;   // a thread waits
  int64_t private_words[4];
} ot_comm_request;
