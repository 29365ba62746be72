// SPDX-License-Identifier: Apache-2.0
// Messages between the leading trainer and a generator, which is another process: over a stream in
// each direction, in order. Nothing blocks but ot_rl_links_move, which moves both directions, so
// two ends that write at the same time do not wait for each other. An end that is gone is lost, not
// an error.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef enum ot_rl_message_kind {
  OT_RL_START,    // to a generator: ot_rl_start
  OT_RL_WEIGHTS,  // ot_rl_tensor, then its elements
  OT_RL_LIMITS,   // ot_rl_limits
  OT_RL_STOP,     // nothing follows
  OT_RL_HELLO,    // from a generator: ot_rl_hello
  OT_RL_GROUP,    // ot_rl_finished_group
  OT_RL_MESSAGES,
} ot_rl_message_kind;

typedef struct ot_rl_hello {
  uint64_t run;  // hash of what both ends must agree on
} ot_rl_hello;

// Generator i of n makes the groups whose number is i modulo n.
typedef struct ot_rl_start {
  int64_t first_group;
} ot_rl_start;

// A parameter of the weights of `version`.
typedef struct ot_rl_tensor {
  int64_t version, rows, cols, dtype;
  int64_t last;  // 1: the weights are complete
  char name[128];
} ot_rl_tensor;

// How many groups may wait for the trainer.
typedef struct ot_rl_limits {
  int64_t consumed;  // of this generator's groups, those that wait no more, since its start
  int64_t waiting;   // it begins no group while that many wait
} ot_rl_limits;

// Time of decode steps since the start, for a line through (rows, seconds).
typedef struct ot_rl_decode_sums {
  double steps, rows, squares, seconds, products;
  double slots_s;  // seconds times running sequences
  double tokens;   // made
} ot_rl_decode_sums;

// Then events [num_events] (tape.h) and, for each member, ot_rl_finished_member with its arrays,
// each a multiple of 8 bytes: behaviour [count] f64, tokens [count] i32, versions [count] i32.
typedef struct ot_rl_finished_group {
  int64_t group, members;  // members that were not lost
  int64_t num_events;
  ot_rl_decode_sums decode;
} ot_rl_finished_group;

typedef struct ot_rl_finished_member {
  int64_t id, count, ended;
  double waited_s;  // for the other members
} ot_rl_finished_member;

typedef struct ot_rl_message {
  ot_rl_message_kind kind;
  int64_t bytes;
  const char *data;  // [bytes], aligned to 8; valid until the next call of ot_rl_link_next or move
} ot_rl_message;

typedef struct ot_rl_part {
  const void *data;  // [bytes]
  int64_t bytes;
} ot_rl_part;

typedef struct ot_rl_link ot_rl_link;

// Takes the descriptors, which may be equal. They become non-blocking.
ot_status ot_rl_link_create(int in, int out, ot_rl_link **link);
void ot_rl_link_destroy(ot_rl_link **link);  // closes them

// Puts a message of two parts after what is to be sent. Of a lost link: nothing.
ot_status ot_rl_link_send(ot_rl_link *link, ot_rl_message_kind kind, ot_rl_part head,
                          ot_rl_part rest);

// The next message that has arrived, or false.
bool ot_rl_link_next(ot_rl_link *link, ot_rl_message *message);

// The other end is gone, or sent what is no message; no more will arrive.
bool ot_rl_link_is_lost(const ot_rl_link *link);
void ot_rl_link_lose(ot_rl_link *link);
// The beginning of what the other end sent that is no message, as printable characters; "":
// nothing.
const char *ot_rl_link_nonsense(const ot_rl_link *link);
// Nothing is left to be sent.
bool ot_rl_link_is_flushed(const ot_rl_link *link);

// Moves what can be moved on `links` [count]; if that is nothing, waits for up to `seconds`.
ot_status ot_rl_links_move(ot_rl_link *const *links, int count, double seconds);
