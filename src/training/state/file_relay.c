// SPDX-License-Identifier: Apache-2.0
// Frames have one size, whatever they hold: [used words, whether it is the last, runs ...]. A run
// is its description and its bytes, padded to words.
#include "state/file_relay.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "comm/comm.h"
#include "files/disk.h"

enum { FRAME_WORDS = 1 << 17, TAG = 2, NAME_BYTES = 256, TEXT_BYTES = 496, WORD = 8 };
enum { USED, LAST, HEAD_WORDS, RUN_WORDS = sizeof(ot_file_run) / WORD };

struct ot_file_relay {
  ot_comm *comm;
  const ot_folder_access *access;
  ot_file_source source;
  int64_t *frame;  // [FRAME_WORDS]
};

static ot_status pass(ot_file_relay *relay, ot_comm_kind kind, int peer, void *memory,
                      int64_t words) {
  const ot_comm_call call = {.kind = kind,
                             .group = OT_GROUP_WORLD,
                             .peer = peer,
                             .tag = TAG,
                             .send = memory,
                             .receive = memory,
                             .count = words,
                             .dtype = OT_I64,
                             .patient = true,
                             .name = "files of a rank that does not see their folder"};
  return ot_comm_run(relay->comm, &call);
}

static int64_t words_of(int64_t bytes) { return (bytes + WORD - 1) / WORD; }

// ---- questions ----

typedef enum question_kind { MEASURE, READ, LEAVE } question_kind;

typedef struct question {
  int64_t kind, offset, bytes;
  char name[NAME_BYTES];
} question;

typedef struct answer {
  int64_t status, bytes;
  char text[TEXT_BYTES];  // of a failure
} answer;

static ot_status exchange(ot_file_relay *relay, question *asked, answer *out) {
  const int server = relay->access->server;
  OT_TRY(pass(relay, OT_COMM_SEND, server, asked, words_of(sizeof *asked)));
  OT_TRY(pass(relay, OT_COMM_RECEIVE, server, out, words_of(sizeof *out)));
  if (out->status == OT_OK) return OT_OK;
  out->text[TEXT_BYTES - 1] = '\0';
  return ot_fail((ot_status)out->status, "%s", out->text);
}

static question question_of(question_kind kind, const char *path) {
  question asked = {.kind = (int64_t)kind};
  ot_text_format(asked.name, sizeof asked.name, "%s", ot_disk_base_name(path));
  return asked;
}

static ot_status measure(void *context, const char *path, int64_t *bytes) {
  question asked = question_of(MEASURE, path);
  answer got;
  OT_TRY(exchange(context, &asked, &got));
  *bytes = got.bytes;
  return OT_OK;
}

static ot_status read_file(void *context, const char *path, int64_t offset, void *to,
                           int64_t bytes) {
  ot_file_relay *const relay = context;
  question asked = question_of(READ, path);
  answer got;
  for (int64_t done = 0; done < bytes; done += asked.bytes) {
    const int64_t most = (int64_t)FRAME_WORDS * WORD;
    asked.offset = offset + done;
    asked.bytes = bytes - done < most ? bytes - done : most;
    OT_TRY(exchange(relay, &asked, &got));
    OT_TRY(
        pass(relay, OT_COMM_RECEIVE, relay->access->server, relay->frame, words_of(asked.bytes)));
    memcpy((char *)to + done, relay->frame, (size_t)asked.bytes);
  }
  return OT_OK;
}

// ---- create ----

ot_status ot_file_relay_create(ot_world *world, const ot_folder_access *access,
                               ot_file_relay **out) {
  *out = NULL;
  if (access->server < 0 && access->num_clients == 0) return OT_OK;
  ot_file_relay *const relay = calloc(1, sizeof *relay);
  OT_CHECK(relay, OT_ENVIRONMENT, "out of memory for files of other ranks");
  *out = relay;
  relay->comm = ot_world_comm(world);
  relay->access = access;
  relay->source = (ot_file_source){.measure = measure, .read = read_file, .context = relay};
  relay->frame = calloc(FRAME_WORDS, sizeof *relay->frame);
  if (relay->frame) {
    relay->frame[USED] = HEAD_WORDS;
    return OT_OK;
  }
  ot_file_relay_destroy(out);
  return ot_fail(OT_ENVIRONMENT, "out of memory for files of other ranks");
}

void ot_file_relay_destroy(ot_file_relay **relay) {
  if (!*relay) return;
  free((*relay)->frame);
  free(*relay);
  *relay = NULL;
}

// ---- writing ----

static ot_status send_frame(ot_file_relay *relay, bool last) {
  relay->frame[LAST] = last;
  OT_TRY(pass(relay, OT_COMM_SEND, relay->access->server, relay->frame, FRAME_WORDS));
  relay->frame[USED] = HEAD_WORDS;
  return OT_OK;
}

ot_status ot_file_relay_put(ot_file_relay *relay, ot_file_run run, const void *data) {
  const char *from = data;
  int64_t left = run.bytes;
  while (left > 0) {
    const int64_t room = (FRAME_WORDS - relay->frame[USED] - RUN_WORDS) * WORD;
    if (room <= 0) {
      OT_TRY(send_frame(relay, false));
      continue;
    }
    int64_t *const to = relay->frame + relay->frame[USED];
    run.bytes = left < room ? left : room;
    memcpy(to, &run, sizeof run);
    memcpy(to + RUN_WORDS, from, (size_t)run.bytes);
    relay->frame[USED] += RUN_WORDS + words_of(run.bytes);
    run.offset += run.bytes;
    from += run.bytes;
    left -= run.bytes;
  }
  return OT_OK;
}

ot_status ot_file_relay_finish(ot_file_relay *relay) { return send_frame(relay, true); }

static ot_status receive_frame(const ot_file_relay *relay, ot_file_receiver receiver) {
  const int64_t used = relay->frame[USED];
  for (int64_t at = HEAD_WORDS; at < used;) {
    ot_file_run run;
    memcpy(&run, relay->frame + at, sizeof run);
    at += RUN_WORDS;
    OT_ASSERT(run.bytes >= 0 && words_of(run.bytes) <= FRAME_WORDS - at);
    OT_TRY(receiver.put(receiver.context, run, relay->frame + at));
    at += words_of(run.bytes);
  }
  return OT_OK;
}

ot_status ot_file_relay_receive(ot_file_relay *relay, ot_file_receiver receiver) {
  ot_status status = OT_OK;
  for (int i = 0; i < relay->access->num_clients; i++) {
    bool last = false;
    while (!last) {
      OT_TRY(pass(relay, OT_COMM_RECEIVE, relay->access->clients[i], relay->frame, FRAME_WORDS));
      if (status == OT_OK) status = receive_frame(relay, receiver);
      last = relay->frame[LAST];
    }
  }
  relay->frame[USED] = HEAD_WORDS;
  return status;
}

// ---- reading ----

const ot_file_source *ot_file_relay_source(const ot_file_relay *relay) {
  return relay->access->server >= 0 ? &relay->source : NULL;
}

ot_status ot_file_relay_leave(ot_file_relay *relay) {
  question asked = {.kind = LEAVE};
  return pass(relay, OT_COMM_SEND, relay->access->server, &asked, words_of(sizeof asked));
}

static ot_status read_here(ot_file_relay *relay, const question *asked, const char *path) {
  int file = -1;
  OT_TRY(ot_disk_open_own(path, &file));
  const ot_status status = ot_disk_read_at(file, path, asked->offset, relay->frame, asked->bytes);
  close(file);
  return status;
}

static ot_status read_or_measure(ot_file_relay *relay, const question *asked, const char *directory,
                                 int64_t *bytes) {
  char path[OT_PATH_BYTES];
  OT_ASSERT(asked->bytes >= 0 && asked->bytes <= (int64_t)FRAME_WORDS * WORD);
  ot_text_format(path, sizeof path, "%s/%.*s", directory, NAME_BYTES - 1, asked->name);
  return asked->kind == READ ? read_here(relay, asked, path) : ot_file_measure(NULL, path, bytes);
}

static ot_status answer_client(ot_file_relay *relay, int client, const char *directory) {
  question asked;
  while (true) {
    answer given = {.status = OT_OK};
    OT_TRY(pass(relay, OT_COMM_RECEIVE, client, &asked, words_of(sizeof asked)));
    if (asked.kind == LEAVE) return OT_OK;
    given.status = read_or_measure(relay, &asked, directory, &given.bytes);
    if (given.status != OT_OK) ot_text_format(given.text, TEXT_BYTES, "%s", ot_fail_message());
    OT_TRY(pass(relay, OT_COMM_SEND, client, &given, words_of(sizeof given)));
    if (given.status != OT_OK || asked.kind != READ) continue;
    OT_TRY(pass(relay, OT_COMM_SEND, client, relay->frame, words_of(asked.bytes)));
  }
}

ot_status ot_file_relay_answer(ot_file_relay *relay, const char *directory) {
  for (int i = 0; i < relay->access->num_clients; i++)
    OT_TRY(answer_client(relay, relay->access->clients[i], directory));
  return OT_OK;
}
