// SPDX-License-Identifier: Apache-2.0
#include "ledger/analysis.h"

#include <math.h>
#include <string.h>

#include "base/text.h"

// ---- runs ----

static ot_status find(const ot_ledger *ledger, const ot_ledger_arm *arm, const ot_node **run) {
  ot_ledger_job job;
  *run = NULL;
  OT_TRY(ot_ledger_job_build(ledger, arm, &job));
  const ot_record_line *const line = ot_ledger_find_run(ledger, &job);
  if (!line) {
    ot_fail(OT_USAGE, "the run %s is missing", job.id);
    return ot_fail_hint(
        OT_USAGE,
        arm->num_changes > 0 ? "`orthant ledger run %s` runs it" : "`orthant ledger fit` runs it",
        job.name);
  }
  *run = line->tree;
  return OT_OK;
}

static void clear(double *losses) {
  for (int k = 0; k < OT_LEDGER_SEEDS; k++) losses[k] = NAN;
}

double ot_ledger_find_rounding(const ot_ledger *ledger, int scale, double loss) {
  const char *const name = ledger->policy.scales[scale].name;
  double known = 0;
  for (int64_t i = 0; i < ledger->record.count; i++) {
    const ot_record_line *const line = &ledger->record.line[i];
    if (ot_text_equal(line->kind, "calibrate") &&
        ot_text_equal(ot_record_text(line->tree, "scale"), name) &&
        ot_text_equal(ot_record_text(line->tree, "base"), ledger->base_hash))
      known = ot_record_real(line->tree, "pair_sd") * -ot_record_real(line->tree, "slope");
  }
  return fmax(known, ldexp(loss, -24));
}

static int budget_of(const ot_ledger_policy *p, double budget) {
  for (int i = 0; i < p->slope.num_factors; i++)
    if (p->slope.factors[i] == budget) return i;
  return -1;
}

ot_status ot_ledger_gather_base(const ot_ledger *ledger, int pairs, ot_baseline *out) {
  const ot_ledger_policy *const p = &ledger->policy;
  const ot_ledger_arms arms = ot_ledger_list_base(ledger, pairs);
  *out = (ot_baseline){.scales = (int)p->num_scales,
                       .seeds = pairs,
                       .along_ladder = p->slope.from == 1,
                       .budgets = p->slope.from == 1 ? 0 : (int)p->slope.num_factors};
  for (int i = 0; i < out->budgets; i++) out->factor[i] = p->slope.factors[i];
  for (int s = 0; s < out->scales; s++)
    for (int i = 0; i < OT_LEDGER_BUDGETS; i++) clear(out->budget_loss[s][i]);
  for (int64_t i = 0; i < arms.count; i++) {
    const ot_ledger_arm *const arm = &arms.arm[i];
    const ot_node *run;
    OT_TRY(find(ledger, arm, &run));
    const double loss = ot_record_real(run, "loss");
    OT_CHECK(!isnan(loss), OT_NUMERIC, "the baseline diverged: %s", ot_record_text(run, "run"));
    if (arm->budget == 1) {
      out->loss[arm->scale][arm->seed] = loss;
      out->ln_compute[arm->scale] = log(ot_record_real(run, "model_flops"));
    } else {
      out->budget_loss[arm->scale][budget_of(p, arm->budget)][arm->seed] = loss;
    }
  }
  for (int s = 0; s < out->scales; s++)
    out->rounding[s] = ot_ledger_find_rounding(ledger, s, out->loss[s][0]);
  return OT_OK;
}

static ot_status check_pair(const ot_node *base, const ot_node *own, bool seeds_only) {
  static const char *const same[] = {"seed", "scale", "data_hash", "validation_hash"};
  for (int i = 0; i < (seeds_only ? 2 : OT_COUNT(same)); i++) {
    const char *const a = ot_record_text(base, same[i]), *const b = ot_record_text(own, same[i]);
    if (ot_text_equal(a, b)) continue;
    ot_fail(OT_FINDINGS, "the pair is not exact: %s is %s in %s and %s in %s", same[i], a,
            ot_record_text(base, "run"), b, ot_record_text(own, "run"));
    return ot_fail_hint(OT_FINDINGS,
                        "a change of tokenizer, length or data says `pairing: seeds` in its file");
  }
  return OT_OK;
}

typedef struct pair_sum {
  const ot_ledger *ledger;
  ot_ledger_arm own;
  bool seeds_only;
  ot_ledger_arm_facts *facts;
} pair_sum;

static ot_status gather_pair(pair_sum *sum, const ot_ledger_arm *base_arm) {
  const ot_node *base, *run;
  sum->own.scale = base_arm->scale;
  sum->own.seed = base_arm->seed;
  OT_TRY(find(sum->ledger, base_arm, &base));
  OT_TRY(find(sum->ledger, &sum->own, &run));
  sum->facts->flops += ot_record_real(run, "model_flops");
  sum->facts->spikes += ot_record_integer(run, "spikes") > 0;
  const double loss = ot_record_real(run, "loss");
  const int s = base_arm->scale;
  sum->facts->arm.loss[s][base_arm->seed] = loss;
  sum->facts->diverged += isnan(loss);
  if (isnan(loss)) return OT_OK;
  OT_TRY(check_pair(base, run, sum->seeds_only));
  sum->facts->other_builds +=
      !ot_text_equal(ot_record_text(base, "build"), ot_record_text(run, "build")) ||
      !ot_text_equal(ot_record_text(base, "machine"), ot_record_text(run, "machine"));
  sum->facts->pairs++;
  sum->facts->same_bits +=
      ot_text_equal(ot_record_text(base, "weights_hash"), ot_record_text(run, "weights_hash"));
  const double forged = ot_ledger_forged(sum->own.changes, sum->own.num_changes, s);
  sum->facts->arm.ln_compute[s] = log(ot_record_real(run, "model_flops") / forged);
  sum->facts->seconds_ratio +=
      log(ot_record_real(run, "seconds") / ot_record_real(base, "seconds") / forged);
  return OT_OK;
}

ot_status ot_ledger_gather(const ot_ledger *ledger, const ot_ledger_change *const *changes,
                           int num_changes, int pairs, ot_ledger_arm_facts *out) {
  const ot_ledger_arms arms = ot_ledger_list_arms(ledger, changes, num_changes, pairs);
  memset(out, 0, sizeof *out);
  pair_sum sum = {.ledger = ledger, .facts = out};
  for (int i = 0; i < num_changes; i++) sum.seeds_only = sum.seeds_only || changes[i]->seeds_only;
  for (int64_t i = 0; i < arms.count; i++)
    if (arms.arm[i].num_changes > 0) sum.own = arms.arm[i];
  int seen = 0;
  for (int64_t i = 0; i < arms.count; i++) {
    const ot_ledger_arm *const arm = &arms.arm[i];
    if (arm->num_changes > 0 || arm->budget != 1) continue;
    OT_TRY(gather_pair(&sum, arm));
    seen++;
  }
  out->seconds_ratio /= seen;
  return OT_OK;
}

// ---- looks ----

ot_ledger_census ot_ledger_count(const ot_ledger *ledger) {
  ot_ledger_census c = {0};
  const ot_record *const r = &ledger->record;
  c.estimate = ot_arena_array(ledger->arena, r->count + 1, sizeof *c.estimate);
  for (int64_t i = 0; i < r->count; i++) {
    const ot_node *const line = r->line[i].tree;
    const char *const change = ot_record_text(line, "change");
    c.proposed += ot_text_equal(r->line[i].kind, "propose");
    c.accepted += ot_text_equal(r->line[i].kind, "verdict") &&
                  ot_text_equal(ot_record_text(line, "verdict"), "better");
    if (!ot_text_equal(r->line[i].kind, "look")) continue;
    if (ot_record_find(r, "look", "change", change)->tree != line) continue;
    c.estimate[c.count].value = ot_record_real(line, "mean");
    c.estimate[c.count++].se = ot_record_real(line, "se");
  }
  return c;
}

const ot_node *ot_ledger_find_verdict(const ot_ledger *ledger, const char *change) {
  const ot_record_line *const line = ot_record_find(&ledger->record, "verdict", "change", change);
  return line ? line->tree : NULL;
}

const char *ot_ledger_find_signer(const ot_ledger *ledger, const char *change) {
  const ot_record_line *const line = ot_record_find(&ledger->record, "sign", "change", change);
  const ot_node *const verdict = ot_ledger_find_verdict(ledger, change);
  const bool newest =
      line && verdict &&
      ot_text_equal(ot_record_text(line->tree, "of"), ot_record_text(verdict, "id"));
  return newest ? ot_record_text(line->tree, "signed_off") : "";
}

bool ot_ledger_is_final(const ot_ledger *ledger, const char *change) {
  const ot_node *const verdict = ot_ledger_find_verdict(ledger, change);
  if (!verdict) return false;
  return !ot_text_equal(ot_record_text(verdict, "verdict"), "withheld");
}

// The index among proposals, from 0.
static int index_of(const ot_ledger *ledger, const char *change) {
  int index = 0;
  for (int64_t i = 0; i < ledger->record.count; i++) {
    const ot_record_line *const line = &ledger->record.line[i];
    if (!ot_text_equal(line->kind, "propose")) continue;
    if (ot_text_equal(ot_record_text(line->tree, "change"), change)) break;
    index++;
  }
  return index;
}

// A scale whose loss does not fall with compute, or not for certain; -1: none.
static int flat_scale(const ot_multiplier *m) {
  for (int s = 0; s < m->scales; s++)
    if (!(m->slope[s].low > 0)) return s;
  return -1;
}

static const char *reason(const ot_ledger *ledger, const ot_ledger_look *l) {
  const ot_ledger_margins *const m = &ledger->policy.margins;
  ot_arena *const a = ledger->arena;
  switch (l->verdict) {
    case OT_LEDGER_BETTER:
      return ot_arena_format(a, "one-sided p %.2g, at most %.2g at this look", l->m.mean.p,
                             l->level);
    case OT_LEDGER_WORSE:
      if (l->facts.diverged > 0) return ot_arena_format(a, "%d runs diverged", l->facts.diverged);
      return ot_arena_format(a, "one-sided p of being worse %.2g, at most %.2g at this look",
                             1 - l->m.mean.p, l->level);
    case OT_LEDGER_EQUAL:
      return ot_arena_format(a, "its interval ends at %.4g, below the practical %.4g",
                             exp(l->m.mean.high), m->practical);
    case OT_LEDGER_WITHHELD:
      return ot_arena_format(a, "m above %.3g: a leak until audits say otherwise", m->too_good);
    case OT_LEDGER_UNDECIDED:
      if (flat_scale(&l->m) >= 0)
        return ot_arena_format(a,
                               "the slope of the baseline at %s may be 0: it needs other budgets",
                               ledger->policy.scales[flat_scale(&l->m)].name);
      return l->look + 1 < ledger->policy.looks.count ? "more pairs decide"
                                                      : "not decided after the last look";
    case OT_LEDGER_VETOED:
    case OT_LEDGER_VERDICTS:
      break;
  }
  return "";
}

// A change of speed claims the same bits: no statistics are needed.
static void judge_speed(const ot_ledger *ledger, ot_ledger_look *l) {
  const ot_ledger_arm_facts *const f = &l->facts;
  const bool same = f->same_bits == f->pairs;
  l->verdict = same ? OT_LEDGER_BETTER : OT_LEDGER_WORSE;
  l->why = ot_arena_format(ledger->arena, "the same bits in %d of %d pairs, %.4g of the time%s",
                           f->same_bits, f->pairs, exp(f->seconds_ratio),
                           same ? "" : ": propose it as neutral");
}

ot_status ot_ledger_analyse(const ot_ledger *ledger, const ot_ledger_change *change,
                            ot_ledger_look *out) {
  const ot_ledger_policy *const p = &ledger->policy;
  const ot_ledger_change *const changes[] = {change};
  *out =
      (ot_ledger_look){.change = change->name, .look = ot_ledger_next_look(ledger, change->name)};
  OT_CHECK(out->look >= 0, OT_USAGE, "%s has had its %d looks", change->name, p->looks.count);
  ot_baseline *const base = ot_arena_take(ledger->arena, sizeof *base);
  const ot_changed *const own = &out->facts.arm;
  out->pairs = p->looks.pairs[out->look];
  OT_TRY(ot_ledger_gather_base(ledger, out->pairs, base));
  OT_TRY(ot_ledger_gather(ledger, changes, 1, out->pairs, &out->facts));
  const ot_ledger_census census = ot_ledger_count(ledger);
  ot_decision decision = {&p->looks, &p->margins, 1, out->look, change->class == OT_LEDGER_NEUTRAL};
  if (p->candidates == 1)
    decision.factor =
        ot_candidate_factor(&p->looks, index_of(ledger, change->name), census.accepted);
  out->level = p->looks.level[out->look] * decision.factor;
  ot_multiplier_estimate(base, own, p->target > 0 ? log(p->target) : NAN, &out->m);
  double extra = 0;
  for (int s = 0; s < base->scales; s++)
    extra += (own->ln_compute[s] - base->ln_compute[s]) / base->scales;
  out->ln_quality = out->m.mean.value + extra;
  out->ln_seconds = out->ln_quality - out->facts.seconds_ratio;
  const ot_ledger_prior prior = ot_ledger_prior_of(census.estimate, census.count);
  out->shrunk = ot_ledger_shrink(&prior, &out->m.mean);
  out->verdict = out->facts.diverged > 0 ? OT_LEDGER_WORSE : ot_decide(&decision, &out->m.mean);
  const bool surprising = prior.sd > 0 && out->m.mean.value > 4 * prior.sd;
  if (flat_scale(&out->m) >= 0 && out->facts.diverged == 0) out->verdict = OT_LEDGER_UNDECIDED;
  if (out->verdict == OT_LEDGER_BETTER && prior.count >= 5 && surprising)
    out->verdict = OT_LEDGER_WITHHELD;
  out->why = reason(ledger, out);
  if (change->class == OT_LEDGER_SPEED && out->facts.diverged == 0) judge_speed(ledger, out);
  return OT_OK;
}

// ---- lines ----

static void write_scales(const ot_ledger *ledger, ot_json_writer *line, const char *key,
                         const ot_measured *values) {
  ot_json_object(line, key);
  for (int s = 0; s < ledger->policy.num_scales; s++)
    ot_json_real(line, ledger->policy.scales[s].name, values[s].value);
  ot_json_end(line);
}

static ot_status record_look(ot_ledger *ledger, const ot_ledger_look *l) {
  ot_json_writer line = ot_record_begin(&ledger->record, "look", ledger->arena);
  ot_json_text(&line, "change", l->change);
  ot_json_integer(&line, "look", l->look + 1);
  ot_json_integer(&line, "pairs", l->pairs);
  write_scales(ledger, &line, "ln_m", l->m.ln_m);
  ot_json_object(&line, "ci_scale");
  for (int s = 0; s < ledger->policy.num_scales; s++)
    ot_record_add_pair(&line, ledger->policy.scales[s].name, l->m.ln_m[s].low, l->m.ln_m[s].high);
  ot_json_end(&line);
  write_scales(ledger, &line, "slope", l->m.slope);
  ot_json_object(&line, "rho");
  for (int s = 0; s < ledger->policy.num_scales; s++)
    ot_json_real(&line, ledger->policy.scales[s].name, l->m.rho[s]);
  ot_json_end(&line);
  ot_json_object(&line, "pair_sd");
  for (int s = 0; s < ledger->policy.num_scales; s++)
    ot_json_real(&line, ledger->policy.scales[s].name, l->m.pair_sd[s]);
  ot_json_end(&line);
  ot_json_real(&line, "mean", l->m.mean.value);
  ot_json_real(&line, "se", l->m.mean.se);
  ot_record_add_pair(&line, "ci", l->m.mean.low, l->m.mean.high);
  ot_json_boolean(&line, "by_rounding", l->m.by_rounding);
  ot_json_real(&line, "p", l->m.mean.p);
  ot_json_real(&line, "level", l->level);
  ot_json_real(&line, "trend", l->m.trend.value);
  ot_record_add_pair(&line, "trend_ci", l->m.trend.low, l->m.trend.high);
  ot_json_text(&line, "slope_from", ledger->policy.slope.from == 1 ? "ladder" : "budgets");
  ot_json_text(&line, "policy", ledger->policy_hash);
  ot_json_integer(&line, "other_builds", l->facts.other_builds);
  ot_json_integer(&line, "diverged", l->facts.diverged);
  ot_json_integer(&line, "spikes", l->facts.spikes);
  return ot_record_append(&ledger->record, &line, ledger->arena);
}

static ot_status record_verdict(ot_ledger *ledger, const ot_ledger_look *l,
                                const ot_ledger_target *target) {
  const double speed = target->base_s / target->change_s;
  ot_json_writer line = ot_record_begin(&ledger->record, "verdict", ledger->arena);
  ot_json_text(&line, "change", l->change);
  ot_json_text(&line, "verdict", ot_ledger_verdict_names[l->verdict]);
  ot_json_text(&line, "why", l->why);
  ot_json_integer(&line, "look", l->look + 1);
  ot_json_real(&line, "m", exp(l->m.mean.value));
  ot_record_add_pair(&line, "ci", exp(l->m.mean.low), exp(l->m.mean.high));
  ot_json_real(&line, "shrunk", exp(l->shrunk));
  ot_json_real(&line, "m_quality", exp(l->ln_quality));
  ot_json_real(&line, "m_seconds", exp(l->ln_seconds));
  ot_record_add_pair(&line, "planned_seconds", target->base_s, target->change_s);
  ot_json_real(&line, "m_speed", speed);
  ot_json_real(&line, "m_total", exp(l->ln_quality) * speed);
  ot_record_add_pair(&line, "at_target", exp(l->m.at_target.low), exp(l->m.at_target.high));
  ot_json_real(&line, "cost_flops", l->facts.flops);
  return ot_record_append(&ledger->record, &line, ledger->arena);
}

ot_status ot_ledger_record_look(ot_ledger *ledger, const ot_ledger_look *l,
                                const ot_ledger_target *target) {
  OT_TRY(record_look(ledger, l));
  const bool more = l->verdict == OT_LEDGER_UNDECIDED && l->look + 1 < ledger->policy.looks.count;
  return more ? OT_OK : record_verdict(ledger, l, target);
}
