// SPDX-License-Identifier: Apache-2.0
// The C library lets a program replace `stderr`, so that all its messages pass here, those of
// libraries included. The descriptor keeps its flags: other processes share them.
#include "cli/output_queue.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "host/clock.h"
#include "host/small_thread.h"

enum { QUEUE_BYTES = 1 << 18, PIECE_BYTES = 1 << 12, NOTE_BYTES = 128 };

static const double drain_s = 1;  // a reader without progress for this time counts as absent

typedef struct output_queue {
  pthread_mutex_t lock;
  pthread_cond_t filled;
  FILE *descriptor;           // stderr before; null: no queue
  char *ring;                 // [QUEUE_BYTES]
  int64_t put, taken;         // bytes since the begin; taken <= put <= taken + QUEUE_BYTES
  int64_t dropped, reported;  // lines that found no room; those that a note tells
} output_queue;

static output_queue queue = {.lock = PTHREAD_MUTEX_INITIALIZER, .filled = PTHREAD_COND_INITIALIZER};

static int64_t count_lines(const char *text, size_t bytes) {
  int64_t lines = 0;
  for (size_t i = 0; i < bytes; i++) lines += text[i] == '\n';
  return lines;
}

// With the lock held. False: there is no room.
static bool put(const char *text, size_t bytes) {
  if (queue.put + (int64_t)bytes > queue.taken + QUEUE_BYTES) return false;
  for (size_t i = 0; i < bytes; i++) queue.ring[queue.put++ % QUEUE_BYTES] = text[i];
  return true;
}

// With the lock held: tells how many lines were dropped before what comes next.
static bool put_note(void) {
  char note[NOTE_BYTES];
  const int64_t lines = queue.dropped - queue.reported;
  if (lines == 0) return true;
  const int bytes =
      snprintf(note, sizeof note, "note: nobody read what was written: %lld line%s missing here\n",
               (long long)lines, lines == 1 ? " is" : "s are");
  if (!put(note, (size_t)bytes)) return false;
  queue.reported = queue.dropped;
  return true;
}

static ssize_t write_text(void *context, const char *text, size_t bytes) {
  (void)context;
  pthread_mutex_lock(&queue.lock);
  if (!put_note() || !put(text, bytes)) queue.dropped += count_lines(text, bytes);
  pthread_cond_signal(&queue.filled);
  pthread_mutex_unlock(&queue.lock);
  return (ssize_t)bytes;
}

// Returns how many of the bytes are dealt with. Those of a reader that is gone are dropped.
static int64_t write_some(const char *text, int64_t bytes) {
  const ssize_t written = write(STDERR_FILENO, text, (size_t)bytes);
  if (written >= 0) return written;
  struct pollfd descriptor = {.fd = STDERR_FILENO, .events = POLLOUT};
  if (errno == EAGAIN) poll(&descriptor, 1, -1);  // another process made it so
  return errno == EAGAIN || errno == EINTR ? 0 : bytes;
}

// With the lock held, which is released while a piece is written.
static void write_piece(void) {
  char piece[PIECE_BYTES];
  int64_t bytes = 0;
  for (int64_t at = queue.taken; at < queue.put && bytes < PIECE_BYTES; at++)
    piece[bytes++] = queue.ring[at % QUEUE_BYTES];
  pthread_mutex_unlock(&queue.lock);
  const int64_t written = write_some(piece, bytes);
  pthread_mutex_lock(&queue.lock);
  queue.taken += written;
}

static void *write_all(void *context) {
  pthread_mutex_lock(&queue.lock);
  for (;;) {
    while (queue.taken == queue.put && put_note() && queue.taken == queue.put)
      pthread_cond_wait(&queue.filled, &queue.lock);
    write_piece();
  }
  return context;
}

// The thread is not in a new process, whose stderr is the descriptor again.
static void leave_in_child(void) {
  if (queue.descriptor) stderr = queue.descriptor;
  queue.descriptor = NULL;
}

void ot_output_queue_begin(void) {
  static const cookie_io_functions_t functions = {.write = write_text};
  if (queue.descriptor) return;
  queue.ring = malloc(QUEUE_BYTES);
  FILE *const stream = queue.ring ? fopencookie(NULL, "w", functions) : NULL;
  pthread_t thread;
  if (!stream || pthread_atfork(NULL, NULL, leave_in_child) != 0 ||
      !ot_host_start_small_thread(write_all, NULL, &thread)) {
    if (stream) fclose(stream);
    free(queue.ring);
    return;
  }
  pthread_detach(thread);
  setvbuf(stream, NULL, _IONBF, 0);
  fflush(stderr);
  queue.descriptor = stderr;
  stderr = stream;
}

static int64_t bytes_left(int64_t *taken) {
  pthread_mutex_lock(&queue.lock);
  const int64_t left = queue.put - queue.taken;
  *taken = queue.taken;
  pthread_mutex_unlock(&queue.lock);
  return left;
}

void ot_output_queue_drain(void) {
  static const struct timespec pause = {.tv_nsec = 1000000};
  int64_t seen = -1, taken;
  double progress_s = ot_clock_s();
  if (!queue.descriptor) return;
  while (bytes_left(&taken) > 0 && ot_clock_s() < progress_s + drain_s) {
    if (taken != seen) progress_s = ot_clock_s();
    seen = taken;
    nanosleep(&pause, NULL);
  }
}

void ot_output_queue_exit(ot_status status) {
  ot_output_queue_drain();
  _exit((int)status);
}
