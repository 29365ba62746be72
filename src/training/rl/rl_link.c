// SPDX-License-Identifier: Apache-2.0
// Messages are a head of 16 bytes and their data, padded to 8.
#include "rl/rl_link.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NONSENSE_BYTES = 48, HEAD_BYTES = 16, ROUND = 1 << 20, MOST_LINKS = 4096 };
static const int64_t most_bytes = INT64_C(1) << 36;

typedef struct buffer {
  char *data;        // [capacity]
  int64_t from, to;  // what is used
  int64_t capacity;
} buffer;

struct ot_rl_link {
  int in, out;
  bool lost;
  char nonsense[NONSENSE_BYTES];
  buffer received, sent;
};

static ot_status reserve(buffer *b, int64_t bytes) {
  if (b->from > 0 && b->from == b->to) b->from = b->to = 0;
  if (b->to + bytes <= b->capacity) return OT_OK;
  if (b->from > 0) {
    memmove(b->data, b->data + b->from, (size_t)(b->to - b->from));
    b->to -= b->from;
    b->from = 0;
  }
  if (b->to + bytes <= b->capacity) return OT_OK;
  const int64_t capacity = 2 * b->capacity > b->to + bytes ? 2 * b->capacity : b->to + bytes;
  char *const grown = realloc(b->data, (size_t)capacity);
  OT_CHECK(grown, OT_ENVIRONMENT, "out of memory for messages of generators");
  b->data = grown;
  b->capacity = capacity;
  return OT_OK;
}

ot_status ot_rl_link_create(int in, int out, ot_rl_link **link) {
  *link = calloc(1, sizeof **link);
  OT_CHECK(*link, OT_ENVIRONMENT, "out of memory for a generator");
  **link = (ot_rl_link){.in = in, .out = out};
  const bool set = fcntl(in, F_SETFL, fcntl(in, F_GETFL) | O_NONBLOCK) == 0 &&
                   fcntl(out, F_SETFL, fcntl(out, F_GETFL) | O_NONBLOCK) == 0;
  OT_CHECK(set, OT_ENVIRONMENT, "cannot use the stream of a generator: %s", strerror(errno));
  return OT_OK;
}

void ot_rl_link_destroy(ot_rl_link **link) {
  if (!link || !*link) return;
  close((*link)->in);
  if ((*link)->out != (*link)->in) close((*link)->out);
  free((*link)->received.data);
  free((*link)->sent.data);
  free(*link);
  *link = NULL;
}

static int64_t padded(int64_t bytes) { return (bytes + 7) / 8 * 8; }

static void put(buffer *b, const void *data, int64_t bytes) {
  if (bytes > 0) memcpy(b->data + b->to, data, (size_t)bytes);
  b->to += bytes;
}

ot_status ot_rl_link_send(ot_rl_link *link, ot_rl_message_kind kind, ot_rl_part head,
                          ot_rl_part rest) {
  static const char zeros[8];
  const int64_t bytes = head.bytes + rest.bytes, start[2] = {(int64_t)kind, bytes};
  if (link->lost) return OT_OK;
  OT_TRY(reserve(&link->sent, HEAD_BYTES + padded(bytes)));
  put(&link->sent, start, HEAD_BYTES);
  put(&link->sent, head.data, head.bytes);
  put(&link->sent, rest.data, rest.bytes);
  put(&link->sent, zeros, padded(bytes) - bytes);
  return OT_OK;
}

// Up to the end of a line.
static void keep_nonsense(ot_rl_link *link) {
  const buffer *const b = &link->received;
  const int64_t there = b->to - b->from;
  int64_t length = 0;
  for (; length < there && length < NONSENSE_BYTES - 1; length++) {
    const char c = b->data[b->from + length];
    if (c == '\n' && length > 0) break;
    link->nonsense[length] = (char)(c >= ' ' && c <= '~' && c != '"' ? c : '.');
  }
  link->nonsense[length] = '\0';
}

const char *ot_rl_link_nonsense(const ot_rl_link *link) { return link->nonsense; }

bool ot_rl_link_next(ot_rl_link *link, ot_rl_message *message) {
  buffer *const b = &link->received;
  int64_t start[2];
  if (b->to - b->from < HEAD_BYTES) return false;
  memcpy(start, b->data + b->from, HEAD_BYTES);
  if (start[0] < 0 || start[0] >= OT_RL_MESSAGES || start[1] < 0 || start[1] > most_bytes) {
    keep_nonsense(link);
    ot_rl_link_lose(link);
    return false;
  }
  if (b->to - b->from < HEAD_BYTES + padded(start[1])) return false;
  *message =
      (ot_rl_message){(ot_rl_message_kind)start[0], start[1], b->data + b->from + HEAD_BYTES};
  b->from += HEAD_BYTES + padded(start[1]);
  return true;
}

bool ot_rl_link_is_lost(const ot_rl_link *link) { return link->lost; }

void ot_rl_link_lose(ot_rl_link *link) {
  link->lost = true;
  link->received.from = link->received.to = link->sent.from = link->sent.to = 0;
}

bool ot_rl_link_is_flushed(const ot_rl_link *link) { return link->sent.from == link->sent.to; }

// ---- moving ----

static bool is_for_now(ssize_t got) { return got < 0 && (errno == EAGAIN || errno == EINTR); }

// Bytes that have arrived stay readable after the other end is gone.
static ot_status receive(ot_rl_link *link, bool *moved) {
  for (bool more = true; more && !link->lost;) {
    OT_TRY(reserve(&link->received, ROUND));
    const ssize_t got = read(link->in, link->received.data + link->received.to, ROUND);
    more = got == ROUND;
    if (got > 0) link->received.to += got;
    if (got > 0) *moved = true;
    if (got == 0 || (got < 0 && !is_for_now(got))) link->lost = true;
  }
  return OT_OK;
}

static void transmit(ot_rl_link *link, bool *moved) {
  buffer *const b = &link->sent;
  while (!link->lost && b->from < b->to) {
    const ssize_t got = write(link->out, b->data + b->from, (size_t)(b->to - b->from));
    if (is_for_now(got)) return;
    if (got <= 0) {
      link->lost = true;
      return;
    }
    b->from += got;
    *moved = true;
  }
}

// Waits until one of them can move.
static void wait_for(ot_rl_link *const *links, int count, double seconds) {
  struct pollfd wanted[MOST_LINKS];
  int n = 0;
  for (int i = 0; i < count && n + 2 <= MOST_LINKS; i++) {
    if (links[i]->lost) continue;
    wanted[n++] = (struct pollfd){.fd = links[i]->in, .events = POLLIN};
    if (ot_rl_link_is_flushed(links[i])) continue;
    wanted[n++] = (struct pollfd){.fd = links[i]->out, .events = POLLOUT};
  }
  if (n > 0) poll(wanted, (nfds_t)n, (int)(1e3 * seconds));
}

static ot_status move(ot_rl_link *const *links, int count, bool *moved) {
  for (int i = 0; i < count; i++) {
    if (links[i]->lost) continue;
    OT_TRY(receive(links[i], moved));
    transmit(links[i], moved);
    *moved = *moved || links[i]->lost;
  }
  return OT_OK;
}

ot_status ot_rl_links_move(ot_rl_link *const *links, int count, double seconds) {
  bool moved = false;
  OT_TRY(move(links, count, &moved));
  if (moved || seconds <= 0) return OT_OK;
  wait_for(links, count, seconds);
  return move(links, count, &moved);
}
