// SPDX-License-Identifier: Apache-2.0
#include "judge/hypothesis.h"

#include <string.h>

#include "base/status.h"
#include "describe/moe.h"
#include "judge/setting.h"

// Changes `c`, a copy of the step, under the hypothesis. False if it would change nothing.
typedef bool change(ot_judged_step *c, ot_arena *arena);

// ---- how rows are weighted ----

// The part of a row in a mean of means.
typedef int64_t part_of(const ot_judged_rows *rows, int64_t row, int64_t micros);

static int64_t count_of(const int32_t *values, int64_t rows) {
  int32_t most = 0;
  for (int64_t r = 0; r < rows; r++) most = values[r] > most ? values[r] : most;
  return most + 1;
}

// Each part has the same weight, whatever the number of its targets. Parts without targets have
// none.
static bool weigh_parts(ot_judged_step *c, ot_arena *arena, part_of *part) {
  ot_plain_batch *const b = &c->rows.batch;
  const int64_t micros = count_of(c->rows.micro, b->rows);
  const int64_t parts = micros * count_of(c->rows.dp_rank, b->rows);
  int64_t *const targets = ot_arena_array(arena, parts, sizeof *targets);
  double *const weights = ot_arena_array(arena, b->rows, sizeof *weights);
  int64_t used = 0, fewest = INT64_MAX, most = 0;
  for (int64_t r = 0; r < b->rows; r++) targets[part(&c->rows, r, micros)] += b->targets[r] >= 0;
  for (int64_t p = 0; p < parts; p++) {
    if (targets[p] == 0) continue;
    used++;
    fewest = targets[p] < fewest ? targets[p] : fewest;
    most = targets[p] > most ? targets[p] : most;
  }
  for (int64_t r = 0; r < b->rows; r++) {
    const int64_t n = targets[part(&c->rows, r, micros)];
    weights[r] = b->targets[r] >= 0 ? 1.0 / (double)n / (double)used : 0;
  }
  b->weights = weights;
  return used > 1 && fewest < most;
}

static int64_t part_of_both(const ot_judged_rows *rows, int64_t row, int64_t micros) {
  return rows->dp_rank[row] * micros + rows->micro[row];
}

static int64_t part_of_micro(const ot_judged_rows *rows, int64_t row, int64_t micros) {
  (void)micros;
  return rows->micro[row];
}

static int64_t part_of_rank(const ot_judged_rows *rows, int64_t row, int64_t micros) {
  return rows->dp_rank[row] * micros;
}

static bool several(const int32_t *values, int64_t rows) { return count_of(values, rows) > 1; }

static bool means_of_batches(ot_judged_step *c, ot_arena *arena) {
  return weigh_parts(c, arena, part_of_both);
}

// Where all ranks have one micro-batch or all micro-batches are of one rank, it is the row above.
static bool means_of_micro(ot_judged_step *c, ot_arena *arena) {
  return several(c->rows.dp_rank, c->rows.batch.rows) &&
         several(c->rows.micro, c->rows.batch.rows) && weigh_parts(c, arena, part_of_micro);
}

static bool means_of_ranks(ot_judged_step *c, ot_arena *arena) {
  return several(c->rows.dp_rank, c->rows.batch.rows) &&
         several(c->rows.micro, c->rows.batch.rows) && weigh_parts(c, arena, part_of_rank);
}

// ---- which tokens see which ----

static bool ignore_documents(ot_judged_step *c, ot_arena *arena) {
  (void)arena;
  ot_plain_batch *const b = &c->rows.batch;
  const bool any = memcmp(b->first, c->rows.sequence, (size_t)b->rows * sizeof *b->first) != 0;
  b->first = c->rows.sequence;
  return any;
}

static bool count_positions(ot_judged_step *c, ot_arena *arena) {
  ot_plain_batch *const b = &c->rows.batch;
  int32_t *const positions = ot_arena_array(arena, b->rows, sizeof *positions);
  bool any = false;
  for (int64_t r = 0; r < b->rows; r++) {
    positions[r] = (int32_t)(r - c->rows.sequence[r]);
    any = any || positions[r] != b->positions[r];
  }
  b->positions = positions;
  return any && (c->model.learned_positions || c->model.rotary_dim > 0);
}

static bool ignore_packing(ot_judged_step *c, ot_arena *arena) {
  return count_positions(c, arena) && ignore_documents(c, arena);
}

static bool ignore_window(ot_judged_step *c, ot_arena *arena) {
  (void)arena;
  bool any = false;
  for (int64_t i = 0; i < c->model.num_layers; i++) {
    any = any || (c->model.window[i] > 0 && c->model.window[i] < c->rows.batch.rows);
    c->model.window[i] = 0;
  }
  return any;
}

// ---- what is predicted ----

// Row r predicts the target of row r + by of its sequence.
static bool move_targets(ot_judged_step *c, int by, ot_arena *arena) {
  ot_plain_batch *const b = &c->rows.batch;
  int32_t *const targets = ot_arena_array(arena, b->rows, sizeof *targets);
  double *const weights = ot_arena_array(arena, b->rows, sizeof *weights);
  int64_t before = 0, now = 0;
  for (int64_t r = 0; r < b->rows; r++) {
    const int64_t from = r + by;
    const bool inside = from >= c->rows.sequence[r] && from < b->rows &&
                        c->rows.sequence[from] == c->rows.sequence[r];
    targets[r] = inside ? b->targets[from] : -1;
    before += b->targets[r] >= 0;
    now += targets[r] >= 0;
  }
  for (int64_t r = 0; r < b->rows; r++) weights[r] = targets[r] >= 0 ? 1.0 / (double)now : 0;
  b->targets = targets;
  b->weights = weights;
  return now > 0 && before > 0;
}

static bool shift_again(ot_judged_step *c, ot_arena *arena) { return move_targets(c, 1, arena); }

static bool shift_back(ot_judged_step *c, ot_arena *arena) { return move_targets(c, -1, arena); }

// ---- numbers of the model ----

// Settings are moved by a share of their value; the factor of the hypothesis is then in units of
// that share.
static void move(ot_judged_step *c, const char *fault) {
  const ot_setting *const setting = ot_setting_of_fault(fault);
  ot_setting_scale(setting, &c->model, 1 + setting->share);
}

static bool move_epsilon(ot_judged_step *c, ot_arena *arena) {
  (void)arena;
  move(c, "norm_epsilon");
  return true;
}

static bool move_theta(ot_judged_step *c, ot_arena *arena) {
  (void)arena;
  move(c, "rope_base");
  return c->model.rotary_dim > 0;
}

static bool move_scale(ot_judged_step *c, ot_arena *arena) {
  (void)arena;
  move(c, "attention_scale");
  return true;
}

static bool ignore_score_cap(ot_judged_step *c, ot_arena *arena) {
  (void)arena;
  const bool any = c->model.score_soft_cap > 0;
  c->model.score_soft_cap = 0;
  return any;
}

static bool ignore_logit_cap(ot_judged_step *c, ot_arena *arena) {
  (void)arena;
  const bool any = c->model.logit_soft_cap > 0;
  c->model.logit_soft_cap = 0;
  return any;
}

// ---- losses of routers, which software may add or not ----

static bool add_balance(ot_judged_step *c, ot_arena *arena) {
  (void)arena;
  c->losses |= OT_PLAIN_BALANCE;
  return c->model.moe.num_experts > 0 && c->model.moe.aux_coefficient > 0;
}

// transformers' load_balancing_loss_func: the shares of experts are those in all layers.
static bool add_balance_over_layers(ot_judged_step *c, ot_arena *arena) {
  c->rows.batch.shares = c->layer_shares[0];
  return c->layer_shares[0] && ot_moe_layers(&c->model) > 1 && add_balance(c, arena);
}

// Tokens of padding do not count in router losses. False if there are none.
static bool leave_out_padding(ot_judged_step *c) {
  const ot_judged_rows *const r = &c->rows;
  bool any = false;
  for (int64_t row = 0; row < r->batch.rows; row++) any = any || !r->judged[row];
  c->rows.batch.counted = r->judged;
  return any;
}

static bool add_balance_without_padding(ot_judged_step *c, ot_arena *arena) {
  return leave_out_padding(c) && add_balance(c, arena);
}

static bool add_balance_over_layers_without_padding(ot_judged_step *c, ot_arena *arena) {
  const bool any = leave_out_padding(c) && add_balance_over_layers(c, arena);
  c->rows.batch.shares = c->layer_shares[1];
  return any;
}

// Experts are balanced within each sequence, as DeepSeek and Orthant do, and not within each batch.
static bool add_balance_of_sequences(ot_judged_step *c, ot_arena *arena) {
  ot_plain_batch *const b = &c->rows.batch;
  int64_t *const ends = ot_arena_array(arena, b->rows, sizeof *ends);
  const int batches = b->num_groups;
  b->num_groups = 0;
  for (int64_t r = 1; r <= b->rows; r++) {
    if (r == b->rows || c->rows.sequence[r] == r) ends[b->num_groups++] = r;
  }
  b->group_end = ends;
  b->group_weight = 1.0 / (double)b->num_groups;
  return b->num_groups > batches && add_balance(c, arena);
}

static bool add_z(ot_judged_step *c, ot_arena *arena) {
  (void)arena;
  c->losses |= OT_PLAIN_Z;
  return c->model.moe.num_experts > 0 && c->model.moe.z_coefficient > 0;
}

static bool add_z_without_padding(ot_judged_step *c, ot_arena *arena) {
  return leave_out_padding(c) && add_z(c, arena);
}

// ---- the table ----

static const struct {
  ot_hypothesis row;
  change *change;
} table[] = {
    {{"mean_of_means", "each micro-batch of each rank has the same weight, whatever its targets",
      "divide by the number of targets of the whole step: sum the loss, and reduce the count over "
      "micro-batches and ranks before the backward pass",
      OT_FAULT_WHOLE},
     means_of_batches},
    {{"mean_of_means_over_micro_batches",
      "each micro-batch has the same weight, whatever its targets",
      "divide by the number of targets of all micro-batches of the step", OT_FAULT_WHOLE},
     means_of_micro},
    {{"mean_of_means_over_ranks", "each rank has the same weight, whatever its targets",
      "reduce the number of targets over the ranks of data parallelism before dividing",
      OT_FAULT_WHOLE},
     means_of_ranks},
    {{"documents_ignored", "attention crosses the borders of documents",
      "give the attention the borders of documents (a block mask, or cumulative lengths)",
      OT_FAULT_WHOLE},
     ignore_documents},
    {{"positions_not_restarted", "positions do not restart with each document",
      "pass position ids that restart, or a configuration whose positions do not", OT_FAULT_WHOLE},
     count_positions},
    {{"packing_ignored", "attention crosses documents, and positions do not restart with them",
      "pass document borders and position ids", OT_FAULT_WHOLE},
     ignore_packing},
    {{"window_ignored", "layers with a sliding window see all tokens",
      "see whether the attention kernel receives the window", OT_FAULT_WHOLE},
     ignore_window},
    {{"labels_shifted_again", "labels are shifted once more than they should be",
      "pass labels either shifted or not: the model or the loss shifts them itself",
      OT_FAULT_WHOLE},
     shift_again},
    {{"labels_not_shifted", "rows predict their own tokens",
      "shift labels by one, or let the model do it", OT_FAULT_WHOLE},
     shift_back},
    {{"norm_epsilon", "norms have another epsilon (factor 1: ten times that of config.json)",
      "compare the epsilon of the norms with config.json", OT_FAULT_SHARE},
     move_epsilon},
    {{"rope_base", "rotations have another base (factor 1: one percent more than config.json)",
      "compare rope_theta and its scaling with config.json", OT_FAULT_SHARE},
     move_theta},
    {{"attention_scale", "scores have another scale (factor 1: one percent more)",
      "compare the scale of the attention with 1/sqrt(head_dim)", OT_FAULT_SHARE},
     move_scale},
    {{"score_cap_ignored", "attention scores are not capped",
      "see whether the attention kernel applies the soft cap", OT_FAULT_WHOLE},
     ignore_score_cap},
    {{"logit_cap_ignored", "logits are not capped", "see whether the loss applies the soft cap",
      OT_FAULT_WHOLE},
     ignore_logit_cap},
    {{"balance_loss",
      "the balancing loss of experts is added with another coefficient than that of config.json",
      "see by which axes and micro-batches the auxiliary loss is divided", OT_FAULT_LOSS},
     add_balance},
    {{"balance_loss_over_layers",
      "the balancing loss over the experts of all layers together is added with another "
      "coefficient than that of config.json",
      "see by which axes and micro-batches the auxiliary loss is divided", OT_FAULT_LOSS},
     add_balance_over_layers},
    {{"balance_loss_of_sequences",
      "the balancing loss of experts, within each sequence, is added with another coefficient than "
      "that of config.json",
      "see by which axes and sequences the auxiliary loss is divided", OT_FAULT_LOSS},
     add_balance_of_sequences},
    {{"balance_loss_without_padding",
      "the balancing loss of experts, without tokens of padding, is added with another coefficient "
      "than that of config.json",
      "see by which axes and micro-batches the auxiliary loss is divided", OT_FAULT_LOSS},
     add_balance_without_padding},
    {{"balance_loss_over_layers_without_padding",
      "the balancing loss over the experts of all layers together, without tokens of padding, is "
      "added with another coefficient than that of config.json",
      "see by which axes and micro-batches the auxiliary loss is divided", OT_FAULT_LOSS},
     add_balance_over_layers_without_padding},
    {{"z_loss_without_padding",
      "the z loss of routers, without tokens of padding, is added with another coefficient than "
      "that of config.json",
      "see by which axes and tokens the z loss is divided", OT_FAULT_LOSS},
     add_z_without_padding},
    {{"z_loss", "the z loss of routers is added with another coefficient than that of config.json",
      "see by which axes and tokens the z loss is divided", OT_FAULT_LOSS},
     add_z},
};

int ot_hypotheses_list(const ot_judged_step *step, ot_arena *arena, int most,
                       ot_hypothesis_case *out) {
  int count = 0;
  for (int i = 0; i < OT_COUNT(table) && count < most; i++) {
    ot_hypothesis_case *const h = &out[count];
    *h = (ot_hypothesis_case){&table[i].row, *step};
    count += table[i].change(&h->changed, arena);
  }
  return count;
}
