// SPDX-License-Identifier: Apache-2.0
// Requests in the order of their start, which is the order of their entries.
#include "execute/mailbox.h"

#include "base/failure.h"

static int count_messages(const ot_schedule *schedule, const ot_order *order) {
  int messages = 0;
  for (int i = 0; i < order->num_entries; i++) {
    const ot_entry *const entry = &order->entries[i];
    if (entry->lane == OT_LANE_PIPELINE) messages += schedule->segments[entry->segment].num_tasks;
  }
  return messages;
}

void ot_mailbox_create(const ot_schedule *schedule, ot_comm *comm, ot_recorder *recorder,
                       ot_arena *arena, ot_mailbox *box) {
  *box = (ot_mailbox){.comm = comm, .recorder = recorder};
  for (int i = 0; i < schedule->num_orders; i++) {
    const int messages = count_messages(schedule, &schedule->orders[i]);
    if (messages > box->capacity) box->capacity = messages;
  }
  box->slots = ot_arena_array(arena, box->capacity + 1, sizeof *box->slots);
}

void ot_mailbox_begin(ot_mailbox *box) {
  box->count = box->open = 0;
  box->failed = -1;
}

void ot_mailbox_start(ot_mailbox *box, int entry, int task, const ot_comm_call *call) {
  OT_ASSERT(box->count < box->capacity);
  ot_message_slot *const slot = &box->slots[box->count++];
  slot->entry = entry;
  slot->done = false;
  slot->span = ot_recorder_open(box->recorder, call->stream, OT_LANE_PIPELINE, entry, task);
  ot_comm_start(box->comm, call, &slot->request);
}

static void end(ot_mailbox *box, ot_message_slot *slot) {
  slot->done = true;
  ot_recorder_close(box->recorder, OT_LANE_PIPELINE, slot->span);
  while (box->open < box->count && box->slots[box->open].done) box->open++;
}

static ot_status wait(ot_mailbox *box, ot_message_slot *slot) {
  if (slot->done) return OT_OK;
  const ot_status status = ot_comm_wait(box->comm, &slot->request);
  if (status != OT_OK && box->failed < 0) box->failed = slot->entry;
  end(box, slot);
  return status;
}

// The first slot of `entry` or of a later one.
static int find(const ot_mailbox *box, int entry) {
  int low = box->open, high = box->count;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (box->slots[middle].entry < entry) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

ot_status ot_mailbox_wait(ot_mailbox *box, int entry) {
  for (int i = find(box, entry); i < box->count && box->slots[i].entry == entry; i++) {
    OT_TRY(wait(box, &box->slots[i]));
  }
  return OT_OK;
}

void ot_mailbox_poll(ot_mailbox *box) {
  for (int i = box->open; i < box->count; i++) {
    ot_message_slot *const slot = &box->slots[i];
    if (!slot->done && ot_comm_done(box->comm, &slot->request)) end(box, slot);
  }
}

ot_status ot_mailbox_finish(ot_mailbox *box) {
  ot_failure first = {.status = OT_OK};
  for (int i = box->open; i < box->count; i++) {
    ot_failure_take(&first, wait(box, &box->slots[i]));
  }
  return ot_failure_repeat(&first);
}
