// SPDX-License-Identifier: Apache-2.0
// Weighted targets of a token: what the teacher says with weight alpha, and the data's next token
// with the rest.
#include "distill/distiller.h"

#include <stdlib.h>
#include <string.h>

#include "distill/rollouts.h"
#include "distill/teacher_ranks.h"
#include "files/disk.h"
#include "host/heap.h"

// A training set, with its store unless the teacher is live.
typedef struct taught_set {
  ot_teacher_header header;
  ot_teacher_store *store;
  ot_teacher_window window;
} taught_set;

struct ot_distiller {
  ot_heap heap;
  ot_distiller_request request;
  const ot_run *run;
  ot_data_loader *loader;
  ot_teacher_link *link;  // to a teacher on ranks of its own, or null
  int64_t num_sets;
  taught_set *sets;  // [num_sets]
  ot_teacher *teacher;
  int64_t *keys;  // [R], for the teacher
  ot_rollouts *rollouts;
  double *logprobs;  // [R] of what it wrote
  ot_distiller_sums sums;
};

// ---- create ----

static bool mixes(const ot_run *run) { return run->distill.alpha < 1; }

static bool writes(const ot_run *run) { return run->distill.objective == OT_DISTILL_REVERSE_KL; }

static ot_status open_store(taught_set *set, const char *set_path, ot_arena *arena) {
  const char *const path = ot_teacher_path(arena, set_path);
  if (!ot_disk_is_file(path)) {
    ot_fail(OT_ENVIRONMENT, "distill: there is no store of a teacher (%s)", path);
    return ot_fail_hint(OT_ENVIRONMENT,
                        "`orthant distill targets RUN.yaml` makes it, or distill.from=live");
  }
  OT_TRY(ot_teacher_store_open(path, &set->store));
  const ot_teacher_header *const found = ot_teacher_store_header(set->store);
  OT_TRY(ot_teacher_header_check(path, found, &set->header));
  set->header = *found;
  ot_teacher_window_take(found, arena, &set->window);
  return OT_OK;
}

static ot_status open_sets(ot_distiller *d, ot_arena *arena) {
  const ot_run *const run = d->run;
  const bool stored = run->distill.from == OT_DISTILL_STORE;
  char teacher[OT_CONTENT_HASH_BYTES] = "";
  if (stored && run->distill.teacher[0] != '\0') {
    OT_TRY(ot_teacher_hash(run->distill.teacher, teacher));
  }
  d->num_sets = ot_data_loader_num_sources(d->loader);
  d->sets = ot_arena_array(arena, d->num_sets, sizeof *d->sets);
  for (int64_t i = 0; i < d->num_sets; i++) {
    taught_set *const set = &d->sets[i];
    OT_TRY(ot_teacher_header_of(run, d->loader, i, teacher, &set->header));
    if (stored) OT_TRY(open_store(set, ot_data_loader_source(d->loader, i).path, arena));
  }
  return OT_OK;
}

static bool has_teacher_ranks(const ot_distiller_request *request) {
  return request->run->distill.teacher_ranks > 0 && request->comm &&
         ot_comm_group_size(request->comm, OT_GROUP_JOB) > 1;
}

static ot_status create(ot_distiller *d) {
  const ot_run *const run = d->run;
  if (has_teacher_ranks(&d->request)) return ot_teacher_link_create(&d->request, &d->link);
  const ot_tokenizer *const tokenizer = ot_data_loader_tokenizer(d->loader);
  const int64_t rows = run->batch.micro_batch_size * run->data.sequence_length;
  ot_arena arena = ot_heap_arena_create(&d->heap);
  if (writes(run)) {
    d->logprobs = ot_arena_array(&arena, rows, sizeof *d->logprobs);
    OT_TRY(ot_rollouts_create(run, tokenizer, d->request.threads, &d->rollouts));
  } else {
    OT_TRY(open_sets(d, &arena));
  }
  if (run->distill.from == OT_DISTILL_STORE || !d->request.loads) return OT_OK;
  const ot_teacher_request request = {.run = run,
                                      .ids = ot_teacher_ids(run),
                                      .threads = d->request.threads,
                                      .backend = d->request.backend,
                                      .ordinal = d->request.ordinal};
  d->keys = ot_arena_array(&arena, rows, sizeof *d->keys);
  return ot_teacher_create(&request, tokenizer, &d->teacher);
}

ot_status ot_distiller_create(const ot_distiller_request *request, ot_distiller **out) {
  ot_distiller *distiller = calloc(1, sizeof *distiller);
  *out = NULL;
  OT_CHECK(distiller, OT_ENVIRONMENT, "out of memory (distill)");
  distiller->request = *request;
  distiller->run = request->run;
  distiller->loader = request->loader;
  const ot_status status = create(distiller);
  if (status != OT_OK) ot_distiller_destroy(&distiller);
  *out = distiller;
  return status;
}

void ot_distiller_destroy(ot_distiller **distiller) {
  if (!distiller || !*distiller) return;
  ot_distiller *const d = *distiller;
  for (int64_t i = 0; d->sets && i < d->num_sets; i++) ot_teacher_store_close(&d->sets[i].store);
  ot_teacher_link_destroy(&d->link);
  ot_teacher_destroy(&d->teacher);
  ot_rollouts_destroy(&d->rollouts);
  ot_heap_release(&d->heap);
  free(d);
  *distiller = NULL;
}

// ---- targets of a token ----

typedef struct places {
  int32_t *ids;    // [K]
  float *weights;  // [K]
} places;

static places places_of(const ot_micro_batch *rows, int64_t row) {
  return (places){rows->ids + row * rows->K, rows->weights + row * rows->K};
}

// Multiplies the weights of a token by alpha and gives the rest to the data's next token;
// the last place is unused.
static void mix_in(const ot_run *run, int32_t target, int64_t K, places to) {
  const double alpha = run->distill.alpha;
  if (!mixes(run)) return;
  for (int64_t k = 0; k < K; k++) to.weights[k] = (float)(alpha * (double)to.weights[k]);
  to.ids[K - 1] = target;
  to.weights[K - 1] = (float)(1 - alpha);
}

// Token `t` of the set's window that was read, whose draws have `key`, into places [K].
static void put_stored(const ot_distiller *d, const taught_set *set, int64_t t, uint64_t key,
                       places to) {
  const ot_teacher_header *const h = &set->header;
  ot_drawn *const drawn = set->window.drawn + t * h->ids;
  const int64_t most = ot_teacher_ids(d->run), found = set->window.num[t];
  const int64_t fit = found < most ? found : most;
  const int64_t num = h->top_k ? fit : ot_draws_limit(drawn, found, most, key);
  for (int64_t k = 0; k < num; k++) {
    to.ids[k] = drawn[k].id;
    to.weights[k] = (float)drawn[k].count / (float)h->draws;
  }
}

// ---- micro-batches ----

ot_status ot_distiller_renew(ot_distiller *distiller, ot_runtime *student) {
  distiller->sums = (ot_distiller_sums){0};
  return distiller->rollouts ? ot_rollouts_renew(distiller->rollouts, student) : OT_OK;
}

ot_distiller_sums ot_distiller_get_sums(const ot_distiller *distiller) { return distiller->sums; }

ot_status ot_distiller_ask(ot_distiller *distiller, const ot_target_samples *samples) {
  return distiller->link ? ot_teacher_link_ask(distiller->link, samples) : OT_OK;
}

static void add_sums(ot_distiller *d, int64_t targets, double nats) {
  d->sums.targets += (double)targets;
  d->sums.nats += nats;
}

static void clear(ot_micro_batch *rows) {
  const size_t n = (size_t)(rows->B * rows->T * rows->K);
  memset(rows->ids, 0, n * sizeof *rows->ids);
  memset(rows->weights, 0, n * sizeof *rows->weights);
}

static ot_status fill_stored(ot_distiller *d, ot_micro_batch *rows) {
  const int64_t T = rows->T;
  for (int64_t b = 0; b < rows->B; b++) {
    ot_sample_place place;
    ot_data_loader_locate(d->loader, rows->sample_ids[b], &place);
    taught_set *const set = &d->sets[place.source];
    OT_TRY(ot_teacher_store_read(set->store, place.window, rows, b, &set->window));
    int64_t targets = 0;
    for (int64_t t = 0; t < T; t++) {
      const uint64_t key = ot_teacher_key(&set->header, place.window, t);
      put_stored(d, set, t, key, places_of(rows, b * T + t));
      targets += rows->targets[b * T + t] >= 0;
    }
    add_sums(d, targets, (double)set->window.entropy * (double)targets);
  }
  return OT_OK;
}

static ot_status fill_live(ot_distiller *d, ot_micro_batch *rows) {
  const int64_t T = rows->T, R = rows->B * T, K = rows->K, own = ot_teacher_ids(d->run);
  for (int64_t b = 0; b < rows->B; b++) {
    ot_sample_place place;
    ot_data_loader_locate(d->loader, rows->sample_ids[b], &place);
    const ot_teacher_header *const h = &d->sets[place.source].header;
    for (int64_t t = 0; t < T; t++) {
      d->keys[b * T + t] = (int64_t)ot_teacher_key(h, place.window, t);
    }
  }
  ot_teacher_answer answer;
  OT_TRY(ot_teacher_ask(d->teacher, rows, d->keys, &answer));
  for (int64_t i = 0; i < R; i++) {
    memcpy(rows->ids + i * K, answer.ids + i * own, (size_t)own * sizeof *rows->ids);
    memcpy(rows->weights + i * K, answer.weights + i * own, (size_t)own * sizeof *rows->weights);
    if (rows->targets[i] >= 0) add_sums(d, 1, answer.entropy[i]);
  }
  return OT_OK;
}

// GKD with beta = 1, one draw of each token: its gradient is that of KL(p || t) over the tokens
// that the student writes. Within the prompt the data's next token is learned.
static ot_status fill_written(ot_distiller *d, ot_micro_batch *rows) {
  const double alpha = d->run->distill.alpha;
  ot_teacher_answer answer;
  OT_TRY(ot_rollouts_write(d->rollouts, rows, d->logprobs));
  if (!d->request.loads) return OT_OK;
  OT_TRY(ot_teacher_ask(d->teacher, rows, NULL, &answer));
  for (int64_t i = 0; i < rows->B * rows->T; i++) {
    if (rows->targets[i] < 0) continue;
    const bool written = i % rows->T >= d->run->distill.prompt_tokens - 1;
    const double opinion = answer.logprobs[i] - d->logprobs[i];
    rows->ids[i] = rows->targets[i];
    rows->weights[i] = (float)(written ? alpha * opinion : 1 - alpha);
    if (written) add_sums(d, 1, -opinion);
  }
  return OT_OK;
}

static ot_status fill_read(ot_distiller *d, ot_micro_batch *rows) {
  const ot_run *const run = d->run;
  const bool stored = run->distill.from == OT_DISTILL_STORE;
  OT_TRY(stored ? fill_stored(d, rows) : fill_live(d, rows));
  for (int64_t i = 0; i < rows->B * rows->T; i++) {
    if (rows->targets[i] >= 0) mix_in(run, rows->targets[i], rows->K, places_of(rows, i));
  }
  return OT_OK;
}

// Sums are those of micro-batches, added up in their order, wherever a teacher runs.
ot_status ot_distiller_fill(ot_distiller *distiller, ot_micro_batch *rows) {
  const ot_run *const run = distiller->run;
  const ot_distiller_sums before = distiller->sums;
  OT_ASSERT(rows->K == ot_run_weighted_targets(run));
  clear(rows);
  distiller->sums = (ot_distiller_sums){0};
  if (writes(run)) {
    OT_TRY(fill_written(distiller, rows));
  } else if (distiller->request.loads && distiller->link) {
    OT_TRY(ot_teacher_link_receive(distiller->link, rows, &distiller->sums));
  } else if (distiller->request.loads) {
    OT_TRY(fill_read(distiller, rows));
  }
  distiller->sums.targets += before.targets;
  distiller->sums.nats += before.nats;
  return OT_OK;
}
