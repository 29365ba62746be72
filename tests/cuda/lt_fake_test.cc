// SPDX-License-Identifier: Apache-2.0
// run: any machine. cuBLASLt of the emulated device: its results against plain loops, its place in
// the order of a stream, and what it refuses. Prints what is wrong and exits with 1.
#include <cmath>
#include <cstdint>
#include <cstring>

#include "shim_expect.h"

extern "C" {
#include "base/dtype.h"
#include "kernels/cuda/lt_api.h"
}

namespace {

enum { WORKSPACE_BYTES = 1 << 20, MOST = 8 };

ot_lt_api api;
ot_lt_handle *handle;

void expect_status(int got, int wanted, const char *file = __builtin_FILE(),
                   int line = __builtin_LINE()) {
  if (got == wanted) return;
  fprintf(stderr, "%s:%d: status %d instead of %d\n", file, line, got, wanted);
  num_wrong++;
}

// ---- elements ----

size_t bytes_of(int type) { return type == OT_LT_R_16BF ? 2 : type == OT_LT_R_64F ? 8 : 4; }

double get(const std::vector<char> &bytes, int type, size_t i) {
  if (type == OT_LT_R_16BF) {
    return ot_bf16_to_float(reinterpret_cast<const uint16_t *>(bytes.data())[i]);
  }
  if (type == OT_LT_R_32F) return reinterpret_cast<const float *>(bytes.data())[i];
  return reinterpret_cast<const double *>(bytes.data())[i];
}

// [count] of `type`, of sizes near 1.
std::vector<char> elements(int type, size_t count, uint32_t seed) {
  std::vector<char> bytes(count * bytes_of(type));
  for (size_t i = 0; i < count; i++) {
    seed = seed * 1664525 + 1013904223;
    const double x = static_cast<double>(seed >> 8) / (1 << 23) - 1;
    const float narrow = static_cast<float>(x);
    const uint16_t half = ot_bf16_from_float(narrow);
    const void *const from = type == OT_LT_R_64F   ? static_cast<const void *>(&x)
                             : type == OT_LT_R_32F ? static_cast<const void *>(&narrow)
                                                   : &half;
    memcpy(bytes.data() + i * bytes_of(type), from, bytes_of(type));
  }
  return bytes;
}

// ---- a product ----

// d [m, n] = alpha op(a) op(b) + beta c + bias, in column-major order.
struct shape {
  int operands = OT_LT_R_32F, result = OT_LT_R_32F, compute = OT_LT_COMPUTE_32F;
  uint64_t m = 24, n = 16, k = 40;
  int transpose_a = OT_LT_NO_TRANSPOSE, transpose_b = OT_LT_NO_TRANSPOSE;
  int64_t gap = 8;  // elements after each column
  int epilogue = OT_LT_EPILOGUE_DEFAULT;
  double alpha = 1, beta = 0;
};

struct descriptors {
  ot_lt_description *description = nullptr;
  ot_lt_layout *layouts[4] = {};
  ot_lt_preference *preference = nullptr;
  uint64_t rows[4], columns[4];
  int types[4];

  explicit descriptors(const shape &s) {
    const bool a = s.transpose_a == OT_LT_TRANSPOSE, b = s.transpose_b == OT_LT_TRANSPOSE;
    const uint64_t of_rows[] = {a ? s.k : s.m, b ? s.n : s.k, s.m, s.m};
    const uint64_t of_columns[] = {a ? s.m : s.k, b ? s.k : s.n, s.n, s.n};
    const uint64_t bytes = WORKSPACE_BYTES;
    const uint32_t alignment = 16;
    const int scale = s.compute == OT_LT_COMPUTE_64F ? OT_LT_R_64F : OT_LT_R_32F;
    expect_status(api.describe(&description, s.compute, scale), 0);
    set(OT_LT_TRANSPOSE_A, s.transpose_a);
    set(OT_LT_TRANSPOSE_B, s.transpose_b);
    set(OT_LT_EPILOGUE, s.epilogue);
    for (int i = 0; i < 4; i++) {
      rows[i] = of_rows[i];
      columns[i] = of_columns[i];
      types[i] = i < 2 ? s.operands : s.result;
      expect_status(api.lay_out(&layouts[i], types[i], rows[i], columns[i], stride(i, s)), 0);
    }
    expect_status(api.prefer(&preference), 0);
    for (int i = 0; i < 4; i++) prefer(OT_LT_ALIGNMENT_A + i, &alignment, sizeof alignment);
    prefer(OT_LT_WORKSPACE_BYTES, &bytes, sizeof bytes);
  }
  ~descriptors() {
    expect_status(api.forget(description), 0);
    for (ot_lt_layout *const x : layouts) expect_status(api.free_layout(x), 0);
    expect_status(api.free_preference(preference), 0);
  }
  descriptors(const descriptors &) = delete;

  void set(int attribute, int value) const {
    expect_status(api.set_description(description, attribute, &value, sizeof value), 0);
  }
  void prefer(int attribute, const void *value, size_t bytes) const {
    expect_status(api.set_preference(preference, attribute, value, bytes), 0);
  }
  int64_t stride(int i, const shape &s) const { return static_cast<int64_t>(rows[i]) + s.gap; }
  size_t count(int i, const shape &s) const {
    return static_cast<size_t>(stride(i, s)) * columns[i];
  }
  // The algorithms that the library proposes.
  std::vector<ot_lt_choice> choices(int wanted_status = 0) const {
    std::vector<ot_lt_choice> all(MOST);
    int found = 0;
    expect_status(api.choose(handle, description, layouts[0], layouts[1], layouts[2], layouts[3],
                             preference, MOST, all.data(), &found),
                  wanted_status);
    all.resize(static_cast<size_t>(found));
    return all;
  }
};

// Its matrices on the device, and the arguments of a call, which tests change.
struct call {
  const shape s;
  descriptors made;
  std::vector<char> host[4], host_bias;
  device_array<char> a, b, c, d, bias, workspace;
  const void *pointers[4];
  void *scratch;
  size_t scratch_bytes = WORKSPACE_BYTES;
  ot_lt_layout *c_layout;

  explicit call(const shape &of)
      : s(of),
        made(s),
        host{elements(s.operands, made.count(0, s), 1), elements(s.operands, made.count(1, s), 2),
             elements(s.result, made.count(2, s), 3), elements(s.result, made.count(3, s), 4)},
        host_bias(elements(s.result, s.m + 1, 5)),
        a(host[0]),
        b(host[1]),
        c(host[2]),
        d(host[3]),
        bias(host_bias),
        workspace(WORKSPACE_BYTES),
        pointers{a.get(), b.get(), c.get(), d.get()},
        scratch(workspace.get()),
        c_layout(made.layouts[2]) {
    if (s.epilogue == OT_LT_EPILOGUE_BIAS) point_at_bias(bias.get());
  }
  void point_at_bias(const void *at) {
    expect_status(api.set_description(made.description, OT_LT_BIAS_POINTER, &at, sizeof at), 0);
  }
  int queue(const ot_lt_algorithm &algorithm, cudaStream_t stream = nullptr) const {
    const float alpha = static_cast<float>(s.alpha), beta = static_cast<float>(s.beta);
    const bool wide = s.compute == OT_LT_COMPUTE_64F;
    return api.multiply(handle, made.description, wide ? (const void *)&s.alpha : &alpha,
                        pointers[0], made.layouts[0], pointers[1], made.layouts[1],
                        wide ? (const void *)&s.beta : &beta, pointers[2], c_layout,
                        const_cast<void *>(pointers[3]), made.layouts[3], &algorithm, scratch,
                        scratch_bytes, stream);
  }
  struct terms {
    double product, bias, addend;
    double all() const { return product + bias + addend; }
  };
  terms terms_of(size_t i, size_t j) const {
    const bool ta = s.transpose_a == OT_LT_TRANSPOSE, tb = s.transpose_b == OT_LT_TRANSPOSE;
    double sum = 0;
    for (size_t k = 0; k < s.k; k++) {
      const size_t in_a =
          ta ? k + i * size_t(made.stride(0, s)) : i + k * size_t(made.stride(0, s));
      const size_t in_b =
          tb ? j + k * size_t(made.stride(1, s)) : k + j * size_t(made.stride(1, s));
      sum += get(host[0], s.operands, in_a) * get(host[1], s.operands, in_b);
    }
    const bool in_place = pointers[2] == pointers[3];
    const size_t at = i + j * static_cast<size_t>(made.stride(2, s));
    return {s.alpha * sum, s.epilogue == OT_LT_EPILOGUE_BIAS ? get(host_bias, s.result, i) : 0,
            s.beta * get(host[in_place ? 3 : 2], s.result, at)};
  }
  // The largest error relative to the roundings of the result's type, of which a product with an
  // addend has one more; what lies between columns must not change.
  double error() const {
    const std::vector<char> found = d.read();
    const double unit = s.result == OT_LT_R_16BF ? 0x1p-8 : s.result == OT_LT_R_32F ? 1e-6 : 1e-14;
    const size_t stride = static_cast<size_t>(made.stride(3, s));
    double worst = 0;
    for (size_t j = 0; j < s.n; j++) {
      for (size_t i = 0; i < stride; i++) {
        const double x = get(found, s.result, i + j * stride);
        const terms t =
            i < s.m ? terms_of(i, j) : terms{get(host[3], s.result, i + j * stride), 0, 0};
        const double first = s.beta != 0 ? std::fabs(t.product) + std::fabs(t.bias) : 0;
        const double bound = unit * (1 + std::fabs(t.all()) + first);
        worst = std::fmax(worst, std::fabs(x - t.all()) / bound);
      }
    }
    return worst;
  }
};

// ---- checks ----

void every_algorithm_gives_the_product(const shape &s) {
  const size_t num = descriptors(s).choices().size();
  expect(num == (s.gap % 8 == 0 ? 4 : 1), "not as many algorithms as there are");
  for (size_t i = 0; i < num; i++) {
    call c(s);
    expect_status(c.queue(c.made.choices()[i].algorithm), 0);
    // The first one rounds each half to the type of the result.
    expect(c.error() <= (i == 0 && num > 1 ? 4 : 1), "a product is off");
  }
}

void products_are_those_of_plain_loops() {
  const int types[][3] = {{OT_LT_R_16BF, OT_LT_R_16BF, OT_LT_COMPUTE_32F},
                          {OT_LT_R_16BF, OT_LT_R_32F, OT_LT_COMPUTE_32F},
                          {OT_LT_R_32F, OT_LT_R_32F, OT_LT_COMPUTE_32F},
                          {OT_LT_R_64F, OT_LT_R_64F, OT_LT_COMPUTE_64F}};
  for (const auto &type : types) {
    for (int i = 0; i < 8; i++) {
      shape s;
      s.operands = type[0];
      s.result = type[1];
      s.compute = type[2];
      s.transpose_a = i & 1;
      s.transpose_b = i >> 1 & 1;
      s.epilogue = i & 4 ? OT_LT_EPILOGUE_BIAS : OT_LT_EPILOGUE_DEFAULT;
      s.alpha = i & 4 ? 0.5 : 1;
      s.beta = i & 2 ? -2 : 0;
      every_algorithm_gives_the_product(s);
      s.gap = 1;
      every_algorithm_gives_the_product(s);
    }
  }
}

void the_result_may_be_the_addend() {
  shape s;
  s.beta = 1;
  call c(s);
  c.pointers[2] = c.d.get();
  expect_status(c.queue(c.made.choices()[0].algorithm), 0);
  expect(c.error() <= 1, "a product added in place is off");
}

// The bf16 number next to x.
double narrow(double x) { return ot_bf16_to_float(ot_bf16_from_float(static_cast<float>(x))); }

// To bf16, on its own, and then with the addend; the bias may come before both.
void a_product_is_rounded_before_an_addend_is_added() {
  shape s;
  s.operands = s.result = OT_LT_R_16BF;
  s.epilogue = OT_LT_EPILOGUE_BIAS;
  s.beta = 1;
  for (size_t k = 1; k < 4; k++) {
    const call c(s);
    expect_status(c.queue(c.made.choices()[k].algorithm), 0);
    const std::vector<char> found = c.d.read();
    int once = 0, wrong = 0;
    for (size_t n = 0; n < s.m * s.n; n++) {
      const size_t i = n % s.m, j = n / s.m;
      const call::terms t = c.terms_of(i, j);
      const double last = narrow(narrow(t.product) + t.addend + t.bias);
      const double first = narrow(narrow(t.product + t.bias) + t.addend);
      const double x = get(found, s.result, i + j * static_cast<size_t>(c.made.stride(3, s)));
      once += x == narrow(t.all());
      wrong += x != (k == 1 ? last : first);
    }
    expect(wrong == 0 && once < static_cast<int>(s.m * s.n), "a product is not rounded twice");
  }
}

// The bits of algorithm `i`.
std::vector<char> bits_of(size_t i) {
  const call c{shape()};
  expect_status(c.queue(c.made.choices()[i].algorithm), 0);
  return c.d.read();
}

void algorithms_differ_in_bits() {
  expect(bits_of(1) == bits_of(1), "an algorithm has two results");
  expect(bits_of(1) != bits_of(3), "two algorithms have one result");
}

void products_run_in_the_order_of_their_stream() {
  const call c{shape()};
  const test_stream stream;
  const std::vector<char> zeros(c.host[3].size());
  const ot_lt_algorithm algorithm = c.made.choices()[0].algorithm;
  expect_status(c.queue(algorithm, stream), 0);
  must(cudaMemsetAsync(c.d.get(), 0, zeros.size(), stream));
  expect(c.d.read() == zeros, "a product ran after a later fill");
  must(cudaMemsetAsync(c.a.get(), 0, c.host[0].size(), stream));
  must(cudaMemcpyAsync(c.d.get(), c.host[3].data(), zeros.size(), cudaMemcpyHostToDevice, stream));
  expect_status(c.queue(algorithm, stream), 0);
  expect(get(c.d.read(), OT_LT_R_32F, 0) == 0, "a product ran before an earlier fill");
}

void preferences_exclude_algorithms() {
  const descriptors d{shape()};
  const uint32_t reductions = OT_LT_REDUCTION_COMPUTE_TYPE, none = 0, narrow = 4;
  const uint64_t bytes = 24 * 16 * 2 * 4 - 1;  // of both halves, less one
  d.prefer(OT_LT_REDUCTION_MASK, &reductions, sizeof reductions);
  expect(d.choices().size() == 3, "a reduction in the type of the result is proposed");
  d.prefer(OT_LT_WORKSPACE_BYTES, &bytes, sizeof bytes);
  expect(d.choices().size() == 2, "more workspace than there is");
  d.prefer(OT_LT_REDUCTION_MASK, &none, sizeof none);
  d.prefer(OT_LT_ALIGNMENT_A + 3, &narrow, sizeof narrow);
  expect(d.choices().size() == 1, "more alignment than there is");
}

void the_order_of_proposals_can_be_reversed() {
  const ot_lt_choice usual = descriptors{shape()}.choices()[1];
  ot_lt_handle *const before = handle;
  setenv("OT_SHIM_LT_ORDER", "reversed", 1);
  expect_status(api.create(&handle), 0);
  const ot_lt_choice reversed = descriptors{shape()}.choices()[2];
  expect(memcmp(&usual.algorithm, &reversed.algorithm, sizeof usual.algorithm) == 0,
         "the order is not reversed");
  expect_status(api.destroy(handle), 0);
  unsetenv("OT_SHIM_LT_ORDER");
  handle = before;
}

void an_algorithm_belongs_to_a_version() {
  const descriptors d{shape()};
  const ot_lt_algorithm algorithm = d.choices()[3].algorithm;
  ot_lt_choice result = {};
  const auto check = [&] {
    return api.check(handle, d.description, d.layouts[0], d.layouts[1], d.layouts[2], d.layouts[3],
                     &algorithm, &result);
  };
  expect_status(check(), 0);
  expect(result.workspace_bytes == 24 * 16 * 2 * 4, "the workspace of two halves");
  ot_lt_handle *const before = handle;
  setenv("OT_SHIM_LT_VERSION", "130200", 1);
  expect_status(api.create(&handle), 0);
  expect_status(check(), OT_LT_INVALID_VALUE);
  expect_status(api.destroy(handle), 0);
  unsetenv("OT_SHIM_LT_VERSION");
  handle = before;
}

void descriptions_are_checked() {
  shape s;
  const auto expect_refused = [](const shape &of, int status) { descriptors(of).choices(status); };
  s.gap = -1;
  expect_refused(s, OT_LT_INVALID_VALUE);
  s = shape();
  s.m = 0;
  expect_refused(s, OT_LT_INVALID_VALUE);
  s = shape();
  s.result = OT_LT_R_16BF;
  expect_refused(s, OT_LT_NOT_SUPPORTED);
  s = shape();
  s.compute = OT_LT_COMPUTE_64F;
  expect_refused(s, OT_LT_NOT_SUPPORTED);
  s = shape();
  s.epilogue = 32;
  expect_refused(s, OT_LT_NOT_SUPPORTED);
  s = shape();
  s.transpose_b = 7;
  expect_refused(s, OT_LT_INVALID_VALUE);
  const descriptors d{shape()};
  const int64_t value = 1;
  expect_status(api.set_description(d.description, OT_LT_EPILOGUE, &value, 8), OT_LT_INVALID_VALUE);
  expect_status(api.set_description(d.description, 3000, &value, 4), OT_LT_INVALID_VALUE);
  expect_status(api.set_preference(d.preference, OT_LT_WORKSPACE_BYTES, &value, 4),
                OT_LT_INVALID_VALUE);
  expect_status(api.set_preference(d.preference, OT_LT_WORKSPACE_BYTES, nullptr, 8),
                OT_LT_INVALID_VALUE);
  expect_status(api.destroy(nullptr), OT_LT_INVALID_VALUE);
  expect_status(api.forget(nullptr), 0);
}

void operands_are_checked() {
  call c{shape()};
  const ot_lt_algorithm whole = c.made.choices()[1].algorithm,
                        halves = c.made.choices()[3].algorithm;
  const ot_lt_algorithm unknown = {};
  expect_status(c.queue(unknown), OT_LT_INVALID_VALUE);
  c.pointers[1] = c.b.get() + 4;
  expect_status(c.queue(whole), OT_LT_NOT_SUPPORTED);
  c.pointers[1] = nullptr;
  expect_status(c.queue(whole), OT_LT_INVALID_VALUE);
  c.pointers[1] = c.b.get();
  c.scratch_bytes = 24 * 16 * 2 * 4 - 1;
  expect_status(c.queue(halves), OT_LT_INVALID_VALUE);
  c.scratch_bytes++;
  expect_status(c.queue(halves), 0);
  c.scratch = c.workspace.get() + 16;
  expect_status(c.queue(halves), OT_LT_INVALID_VALUE);
  c.scratch = c.workspace.get();
  expect_status(c.queue(whole, reinterpret_cast<cudaStream_t>(&c)), OT_LT_EXECUTION_FAILED);
  // The result may be the addend only in one layout.
  ot_lt_layout *other = nullptr;
  expect_status(api.lay_out(&other, OT_LT_R_32F, 24, 16, 24), 0);
  c.c_layout = other;
  c.pointers[2] = c.d.get();
  expect_status(c.queue(whole), OT_LT_INVALID_VALUE);
  expect_status(api.free_layout(other), 0);
  must(cudaDeviceSynchronize());
}

void a_misaligned_bias_faults() {
  shape s;
  s.epilogue = OT_LT_EPILOGUE_BIAS;
  call c(s);
  const ot_lt_algorithm aligned = c.made.choices()[0].algorithm;
  c.point_at_bias(c.bias.get() + 4);
  expect(c.made.choices().size() == 1, "algorithms that need an aligned bias");
  expect_status(c.queue(c.made.choices()[0].algorithm), 0);
  must(cudaDeviceSynchronize());
  c.point_at_bias(nullptr);
  expect_status(c.queue(aligned), OT_LT_INVALID_VALUE);
  c.point_at_bias(c.bias.get() + 4);
  expect_status(c.queue(aligned), 0);
  expect_error(cudaDeviceSynchronize(), cudaErrorMisalignedAddress);
  expect_status(c.queue(aligned), OT_LT_EXECUTION_FAILED);
  shim_reset();
}

}  // namespace

int main() {
  expect(ot_lt_open(&api) == OT_OK && api.library, "there is a library");
  expect_status(api.create(&handle), 0);
  expect(api.version() == 130100, "its version");
  products_are_those_of_plain_loops();
  the_result_may_be_the_addend();
  a_product_is_rounded_before_an_addend_is_added();
  algorithms_differ_in_bits();
  products_run_in_the_order_of_their_stream();
  preferences_exclude_algorithms();
  the_order_of_proposals_can_be_reversed();
  an_algorithm_belongs_to_a_version();
  descriptions_are_checked();
  operands_are_checked();
  a_misaligned_bias_faults();
  expect_status(api.destroy(handle), 0);
  ot_lt_close(&api);
  expect(!api.library, "the library is closed");
  expect(shim_live_objects() == 0, "objects are left");
  return num_wrong > 0;
}
