// SPDX-License-Identifier: Apache-2.0
// Three commands of rank 0 to each teacher: meet all students, read samples, go. The answer to a
// micro-batch is one message to each rank with the head, numbered by its tag.
#include "distill/teacher_ranks.h"

#include <stdlib.h>
#include <string.h>

#include "host/cores.h"
#include "runtime/model_runtime.h"

typedef enum command_kind { MEET, READ, GO } command_kind;

typedef struct command {
  int64_t kind;
  ot_target_samples samples;  // READ
} command;

enum {
  COMMAND_TAG = 0,
  ANSWER_TAGS = 32767,
  COMMAND_WORDS = sizeof(command) / sizeof(int64_t),
  SUMS_WORDS = sizeof(ot_distiller_sums) / sizeof(int32_t),
};

// The message of a rank to the others at the start.
typedef struct introduction {
  int64_t data_index;  // of a student that needs answers, else -1
  int64_t data_hash;
} introduction;

enum { INTRODUCTION_WORDS = sizeof(introduction) / sizeof(int64_t) };

static int job_size(const ot_comm *comm) { return ot_comm_group_size(comm, OT_GROUP_JOB); }

static int answer_tag(int64_t number) { return 1 + (int)(number % ANSWER_TAGS); }

// 32-bit words of an answer: ids, weights, sums.
static int64_t answer_words(int64_t places) { return 2 * places + SUMS_WORDS; }

static ot_comm_call message(ot_comm_kind kind, int peer, int tag, void *words, int64_t count) {
  return (ot_comm_call){.kind = kind,
                        .group = OT_GROUP_JOB,
                        .peer = peer,
                        .tag = tag,
                        .send = kind == OT_COMM_SEND ? words : NULL,
                        .receive = kind == OT_COMM_RECEIVE ? words : NULL,
                        .count = count,
                        .dtype = tag == COMMAND_TAG ? OT_I64 : OT_I32,
                        .name = tag == COMMAND_TAG ? "request to a teacher" : "a teacher's answer"};
}

// Every rank's introduction [job size].
static ot_status introduce(ot_comm *comm, introduction *own, introduction *all) {
  return ot_comm_run(comm, &(ot_comm_call){.kind = OT_COMM_ALL_GATHER,
                                           .group = OT_GROUP_JOB,
                                           .send = own,
                                           .receive = all,
                                           .count = INTRODUCTION_WORDS,
                                           .dtype = OT_I64,
                                           .name = "teachers and students"});
}

// ---- a teacher's rank ----

// An answer under way.
typedef struct answer {
  int32_t *words;
  ot_comm_request *requests;  // [num_students]
  int count;
} answer;

typedef struct teacher_rank {
  const ot_run *run;
  ot_comm *comm;
  const ot_executor_leave *leave;
  ot_heap heap;
  int students, teachers, index;  // of this one
  introduction *all;              // [job size]
  int64_t *sent;                  // [students] answers
  ot_data_loader *loader;
  ot_distiller *distiller;
  ot_micro_batch rows;
  answer answers[2];  // one is sent while the next one is found
  int next;
} teacher_rank;

static ot_status open(teacher_rank *t) {
  const ot_run *const run = t->run;
  ot_arena arena = ot_heap_arena_create(&t->heap);
  const int64_t B = run->batch.micro_batch_size, T = run->data.sequence_length;
  const int64_t K = ot_run_weighted_targets(run);
  t->teachers = ot_comm_size(t->comm);
  t->index = ot_comm_rank(t->comm);
  t->students = job_size(t->comm) - t->teachers;
  t->all = ot_arena_array(&arena, job_size(t->comm), sizeof *t->all);
  t->sent = ot_arena_array(&arena, t->students, sizeof *t->sent);
  for (int i = 0; i < OT_COUNT(t->answers); i++) {
    t->answers[i].words = ot_arena_array(&arena, answer_words(B * T * K), sizeof(int32_t));
    t->answers[i].requests = ot_arena_array(&arena, t->students, sizeof *t->answers[i].requests);
  }
  OT_TRY(ot_data_loader_create(run, &t->loader));
  OT_TRY(ot_micro_batch_create_weighted(B, T, K, &t->rows));
  const ot_backend backend = ot_runtime_choose_device(run->device, t->teachers);
  const ot_distiller_request own = {
      .run = run,
      .loader = t->loader,
      .loads = true,
      .threads = run->threads > 0 ? run->threads : ot_host_threads(ot_comm_local_size(t->comm)),
      .backend = backend,
      .ordinal = ot_comm_ordinal(t->comm, ot_device_count(backend)),
  };
  return ot_distiller_create(&own, &t->distiller);
}

static ot_status finish(teacher_rank *t, answer *a) {
  for (; a->count > 0; a->count--) OT_TRY(ot_comm_wait(t->comm, &a->requests[a->count - 1]));
  return OT_OK;
}

static void send_to(teacher_rank *t, answer *a, int student) {
  const int64_t words = answer_words(t->rows.B * t->rows.T * t->rows.K);
  const ot_comm_call call =
      message(OT_COMM_SEND, student, answer_tag(t->sent[student]++), a->words, words);
  ot_comm_start(t->comm, &call, &a->requests[a->count++]);
}

// Reads the micro-batch that begins with sample `first`, for rank `d` of data parallelism.
static ot_status teach(teacher_rank *t, int64_t first, int64_t d) {
  answer *const a = &t->answers[t->next];
  const int64_t places = t->rows.B * t->rows.T * t->rows.K;
  t->next = (t->next + 1) % OT_COUNT(t->answers);
  OT_TRY(finish(t, a));
  OT_TRY(ot_distiller_renew(t->distiller, NULL));
  OT_TRY(ot_data_loader_train(t->loader, first, &t->rows));
  OT_TRY(ot_distiller_fill(t->distiller, &t->rows));
  const ot_distiller_sums sums = ot_distiller_get_sums(t->distiller);
  memcpy(a->words, t->rows.ids, (size_t)places * sizeof(int32_t));
  memcpy(a->words + places, t->rows.weights, (size_t)places * sizeof(float));
  memcpy(a->words + 2 * places, &sums, sizeof sums);
  for (int i = 0; i < t->students; i++) {
    if (t->all[i].data_index == d) send_to(t, a, i);
  }
  (void)t->leave->asks(t->leave->context);
  return OT_OK;
}

static int64_t data_degree(const teacher_rank *t) {
  int64_t degree = 0;
  for (int i = 0; i < t->students; i++) {
    if (t->all[i].data_index >= degree) degree = t->all[i].data_index + 1;
  }
  return degree;
}

// Teacher i has ranks i, i + teachers, ... of data parallelism.
static ot_status read_samples(teacher_rank *t, const ot_target_samples *s) {
  const int64_t degree = data_degree(t);
  for (int64_t m = 0; m < s->count; m++) {
    for (int64_t d = t->index; d < degree; d += t->teachers) {
      OT_TRY(teach(t, s->first + d * s->apart + m * s->stride, d));
    }
  }
  return OT_OK;
}

static ot_status serve(teacher_rank *t) {
  introduction own = {.data_index = -1, .data_hash = (int64_t)ot_data_loader_hash(t->loader)};
  while (true) {
    command c;
    const ot_comm_call call = message(OT_COMM_RECEIVE, 0, COMMAND_TAG, &c, COMMAND_WORDS);
    OT_TRY(ot_comm_run(t->comm, &call));
    if (c.kind == GO) break;
    OT_TRY(c.kind == MEET ? introduce(t->comm, &own, t->all) : read_samples(t, &c.samples));
  }
  OT_TRY(finish(t, &t->answers[0]));
  return finish(t, &t->answers[1]);
}

ot_status ot_teacher_rank_run(const ot_run *run, ot_comm *comm, const ot_executor_leave *leave) {
  teacher_rank t = {.run = run, .comm = comm, .leave = leave};
  ot_status status = open(&t);
  if (status == OT_OK) status = serve(&t);
  // Calls in flight use this memory.
  if (status != OT_OK) ot_comm_fail(comm, status);
  ot_distiller_destroy(&t.distiller);
  ot_micro_batch_release(&t.rows);
  ot_data_loader_destroy(&t.loader);
  ot_heap_release(&t.heap);
  return status;
}

// ---- a student's rank ----

struct ot_teacher_link {
  ot_distiller_request request;
  ot_heap heap;
  int teachers, teacher;      // of these, the one that answers this rank
  int64_t words;              // of an answer
  command last;               // sent by rank 0, known to all
  ot_comm_request *commands;  // [teachers], rank 0
  bool commanded;             // these are under way
  int64_t capacity, received;
  int64_t number;             // of the next answer
  ot_comm_request *requests;  // [capacity] for the answers to last.samples
  int32_t *answers;           // [capacity, words]
};

static ot_status finish_commands(ot_teacher_link *link) {
  for (int i = 0; link->commanded && i < link->teachers; i++) {
    OT_TRY(ot_comm_wait(link->request.comm, &link->commands[i]));
  }
  link->commanded = false;
  return OT_OK;
}

static ot_status send_command(ot_teacher_link *link, const command *c) {
  ot_comm *const comm = link->request.comm;
  OT_TRY(finish_commands(link));
  link->last = *c;
  if (ot_comm_rank(comm) != 0) return OT_OK;
  for (int i = 0; i < link->teachers; i++) {
    const ot_comm_call call =
        message(OT_COMM_SEND, ot_comm_size(comm) + i, COMMAND_TAG, &link->last, COMMAND_WORDS);
    ot_comm_start(comm, &call, &link->commands[i]);
  }
  link->commanded = true;
  return OT_OK;
}

static ot_status check_data(const ot_teacher_link *link, const introduction *all) {
  const int students = ot_comm_size(link->request.comm);
  for (int i = 0; i < link->teachers; i++) {
    OT_CHECK(all[students + i].data_hash == all[0].data_hash, OT_RANKS,
             "distill: the training data of teacher rank %d differ from those of rank 0",
             students + i);
  }
  return OT_OK;
}

static ot_status create(ot_teacher_link *link) {
  const ot_distiller_request *const r = &link->request;
  ot_arena arena = ot_heap_arena_create(&link->heap);
  const int size = job_size(r->comm), students = ot_comm_size(r->comm);
  const int64_t rows = r->run->batch.micro_batch_size * r->run->data.sequence_length;
  link->teachers = size - students;
  link->teacher = students + r->data_index % link->teachers;
  link->words = answer_words(rows * ot_run_weighted_targets(r->run));
  link->commands = ot_arena_array(&arena, link->teachers, sizeof *link->commands);
  introduction own = {.data_index = r->loads ? r->data_index : -1,
                      .data_hash = (int64_t)ot_data_loader_hash(r->loader)};
  introduction *const all = ot_arena_array(&arena, size, sizeof *all);
  OT_TRY(send_command(link, &(command){.kind = MEET}));
  OT_TRY(introduce(r->comm, &own, all));
  return check_data(link, all);
}

ot_status ot_teacher_link_create(const ot_distiller_request *request, ot_teacher_link **out) {
  ot_teacher_link *link = calloc(1, sizeof *link);
  *out = NULL;
  OT_CHECK(link, OT_ENVIRONMENT, "out of memory (distill)");
  link->request = *request;
  const ot_status status = create(link);
  if (status != OT_OK) ot_teacher_link_destroy(&link);
  *out = link;
  return status;
}

static ot_status drop_answers(ot_teacher_link *link) {
  ot_comm *const comm = link->request.comm;
  if (link->last.kind != READ || !link->request.loads) return OT_OK;
  for (; link->received < link->last.samples.count; link->received++) {
    OT_TRY(ot_comm_wait(comm, &link->requests[link->received]));
  }
  return OT_OK;
}

void ot_teacher_link_destroy(ot_teacher_link **link) {
  if (!link || !*link) return;
  ot_teacher_link *const l = *link;
  // A failure here is that of another rank, which is known already.
  if (drop_answers(l) == OT_OK) (void)finish_commands(l);
  free(l->requests);
  free(l->answers);
  ot_heap_release(&l->heap);
  free(l);
  *link = NULL;
}

// More micro-batches than in any step before.
static ot_status reserve(ot_teacher_link *link, int64_t count) {
  if (count <= link->capacity) return OT_OK;
  free(link->requests);
  free(link->answers);
  link->requests = calloc((size_t)count, sizeof *link->requests);
  link->answers = calloc((size_t)(count * link->words), sizeof *link->answers);
  link->capacity = link->requests && link->answers ? count : 0;
  OT_CHECK(link->capacity > 0, OT_ENVIRONMENT, "out of memory for %lld answers of a teacher",
           (long long)count);
  return OT_OK;
}

ot_status ot_teacher_link_ask(ot_teacher_link *link, const ot_target_samples *samples) {
  const command wanted = {.kind = READ, .samples = *samples};
  if (link->received == 0 && memcmp(&wanted, &link->last, sizeof wanted) == 0) return OT_OK;
  OT_TRY(drop_answers(link));
  if (link->request.loads) OT_TRY(reserve(link, samples->count));
  OT_TRY(send_command(link, &wanted));
  link->received = 0;
  for (int64_t i = 0; link->request.loads && i < samples->count; i++) {
    const ot_comm_call call = message(OT_COMM_RECEIVE, link->teacher, answer_tag(link->number++),
                                      link->answers + i * link->words, link->words);
    ot_comm_start(link->request.comm, &call, &link->requests[i]);
  }
  return OT_OK;
}

ot_status ot_teacher_link_receive(ot_teacher_link *link, ot_micro_batch *rows,
                                  ot_distiller_sums *sums) {
  const int64_t places = rows->B * rows->T * rows->K, i = link->received++;
  const int32_t *const words = link->answers + i * link->words;
  OT_ASSERT(link->words == answer_words(places) && i < link->last.samples.count);
  OT_TRY(ot_comm_wait(link->request.comm, &link->requests[i]));
  memcpy(rows->ids, words, (size_t)places * sizeof(int32_t));
  memcpy(rows->weights, words + places, (size_t)places * sizeof(float));
  memcpy(sums, words + 2 * places, sizeof *sums);
  return OT_OK;
}

ot_status ot_teacher_ranks_dismiss(ot_comm *comm) {
  command go = {.kind = GO};
  const int students = comm ? ot_comm_size(comm) : 0;
  if (!comm || job_size(comm) == 1 || ot_comm_rank(comm) != 0) return OT_OK;
  for (int teacher = students; teacher < job_size(comm); teacher++) {
    const ot_comm_call call = message(OT_COMM_SEND, teacher, COMMAND_TAG, &go, COMMAND_WORDS);
    OT_TRY(ot_comm_run(comm, &call));
  }
  return OT_OK;
}
