// SPDX-License-Identifier: Apache-2.0
// What back ends of comm.h share: the common head of an end, the table that a back end fills, and
// the texts that name a call. Private to comm/.
#pragma once

#include <stdarg.h>
#include <stdatomic.h>

#include "comm/comm.h"

// What a back end does. Arguments have been checked by comm.c; see there for the contracts.
typedef struct ot_comm_backend {
  ot_status (*add_group)(ot_comm *comm, ot_group_kind kind, const int *ranks, int size);
  void (*start)(ot_comm *comm, ot_comm_request *request);  // request->call is set
  bool (*done)(ot_comm *comm, ot_comm_request *request);
  ot_status (*wait)(ot_comm *comm, ot_comm_request *request);
  void (*set_waiting)(ot_comm *comm, bool waits);
  void (*add_thread)(ot_comm *comm, bool more);
  void (*fail)(ot_comm *comm, ot_status status);
  void (*abort)(ot_comm *comm, ot_status status);
} ot_comm_backend;

// 32-bit words in which a rank tells the others of its failure.
enum { OT_AGREEMENT_WORDS = 640 };

// A group as the rank sees it; size 0 where there is none.
typedef struct ot_comm_group {
  int size;
  int index;   // of this rank
  int *ranks;  // [size] of the world; owned by the end
} ot_comm_group;

// The head of every back end's end of a world.
struct ot_comm {
  const ot_comm_backend *backend;
  int rank;
  int size;
  int local_size;  // ranks on this machine
  char host[128];
  _Atomic double patience_s;  // 0: without end
  bool agreed;                // on a failure that all ranks know, by the same message
  int64_t *gathered;          // [size] scratch of agreements
  int32_t *scratch;           // [OT_AGREEMENT_WORDS + size] too
  ot_comm_group groups[OT_GROUP_KINDS];
  _Atomic double sent_bytes[OT_GROUP_KINDS][OT_COMM_KINDS];  // see ot_comm_sent_bytes
};

// Fills the head of a zeroed end; the world group is not made. OT_ENVIRONMENT when out of memory.
ot_status ot_comm_head_create(ot_comm *comm, const ot_comm_backend *backend, int rank, int size);
void ot_comm_head_destroy(ot_comm *comm);
// Records the group in the head. OT_ENVIRONMENT when out of memory.
ot_status ot_comm_head_group(ot_comm *comm, ot_group_kind kind, const int *ranks, int size);

// False for what is not a failure of a rank: done, an audit's findings, stopped by a signal.
bool ot_comm_is_failure(ot_status status);

// True when a wait wakes up so long behind its deadline that this process itself cannot have run
// (it was stopped, or its machine slept): then its patience begins anew, and it accuses nobody.
bool ot_comm_was_stopped(double late_s);

// ---- calls ----

// Panics unless `call` is one that comm.h allows.
void ot_comm_check_call(const ot_comm *comm, const ot_comm_call *call);
bool ot_comm_is_reduction(ot_comm_kind kind);
// True when the call is between two ranks.
bool ot_comm_is_message(ot_comm_kind kind);
// Bytes that member `index` of `size` puts on the wire for `call`.
double ot_comm_wire_bytes(const ot_comm_call *call, int size, int index);
// Elements of each block of an all_reduce over `size` ranks, the last ones having fewer.
int64_t ot_comm_block(int64_t count, int size);
// Elements of block `index` of them.
int64_t ot_comm_block_count(int64_t count, int size, int index);

// ---- rows of an exchange ----

// Panics unless all runs lie in their memory, and the two memories apart.
void ot_comm_check_rows(const ot_comm_call *call, int size);
int64_t ot_comm_row_bytes(const ot_comm_call *call);
// The runs [runs->runs][2] for `member`, and how many rows they have together.
const int32_t *ot_comm_runs_of(const ot_comm_runs *runs, int member);
int64_t ot_comm_rows_of(const ot_comm_runs *runs, int member);
// Copies what member `from`, whose call is `sender`, sends to member `to`, whose call is
// `receiver`. Both mean equally many rows.
void ot_comm_copy_rows(const ot_comm_call *sender, int from, const ot_comm_call *receiver, int to);

// ---- launchers ----

// The number of this process as its launcher counts; 0 when there is none.
int ot_comm_launched_rank(void);

// ---- texts ----

// Text in fixed memory; what does not fit is cut.
typedef struct ot_comm_text {
  char *text;
  int64_t capacity, length;
} ot_comm_text;

void ot_comm_say(ot_comm_text *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
// "rank 3", "ranks 0-3 7": those of `ranks` [size] (null: 0, 1, ...) for which `is`(context, index)
// (null: all); returns how many.
typedef bool (*ot_comm_rank_filter)(const void *context, int index);
int ot_comm_say_ranks(ot_comm_text *out, const int *ranks, int size, ot_comm_rank_filter is,
                      const void *context);
// "'NAME' (reduce_scatter 5 of group shard, ranks 0-3)".
void ot_comm_say_call(ot_comm_text *out, const ot_comm *comm, const ot_comm_request *request);
// "ranks differ in 'NAME' (...): rank 1 sends 3 rows to rank 0, which expects 4": the two members
// of the request's group do not mean equally many.
typedef struct ot_comm_uneven {
  int from, to;            // members
  int64_t sent, expected;  // rows
} ot_comm_uneven;
void ot_comm_say_uneven(ot_comm_text *out, const ot_comm *comm, const ot_comm_request *request,
                        const ot_comm_uneven *rows);
// "all_gather", ...
const char *ot_comm_kind_name(ot_comm_kind kind);
