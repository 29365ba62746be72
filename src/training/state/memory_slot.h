// SPDX-License-Identifier: Apache-2.0
// A copy of a rank's state as a file of a memory file system, mapped into this process: it outlives
// the process. A head of one page says what it is; a seal on the head is written last, so that a
// copy is complete or absent. The folder is this user's alone. Private to memory_*.c.
//
//   head [OT_MEMORY_HEAD_BYTES] | state [bytes, padded to 64] | text [OT_MEMORY_TEXT_BYTES]
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "files/content_hash.h"

enum { OT_MEMORY_HEAD_BYTES = 4096, OT_MEMORY_TEXT_BYTES = 1 << 18, OT_MEMORY_NAME_BYTES = 32 };

typedef struct ot_memory_head {
  char magic[24];
  uint64_t history;  // of the run: changes when it goes back to an older state
  uint64_t attempt;  // of the processes that made the copy
  uint64_t layout;   // what lies where on which rank
  int64_t rank, ranks;
  int64_t step, next_sample, tokens;
  int64_t bytes, text_bytes;  // of state and text
  char hash[OT_CONTENT_HASH_BYTES];
  uint64_t seal;  // hash of all above
} ot_memory_head;

typedef struct ot_memory_slot {
  char *map;      // null: no file
  int64_t bytes;  // of the file
} ot_memory_slot;

// Opens the folder `path`, made if it is absent. OT_ENVIRONMENT unless it is a directory that this
// user owns and no other may enter; links are not followed. *folder is a descriptor.
ot_status ot_memory_folder_open(const char *path, int *folder);

// Bytes of the file of a copy of `bytes` bytes.
int64_t ot_memory_slot_bytes(int64_t bytes);

// The name of copy `index`, 0 or 1, of `rank`; and back: false for another name.
void ot_memory_slot_name(int rank, int index, char name[OT_MEMORY_NAME_BYTES]);
bool ot_memory_slot_parse(const char *name, int *rank, int *index);

// Maps the file `name`, if there is one that this program made; else slot->map stays null.
void ot_memory_slot_open(int folder, const char *name, ot_memory_slot *slot);

// The same for a file of `bytes` bytes; another is replaced by one whose memory is reserved.
// OT_ENVIRONMENT if there is no room.
ot_status ot_memory_slot_create(int folder, const char *name, int64_t bytes, ot_memory_slot *slot);
// Maps all pages now, so that the first copy takes no longer than others.
void ot_memory_slot_touch(const ot_memory_slot *slot);
void ot_memory_slot_close(ot_memory_slot *slot);

// False if the slot has no complete copy.
bool ot_memory_slot_head(const ot_memory_slot *slot, ot_memory_head *head);

char *ot_memory_slot_state(const ot_memory_slot *slot);
char *ot_memory_slot_text(const ot_memory_slot *slot);  // zero-terminated

// The slot has no complete copy any more.
void ot_memory_slot_clear(ot_memory_slot *slot);

// XXH3-128 of state and text, as the sizes in `head` say.
ot_status ot_memory_slot_hash(const ot_memory_slot *slot, const ot_memory_head *head,
                              char hex[OT_CONTENT_HASH_BYTES]);

// The copy is complete with this head, whose magic and seal are filled in first.
void ot_memory_slot_seal(ot_memory_slot *slot, ot_memory_head *head);
// The same with a head that was sealed before.
void ot_memory_slot_put(ot_memory_slot *slot, const ot_memory_head *head);
