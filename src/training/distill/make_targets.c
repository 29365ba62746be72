// SPDX-License-Identifier: Apache-2.0
// Windows in their order, a micro-batch at a time.
#include "distill/make_targets.h"

#include <stdlib.h>

#include "files/disk.h"
#include "host/clock.h"

typedef struct making {
  const ot_targets_request *request;
  ot_heap heap;
  ot_data_loader *loader;
  ot_teacher *teacher;
  ot_micro_batch rows;
  int64_t *keys;  // [R]
  char hash[OT_CONTENT_HASH_BYTES];
  // The current set.
  ot_teacher_header header;
  ot_teacher_writer *writer;
  ot_teacher_window window;
  ot_targets_progress progress;
} making;

static void set_keys(making *m, int64_t first) {
  const int64_t T = m->rows.T;
  for (int64_t i = 0; i < m->rows.B * T; i++) {
    m->keys[i] = (int64_t)ot_teacher_key(&m->header, first + i / T, i % T);
  }
}

// Stores the teacher's results for sequence `b` as a window.
static void store_window(making *m, int64_t b, const ot_teacher_answer *answer) {
  const int64_t T = m->rows.T, K = m->header.ids;
  double loss = 0, entropy = 0;
  int64_t targets = 0, ids = 0;
  for (int64_t t = 0; t < T; t++) {
    const int64_t i = b * T + t;
    ot_drawn *const drawn = m->window.drawn + t * K;
    uint8_t num = 0;
    for (int64_t k = 0; k < K && m->rows.targets[i] >= 0; k++) {
      const double count = (double)answer->weights[i * K + k] * (double)m->header.draws;
      const ot_drawn one = {answer->ids[i * K + k], (int32_t)(count + 0.5)};
      if (one.count > 0) drawn[num++] = one;
    }
    m->window.num[t] = num;
    ids += num;
    targets += m->rows.targets[i] >= 0;
    loss -= m->rows.targets[i] >= 0 ? answer->logprobs[i] : 0;
    entropy += m->rows.targets[i] >= 0 ? answer->entropy[i] : 0;
  }
  m->window.loss = targets > 0 ? (float)(loss / (double)targets) : 0;
  m->window.entropy = targets > 0 ? (float)(entropy / (double)targets) : 0;
  m->progress.targets += targets;
  m->progress.ids += (double)ids;
  m->progress.loss += loss;
  m->progress.entropy += entropy;
}

static void report_progress(making *m, double start_s) {
  ot_targets_progress *const p = &m->progress;
  const double head = 256 + 8 * (double)(p->windows + 1);
  p->done = ot_teacher_writer_next(m->writer);
  p->bytes = ot_teacher_writer_bytes(m->writer);
  p->seconds = ot_clock_s() - start_s;
  p->forecast_bytes =
      head + ((double)p->bytes - head) / (double)(p->done > 0 ? p->done : 1) * (double)p->windows;
  m->request->progress(m->request->context, p);
}

static ot_status add_windows(making *m, int64_t source) {
  const int64_t first = ot_teacher_writer_next(m->writer);
  ot_teacher_answer answer;
  OT_TRY(ot_data_loader_windows(m->loader, source, first, &m->rows));
  set_keys(m, first);
  OT_TRY(ot_teacher_ask(m->teacher, &m->rows, m->keys, &answer));
  for (int64_t b = 0; b < m->rows.B && first + b < m->header.windows; b++) {
    store_window(m, b, &answer);
    OT_TRY(ot_teacher_writer_add(m->writer, &m->rows, b, &m->window));
    m->progress.fresh++;
  }
  return OT_OK;
}

static ot_status fill_store(making *m, int64_t source) {
  const double start_s = ot_clock_s();
  const int64_t most = m->request->most_windows;
  while (ot_teacher_writer_next(m->writer) < m->header.windows) {
    if (most > 0 && m->progress.fresh >= most) return OT_OK;
    OT_TRY(add_windows(m, source));
    report_progress(m, start_s);
  }
  return ot_teacher_writer_commit(m->writer);
}

// Whether a complete store for the same is there. Others are recomputed.
static bool is_made(const char *path, const ot_teacher_header *header) {
  ot_teacher_store *store = NULL;
  if (!ot_disk_is_file(path) || ot_teacher_store_open(path, &store) != OT_OK) return false;
  const ot_teacher_header *const found = ot_teacher_store_header(store);
  const bool same =
      ot_teacher_header_check(path, found, header) == OT_OK && found->seed == header->seed;
  ot_teacher_store_close(&store);
  return same;
}

static ot_status make_set(making *m, int64_t source) {
  const ot_run *const run = m->request->run;
  const ot_sampler_source about = ot_data_loader_source(m->loader, source);
  ot_arena arena = ot_heap_arena_create(&m->heap);
  const char *const path = ot_teacher_path(&arena, about.path);
  OT_TRY(ot_teacher_header_of(run, m->loader, source, m->hash, &m->header));
  m->progress = (ot_targets_progress){
      .path = path, .windows = m->header.windows, .tokens = m->header.windows * m->rows.T};
  if (is_made(path, &m->header)) {
    m->progress.done = m->progress.windows;
    m->request->progress(m->request->context, &m->progress);
    return OT_OK;
  }
  ot_teacher_window_take(&m->header, &arena, &m->window);
  OT_TRY(ot_teacher_writer_create(path, &m->header, &m->writer));
  const ot_status status = fill_store(m, source);
  ot_teacher_writer_destroy(&m->writer);
  return status;
}

static ot_status make(making *m) {
  const ot_run *const run = m->request->run;
  const bool top_k = run->distill.objective == OT_DISTILL_TOP_K;
  const int64_t B = run->batch.micro_batch_size, T = run->data.sequence_length;
  ot_arena arena = ot_heap_arena_create(&m->heap);
  OT_TRY(ot_data_loader_create(run, &m->loader));
  OT_TRY(ot_micro_batch_create(B, T, &m->rows));
  OT_TRY(ot_teacher_hash(run->distill.teacher, m->hash));
  const ot_teacher_request teacher = {.run = run,
                                      .ids = top_k ? run->distill.targets : run->distill.draws,
                                      .threads = m->request->threads,
                                      .backend = ot_runtime_choose_device(run->device, 1)};
  OT_TRY(ot_teacher_create(&teacher, ot_data_loader_tokenizer(m->loader), &m->teacher));
  m->keys = ot_arena_array(&arena, B * T, sizeof *m->keys);
  for (int64_t i = 0; i < ot_data_loader_num_sources(m->loader); i++) OT_TRY(make_set(m, i));
  return OT_OK;
}

ot_status ot_targets_make(const ot_targets_request *request) {
  making m = {.request = request};
  const ot_status status = make(&m);
  ot_teacher_destroy(&m.teacher);
  ot_micro_batch_release(&m.rows);
  ot_data_loader_destroy(&m.loader);
  ot_heap_release(&m.heap);
  return status;
}
