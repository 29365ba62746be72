// SPDX-License-Identifier: Apache-2.0
// run: any machine. System memory of a step, and of a context that is scored as long as the model's
// positions: no allocation after the first step, on one rank and on many; no more resident memory
// than the arena, the constants below and 2 %.
#if defined(__SANITIZE_ADDRESS__) || defined(__clang__)
// The sanitizer has its own allocator, and clang's OpenMP runtime allocates in each parallel
// region.
int main(void) { return 77; }
#else

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/inference.h"
#include "runtime/model_runtime.h"
#include "support/hand_made.h"
#include "support/tiny_model.h"

enum {
  STEPS = 6,
  // Resident memory besides the arena after a step: the BLAS's packing buffers (one per thread),
  // thread stacks, code.
  CONSTANT_BYTES = 96 << 20,
};

// ---- counts every allocation of the process while `counting` is on ----

extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *memory, size_t bytes);

static atomic_int counting;
static atomic_long allocations;

static void count(void) {
  if (atomic_load(&counting)) atomic_fetch_add(&allocations, 1);
}

void *malloc(size_t bytes) {
  count();
  return __libc_malloc(bytes);
}

void *calloc(size_t number, size_t bytes) {
  count();
  return __libc_calloc(number, bytes);
}

void *realloc(void *memory, size_t bytes) {
  count();
  return __libc_realloc(memory, bytes);
}

// ---- a model whose arena is large enough for 2 % to be meaningful ----

static int64_t resident_bytes(void) {
  long pages = 0, resident = 0;
  FILE *const file = fopen("/proc/self/statm", "r");
  if (!file) skip();
  const int read = fscanf(file, "%ld %ld", &pages, &resident);
  fclose(file);
  assert_int_equal(read, 2);
  return (int64_t)resident * sysconf(_SC_PAGESIZE);
}

static ot_model wide_llama(void) {
  ot_model model = tiny_llama();
  model.hidden_size = 192;
  model.intermediate_size = 512;
  model.num_heads = 6;
  model.num_kv_heads = 2;
  model.head_dim = 32;
  model.rotary_dim = 32;
  model.vocab_size = 8003;
  model.max_positions = 512;
  return model;
}

static ot_runtime *create(const ot_model *model, const ot_run *run) {
  static const int one = 1;
  const ot_runtime_request request = {
      .rank = {.modes = 1u << OT_MODE_TRAIN | 1u << OT_MODE_EVALUATE,
               .graph = {.model = model,
                         .micro_batch_size = 4,
                         .sequence_length = 512,
                         .compute = OT_F32,
                         .storage = OT_F32,
                         .threads = 2},
               .schedule = {.run = run, .micro_batches = &one, .num_micro_batches = 1}}};
  ot_runtime *runtime = NULL;
  if (ot_runtime_create(&request, &runtime) != OT_OK) fail_msg("%s", ot_fail_message());
  assert_int_equal(ot_runtime_initialize(runtime, 1), OT_OK);
  ot_executor *const executor = ot_runtime_executor(runtime);
  ot_executor_set_scalar(executor, OT_SCALAR_LEARNING_RATE, 1e-4);
  ot_executor_set_scalar(executor, OT_SCALAR_CORRECTION_1, 1);
  ot_executor_set_scalar(executor, OT_SCALAR_CORRECTION_2, 1);
  ot_executor_set_scalar(executor, OT_SCALAR_TARGETS, 2048);
  const ot_region *const batch = ot_schedule_region(ot_runtime_schedule(runtime), "batch");
  ot_executor_fill(executor, batch->offset, 0, batch->bytes);
  return runtime;
}

static void a_step_allocates_nothing_and_stays_within_its_plan(void **state) {
  (void)state;
  const ot_model model = wide_llama();
  const ot_run run = tiny_run(&model);
  const int64_t before = resident_bytes();
  ot_runtime *runtime = create(&model, &run);
  const int64_t planned = ot_runtime_schedule(runtime)->memory.peak_bytes;
  assert_int_equal(ot_runtime_run(runtime, OT_MODE_TRAIN, 1), OT_OK);
  const int64_t after_one = resident_bytes();
  atomic_store(&counting, 1);
  for (int i = 1; i < STEPS; i++) {
    assert_int_equal(ot_runtime_run(runtime, OT_MODE_TRAIN, 1), OT_OK);
  }
  atomic_store(&counting, 0);
  const int64_t after_all = resident_bytes();
  printf("planned %.1f MB, resident %.1f MB after one step, %.1f MB after %d; allocations %ld\n",
         (double)planned * 1e-6, (double)(after_one - before) * 1e-6,
         (double)(after_all - before) * 1e-6, STEPS, atomic_load(&allocations));
  assert_int_equal(atomic_load(&allocations), 0);
  assert_true((double)(after_one - before) <= 1.02 * (double)planned + CONSTANT_BYTES);
  // Whole pages may become resident late: a step touches the same memory as the one before it.
  assert_true(after_all - after_one <= 1 << 20);
  ot_runtime_destroy(&runtime);
}

// ---- a scored context ----

static bool take(void *context, const ot_token_event *event) {
  *(int64_t *)context += event->num_top;
  return true;
}

// Scores `count` tokens with `top` candidates each and generates one, while `counting`.
static void score(ot_inference *engine, const int32_t *tokens, int64_t count, int top) {
  int64_t listed = 0;
  const ot_sequence_request request = {.prompt = tokens,
                                       .num_prompt = count,
                                       .max_tokens = 1,
                                       .draw = {.top_p = 1},
                                       .scores = true,
                                       .top = top,
                                       .token = take,
                                       .context = &listed};
  if (ot_inference_add(engine, &request, NULL) != OT_OK) fail_msg("%s", ot_fail_message());
  atomic_store(&counting, 1);
  const ot_status status = ot_inference_run(engine);
  atomic_store(&counting, 0);
  assert_int_equal(status, OT_OK);
  assert_int_equal(listed, count * top);
}

// Logits of all rows at once would be 131 MB.
static void a_scored_context_allocates_nothing_and_stays_within_its_plan(void **state) {
  (void)state;
  enum { POSITIONS = 1024, SLOTS = 4, OWN_BYTES = 8 << 20 };
  ot_model model = wide_llama();
  model.hidden_size = 64;
  model.vocab_size = 32003;
  model.max_positions = POSITIONS;
  const ot_inference_shape shape = {.slots = SLOTS, .chunk = 64, .positions = POSITIONS};
  ot_runtime_request request = {
      .rank = {.graph = {.model = &model, .compute = OT_F32, .storage = OT_F32, .threads = 2}}};
  ot_runtime *runtime = NULL;
  ot_inference *engine = NULL;
  int32_t tokens[POSITIONS];
  for (int i = 0; i < POSITIONS; i++) tokens[i] = (i * 7919) % 32003;
  ot_inference_complete(&shape, &request.rank);
  const int64_t before = resident_bytes();
  if (ot_runtime_create(&request, &runtime) != OT_OK) fail_msg("%s", ot_fail_message());
  assert_int_equal(ot_runtime_initialize(runtime, 1), OT_OK);
  assert_int_equal(ot_inference_create(runtime, model.vocab_size, &engine), OT_OK);
  score(engine, tokens + 1, 9, 1);  // threads start
  atomic_store(&allocations, 0);
  score(engine, tokens, POSITIONS, 1);
  score(engine, tokens + 2, 40, 5);
  const int64_t planned = ot_runtime_schedule(runtime)->memory.peak_bytes;
  const int64_t used = resident_bytes() - before;
  // Logits on the host, once as computed and once to sort, and candidates.
  const int64_t host = (SLOTS + 1 + 2) * model.vocab_size * 8;
  printf("planned %.1f MB and %.1f MB on the host, resident %.1f MB; allocations %ld\n",
         (double)planned * 1e-6, (double)host * 1e-6, (double)used * 1e-6,
         atomic_load(&allocations));
  assert_int_equal(atomic_load(&allocations), 0);
  assert_true((double)used <= 1.02 * (double)planned + (double)host + OWN_BYTES);
  assert_true((double)used >= 0.9 * (double)planned);
  ot_inference_destroy(&engine);
  ot_runtime_destroy(&runtime);
}

// ---- on many ranks ----

enum { WARM = 2, PLAYED = 8 };

// Uses everything for which lanes, messages and collectives may need memory.
static ot_status write_all_lanes(hand_made *h, const void *context) {
  (void)context;
  const int rank = h->schedule.rank, ranks = h->schedule.ranks;
  int gather = -1, receive = -1;
  for (int i = 0; i < 6; i++) {
    const int compute = hand_entry(h, OT_LANE_COMPUTE, "compute");
    hand_wait(h, compute, gather);
    hand_wait(h, compute, receive);
    hand_all_reduce(h, compute, OT_GROUP_TENSOR, 0, 10);
    hand_on_tensor_lane(h, compute);
    hand_add(h, compute, 1, 2, 11);
    const int send = hand_entry(h, OT_LANE_PIPELINE, "send");
    hand_send(h, send, 11, (rank + 1) % ranks, i);
    receive = hand_entry(h, OT_LANE_PIPELINE, "receive");
    hand_receive(h, receive, 20 + i, (rank + ranks - 1) % ranks, i);
    gather = hand_entry(h, OT_LANE_GATHER, "gather");
    hand_all_reduce(h, gather, OT_GROUP_GATHER, 3, 30 + i);
    const int reduce = hand_entry(h, OT_LANE_REDUCE, "reduce");
    hand_wait(h, reduce, compute);
    hand_add(h, reduce, 10, 11, 40);
    hand_all_reduce(h, reduce, OT_GROUP_SHARD, 40, 40);
  }
  return OT_OK;
}

// Counts between two barriers: after all ranks have run a few times, and after all have ended.
static ot_status count_between_barriers(ot_comm *comm, int time) {
  if (time != WARM && time != PLAYED) return OT_OK;
  const ot_comm_call meet = {.kind = OT_COMM_BARRIER, .group = OT_GROUP_WORLD, .name = "meet"};
  OT_TRY(ot_comm_run(comm, &meet));
  atomic_store(&counting, time == WARM);
  return OT_OK;
}

static void ranks_allocate_nothing_while_they_run(void **state) {
  (void)state;
  for (int ranks = 2; ranks <= HAND_MAX_RANKS; ranks++) {
    hand_run *const game = calloc(1, sizeof *game);
    game->ranks = ranks;
    game->overlap = true;
    game->times = PLAYED;
    game->write = write_all_lanes;
    game->before = count_between_barriers;
    atomic_store(&allocations, 0);
    hand_run_expect_ok(game);
    assert_int_equal(atomic_load(&allocations), 0);
    free(game);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_scored_context_allocates_nothing_and_stays_within_its_plan),  // first
      cmocka_unit_test(ranks_allocate_nothing_while_they_run),
      cmocka_unit_test(a_step_allocates_nothing_and_stays_within_its_plan),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
#endif
