// SPDX-License-Identifier: Apache-2.0
// Each divisor has its own check, which is also used to find the degrees to suggest.
#include "graph/local_shape.h"

#include "base/backend_rules.h"
#include "base/text.h"

enum { MAX_SUGGESTED = 12, SUGGESTION_BYTES = 160 };

static int degree_of(int asked) { return asked > 1 ? asked : 1; }

static int64_t rows_of(const ot_graph_request *r) {
  return r->micro_batch_size * r->sequence_length / degree_of(r->split.cp);
}

// ---- valid degrees ----

// Every rank has the same number of heads; kv heads are sharded or replicated.
static bool heads_fit(const ot_graph_request *r, int64_t tp) {
  const int64_t kv = r->model->num_kv_heads;
  return r->model->num_heads % tp == 0 && (kv % tp == 0 || tp % kv == 0);
}

static bool tp_fits(const ot_graph_request *r, int64_t tp) {
  const ot_model *const model = r->model;
  return heads_fit(r, tp) && model->intermediate_size % tp == 0 &&
         model->moe.shared_size % tp == 0 && rows_of(r) % tp == 0 && model->vocab_size >= tp;
}

static bool length_fits(const ot_graph_request *r, int64_t cp) {
  const bool ring = r->split.context == OT_CONTEXT_RING && cp > 1;
  return r->sequence_length % (ring ? 2 * cp : cp) == 0;
}

// Ulysses distributes the heads of a rank of tp over cp.
static bool heads_exchange(const ot_graph_request *r, int64_t cp) {
  if (r->split.context != OT_CONTEXT_ULYSSES) return true;
  const int tp = degree_of(r->split.tp);
  return r->model->num_heads % (tp * cp) == 0 && r->model->num_kv_heads % (tp * cp) == 0;
}

static bool cp_fits(const ot_graph_request *r, int64_t cp) {
  return length_fits(r, cp) && heads_exchange(r, cp);
}

typedef bool (*fits)(const ot_graph_request *request, int64_t degree);

// Adds the hint "AXIS degrees that work: 1, 2, 4", up to `most`.
static ot_status suggest(const ot_graph_request *r, const char *axis, fits works, int64_t most) {
  char list[SUGGESTION_BYTES] = "";
  int64_t length = 0;
  int count = 0;
  for (int64_t degree = 1; degree <= most && count < MAX_SUGGESTED; degree++) {
    if (!works(r, degree)) continue;
    length += ot_text_format(list + length, SUGGESTION_BYTES - length, "%s%lld",
                             count++ == 0 ? "" : ", ", (long long)degree);
  }
  if (count == 0) return OT_USAGE;
  return ot_fail_hint(OT_USAGE, "%s degrees that work: %s", axis, list);
}

// ---- checks ----

static ot_status check_mode(const ot_graph_request *r) {
  static const char *const names[OT_MODES] = {"train",   "evaluate",  "score",     "logits",
                                              "prefill", "prefill/2", "prefill/4", "prefill/8",
                                              "decode",  "decode/2",  "decode/4",  "decode/8"};
  const int tp = degree_of(r->split.tp);
  const int cp = degree_of(r->split.cp);
  const bool shards = ot_backend_rules_of(r->backend)->scores_shards;
  const bool scores = r->mode == OT_MODE_SCORE && r->draw_ids == 0 && shards;
  const bool splits = r->mode == OT_MODE_TRAIN || r->mode == OT_MODE_EVALUATE || scores;
  const int ep = degree_of(r->split.ep) * degree_of(r->split.etp);
  if (tp * cp * ep == 1 || splits) return OT_OK;
  if (ot_mode_is_cached(r->mode)) {
    OT_CHECK(cp == 1, OT_ENVIRONMENT, "graph: mode %s has no cp, and cp=%d (try cp=1, and tp)",
             names[r->mode], cp);
    return OT_OK;
  }
  OT_CHECK(ep == 1, OT_ENVIRONMENT,
           "graph: mode %s runs on one rank, not on ep x etp=%d (try ep=1 and etp=1)",
           names[r->mode], ep);
  ot_fail(OT_ENVIRONMENT, "graph: mode %s runs on one rank, not on tp=%d x cp=%d", names[r->mode],
          tp, cp);
  return ot_fail_hint(OT_ENVIRONMENT, "try tp=1 and cp=1");
}

static bool ep_fits(const ot_graph_request *r, int64_t ep) {
  return r->model->moe.num_experts % ep == 0;
}

static bool etp_fits(const ot_graph_request *r, int64_t etp) {
  return r->model->moe.expert_size % etp == 0;
}

static ot_status check_expert_columns(const ot_graph_request *r) {
  const int etp = degree_of(r->split.etp);
  if (etp == 1) return OT_OK;
  if (r->model->moe.num_experts == 0) {
    return ot_fail(OT_USAGE, "graph: etp=%d, but a %s model has no experts (try etp=1)", etp,
                   r->model->model_type);
  }
  if (etp_fits(r, etp)) return OT_OK;
  ot_fail(OT_USAGE, "graph: etp=%d does not divide the width of an expert, %lld", etp,
          (long long)r->model->moe.expert_size);
  return suggest(r, "etp", etp_fits, r->model->moe.expert_size);
}

static ot_status check_experts(const ot_graph_request *r) {
  const int ep = degree_of(r->split.ep);
  if (ep == 1) return OT_OK;
  if (r->model->moe.num_experts > 0 && ep_fits(r, ep)) return OT_OK;
  if (r->model->moe.num_experts == 0) {
    return ot_fail(OT_USAGE, "graph: ep=%d, but a %s model has no experts (try ep=1)", ep,
                   r->model->model_type);
  }
  ot_fail(OT_USAGE, "graph: ep=%d does not divide the %lld experts of a layer", ep,
          (long long)r->model->moe.num_experts);
  return suggest(r, "ep", ep_fits, r->model->moe.num_experts);
}

static ot_status refuse_tp(const ot_graph_request *r) {
  return suggest(r, "tp", tp_fits, r->model->num_heads);
}

static ot_status check_heads(const ot_graph_request *r) {
  const ot_model *const model = r->model;
  const int tp = r->split.tp;
  if (model->num_heads % tp != 0) {
    ot_fail(OT_USAGE, "graph: tp=%d does not divide num_attention_heads=%lld", tp,
            (long long)model->num_heads);
    return refuse_tp(r);
  }
  if (!heads_fit(r, tp)) {
    ot_fail(OT_USAGE, "graph: tp=%d and num_key_value_heads=%lld: neither divides the other", tp,
            (long long)model->num_kv_heads);
    return refuse_tp(r);
  }
  return OT_OK;
}

static ot_status check_tensor(const ot_graph_request *r) {
  const ot_model *const model = r->model;
  const int tp = degree_of(r->split.tp);
  if (tp == 1) return OT_OK;
  OT_TRY(check_heads(r));
  if (model->intermediate_size % tp != 0) {
    ot_fail(OT_USAGE, "graph: tp=%d does not divide intermediate_size=%lld", tp,
            (long long)model->intermediate_size);
    return refuse_tp(r);
  }
  if (model->moe.shared_size % tp != 0) {
    ot_fail(OT_USAGE, "graph: tp=%d does not divide the width of the shared experts, %lld", tp,
            (long long)model->moe.shared_size);
    return refuse_tp(r);
  }
  if (model->vocab_size < tp) {
    ot_fail(OT_USAGE, "graph: tp=%d is more than vocab_size=%lld", tp,
            (long long)model->vocab_size);
    return refuse_tp(r);
  }
  if (rows_of(r) % tp != 0) {
    ot_fail(OT_USAGE,
            "graph: tp=%d does not divide the %lld tokens of a micro-batch (micro_batch_size=%lld "
            "x sequence_length=%lld / cp=%d)",
            tp, (long long)rows_of(r), (long long)r->micro_batch_size,
            (long long)r->sequence_length, degree_of(r->split.cp));
    return refuse_tp(r);
  }
  return OT_OK;
}

static ot_status check_context(const ot_graph_request *r) {
  const int cp = degree_of(r->split.cp);
  const bool ring = r->split.context == OT_CONTEXT_RING;
  if (cp == 1) return OT_OK;
  if (!length_fits(r, cp)) {
    ot_fail(OT_USAGE, "graph: cp=%d does not shard sequence_length=%lld into %d equal blocks", cp,
            (long long)r->sequence_length, ring ? 2 * cp : cp);
    return suggest(r, "cp", cp_fits, r->sequence_length);
  }
  if (!heads_exchange(r, cp)) {
    ot_fail(OT_USAGE,
            "graph: ulysses over cp=%d needs num_attention_heads=%lld and num_key_value_heads=%lld "
            "to be multiples of tp=%d x cp",
            cp, (long long)r->model->num_heads, (long long)r->model->num_kv_heads,
            degree_of(r->split.tp));
    return suggest(r, "cp", cp_fits, r->model->num_kv_heads);
  }
  return OT_OK;
}

// ---- local shapes ----

static int64_t part_begin(int64_t whole, int parts, int index) { return whole * index / parts; }

ot_status ot_local_shape_build(const ot_graph_request *request, ot_local_shape *share) {
  const ot_model *const model = request->model;
  const ot_split *const split = &request->split;
  OT_TRY(check_mode(request));
  OT_TRY(check_context(request));
  OT_TRY(check_tensor(request));
  OT_TRY(check_experts(request));
  OT_TRY(check_expert_columns(request));
  ot_local_shape s = {.tp = degree_of(split->tp),
                      .tp_index = split->tp_index,
                      .cp = degree_of(split->cp),
                      .cp_index = split->cp_index,
                      .rows = rows_of(request)};
  s.sequence_ranks = s.tp * s.cp;
  s.sequence_index = s.cp_index * s.tp + s.tp_index;
  OT_ASSERT(s.tp_index >= 0 && s.tp_index < s.tp && s.cp_index >= 0 && s.cp_index < s.cp);
  s.ulysses = s.cp > 1 && split->context == OT_CONTEXT_ULYSSES;
  s.length = request->sequence_length / s.cp;
  s.own_rows = s.rows / s.tp;
  s.first_row = s.own_rows * s.tp_index;
  s.heads = model->num_heads / s.tp;
  s.first_head = s.heads * s.tp_index;
  s.kv_copies = s.tp > model->num_kv_heads ? s.tp / (int)model->num_kv_heads : 1;
  s.kv_heads = model->num_kv_heads * s.kv_copies / s.tp;
  s.first_kv_head = s.tp_index / s.kv_copies * s.kv_heads;
  s.columns = model->intermediate_size / s.tp;
  s.first_column = s.columns * s.tp_index;
  s.shared_columns = model->moe.shared_size / s.tp;
  s.first_shared_column = s.shared_columns * s.tp_index;
  s.first_vocab = part_begin(model->vocab_size, s.tp, s.tp_index);
  s.vocab = part_begin(model->vocab_size, s.tp, s.tp_index + 1) - s.first_vocab;
  s.widest_vocab = (model->vocab_size + s.tp - 1) / s.tp;
  const int ep = degree_of(split->ep), etp = degree_of(split->etp);
  s.expert_ranks = ep * etp;
  s.expert_index = split->ep_index * etp + split->etp_index;
  s.experts = model->moe.num_experts / ep;
  s.first_expert = s.experts * split->ep_index;
  s.expert_columns = model->moe.expert_size / etp;
  s.first_expert_column = s.expert_columns * split->etp_index;
  *share = s;
  return OT_OK;
}

ot_local_shape ot_local_shape_of_experts(const ot_local_shape *share, const ot_model *model) {
  ot_local_shape s = *share;
  s.expert_view = true;
  s.tp = 1;
  s.tp_index = 0;
  s.rows = s.own_rows;
  s.shared_columns = model->moe.shared_size;
  s.first_shared_column = 0;
  return s;
}
