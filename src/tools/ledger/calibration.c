// SPDX-License-Identifier: Apache-2.0
// `orthant ledger fit`: pairs of the baseline and a rounding of it.
#include <math.h>

#include "base/number.h"
#include "base/text.h"
#include "ledger/experiment.h"
#include "ledger/processes.h"

// A pair that differs by rounding alone: its epsilon of AdamW is larger by a tenth.
static ot_status make_null_change(const ot_ledger *l, ot_ledger_change *out) {
  const ot_config_request request = {.path = l->policy.base, .presets = l->presets};
  ot_config config;
  char number[32];
  OT_TRY(ot_config_load(&request, l->arena, &config));
  ot_number_print_shortest(number, sizeof number, config.run.optimizer.eps * 1.1);
  const char **const set = ot_arena_take(l->arena, sizeof *set);
  set[0] = ot_arena_format(l->arena, "optimizer.eps=%s", number);
  *out = (ot_ledger_change){.name = OT_LEDGER_NULL_CHANGE,
                            .sets = {.count = 1, .text = set, .written = set},
                            .budget = 1,
                            .program = "",
                            .commit = "",
                            .note = ""};
  return OT_OK;
}

// Both arms of a pair cost what the baseline does.
static void measure_cost(const ot_ledger *l, ot_ledger_calibration *c) {
  for (int64_t i = 0; i < l->record.count; i++) {
    const ot_node *const run = l->record.line[i].tree;
    if (!ot_text_equal(l->record.line[i].kind, "run") || ot_record_real(run, "budget") != 1 ||
        !ot_text_equal(ot_record_text(run, "change"), "base"))
      continue;
    if (ot_record_integer(run, "seed") != l->policy.seeds.base) continue;
    c->hours += 2 * ot_record_real(run, "seconds") / 3600;
    c->flops += 2 * ot_record_real(run, "model_flops");
  }
}

static void measure_noise(const ot_baseline *base, ot_ledger_calibration *c) {
  double unpaired = 0, rounding = 0;
  const int n = base->scales;
  for (int s = 0; s < n; s++) {
    double squares = 0;
    for (int k = 0; k < c->pairs; k++) c->mean[s] += base->loss[s][k] / c->pairs;
    for (int k = 0; k < c->pairs; k++)
      squares += (base->loss[s][k] - c->mean[s]) * (base->loss[s][k] - c->mean[s]);
    c->sd[s] = sqrt(squares / (c->pairs - 1));
    const double sd = sqrt(2) * c->sd[s] / c->m.slope[s].value;
    unpaired += sd * sd / n / n;
    rounding += c->m.pair_sd[s] * c->m.pair_sd[s] / n / n;
  }
  c->unpaired_sd = sqrt(unpaired);
  c->rounding_sd = sqrt(rounding);
}

static ot_status record(ot_ledger *l, const ot_ledger_calibration *c) {
  for (int s = 0; s < l->policy.num_scales; s++) {
    ot_json_writer line = ot_record_begin(&l->record, "calibrate", l->arena);
    ot_json_text(&line, "scale", l->policy.scales[s].name);
    ot_json_text(&line, "base", l->base_hash);
    ot_json_integer(&line, "n", c->pairs);
    ot_json_real(&line, "mean", c->mean[s]);
    ot_json_real(&line, "sd", c->sd[s]);
    ot_json_real(&line, "slope", -c->m.slope[s].value);
    ot_json_real(&line, "slope_se", c->m.slope[s].se);
    ot_json_real(&line, "sd_ln_c", c->sd[s] / c->m.slope[s].value);
    ot_json_real(&line, "rho", c->m.rho[s]);
    ot_json_real(&line, "pair_sd", c->m.pair_sd[s]);
    OT_TRY(ot_record_append(&l->record, &line, l->arena));
  }
  return OT_OK;
}

ot_status ot_ledger_calibrate(ot_ledger *l, int pairs, ot_ledger_calibration *out) {
  ot_ledger_change null_change;
  const ot_ledger_change *const changes[] = {&null_change};
  ot_ledger_arm_facts facts;
  ot_baseline *const base = ot_arena_take(l->arena, sizeof *base);
  *out = (ot_ledger_calibration){0};
  OT_TRY(ot_ledger_choose_pairs(l, pairs, &out->pairs));
  OT_TRY(make_null_change(l, &null_change));
  const ot_ledger_arms arms = ot_ledger_list_arms(l, changes, 1, out->pairs);
  OT_TRY(ot_ledger_run_arms(l, &arms));
  OT_TRY(ot_ledger_gather_base(l, out->pairs, base));
  OT_TRY(ot_ledger_gather(l, changes, 1, out->pairs, &facts));
  ot_multiplier_estimate(base, &facts.arm, NAN, &out->m);
  measure_noise(base, out);
  measure_cost(l, out);
  return record(l, out);
}
