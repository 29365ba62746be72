// SPDX-License-Identifier: Apache-2.0
// cuBLASLt of the emulated device: the functions of lt_api.h over CBLAS, as queued work of a
// stream. Proposals and refusals are those that cublasLt.h and cuBLAS's manual state. Four
// algorithms differ in what they need and in the bits that they give: in how they split the depth,
// and in the order of bias and addend. shim_control.h tells how to change their order. As on an
// H100 (cuBLASLt 13.1), the product is rounded to the type of the result before an addend is added.
#include <cblas.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>

#include "shim_state.h"

extern "C" {
#include "base/dtype.h"
#include "kernels/cuda/lt_api.h"
// Of OpenBLAS alone.
extern void openblas_set_num_threads(int threads) __attribute__((weak));
}

struct ot_lt_handle {
  size_t version;
  bool reversed;  // proposes algorithms in the reverse order
};

struct ot_lt_description {
  int compute, scale;
  int transpose_a = OT_LT_NO_TRANSPOSE, transpose_b = OT_LT_NO_TRANSPOSE;
  int epilogue = OT_LT_EPILOGUE_DEFAULT;
  const void *bias = nullptr;
};

// In column-major order.
struct ot_lt_layout {
  int type;
  uint64_t rows, columns;
  int64_t stride;
};

struct ot_lt_preference {
  uint64_t workspace_bytes = 0;
  uint32_t reductions = 7;  // all
  uint32_t alignments[4] = {256, 256, 256, 256};
};

namespace {

enum { NUM_MATRICES = 4 };
constexpr int success = 0;
constexpr size_t least_alignment = 16, workspace_alignment = 256;
constexpr size_t usual_version = 130100;

// ---- objects ----

struct object_list {
  std::mutex mutex;
  std::set<const void *> live;
};

object_list &objects() {
  static object_list *const list = new object_list;
  return *list;
}

bool is_live(const void *object) {
  const std::lock_guard<std::mutex> lock(objects().mutex);
  return objects().live.count(object) > 0;
}

template <class T>
int make(T **object, const T &value) {
  if (!object) return OT_LT_INVALID_VALUE;
  *object = new T(value);
  const std::lock_guard<std::mutex> lock(objects().mutex);
  objects().live.insert(*object);
  return success;
}

template <class T>
int drop(T *object) {
  {
    const std::lock_guard<std::mutex> lock(objects().mutex);
    if (objects().live.erase(object) == 0) return OT_LT_INVALID_VALUE;
  }
  delete object;
  return success;
}

// ---- the environment ----

// True if `variable` is `other`; it may also be `usual`, or not set.
bool is_set(const char *variable, const char *usual, const char *other) {
  const char *const text = getenv(variable);
  if (!text || strcmp(text, usual) == 0) return false;
  if (strcmp(text, other) == 0) return true;
  fprintf(stderr, "shim: %s=%s is not understood (see shim_control.h)\n", variable, text);
  abort();
}

size_t version() {
  const char *const text = getenv("OT_SHIM_LT_VERSION");
  return text ? strtoull(text, nullptr, 10) : usual_version;
}

// ---- handles and descriptors ----

int create(ot_lt_handle **handle) {
  return make(handle, {version(), is_set("OT_SHIM_LT_ORDER", "forward", "reversed")});
}

int destroy(ot_lt_handle *handle) { return drop(handle); }

int describe(ot_lt_description **description, int compute, int scale) {
  ot_lt_description made;
  made.compute = compute;
  made.scale = scale;
  return make(description, made);
}

// Copies an attribute of `wanted` bytes.
int take(void *to, size_t wanted, const void *value, size_t bytes) {
  if (!value || bytes != wanted) return OT_LT_INVALID_VALUE;
  memcpy(to, value, wanted);
  return success;
}

int set_description(ot_lt_description *d, int attribute, const void *value, size_t bytes) {
  if (!is_live(d)) return OT_LT_INVALID_VALUE;
  switch (attribute) {
    case OT_LT_TRANSPOSE_A:
      return take(&d->transpose_a, sizeof d->transpose_a, value, bytes);
    case OT_LT_TRANSPOSE_B:
      return take(&d->transpose_b, sizeof d->transpose_b, value, bytes);
    case OT_LT_EPILOGUE:
      return take(&d->epilogue, sizeof d->epilogue, value, bytes);
    case OT_LT_BIAS_POINTER:
      return take(&d->bias, sizeof d->bias, value, bytes);
    default:
      return OT_LT_INVALID_VALUE;
  }
}

int forget(ot_lt_description *description) { return description ? drop(description) : success; }

int lay_out(ot_lt_layout **layout, int type, uint64_t rows, uint64_t columns, int64_t stride) {
  return make(layout, {type, rows, columns, stride});
}

int free_layout(ot_lt_layout *layout) { return layout ? drop(layout) : success; }

int prefer(ot_lt_preference **preference) { return make(preference, ot_lt_preference()); }

int set_preference(ot_lt_preference *p, int attribute, const void *value, size_t bytes) {
  if (!is_live(p)) return OT_LT_INVALID_VALUE;
  if (attribute == OT_LT_WORKSPACE_BYTES) {
    return take(&p->workspace_bytes, sizeof p->workspace_bytes, value, bytes);
  }
  if (attribute == OT_LT_REDUCTION_MASK) {
    return take(&p->reductions, sizeof p->reductions, value, bytes);
  }
  const int matrix = attribute - OT_LT_ALIGNMENT_A;
  if (matrix < 0 || matrix >= NUM_MATRICES) return OT_LT_INVALID_VALUE;
  return take(&p->alignments[matrix], sizeof p->alignments[matrix], value, bytes);
}

int free_preference(ot_lt_preference *preference) {
  return preference ? drop(preference) : success;
}

// ---- problems ----

size_t bytes_of(int type) {
  return type == OT_LT_R_16BF ? 2 : type == OT_LT_R_64F ? sizeof(double) : sizeof(float);
}

// d [m, n] = alpha op(a) [m, k] op(b) [k, n] + beta c [m, n] + bias [m]
struct problem {
  ot_lt_description description;
  ot_lt_layout layouts[NUM_MATRICES];  // of a, b, c, d
  uint64_t m, n, k;
};

struct type_combination {
  int compute, scale, operands, result;
};
const type_combination combinations[] = {
    {OT_LT_COMPUTE_32F, OT_LT_R_32F, OT_LT_R_16BF, OT_LT_R_16BF},
    {OT_LT_COMPUTE_32F, OT_LT_R_32F, OT_LT_R_16BF, OT_LT_R_32F},
    {OT_LT_COMPUTE_32F, OT_LT_R_32F, OT_LT_R_32F, OT_LT_R_32F},
    {OT_LT_COMPUTE_64F, OT_LT_R_64F, OT_LT_R_64F, OT_LT_R_64F}};

bool has_types(const problem &p) {
  const ot_lt_layout *const x = p.layouts;
  for (const type_combination &c : combinations) {
    if (p.description.compute == c.compute && p.description.scale == c.scale &&
        x[0].type == c.operands && x[1].type == c.operands && x[2].type == c.result &&
        x[3].type == c.result) {
      return true;
    }
  }
  return false;
}

bool has_shape(const ot_lt_layout &x, uint64_t rows, uint64_t columns, bool transposed) {
  if (x.rows == 0 || x.columns == 0 || x.stride < static_cast<int64_t>(x.rows)) return false;
  return transposed ? x.rows == columns && x.columns == rows
                    : x.rows == rows && x.columns == columns;
}

bool is_operation(int operation) {
  return operation == OT_LT_TRANSPOSE || operation == OT_LT_NO_TRANSPOSE;
}

int check_problem(const problem &p) {
  if (!is_operation(p.description.transpose_a) || !is_operation(p.description.transpose_b)) {
    return OT_LT_INVALID_VALUE;
  }
  const bool a = p.description.transpose_a == OT_LT_TRANSPOSE;
  const bool b = p.description.transpose_b == OT_LT_TRANSPOSE;
  if (!has_shape(p.layouts[0], p.m, p.k, a) || !has_shape(p.layouts[1], p.k, p.n, b) ||
      !has_shape(p.layouts[2], p.m, p.n, false) || !has_shape(p.layouts[3], p.m, p.n, false)) {
    return OT_LT_INVALID_VALUE;
  }
  const int epilogue = p.description.epilogue;
  if (epilogue != OT_LT_EPILOGUE_DEFAULT && epilogue != OT_LT_EPILOGUE_BIAS) {
    return OT_LT_NOT_SUPPORTED;
  }
  return has_types(p) ? success : int{OT_LT_NOT_SUPPORTED};
}

// What a call describes. A status.
int read_problem(const ot_lt_description *description, const ot_lt_layout *const *layouts,
                 problem *p) {
  if (!is_live(description)) return OT_LT_INVALID_VALUE;
  p->description = *description;
  for (int i = 0; i < NUM_MATRICES; i++) {
    if (!is_live(layouts[i])) return OT_LT_INVALID_VALUE;
    p->layouts[i] = *layouts[i];
  }
  p->m = p->layouts[3].rows;
  p->n = p->layouts[3].columns;
  const bool transposed = description->transpose_a == OT_LT_TRANSPOSE;
  p->k = transposed ? p->layouts[0].rows : p->layouts[0].columns;
  return check_problem(*p);
}

// ---- algorithms ----

struct algorithm_kind {
  int parts;           // of k
  uint32_t reduction;  // of the parts
  bool aligned;        // needs multiples of least_alignment bytes
  bool bias_first;     // adds the bias to the product, then the addend
};
// In the order of their proposal.
const algorithm_kind kinds[] = {{2, OT_LT_REDUCTION_OUTPUT_TYPE, true, false},
                                {1, 0, true, false},
                                {1, 0, false, true},
                                {2, OT_LT_REDUCTION_COMPUTE_TYPE, true, true}};
enum { NUM_KINDS = sizeof kinds / sizeof kinds[0] };

const uint64_t magic = 0x6f742d6c742d3133;

size_t workspace_of(const algorithm_kind &kind, const problem &p) {
  if (kind.reduction != OT_LT_REDUCTION_COMPUTE_TYPE) return 0;
  return static_cast<size_t>(kind.parts) * p.m * p.n * bytes_of(p.description.scale);
}

bool is_multiple(uint64_t number) { return number % least_alignment == 0; }

bool fits(const algorithm_kind &kind, const problem &p) {
  if (static_cast<uint64_t>(kind.parts) > p.k) return false;
  for (const ot_lt_layout &x : p.layouts) {
    const uint64_t row_bytes = static_cast<uint64_t>(x.stride) * bytes_of(x.type);
    if (kind.aligned && !is_multiple(row_bytes)) return false;
  }
  return true;
}

bool accepts(const ot_lt_preference &wishes, const algorithm_kind &kind, const problem &p) {
  if ((kind.reduction & ~wishes.reductions) || workspace_of(kind, p) > wishes.workspace_bytes) {
    return false;
  }
  for (int i = 0; i < NUM_MATRICES; i++) {
    const size_t least = kind.aligned ? least_alignment : bytes_of(p.layouts[i].type);
    if (wishes.alignments[i] < least) return false;
  }
  const bool has_bias = p.description.epilogue == OT_LT_EPILOGUE_BIAS;
  return !(has_bias && kind.aligned) ||
         is_multiple(reinterpret_cast<uintptr_t>(p.description.bias));
}

ot_lt_choice choice_of(const ot_lt_handle &handle, int kind, const problem &p) {
  ot_lt_choice choice = {};
  choice.algorithm = {{magic, handle.version, static_cast<uint64_t>(kind)}};
  choice.workspace_bytes = workspace_of(kinds[kind], p);
  choice.waves = 1;
  return choice;
}

int choose(ot_lt_handle *handle, ot_lt_description *description, ot_lt_layout *a, ot_lt_layout *b,
           ot_lt_layout *c, ot_lt_layout *d, ot_lt_preference *preference, int wanted,
           ot_lt_choice *choices, int *found) {
  const ot_lt_layout *const layouts[] = {a, b, c, d};
  problem p;
  if (!is_live(handle)) return OT_LT_NOT_INITIALIZED;
  if (!is_live(preference) || wanted < 1 || !choices || !found) return OT_LT_INVALID_VALUE;
  *found = 0;
  const int status = read_problem(description, layouts, &p);
  if (status != success) return status;
  for (int i = 0; i < NUM_KINDS && *found < wanted; i++) {
    const int kind = handle->reversed ? NUM_KINDS - 1 - i : i;
    if (!fits(kinds[kind], p) || !accepts(*preference, kinds[kind], p)) continue;
    choices[(*found)++] = choice_of(*handle, kind, p);
  }
  return *found > 0 ? success : int{OT_LT_NOT_SUPPORTED};
}

// The kind of `algorithm` for `p`. A status.
int find_kind(const ot_lt_handle &handle, const ot_lt_algorithm *algorithm, const problem &p,
              int *kind) {
  if (!algorithm || algorithm->words[0] != magic || algorithm->words[1] != handle.version ||
      algorithm->words[2] >= NUM_KINDS) {
    return OT_LT_INVALID_VALUE;
  }
  *kind = static_cast<int>(algorithm->words[2]);
  return fits(kinds[*kind], p) ? success : int{OT_LT_NOT_SUPPORTED};
}

int check(ot_lt_handle *handle, ot_lt_description *description, ot_lt_layout *a, ot_lt_layout *b,
          ot_lt_layout *c, ot_lt_layout *d, const ot_lt_algorithm *algorithm,
          ot_lt_choice *result) {
  const ot_lt_layout *const layouts[] = {a, b, c, d};
  problem p;
  int kind = 0;
  if (!is_live(handle)) return OT_LT_NOT_INITIALIZED;
  int status = result ? read_problem(description, layouts, &p) : OT_LT_INVALID_VALUE;
  if (status == success) status = find_kind(*handle, algorithm, p, &kind);
  if (status != success) return status;
  const ot_lt_choice found = choice_of(*handle, kind, p);
  result->workspace_bytes = found.workspace_bytes;
  result->status = found.status;
  result->waves = found.waves;
  return success;
}

// ---- products ----

// A call, as it runs later.
struct product {
  problem p;
  int kind;
  double alpha, beta;
  const void *data[3];  // a, b, c
  void *d;
  void *workspace;
};

template <class R>
R element(const void *data, int type, size_t i) {
  if (type == OT_LT_R_16BF) {
    return static_cast<R>(ot_bf16_to_float(static_cast<const uint16_t *>(data)[i]));
  }
  if (type == OT_LT_R_32F) return static_cast<R>(static_cast<const float *>(data)[i]);
  return static_cast<R>(static_cast<const double *>(data)[i]);
}

template <class R>
void set_element(void *data, int type, size_t i, R x) {
  if (type == OT_LT_R_16BF) {
    static_cast<uint16_t *>(data)[i] = ot_bf16_from_float(static_cast<float>(x));
  } else if (type == OT_LT_R_32F) {
    static_cast<float *>(data)[i] = static_cast<float>(x);
  } else {
    static_cast<double *>(data)[i] = static_cast<double>(x);
  }
}

// The matrix, or its transpose, in column-major order without gaps.
template <class R>
std::vector<R> widened(const ot_lt_layout &x, bool transposed, const void *data) {
  std::vector<R> all(x.rows * x.columns);
  for (size_t j = 0; j < x.columns; j++) {
    for (size_t i = 0; i < x.rows; i++) {
      const size_t at = transposed ? j + i * x.columns : i + j * x.rows;
      all[at] = element<R>(data, x.type, i + j * static_cast<size_t>(x.stride));
    }
  }
  return all;
}

void multiply_part(const problem &p, int first, int count, const float *a, const float *b,
                   float *to) {
  const int m = static_cast<int>(p.m), n = static_cast<int>(p.n), k = static_cast<int>(p.k);
  cblas_sgemm(CblasColMajor, CblasNoTrans, CblasNoTrans, m, n, count, 1, a + size_t(first) * p.m, m,
              b + first, k, 0, to, m);
}

void multiply_part(const problem &p, int first, int count, const double *a, const double *b,
                   double *to) {
  const int m = static_cast<int>(p.m), n = static_cast<int>(p.n), k = static_cast<int>(p.k);
  cblas_dgemm(CblasColMajor, CblasNoTrans, CblasNoTrans, m, n, count, 1, a + size_t(first) * p.m, m,
              b + first, k, 0, to, m);
}

template <class R>
R rounded(R x, int type) {
  if (type != OT_LT_R_16BF) return x;
  return static_cast<R>(ot_bf16_to_float(ot_bf16_from_float(static_cast<float>(x))));
}

// op(a) op(b), without gaps. Parts that are added in the compute type stand in the workspace.
template <class R>
std::vector<R> sum_of_parts(const product &c) {
  const problem &p = c.p;
  const algorithm_kind &kind = kinds[c.kind];
  const std::vector<R> a =
      widened<R>(p.layouts[0], p.description.transpose_a == OT_LT_TRANSPOSE, c.data[0]);
  const std::vector<R> b =
      widened<R>(p.layouts[1], p.description.transpose_b == OT_LT_TRANSPOSE, c.data[1]);
  const size_t size = p.m * p.n;
  const bool in_workspace = kind.reduction == OT_LT_REDUCTION_COMPUTE_TYPE;
  const bool rounds = kind.reduction == OT_LT_REDUCTION_OUTPUT_TYPE;
  std::vector<R> sum(size), part(size);
  for (int i = 0; i < kind.parts; i++) {
    const int k = static_cast<int>(p.k), first = k * i / kind.parts;
    R *const to = in_workspace ? static_cast<R *>(c.workspace) + size * size_t(i) : part.data();
    multiply_part(p, first, k * (i + 1) / kind.parts - first, a.data(), b.data(), to);
    for (size_t e = 0; e < size; e++) {
      const R term = rounds ? rounded(to[e], p.layouts[3].type) : to[e];
      sum[e] = i == 0 ? term : rounds ? rounded(sum[e] + term, p.layouts[3].type) : sum[e] + term;
    }
  }
  return sum;
}

template <class R>
void run(const product &c) {
  const problem &p = c.p;
  const bool has_bias = p.description.epilogue == OT_LT_EPILOGUE_BIAS;
  const bool first = kinds[c.kind].bias_first;
  const int type = p.layouts[3].type;
  const std::vector<R> sum = sum_of_parts<R>(c);
  for (size_t j = 0; j < p.n; j++) {
    for (size_t i = 0; i < p.m; i++) {
      const size_t addend = i + j * static_cast<size_t>(p.layouts[2].stride);
      const size_t at = i + j * static_cast<size_t>(p.layouts[3].stride);
      const R bias = has_bias ? element<R>(p.description.bias, type, i) : 0;
      R x = static_cast<R>(c.alpha) * sum[i + j * p.m];
      if (first) x += bias;
      if (c.beta != 0) {
        x = rounded(x, type) + static_cast<R>(c.beta) * element<R>(c.data[2], type, addend);
      }
      if (!first) x += bias;
      set_element(c.d, type, at, x);
    }
  }
}

// A kernel that needs aligned matrices reads the bias as such, too.
bool bias_faults(const product &c) {
  return c.p.description.epilogue == OT_LT_EPILOGUE_BIAS && kinds[c.kind].aligned &&
         !is_multiple(reinterpret_cast<uintptr_t>(c.p.description.bias));
}

void run_product(const product &c) {
  if (bias_faults(c)) {
    shim::running_context().ended = cudaErrorMisalignedAddress;
  } else if (c.p.description.compute == OT_LT_COMPUTE_64F) {
    run<double>(c);
  } else {
    run<float>(c);
  }
}

bool same_layout(const ot_lt_layout &x, const ot_lt_layout &y) {
  return x.type == y.type && x.rows == y.rows && x.columns == y.columns && x.stride == y.stride;
}

// A status.
int check_operands(const product &c, size_t workspace_bytes) {
  const void *const all[NUM_MATRICES] = {c.data[0], c.data[1], c.data[2], c.d};
  const size_t needed = workspace_of(kinds[c.kind], c.p);
  const bool has_bias = c.p.description.epilogue == OT_LT_EPILOGUE_BIAS;
  if (has_bias && !c.p.description.bias) return OT_LT_INVALID_VALUE;
  if (c.data[2] == c.d && !same_layout(c.p.layouts[2], c.p.layouts[3])) return OT_LT_INVALID_VALUE;
  if (needed > workspace_bytes || (needed > 0 && !c.workspace)) return OT_LT_INVALID_VALUE;
  if (reinterpret_cast<uintptr_t>(c.workspace) % workspace_alignment != 0) {
    return OT_LT_INVALID_VALUE;
  }
  for (int i = 0; i < NUM_MATRICES; i++) {
    const uintptr_t at = reinterpret_cast<uintptr_t>(all[i]);
    if (!all[i]) return OT_LT_INVALID_VALUE;
    if (at % (kinds[c.kind].aligned ? least_alignment : bytes_of(c.p.layouts[i].type)) != 0) {
      return OT_LT_NOT_SUPPORTED;
    }
  }
  return success;
}

int queue(const product &c, void *stream_handle) {
  const shim::stream_pointer stream = shim::find_stream(static_cast<cudaStream_t>(stream_handle));
  if (!stream) return OT_LT_EXECUTION_FAILED;
  shim::work_item item;
  item.kind = shim::work_kind::KERNEL;
  item.name = "cublasLtMatmul";
  item.run = [c] { run_product(c); };
  shim::enqueue(stream, std::move(item));
  return success;
}

int multiply(ot_lt_handle *handle, ot_lt_description *description, const void *alpha, const void *a,
             ot_lt_layout *a_layout, const void *b, ot_lt_layout *b_layout, const void *beta,
             const void *c, ot_lt_layout *c_layout, void *d, ot_lt_layout *d_layout,
             const ot_lt_algorithm *algorithm, void *workspace, size_t workspace_bytes,
             void *stream) {
  const ot_lt_layout *const layouts[] = {a_layout, b_layout, c_layout, d_layout};
  product made = {};
  if (!is_live(handle)) return OT_LT_NOT_INITIALIZED;
  int status = read_problem(description, layouts, &made.p);
  if (status == success) status = find_kind(*handle, algorithm, made.p, &made.kind);
  if (status == success && (!alpha || !beta)) status = OT_LT_INVALID_VALUE;
  if (status != success) return status;
  made.alpha = element<double>(alpha, made.p.description.scale, 0);
  made.beta = element<double>(beta, made.p.description.scale, 0);
  made.data[0] = a;
  made.data[1] = b;
  made.data[2] = c;
  made.d = d;
  made.workspace = workspace;
  status = check_operands(made, workspace_bytes);
  if (status != success) return status;
  status = OT_LT_EXECUTION_FAILED;
  shim::api_call("cublasLtMatmul", [&](shim::lock_held &) {
    status = queue(made, stream);
    return cudaSuccess;
  });
  return status;
}

}  // namespace

extern "C" {

ot_status ot_lt_open(ot_lt_api *api) {
  *api = ot_lt_api();
  if (openblas_set_num_threads) openblas_set_num_threads(1);
  api->library = &objects();
  api->create = create;
  api->destroy = destroy;
  api->describe = describe;
  api->set_description = set_description;
  api->forget = forget;
  api->lay_out = lay_out;
  api->free_layout = free_layout;
  api->prefer = prefer;
  api->set_preference = set_preference;
  api->free_preference = free_preference;
  api->choose = choose;
  api->check = check;
  api->multiply = multiply;
  api->version = version;
  return OT_OK;
}

void ot_lt_close(ot_lt_api *api) { api->library = nullptr; }
}
