// SPDX-License-Identifier: Apache-2.0
// Compares BLAS libraries on the GEMMs of a GPT-2 124M step (docs/blas.md). Each library is loaded
// separately and measured alternately in two modes: "own" uses its own threads on the whole GEMM;
// "cut" makes one serial call per thread of ours on a band of rows, as
// src/machine/kernels/matrix_cpu.c does. GFLOP/s by wall time (median), then by processor time,
// which other programs disturb less: per thread, waiting included. A library needs cblas_sgemm or
// dnnl_sgemm.
#include <dlfcn.h>
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "support/bench_program.h"

enum { MAX_LIBRARIES = 8, MAX_REPEATS = 101, NUM_MODES = 2, ROW_UNIT = 16, CHUNK_ROWS = 640 };
enum { ROW_MAJOR = 101, NO_TRANSPOSE = 111, TRANSPOSE = 112 };

typedef void (*cblas_function)(int order, int form_a, int form_b, int rows, int columns, int depth,
                               float alpha, const float *a, int a_stride, const float *b,
                               int b_stride, float beta, float *c, int c_stride);
typedef int (*dnnl_function)(char form_a, char form_b, int64_t rows, int64_t columns, int64_t depth,
                             float alpha, const float *a, int64_t a_stride, const float *b,
                             int64_t b_stride, float beta, float *c, int64_t c_stride);

typedef struct library {
  const char *name;
  cblas_function cblas;
  dnnl_function dnnl;
  void (*set_threads)(int threads);           // OpenBLAS
  void (*set_threads_wide)(int64_t threads);  // BLIS
} library;

// c = a b in the forms y = x w^T ('y'), dx = dy w ('x') and dw = dy^T x ('w').
typedef struct product {
  char form;
  int rows, columns, depth;
} product;

typedef struct operands {
  float *a, *b, *c;
} operands;

typedef struct sample {
  double wall_s[MAX_REPEATS], cpu_s[MAX_REPEATS];
} sample;

static double seconds(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static ot_status library_open(const char *path, library *out) {
  library l = {.name = path};
  void *const handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  OT_CHECK(handle, OT_ENVIRONMENT, "%s", dlerror());
  *(void **)&l.cblas = dlsym(handle, "cblas_sgemm");
  *(void **)&l.dnnl = dlsym(handle, "dnnl_sgemm");
  *(void **)&l.set_threads = dlsym(handle, "openblas_set_num_threads");
  *(void **)&l.set_threads_wide = dlsym(handle, "bli_thread_set_num_threads");
  OT_CHECK(l.cblas || l.dnnl, OT_USAGE, "%s has neither cblas_sgemm nor dnnl_sgemm", path);
  *out = l;
  return OT_OK;
}

static void threads_set(const library *l, int threads) {
  if (l->set_threads) l->set_threads(threads);
  if (l->set_threads_wide) l->set_threads_wide(threads);
  omp_set_num_threads(threads);
}

static void multiply(const library *l, const product *p, operands o) {
  const int a_stride = p->form == 'w' ? p->rows : p->depth;
  const int b_stride = p->form == 'y' ? p->depth : p->columns;
  if (l->cblas) {
    l->cblas(ROW_MAJOR, p->form == 'w' ? TRANSPOSE : NO_TRANSPOSE,
             p->form == 'y' ? TRANSPOSE : NO_TRANSPOSE, p->rows, p->columns, p->depth, 1, o.a,
             a_stride, o.b, b_stride, 0, o.c, p->columns);
  } else {
    l->dnnl(p->form == 'w' ? 'T' : 'N', p->form == 'y' ? 'T' : 'N', p->rows, p->columns, p->depth,
            1, o.a, a_stride, o.b, b_stride, 0, o.c, p->columns);
  }
}

// Rows [begin, end) of c, as a GEMM with the strides of the whole.
static void multiply_band(const library *l, const product *p, operands o, int begin, int end) {
  const int a_stride = p->form == 'w' ? p->rows : p->depth;
  const int b_stride = p->form == 'y' ? p->depth : p->columns;
  const float *const a = p->form == 'w' ? o.a + begin : o.a + (int64_t)begin * a_stride;
  float *const c = o.c + (int64_t)begin * p->columns;
  if (l->cblas) {
    l->cblas(ROW_MAJOR, p->form == 'w' ? TRANSPOSE : NO_TRANSPOSE,
             p->form == 'y' ? TRANSPOSE : NO_TRANSPOSE, end - begin, p->columns, p->depth, 1, a,
             a_stride, o.b, b_stride, 0, c, p->columns);
  } else {
    l->dnnl(p->form == 'w' ? 'T' : 'N', p->form == 'y' ? 'T' : 'N', end - begin, p->columns,
            p->depth, 1, a, a_stride, o.b, b_stride, 0, c, p->columns);
  }
}

static void multiply_cut(const library *l, const product *p, operands o, int threads) {
  const int units = (p->rows + ROW_UNIT - 1) / ROW_UNIT;
#pragma omp parallel for schedule(static, 1) num_threads(threads)
  for (int i = 0; i < threads; i++) {
    const int begin = units * i / threads * ROW_UNIT;
    const int end = units * (i + 1) / threads * ROW_UNIT;
    multiply_band(l, p, o, begin, end < p->rows ? end : p->rows);
  }
}

static int compare(const void *a, const void *b) {
  const double x = *(const double *)a;
  const double y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(double *values, int n) {
  qsort(values, (size_t)n, sizeof *values, compare);
  return values[n / 2];
}

typedef struct settings {
  int threads, repeats, num_libraries;
  library libraries[MAX_LIBRARIES];
  operands memory;
} settings;

// Measures variant `way` of the settings: library way / NUM_MODES, own (0) or cut (1).
static void measure(const settings *s, const product *p, int way, sample *times, int repeat) {
  const int mode = way % NUM_MODES;
  const library *const l = &s->libraries[way / NUM_MODES];
  threads_set(l, mode == 0 ? s->threads : 1);
  const double wall = seconds(CLOCK_MONOTONIC);
  const double cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);
  if (mode == 0) {
    multiply(l, p, s->memory);
  } else {
    multiply_cut(l, p, s->memory, s->threads);
  }
  times->wall_s[repeat] = seconds(CLOCK_MONOTONIC) - wall;
  times->cpu_s[repeat] = seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
}

static void report(const settings *s, const product *p) {
  static sample times[MAX_LIBRARIES][NUM_MODES];
  for (int r = -1; r < s->repeats; r++) {
    for (int i = 0; i < s->num_libraries * NUM_MODES; i++) {
      measure(s, p, i, &times[i / NUM_MODES][i % NUM_MODES], r < 0 ? 0 : r);
    }
  }
  const double giga = 2e-9 * p->rows * p->columns * p->depth;
  printf("%s %6d x %6d x %6d ",
         p->form == 'y'   ? "y "
         : p->form == 'x' ? "dx"
                          : "dw",
         p->rows, p->columns, p->depth);
  for (int i = 0; i < s->num_libraries * NUM_MODES; i++) {
    printf(" %6.0f", giga / median(times[i / NUM_MODES][i % NUM_MODES].wall_s, s->repeats));
  }
  printf("  |");
  for (int i = 0; i < s->num_libraries * NUM_MODES; i++) {
    printf(" %6.1f", giga / median(times[i / NUM_MODES][i % NUM_MODES].cpu_s, s->repeats));
  }
  printf("\n");
  fflush(stdout);
}

static float *filled(int64_t n) {
  float *const data = aligned_alloc(64, (size_t)(4 * n + 63) / 64 * 64);
  if (!data) exit(3);
  for (int64_t i = 0; i < n; i++) data[i] = (float)(i * 2654435761u >> 7 & 1023) / 1024 - 0.5f;
  return data;
}

static void report_all(settings *s) {
  static const int widths[][2] = {{2304, 768}, {768, 768}, {3072, 768}, {768, 3072}, {50257, 768}};
  const int64_t largest = (int64_t)50257 * 1024;
  s->memory = (operands){filled(largest), filled(largest), filled(largest)};
  printf("%-26s GFLOP/s by wall time, then by processor time; own and cut for each library\n", "");
  for (int tokens = 4096; tokens >= 1024; tokens /= 4) {
    for (int i = 0; i < 15; i++) {
      const int O = widths[i / 3][0], C = widths[i / 3][1];
      const int R = O == 50257 ? CHUNK_ROWS : tokens;
      if (O == 50257 && tokens == 1024) continue;
      const product forms[] = {{'y', R, O, C}, {'x', R, C, O}, {'w', O, C, R}};
      report(s, &forms[i % 3]);
    }
  }
}

static ot_status run_program(const ot_options *options) {
  static settings s;
  const int given = ot_options_num_arguments(options);
  s.threads = given > 0 ? atoi(ot_options_argument(options, 0)) : 2;
  s.repeats = given > 1 ? atoi(ot_options_argument(options, 1)) : 3;
  OT_CHECK(s.threads >= 1 && s.repeats >= 1 && s.repeats <= MAX_REPEATS, OT_USAGE,
           "THREADS and REPEATS must be at least 1, REPEATS at most %d", MAX_REPEATS);
  s.num_libraries = given > 2 ? given - 2 : 1;
  for (int i = 0; i < s.num_libraries; i++) {
    const char *const path = given > 2 ? ot_options_argument(options, i + 2) : OT_BLAS_FILE;
    OT_TRY(library_open(path, &s.libraries[i]));
    printf("%d: %s\n", i + 1, path);
  }
  report_all(&s);
  return OT_OK;
}

const ot_verb ot_bench_program = {
    .prefix = OT_BENCH_PREFIX,
    .name = "blas",
    .summary = "BLAS libraries on the GEMMs of a GPT-2 124M step",
    .arguments = "[THREADS [REPEATS [LIBRARY...]]]",
    .max_arguments = 2 + MAX_LIBRARIES,
    .details = "Defaults: 2 threads, medians of 3, the library of this build.",
    .examples = "  bench/blas 2 7 /usr/lib/x86_64-linux-gnu/openblas-pthread/libopenblas.so.0",
    .run = run_program,
};
