// SPDX-License-Identifier: Apache-2.0
// A race between the algorithms that cuBLASLt proposes for each product, on random operands. Its
// own order of them is a guess from the shape.
#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_writer.h"
#include "base/rng.h"
#include "kernels/cuda/gemm_plan.h"

enum { ALGORITHMS = 8, MAX_REPEATS = 32, PATTERN_BYTES = 64 * 4099, SEED = 11 };

// Memory for the operands of every product.
typedef struct track {
  void *a, *b, *y, *addend, *bias;
  cudaEvent_t begin, end;
  cudaStream_t stream;
  uint16_t *pattern;  // PATTERN_BYTES of random bf16 numbers
  int repeats;
} track;

// ---- operands ----

static ot_dtype dtype_of(int64_t type) {
  if (type == OT_LT_R_16BF) return OT_BF16;
  return type == OT_LT_R_64F ? OT_F64 : OT_F32;
}

static int64_t bytes_of(const ot_gemm_key *key, ot_gemm_field stride, int64_t rows,
                        ot_gemm_field type) {
  return rows * key->of[stride] * ot_dtype_bytes(dtype_of(key->of[type]));
}

static int64_t rows_of_a(const ot_gemm_key *key) {
  return key->of[key->of[OT_GEMM_A_TRANSPOSED] ? OT_GEMM_DEPTH : OT_GEMM_ROWS];
}

static int64_t rows_of_b(const ot_gemm_key *key) {
  return key->of[key->of[OT_GEMM_B_TRANSPOSED] ? OT_GEMM_COLUMNS : OT_GEMM_DEPTH];
}

// Every type sees small reals in the pattern.
static void draw_pattern(uint16_t *pattern) {
  for (int i = 0; i < PATTERN_BYTES / 2; i++) {
    const double x = (double)ot_rng_below(SEED, 0, (uint64_t)i, 1 << 20) / (1 << 19) - 1;
    pattern[i] = ot_bf16_from_float((float)x);
  }
}

static bool make(const track *t, void **memory, int64_t bytes) {
  cudaError_t error = cudaMalloc(memory, (size_t)bytes);
  for (int64_t done = 0; done < bytes && error == cudaSuccess; done += PATTERN_BYTES) {
    const int64_t left = bytes - done < PATTERN_BYTES ? bytes - done : PATTERN_BYTES;
    error = cudaMemcpyAsync((char *)*memory + done, t->pattern, (size_t)left,
                            cudaMemcpyHostToDevice, t->stream);
  }
  return error == cudaSuccess;
}

static bool make_operands(track *t, const ot_gemm_key *key) {
  const int64_t rows = key->of[OT_GEMM_ROWS];
  const int64_t a = bytes_of(key, OT_GEMM_A_STRIDE, rows_of_a(key), OT_GEMM_OPERAND_TYPE);
  const int64_t b = bytes_of(key, OT_GEMM_B_STRIDE, rows_of_b(key), OT_GEMM_OPERAND_TYPE);
  const int64_t y = bytes_of(key, OT_GEMM_Y_STRIDE, rows, OT_GEMM_RESULT_TYPE);
  const int64_t addend = bytes_of(key, OT_GEMM_ADDEND_STRIDE, rows, OT_GEMM_RESULT_TYPE);
  return make(t, &t->a, a) && make(t, &t->b, b) && make(t, &t->y, y) &&
         make(t, &t->addend, addend) && make(t, &t->bias, 8 * key->of[OT_GEMM_COLUMNS]);
}

static void free_operands(track *t) {
  void *const memory[] = {t->a, t->b, t->y, t->addend, t->bias};
  (void)cudaStreamSynchronize(t->stream);
  for (int i = 0; i < OT_COUNT(memory); i++) {
    if (memory[i]) (void)cudaFree(memory[i]);
  }
  t->a = t->b = t->y = t->addend = t->bias = NULL;
}

static ot_cuda_product product_of(const ot_gemm_key *key, const track *t) {
  const ot_dtype operand = dtype_of(key->of[OT_GEMM_OPERAND_TYPE]);
  const ot_dtype result = dtype_of(key->of[OT_GEMM_RESULT_TYPE]);
  const int64_t addend = key->of[OT_GEMM_ADDEND];
  return (ot_cuda_product){
      .rows = key->of[OT_GEMM_ROWS],
      .columns = key->of[OT_GEMM_COLUMNS],
      .depth = key->of[OT_GEMM_DEPTH],
      .a = {t->a, operand, key->of[OT_GEMM_A_STRIDE], key->of[OT_GEMM_A_TRANSPOSED] != 0},
      .b = {t->b, operand, key->of[OT_GEMM_B_STRIDE], key->of[OT_GEMM_B_TRANSPOSED] != 0},
      .y = {t->y, result, key->of[OT_GEMM_Y_STRIDE], false},
      .addend = {addend == 0   ? NULL
                 : addend == 2 ? t->y
                               : t->addend,
                 result, key->of[OT_GEMM_ADDEND_STRIDE], false},
      .bias = {key->of[OT_GEMM_BIAS_ALIGNMENT] > 0 ? t->bias : NULL, result, 0, false},
      .compute = key->of[OT_GEMM_COMPUTE] == OT_LT_COMPUTE_64F ? OT_F64 : OT_F32,
  };
}

// ---- times ----

static int by_value(const void *a, const void *b) {
  const float x = *(const float *)a, y = *(const float *)b;
  return (x > y) - (x < y);
}

// Milliseconds of a run; negative if it fails.
static float run_once(const ot_cuda_matmul *m, const ot_gemm_plan *p,
                      const ot_cuda_product *product, const track *t) {
  float elapsed_ms = -1;
  if (cudaEventRecord(t->begin, t->stream) != cudaSuccess) return -1;
  if (ot_gemm_plan_run(m, p, product, t->stream) != 0) return -1;
  if (cudaEventRecord(t->end, t->stream) != cudaSuccess) return -1;
  if (cudaStreamSynchronize(t->stream) != cudaSuccess) return -1;
  return cudaEventElapsedTime(&elapsed_ms, t->begin, t->end) == cudaSuccess ? elapsed_ms : -1;
}

// Median seconds; 0 if the algorithm fails.
static double time_algorithm(const ot_cuda_matmul *m, const ot_gemm_plan *p,
                             const ot_cuda_product *product, const track *t) {
  float times[MAX_REPEATS];
  const int repeats = t->repeats < MAX_REPEATS ? t->repeats : MAX_REPEATS;
  if (run_once(m, p, product, t) < 0) return 0;
  for (int i = 0; i < repeats; i++) {
    times[i] = run_once(m, p, product, t);
    if (times[i] < 0) return 0;
  }
  qsort(times, (size_t)repeats, sizeof *times, by_value);
  return 1e-3 * (double)times[repeats / 2];
}

static void print_product(const ot_gemm_key *key, ot_json_writer *json) {
  const int64_t *const k = key->of;
  ot_json_integer(json, "rows", k[OT_GEMM_ROWS]);
  ot_json_integer(json, "columns", k[OT_GEMM_COLUMNS]);
  ot_json_integer(json, "depth", k[OT_GEMM_DEPTH]);
  ot_json_boolean(json, "a_transposed", k[OT_GEMM_A_TRANSPOSED] != 0);
  ot_json_boolean(json, "b_transposed", k[OT_GEMM_B_TRANSPOSED] != 0);
  ot_json_text(json, "operands", ot_dtype_name(dtype_of(k[OT_GEMM_OPERAND_TYPE])));
  ot_json_text(json, "result", ot_dtype_name(dtype_of(k[OT_GEMM_RESULT_TYPE])));
  ot_json_boolean(json, "bias", k[OT_GEMM_BIAS_ALIGNMENT] > 0);
  ot_json_boolean(json, "addend", k[OT_GEMM_ADDEND] > 0);
}

// Times every proposal, then gives the plan the fastest one.
static void race_plan(ot_cuda_matmul *m, ot_gemm_plan *p, const track *t, ot_json_writer *json) {
  ot_lt_choice choices[ALGORITHMS];
  const ot_cuda_product product = product_of(&p->key, t);
  const int found = ot_gemm_plan_propose(m, p, ALGORITHMS, choices);
  p->failure = 0;  // it has an algorithm, whatever the library answers now
  ot_lt_algorithm best = p->algorithm;
  double best_s = 0;
  ot_json_array(json, "seconds");
  for (int i = 0; i < found; i++) {
    p->algorithm = choices[i].algorithm;
    const double seconds = choices[i].status == 0 ? time_algorithm(m, p, &product, t) : 0;
    ot_json_real(json, NULL, seconds);
    if (seconds == 0 || (best_s > 0 && seconds >= best_s)) continue;
    best_s = seconds;
    best = choices[i].algorithm;
  }
  ot_json_end(json);
  p->algorithm = best;
}

static void race_products(ot_cuda_matmul *m, track *t, ot_json_writer *json) {
  for (ot_gemm_plan *p = m->plans; p; p = p->next) {
    ot_json_object(json, NULL);
    print_product(&p->key, json);
    ot_json_boolean(json, "own", p->failure != 0);
    if (p->failure == 0 && make_operands(t, &p->key)) race_plan(m, p, t, json);
    free_operands(t);
    ot_json_end(json);
  }
}

const char *ot_cuda_matmul_race(ot_cuda_matmul *m, void *stream, int repeats, ot_arena *arena) {
  if (!m->api.library) return NULL;
  track t = {.stream = stream, .repeats = repeats > 0 ? repeats : 1};
  ot_json_writer json = ot_json_begin(arena, 0);
  ot_json_array(&json, NULL);
  t.pattern = malloc(PATTERN_BYTES);
  if (t.pattern) draw_pattern(t.pattern);
  const bool ready = t.pattern &&
                     cudaEventCreateWithFlags(&t.begin, cudaEventDefault) == cudaSuccess &&
                     cudaEventCreateWithFlags(&t.end, cudaEventDefault) == cudaSuccess;
  if (ready) race_products(m, &t, &json);
  if (t.begin) (void)cudaEventDestroy(t.begin);
  if (t.end) (void)cudaEventDestroy(t.end);
  free(t.pattern);
  ot_json_end(&json);
  return json.text;
}
