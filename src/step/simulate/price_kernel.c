// SPDX-License-Identifier: Apache-2.0
// One function per kind of cost (ot_cost_kind): GEMMs of layers, attention, the head, and
// memory-bound ops. Formulas and sources: docs/pricing.md.
#include "simulate/price_kernel.h"

#include "base/math.h"
#include "ops/attention.h"
#include "ops/catalog.h"
#include "ops/route.h"
#include "simulate/price_gemm.h"

enum { GROUP_ROWS = 32 };  // tokens of an expert per block of 8-bit formats

// State of a cost computation.
typedef struct pricing {
  const ot_simulation *simulation;
  const ot_device_kind *device;
  const ot_kernel_style *style;
  const ot_task *task;
  ot_cost cost;
  double s, bytes;  // so far: seconds of GEMMs, bytes of other passes
  double ops;       // kernels dispatched by the host
  double groups;    // of a grouped GEMM; else 0
  bool experts;     // on the path that moves tokens to experts
} pricing;

static double share_of(double share) { return share > 0 ? share : 1; }

ot_status ot_price_lacks_rate(const ot_simulation *simulation, ot_dtype type, const ot_task *task) {
  const ot_cluster *const cluster = simulation->cluster;
  const char *const name = ot_dtype_name(type);
  ot_fail(OT_USAGE, "cluster %s: device %s has no flops of %s, which op %s needs", cluster->name,
          cluster->device.name, name, ot_task_name(task));
  return ot_fail_hint(OT_USAGE, "flops_%s in the cluster file, or another precision", name);
}

double ot_device_stream_rate(const ot_device_kind *device) {
  return device->memory_bytes_per_s * share_of(device->memory_efficiency);
}

// Tokens of an expert, padded to whole blocks.
static double padded(double rows) {
  const int64_t blocks = (int64_t)((rows + GROUP_ROWS - 1) / GROUP_ROWS);
  return (double)(blocks * GROUP_ROWS);
}

static double rows_of(const ot_tensor_type *type) {
  return (double)ot_type_elements(type) / (double)type->dim[type->rank - 1];
}

static double width_of(const ot_tensor_type *type) { return (double)type->dim[type->rank - 1]; }

static double elements_of(const ot_operand *operand) {
  return (double)ot_type_elements(&operand->type);
}

// GEMM dtype of layers, or of attention or the head. A dtype that is stored as another (fp16 as
// bf16) has the same size.
static ot_dtype product_type(const pricing *p, bool lowered) {
  const ot_dtype wanted = p->simulation->products;
  if (wanted == OT_F8 && !lowered) return OT_BF16;
  return wanted;
}

static ot_status add_product(pricing *p, ot_gemm_shape product) {
  if (p->device->flops[product.type] == 0) {
    return ot_price_lacks_rate(p->simulation, product.type, p->task);
  }
  p->s += ot_gemm_s(p->device, &product);
  return OT_OK;
}

// ---- layers ----

// An addition after a GEMM in a separate kernel: reads both operands, writes the sum.
static void add_sum(pricing *p, const ot_operand *out) {
  if (!p->style->fused_sums) p->bytes += 3 * (double)ot_type_bytes(&out->type);
}

// The first GEMM that reads an operand casts it and makes its transpose: dx for dy, the forward for
// x and w.
static void add_casts(pricing *p) {
  const ot_operand *const in = p->task->in;
  if (p->task->op == OT_OP_LINEAR_DW) return;
  double elements = elements_of(&in[0]);
  if (p->task->op == OT_OP_LINEAR && p->style->casts_weights) elements += elements_of(&in[1]);
  p->bytes += p->style->cast_bytes * elements;
  p->ops += 1;
}

// Accumulates `share` of a weight gradient: in the GEMM, which then reads the gradient of earlier
// micro-batches and writes the sum, or in a pass of its own.
static void accumulate(pricing *p, double share, ot_gemm_shape *product) {
  const ot_operand *const out = &p->task->out[0];
  const double each = (double)ot_dtype_bytes(out->type.dtype);
  const bool adds = p->task->attributes.accumulate, fused = p->style->fused_accumulation;
  if (fused) product->result_bytes = adds ? 2 * each : each;
  if (!adds || fused) return;
  p->bytes += 3 * (double)ot_dtype_bytes(product_type(p, false)) * share * elements_of(out);
}

static ot_status price_linear(pricing *p) {
  const ot_operand *const in = p->task->in, *const out = p->task->out;
  ot_gemm_shape product = {.batch = 1, .type = product_type(p, true)};
  switch (p->task->op) {
    case OT_OP_LINEAR:
      product.rows = rows_of(&in[0].type);
      product.columns = width_of(&out[0].type);
      product.depth = width_of(&in[0].type);
      if (in[3].base != OT_BASE_NONE) add_sum(p, &out[0]);
      break;
    case OT_OP_LINEAR_DX:
      product.rows = rows_of(&in[0].type);
      product.columns = width_of(&out[0].type);
      product.depth = width_of(&in[0].type);
      if (in[2].base != OT_BASE_NONE) add_sum(p, &out[0]);
      break;
    default:                              // OT_OP_LINEAR_DW
      if (out[0].base == OT_BASE_NONE) {  // a bias gradient alone
        p->bytes += (double)ot_type_bytes(&in[0].type);
        return OT_OK;
      }
      product.rows = width_of(&in[0].type);
      product.columns = width_of(&in[1].type);
      product.depth = rows_of(&in[0].type);
      accumulate(p, 1, &product);
  }
  if (product.type == OT_F8) add_casts(p);
  return add_product(p, product);
}

// Tokens in one group per expert on a rank, all of one size, padded to whole blocks of 8-bit
// formats (Megatron-core, moe_utils.py get_align_size_for_quantization). A task has the tokens of
// its rank and all experts; with sharded experts, fewer groups have the tokens of more ranks. The
// producers of operands cast them.
static ot_status price_grouped(pricing *p) {
  const ot_operand *const in = p->task->in, *const out = p->task->out;
  const int spread = p->simulation->expert_ranks > 1 ? p->simulation->expert_ranks : 1;
  const double experts = elements_of(&in[2]) - 1;
  ot_gemm_shape product = {.batch = experts / spread, .type = product_type(p, true)};
  const double used = ot_route_used(&p->task->attributes, (int64_t)rows_of(&in[0].type));
  const double rows = padded(used / product.batch);
  p->experts = true;
  if (product.type == OT_F8 || p->simulation->expert_biases) p->groups = product.batch;
  if (p->task->op == OT_OP_GROUPED_LINEAR_DW) {
    product.rows = width_of(&in[0].type);
    product.columns = width_of(&in[1].type);
    product.depth = rows;
    accumulate(p, 1.0 / spread, &product);
  } else {
    product.rows = rows;
    product.columns = width_of(&out[0].type);
    product.depth = width_of(&in[0].type);
  }
  return add_product(p, product);
}

// Inputs and outputs of experts are cast once, for the GEMM that reads them and for the weight
// gradient.
static void add_expert_casts(pricing *p) {
  if (product_type(p, true) == OT_F8) p->bytes += p->style->cast_bytes * elements_of(p->task->out);
}

// Whether the task is an activation of experts.
static bool is_expert_activation(const ot_task *task) {
  const int gates = task->op == OT_OP_GLU ? 1 : 2;
  return (task->op == OT_OP_GLU || task->op == OT_OP_GLU_GRAD) &&
         task->in[gates].base != OT_BASE_NONE;
}

// ---- attention ----

static bool is_gradient(ot_op_kind op) {
  return op == OT_OP_ATTENTION_GRAD || op == OT_OP_ATTENTION_BLOCK_GRAD;
}

// Two batched GEMMs over all pairs forward, four backward (scores are not recomputed), and passes
// over T x T scores between them; q, k, v and the result are copied from and to the layout by
// heads.
static ot_status price_unfused(pricing *p) {
  enum { HEAD_COPIES = 8, COPY_BYTES = 4, DISPATCHES = 6 };
  const ot_op_attributes *const a = &p->task->attributes;
  const bool gradient = is_gradient(p->task->op);
  const double rows = rows_of(&p->task->in[0].type), T = (double)a->sequence_length;
  const double head = (double)a->head_dim, batch = rows / T * (double)a->num_heads;
  const ot_dtype type = product_type(p, p->style->fp8_attention);
  for (int i = 0; i < (gradient ? 2 : 1); i++) {
    OT_TRY(add_product(p, (ot_gemm_shape){batch, T, T, head, type, 0}));
    OT_TRY(add_product(p, (ot_gemm_shape){batch, T, head, T, type, 0}));
  }
  const double passes = p->style->score_passes + (gradient ? 1 : 0);
  p->bytes += 2 * passes * batch * T * T;
  p->bytes += HEAD_COPIES / 2 * COPY_BYTES * rows * (double)a->num_heads * head;
  p->ops += DISPATCHES - 1;
  return OT_OK;
}

// Whether the task adds a block of a ring to the result of others.
static bool is_merged(const ot_task *task) {
  enum { OUT_BEFORE = 4, DQ_BEFORE = 7 };
  if (!ot_attention_is_block(task->op)) return false;
  return task->in[is_gradient(task->op) ? DQ_BEFORE : OUT_BEFORE].base != OT_BASE_NONE;
}

// The efficiency of the attention kernel that the software calls.
static double attention_share(const pricing *p) {
  const ot_device_kind *const d = p->device;
  const ot_attention_kernel kernel = p->style->attention;
  const double second = d->attention_2_efficiency;
  const double merged = is_merged(p->task) ? share_of(p->style->merged_share) : 1;
  double share = d->attention_efficiency;
  if (kernel == OT_ATTENTION_FLASH_1 && d->attention_1_efficiency > 0) {
    share = d->attention_1_efficiency;
  }
  if (kernel == OT_ATTENTION_FLASH_2 && second > 0) share = second;
  if (kernel == OT_ATTENTION_FLASH && d->attention_2_common) share = ot_sqrt(second * share);
  return share_of(share) * merged * ot_device_clock_share(d);
}

static ot_status price_fused(pricing *p) {
  const ot_device_kind *const d = p->device;
  const ot_dtype type = product_type(p, p->style->fp8_attention);
  const double keys = (double)p->task->attributes.sequence_length;
  const double rate = d->flops[type] * attention_share(p) * keys / (keys + d->half_keys);
  const double moved_s =
      (p->cost.bytes_read + p->cost.bytes_written) / ot_device_stream_rate(p->device);
  if (d->flops[type] == 0) return ot_price_lacks_rate(p->simulation, type, p->task);
  const double s = p->cost.matrix_flops / rate;
  p->s += s > moved_s ? s : moved_s;
  return OT_OK;
}

static ot_status price_attention(pricing *p) {
  return p->style->attention == OT_ATTENTION_UNFUSED ? price_unfused(p) : price_fused(p);
}

// ---- head ----

// `r` rows of logits over `w`: the GEMM of the logits, and those of both gradients.
static ot_status add_logits(pricing *p, double r, const ot_tensor_type *w, bool forward,
                            bool backward) {
  const double V = rows_of(w), C = width_of(w);
  const ot_dtype type = product_type(p, p->style->fp8_head);
  if (forward) OT_TRY(add_product(p, (ot_gemm_shape){1, r, V, C, type, 0}));
  if (!backward) return OT_OK;
  OT_TRY(add_product(p, (ot_gemm_shape){1, r, C, V, type, 0}));
  return add_product(p, (ot_gemm_shape){1, V, C, r, type, 0});
}

static ot_status price_head(pricing *p) {
  const ot_operand *const in = p->task->in;
  const double rows = rows_of(&in[0].type);
  const double loss = p->style->loss_bytes;
  switch (p->task->op) {
    case OT_OP_HEAD_LOSS:
      p->bytes += loss * rows * rows_of(&in[1].type);
      return add_logits(p, rows, &in[1].type, true, true);
    case OT_OP_HEAD_STATISTICS: {
      const double r = rows_of(&p->task->out[0].type);
      p->bytes += loss / 2 * r * rows_of(&in[1].type);
      return add_logits(p, r, &in[1].type, true, false);
    }
    case OT_OP_HEAD_DLOGITS:
      p->bytes += loss / 2 * elements_of(&in[0]);
      return OT_OK;
    default:  // OT_OP_HEAD_GRADIENT, OT_OP_HEAD_GRADIENT_LAST
      return add_logits(p, rows_of(&in[1].type), &in[3].type, false, true);
  }
}

// ---- the rest ----

// Memory-bound ops; their GEMMs, if any, are priced by FLOPs alone.
static ot_status price_pass(pricing *p) {
  const ot_dtype type = product_type(p, false);
  const bool activation = is_expert_activation(p->task);
  const bool fused = activation && p->style->fused_experts;
  p->experts = p->experts || activation;
  if (p->task->op == OT_OP_DISPATCH || (activation && !fused)) add_expert_casts(p);
  if (fused) p->ops = 0;
  p->bytes += fused ? p->cost.bytes_written
                    : p->style->pass_factor * (p->cost.bytes_read + p->cost.bytes_written);
  if (p->cost.matrix_flops == 0) return OT_OK;
  if (p->device->flops[type] == 0) return ot_price_lacks_rate(p->simulation, type, p->task);
  const double share = share_of(p->device->matrix_efficiency) * ot_device_clock_share(p->device);
  p->s += p->cost.matrix_flops / (p->device->flops[type] * share);
  return OT_OK;
}

static ot_status price_kind(pricing *p) {
  switch (ot_op_info_of(p->task->op)->cost_kind) {
    case OT_COST_PASS:
      return price_pass(p);
    case OT_COST_EXPERT_PASS:
      p->experts = true;
      return price_pass(p);
    case OT_COST_LINEAR:
      return price_linear(p);
    case OT_COST_GROUPED:
      return price_grouped(p);
    case OT_COST_ATTENTION:
      return price_attention(p);
    case OT_COST_HEAD:
      return price_head(p);
    case OT_COST_COMMUNICATION:
    case OT_COST_UNKNOWN:
      break;
  }
  OT_UNREACHABLE();
}

ot_status ot_price_kernel(const ot_simulation *simulation, const ot_task *task, ot_price *price) {
  const ot_device_kind *const device = &simulation->cluster->device;
  pricing p = {.simulation = simulation,
               .device = device,
               .style = simulation->style,
               .task = task,
               .cost = ot_task_cost(task),
               .ops = 1};
  OT_TRY(price_kind(&p));
  const ot_kernel_style *const style = p.style;
  const bool slow = p.experts && style->expert_ops > style->host_ops;
  const double ops = slow ? style->expert_ops : style->host_ops;
  *price = (ot_price){.device_s = p.s + p.bytes / ot_device_stream_rate(device),
                      .host_s = (p.ops * ops + p.groups * style->group_ops) * device->host_op_s};
  return OT_OK;
}
