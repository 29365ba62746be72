// SPDX-License-Identifier: Apache-2.0
// A process between this program and one that it starts, whose only task is that nothing of it
// outlives it: children that leave its process group, its session or their parent become children
// of the keeper.
#pragma once

#include <stdint.h>
#include <sys/types.h>

typedef enum ot_keeper_manner {
  OT_KEEPER_KILLS,    // an end signal, or the death of the parent, kills the program
  OT_KEEPER_FORWARDS  // it is passed on to all of the group, and the program ends by itself
} ot_keeper_manner;

typedef struct ot_keeper {
  ot_keeper_manner manner;
  int64_t stderr_bytes;  // that are passed on of what the program writes to its stderr; 0: it has
                         // the stderr of its parent
} ot_keeper;

// In a new process, after fork: it becomes the keeper, the leader of a process group, and this
// returns in its child, which becomes the program; that of OT_KEEPER_KILLS leads a group of its
// own, so that it cannot signal the keeper with it. When the program has ended, all its descendants
// are killed, and the keeper ends like the program. What is passed on of its stderr waits for no
// reader: what would wait, and what is too much, is dropped. Only calls that are safe after fork;
// the memory of the parent that is large is not there (MADV_DONTFORK).
void ot_child_keep(ot_keeper keeper);

// Ends a keeper of OT_KEEPER_KILLS and waits for it. 0: none.
void ot_child_end(pid_t keeper);
