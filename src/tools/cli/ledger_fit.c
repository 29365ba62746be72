// SPDX-License-Identifier: Apache-2.0
// `orthant ledger fit`: what the baseline says before any change: noise, slope, and the smallest
// multiplier that a number of pairs finds.
#include <math.h>
#include <stdio.h>

#include "base/number.h"
#include "base/quantity.h"
#include "base/text.h"
#include "cli/ledger_actions.h"
#include "cli/ledger_processes.h"
#include "ledger/analysis.h"

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

typedef struct calibration {
  const ot_ledger *ledger;
  int pairs;
  ot_multiplier m;  // of the null change
  double sd[OT_LEDGER_SCALES], mean[OT_LEDGER_SCALES];
  double hours, flops;  // of one pair at all scales
} calibration;

static void measure(calibration *c, const ot_baseline *base) {
  for (int s = 0; s < base->scales; s++) {
    double squares = 0;
    for (int k = 0; k < c->pairs; k++) c->mean[s] += base->loss[s][k] / c->pairs;
    for (int k = 0; k < c->pairs; k++)
      squares += (base->loss[s][k] - c->mean[s]) * (base->loss[s][k] - c->mean[s]);
    c->sd[s] = sqrt(squares / (c->pairs - 1));
  }
  // Both arms of a pair cost what the baseline does.
  const ot_record *const r = &c->ledger->record;
  for (int64_t i = 0; i < r->count; i++) {
    const ot_node *const run = r->line[i].tree;
    if (!ot_text_equal(r->line[i].kind, "run") || ot_record_real(run, "budget") != 1 ||
        !ot_text_equal(ot_record_text(run, "change"), "base"))
      continue;
    if (ot_record_integer(run, "seed") != c->ledger->policy.seeds.base) continue;
    c->hours += 2 * ot_record_real(run, "seconds") / 3600;
    c->flops += 2 * ot_record_real(run, "model_flops");
  }
}

static ot_status record(ot_ledger *l, const calibration *c) {
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

// The standard deviation of a pair's mean over the scales; unpaired: of runs with other seeds.
static double pair_sd(const calibration *c, bool unpaired) {
  double squares = 0;
  const int n = (int)c->ledger->policy.num_scales;
  for (int s = 0; s < n; s++) {
    const double sd = unpaired ? sqrt(2) * c->sd[s] / c->m.slope[s].value : c->m.pair_sd[s];
    squares += sd * sd / n / n;
  }
  return sqrt(squares);
}

static void print(const calibration *c) {
  const ot_ledger_policy *const p = &c->ledger->policy;
  printf("scale        mean       sd    slope   sd in ln C      rho of a rounding\n");
  for (int s = 0; s < p->num_scales; s++)
    printf("%-10s %7.4f  %7.5f  %7.4f   %10.5f   %8.4f\n", p->scales[s].name, c->mean[s], c->sd[s],
           c->m.slope[s].value, c->sd[s] / c->m.slope[s].value, c->m.rho[s]);
  printf("\npairs   smallest m found with 80 %%: unpaired   paired, rounding alone   cost\n");
  for (int i = 0; i < p->looks.count; i++) {
    const int n = p->looks.pairs[i];
    if (n < 3) continue;
    printf("%5d %36.4f %24.4f   %.3g FLOPs, %.3g h\n", n,
           exp(ot_smallest_effect(pair_sd(c, true), n)),
           exp(ot_smallest_effect(pair_sd(c, false), n)), c->flops * n, c->hours * n);
  }
}

static void print_json(const calibration *c) {
  const ot_ledger_policy *const p = &c->ledger->policy;
  ot_json_writer json = ot_json_begin(c->ledger->arena, 2);
  ot_json_object(&json, NULL);
  ot_json_array(&json, "scales");
  const ot_record *const r = &c->ledger->record;
  for (int64_t i = r->count - p->num_scales; i < r->count; i++)
    ot_node_write_json(r->line[i].tree, NULL, &json);
  ot_json_end(&json);
  ot_json_array(&json, "smallest");
  for (int i = 0; i < p->looks.count; i++) {
    const int n = p->looks.pairs[i];
    ot_json_object(&json, NULL);
    ot_json_integer(&json, "pairs", n);
    ot_json_real(&json, "unpaired", n > 2 ? exp(ot_smallest_effect(pair_sd(c, true), n)) : NAN);
    ot_json_real(&json, "rounding", n > 2 ? exp(ot_smallest_effect(pair_sd(c, false), n)) : NAN);
    ot_json_real(&json, "flops", c->flops * n);
    ot_json_real(&json, "hours", c->hours * n);
    ot_json_end(&json);
  }
  ot_json_end(&json);
  ot_json_end(&json);
  puts(json.text);
}

ot_status ot_ledger_fit(ot_ledger_command *command) {
  ot_ledger *const l = &command->ledger;
  ot_ledger_change *const null_change = ot_arena_take(l->arena, sizeof *null_change);
  const ot_ledger_change *const changes[] = {null_change};
  ot_ledger_arms arms = {0};
  ot_ledger_arm_facts facts;
  ot_baseline *const base = ot_arena_take(l->arena, sizeof *base);
  calibration c = {.ledger = l, .pairs = l->policy.looks.pairs[0]};
  if (ot_options_given(command->options, "pairs"))
    c.pairs = (int)ot_options_integer(command->options, "pairs");
  OT_CHECK(c.pairs <= l->policy.seeds.count, OT_USAGE, "--pairs %d: the policy has %d seeds",
           c.pairs, l->policy.seeds.count);
  OT_TRY(make_null_change(l, null_change));
  OT_TRY(ot_ledger_list_arms(l, changes, 1, c.pairs, &arms));
  OT_TRY(ot_ledger_run_arms(l, &arms, (int)ot_options_integer(command->options, "jobs")));
  OT_TRY(ot_ledger_gather_base(l, c.pairs, base));
  OT_TRY(ot_ledger_gather(l, changes, 1, c.pairs, &facts));
  ot_multiplier_estimate(base, &facts.arm, NAN, &c.m);
  measure(&c, base);
  OT_TRY(record(l, &c));
  if (command->as_json)
    print_json(&c);
  else
    print(&c);
  return OT_OK;
}
