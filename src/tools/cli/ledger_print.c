// SPDX-License-Identifier: Apache-2.0
#include "cli/ledger_print.h"

#include <math.h>
#include <stdio.h>

#include "base/text.h"
#include "report/ledger_page.h"

// ---- init ----

ot_status ot_ledger_print_costs(const ot_ledger *l, bool as_json) {
  const ot_looks *const looks = &l->policy.looks;
  ot_json_writer json = ot_json_begin(l->arena, 2);
  ot_json_object(&json, NULL);
  ot_json_text(&json, "policy", l->policy.path);
  ot_json_array(&json, "costs");
  for (int i = 0; i < looks->count; i++) {
    double change, base;
    OT_TRY(ot_ledger_forecast(l, looks->pairs[i], &change, &base));
    ot_json_object(&json, NULL);
    ot_json_integer(&json, "pairs", looks->pairs[i]);
    ot_json_real(&json, "change_flops", change);
    ot_json_real(&json, "base_flops", base);
    ot_json_end(&json);
    if (!as_json)
      printf("%2d pairs: %.3g FLOPs for a change, %.3g once for the baseline\n", looks->pairs[i],
             change, base);
  }
  ot_json_end(&json);
  ot_json_end(&json);
  if (as_json) puts(json.text);
  return OT_OK;
}

// ---- fit ----

static void print_calibration(const ot_ledger_policy *p, const ot_ledger_calibration *c) {
  printf("scale        mean       sd    slope   sd in ln C      rho of a rounding\n");
  for (int s = 0; s < p->num_scales; s++)
    printf("%-10s %7.4f  %7.5f  %7.4f   %10.5f   %8.4f\n", p->scales[s].name, c->mean[s], c->sd[s],
           c->m.slope[s].value, c->sd[s] / c->m.slope[s].value, c->m.rho[s]);
  printf("\npairs   smallest m found with 80 %%: unpaired   paired, rounding alone   cost\n");
  for (int i = 0; i < p->looks.count; i++) {
    const int n = p->looks.pairs[i];
    if (n < 3) continue;
    printf("%5d %36.4f %24.4f   %.3g FLOPs, %.3g h\n", n,
           exp(ot_smallest_effect(c->unpaired_sd, n)), exp(ot_smallest_effect(c->rounding_sd, n)),
           c->flops * n, c->hours * n);
  }
}

void ot_ledger_print_calibration(const ot_ledger *l, const ot_ledger_calibration *c, bool as_json) {
  const ot_ledger_policy *const p = &l->policy;
  const ot_record *const r = &l->record;
  if (!as_json) {
    print_calibration(p, c);
    return;
  }
  ot_json_writer json = ot_json_begin(l->arena, 2);
  ot_json_object(&json, NULL);
  ot_json_array(&json, "scales");
  for (int64_t i = r->count - p->num_scales; i < r->count; i++)
    ot_node_write_json(r->line[i].tree, NULL, &json);
  ot_json_end(&json);
  ot_json_array(&json, "smallest");
  for (int i = 0; i < p->looks.count; i++) {
    const int n = p->looks.pairs[i];
    ot_json_object(&json, NULL);
    ot_json_integer(&json, "pairs", n);
    ot_json_real(&json, "unpaired", n > 2 ? exp(ot_smallest_effect(c->unpaired_sd, n)) : NAN);
    ot_json_real(&json, "rounding", n > 2 ? exp(ot_smallest_effect(c->rounding_sd, n)) : NAN);
    ot_json_real(&json, "flops", c->flops * n);
    ot_json_real(&json, "hours", c->hours * n);
    ot_json_end(&json);
  }
  ot_json_end(&json);
  ot_json_end(&json);
  puts(json.text);
}

// ---- look ----

// The newest look and verdict of a change, as one document.
static void print_lines(const ot_ledger *l, const char *change) {
  ot_json_writer json = ot_json_begin(l->arena, 2);
  const ot_record_line *const found = ot_record_find(&l->record, "look", "change", change);
  const ot_node *const verdict = ot_ledger_find_verdict(l, change);
  ot_json_object(&json, NULL);
  if (found) ot_node_write_json(found->tree, "look", &json);
  if (verdict) ot_node_write_json(verdict, "verdict", &json);
  ot_json_end(&json);
  puts(json.text);
}

static void print_interval(const char *name, const ot_measured *e) {
  printf("  %-10s %8.4f  [%7.4f, %7.4f]\n", name, e->value, e->low, e->high);
}

void ot_ledger_print_look(const ot_ledger *l, const ot_ledger_look *k, const ot_ledger_target *t,
                          bool as_json) {
  if (as_json) {
    print_lines(l, k->change);
    return;
  }
  printf("%s: %s after %d pairs (look %d of %d): %s\n", k->change,
         ot_ledger_verdict_names[k->verdict], k->pairs, k->look + 1, l->policy.looks.count, k->why);
  printf("  ln m       estimate  95 %% interval       slope    pair sd      rho\n");
  for (int s = 0; s < l->policy.num_scales; s++) {
    const ot_measured *const e = &k->m.ln_m[s];
    printf("  %-10s %8.4f  [%7.4f, %7.4f]  %8.4f   %8.4f   %6.3f\n", l->policy.scales[s].name,
           e->value, e->low, e->high, k->m.slope[s].value, k->m.pair_sd[s], k->m.rho[s]);
  }
  print_interval("mean", &k->m.mean);
  if (l->policy.num_scales > 1) print_interval("trend", &k->m.trend);
  if (l->policy.num_scales == 1)
    printf("  one scale: whether it holds at larger ones%s is not known\n",
           l->policy.target > 0 ? " and at the target" : "");
  if (!isnan(k->m.at_target.value)) {
    print_interval("at target", &k->m.at_target);
    if (k->m.at_target.low < 0 && k->m.at_target.high > 0)
      printf("  on the ladder only: at %.3g FLOPs its sign is unknown\n", l->policy.target);
  }
  printf("  m %.4f by FLOPs, %.4f at equal tokens, %.4f by measured seconds; shrunk %.4f\n",
         exp(k->m.mean.value), exp(k->ln_quality), exp(k->ln_seconds), exp(k->shrunk));
  if (!isnan(t->base_s))
    printf("  planned at the target: %.4g s and %.4g s; m in all %.4f\n", t->base_s, t->change_s,
           exp(k->ln_quality) * t->base_s / t->change_s);
  if (k->m.by_rounding)
    printf("  note: the pairs differ by less than rounding; the interval is that of rounding\n");
  const ot_record_line *const proposal = ot_record_find(&l->record, "propose", "change", k->change);
  if (proposal && !ot_text_equal(ot_record_text(proposal->tree, "policy"), l->policy_hash))
    printf("  note: policy.yaml was changed after %s was registered\n", k->change);
  const ot_ledger_page page = ot_ledger_page_of(l);
  ot_text_builder predictions = {.arena = l->arena};
  ot_ledger_print_predictions(&page, k->change, &predictions);
  fputs(ot_text_builder_text(&predictions), stdout);
  if (k->facts.other_builds > 0)
    printf("  note: %d pairs were run by different builds or machines\n", k->facts.other_builds);
}

// ---- merge ----

void ot_ledger_print_merge(const ot_ledger_merge_result *m) {
  const ot_stack_result *const r = &m->effect;
  const ot_ledger_stack *const s = &m->stack;
  printf(
      "%d parts, %d pairs: ln m %.4f [%.4f, %.4f], sum of the parts %.4f, gap %.4f [%.4f, %.4f]\n",
      s->num_parts, s->pairs, r->whole.value, r->whole.low, r->whole.high, r->sum.value,
      r->gap.value, r->gap.low, r->gap.high);
  printf("  part                 alone    in the stack  95 %% interval\n");
  for (int i = 0; i < s->num_parts; i++)
    printf("  %-18s %8.4f  %8.4f      [%7.4f, %7.4f]  %s\n", s->part[i]->name, r->alone[i].value,
           r->share[i].value, r->share[i].low, r->share[i].high, m->fate[i]);
  printf("%s\n", m->verdict);
}

void ot_ledger_print_screening(const ot_ledger_screening *s) {
  printf("%d arms, %d pairs, %s\n", s->design.runs, s->stack.pairs,
         s->design.resolution == 0   ? "full design"
         : s->design.resolution == 5 ? "resolution V"
                                     : "resolution IV: some interactions cannot be told apart");
  for (int i = 0; i < s->count; i++) {
    const ot_measured *const e = &s->effect[i];
    printf("  %-28s %8.4f  [%7.4f, %7.4f]%s%s%s\n", s->name[i], e->value, e->low, e->high,
           e->low > 0    ? "  helps"
           : e->high < 0 ? "  harms"
                         : "",
           s->same[i] ? " or " : "", s->same[i] ? s->same[i] : "");
  }
}

// ---- bisect ----

// The words for a candidate, and for a search without and with a result.
static const struct {
  const char *one, *same, *other;
} words[] = {
    [OT_BISECTION_MERGES] = {"base", "the newest base has the recorded bits",
                             "the first base that is not what was recorded"},
    [OT_BISECTION_KEYS] = {"key", "all keys together leave the loss as it was recorded",
                           "the first key that changes the loss"},
    [OT_BISECTION_COMMITS] = {"commit", "the last commit has the recorded loss",
                              "the first commit that changes the loss"},
};

static void print_same(const ot_ledger *l, const ot_bisection_result *b, bool as_json) {
  if (as_json)
    puts("{\"looks\": 1, \"line\": null}");
  else
    printf("%s: nothing to search\n", words[b->kind].same);
  if (b->kind != OT_BISECTION_MERGES && l->policy.num_scales > 1)
    fprintf(stderr, "note: at %s; --scale names another scale\n", b->scale);
}

static void print_first_json(const ot_ledger *l, const ot_bisection_result *b) {
  ot_json_writer json = ot_json_begin(l->arena, 2);
  ot_json_object(&json, NULL);
  ot_json_integer(&json, "looks", b->looks);
  ot_json_text(&json, words[b->kind].one, b->first);
  if (b->merge) {
    ot_json_integer(&json, "line", b->merge->number);
    ot_node_write_json(ot_node_child(b->merge->tree, "stack"), "stack", &json);
  } else {
    ot_json_text(&json, "scale", b->scale);
    ot_json_integer(&json, "pairs", b->pairs);
    ot_json_real(&json, "difference", b->difference.value);
    ot_record_add_pair(&json, "ci", b->difference.low, b->difference.high);
    ot_json_array(&json, "not_tried");
    for (int64_t i = 0; i < b->num_untried; i++) ot_json_text(&json, NULL, b->untried[i]);
    ot_json_end(&json);
  }
  ot_json_end(&json);
  puts(json.text);
}

void ot_ledger_print_bisection(const ot_ledger *l, const ot_bisection_result *b, bool as_json) {
  if (!b->first) {
    print_same(l, b, as_json);
    return;
  }
  if (as_json)
    print_first_json(l, b);
  else if (b->merge)
    printf("%s: %s, by the merge of line %lld (%lld looks)\n", words[b->kind].other, b->first,
           (long long)b->merge->number, (long long)b->looks);
  else
    printf("%s: %s (%lld looks)\n", words[b->kind].other, b->first, (long long)b->looks);
  for (int64_t i = 0; i < b->num_untried; i++)
    fprintf(stderr, "note: or %s, which cannot be tried\n", b->untried[i]);
  if (b->all)
    fprintf(stderr, "note: all %ss differ; the program or the machine is another (build %s)\n",
            words[b->kind].one, l->record.build);
}
