// SPDX-License-Identifier: Apache-2.0
// A communication call: its kind, buffers and reduction dtype; and its request. How calls are
// started and waited for: comm.h.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/choices.h"
#include "base/dtype.h"
#include "base/status.h"
#include "device/device.h"

// A rank's communicator: see comm.h.
typedef struct ot_comm ot_comm;

// The main of a rank. `comm` is its communicator, with OT_GROUP_WORLD only.
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
  OT_COMM_ALL_TO_ALL_V,    // all-to-all-v of token rows: see ot_comm_splits
  OT_COMM_BARRIER,         // no data
  OT_COMM_KINDS,
} ot_comm_kind;

// Which rows of a buffer are sent to, or received from, each rank of the group: runs of rows in the
// order of transfer. The rows of `sends` for rank p, run after run, arrive at p in the rows of its
// `receives` for this rank, run after run; a rank also sends to itself. Both sides must give equal
// row counts but may split them into different runs.
typedef struct ot_comm_splits {
  int runs;            // for each rank, >= 0; a run may be empty
  const int32_t *run;  // [size][runs][2] first row, number of rows; constant until the call is done
  int64_t rows;        // rows of the buffer: runs lie in [0, rows)
} ot_comm_splits;

// One communication. The call owns its buffers until it is done. In place is allowed for block
// `index`: all_gather with send = receive + index * count, reduce_scatter with receive = send +
// index * count, all_reduce with send = receive.
typedef struct ot_comm_call {
  ot_comm_kind kind;
  ot_group_kind group;
  int peer;  // send, receive: index in the group
  int tag;   // send, receive: matches messages; [0, 32767]
  const void *send;
  void *receive;
  int64_t count;     // elements, see ot_comm_kind; all-to-all-v: per row
  ot_dtype dtype;    // of the data sent; fp32, fp64, bf16, i32, i64
  ot_dtype sum;      // reductions: accumulation dtype; reduce_scatter: also of `receive`. fp32 or
                     // fp64 for bf16, else equal to dtype
  bool sum_on_wire;  // reductions: each partial sum is rounded to dtype
  bool accumulate;   // reduce_scatter: receive += the sum, added last
  bool narrow;       // reduce_scatter: `receive` is bf16; the final value is rounded once
  ot_comm_splits sends, receives;  // all-to-all-v: of send [rows, count] and receive [rows, count],
                                   // disjoint. No row is received twice; rows of `receive` outside
                                   // the runs keep their values
  void *workspace;                 // [ot_comm_workspace] bytes
  bool patient;                    // waits have no timeout: the other ranks may wait for a disk
  bool discarded;  // this rank does not read what it receives; where no member does, a back end may
                   // move nothing
  // Null: the buffers are in host memory. Else they are in the memory of the stream's device
  // (ot_comm_use_device), and the call runs in stream order: after what the stream holds when the
  // call starts, and before what is queued on it after the call is done. Done then means queued.
  // The runs of an all-to-all-v are in host memory. There is no barrier with a stream. With NCCL,
  // calls of members that differ are not found out: they never end.
  ot_stream *stream;
  ot_event *event;   // with `stream`: recorded on it when the call's last work is queued
  const char *name;  // shown in messages; kept until done
} ot_comm_call;

// Staging bytes that `call` needs, on every back end. Aligned to 8.
//   reduce_scatter  size * count elements of dtype
//   all_reduce      size * ceil(count / size) elements of dtype
//   all_to_all_v    with a stream, where sends or receives have several runs: all their rows
//   other kinds     none
int64_t ot_comm_workspace(const ot_comm_call *call, int group_size);

// A call in progress. An open struct so that callers can put it on the stack; must not move.
typedef struct ot_comm_request {
  ot_comm_call call;
  int64_t sequence;  // number of the call in its group (or between the two ranks), from 1
  // Private to comm/ from here on.
  ot_comm *end;                     // communicator that owns the call
  struct ot_comm_request *next;     // in its current list
  struct ot_comm_request *peer;     // threads: next member's request of the call, circular list
  struct ot_comm_request *waiting;  // next request that threads of the rank wait for
  int64_t bytes;                    // received by the member in the first step
  int phase, step;
  bool awaited;  // a wait follows at once: no other thread needs waking
  bool waited;   // a thread waits
  int64_t private_words[4];
} ot_comm_request;
