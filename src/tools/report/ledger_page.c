// SPDX-License-Identifier: Apache-2.0
#include "report/ledger_page.h"

#include <math.h>

#include "base/text.h"

static bool is(const ot_record_line *line, const char *kind) {
  return ot_text_equal(line->kind, kind);
}

static ot_ledger_row row_of(const ot_ledger *l, const ot_node *proposal) {
  const char *const change = ot_record_text(proposal, "change");
  const ot_record_line *const look = ot_record_find(&l->record, "look", "change", change);
  const ot_record_line *const run = ot_record_find(&l->record, "run", "change", change);
  const ot_node *const verdict = ot_ledger_find_verdict(l, change);
  return (ot_ledger_row){.change = change,
                         .class = ot_record_text(proposal, "class"),
                         .verdict = verdict ? ot_record_text(verdict, "verdict")
                                    : look  ? "undecided"
                                    : run   ? "running"
                                            : "proposed",
                         .signer = ot_ledger_find_signer(l, change),
                         .look = look ? look->tree : NULL,
                         .decided = verdict};
}

static int count_kept(const ot_node *merge) {
  int kept = 0;
  const ot_node *const parts = ot_node_child(merge, "parts");
  for (const ot_node *at = parts ? parts->first : NULL; at; at = at->next)
    kept += ot_text_equal(at->text, "stays");
  return kept;
}

ot_ledger_page ot_ledger_page_of(const ot_ledger *l) {
  const ot_record *const r = &l->record;
  ot_ledger_page p = {.ledger = l};
  p.rows = ot_arena_array(l->arena, r->count + 1, sizeof *p.rows);
  p.merges = ot_arena_array(l->arena, r->count + 1, sizeof *p.merges);
  for (int64_t i = 0; i < r->count; i++) {
    if (is(&r->line[i], "merge")) p.merges[p.num_merges++] = r->line[i].tree;
    if (!is(&r->line[i], "propose")) continue;
    const ot_ledger_row row = row_of(l, r->line[i].tree);
    p.rows[p.num_rows++] = row;
    p.proposed++;
    p.looked += row.look != NULL;
    p.accepted += ot_text_equal(row.verdict, "better");
    if (row.look) p.expected_false += l->policy.looks.one_sided;
  }
  if (p.num_merges > 0) p.kept = count_kept(p.merges[p.num_merges - 1]);
  p.num_predictions = ot_ledger_list_predictions(l, &p.predictions);
  return p;
}

// ---- text ----

static void put_figure(ot_text_builder *out, double value) {
  if (isnan(value))
    ot_text_put(out, "        -");
  else
    ot_text_appendf(out, " %8.4f", value);
}

static void put_row(const ot_ledger_row *row, ot_text_builder *out) {
  ot_text_appendf(out, "%-20s %-8s %-10s", row->change, row->class, row->verdict);
  ot_text_appendf(out, " %5lld", row->look ? (long long)ot_record_integer(row->look, "pairs") : 0);
  put_figure(out, row->look ? exp(ot_record_real(row->look, "mean")) : NAN);
  put_figure(out, row->look ? exp(ot_record_bound(row->look, "ci", 0)) : NAN);
  put_figure(out, row->look ? exp(ot_record_bound(row->look, "ci", 1)) : NAN);
  put_figure(out, row->decided ? ot_record_real(row->decided, "shrunk") : NAN);
  put_figure(out, row->decided ? ot_record_real(row->decided, "m_total") : NAN);
  ot_text_appendf(out, "%s%s\n", row->signer[0] ? "  signed by " : "", row->signer);
}

const char *ot_ledger_prediction_word(const ot_ledger_prediction *p) {
  return isnan(p->found) ? "not run yet"
         : !p->bounded   ? "no interval"
         : p->held       ? "held"
                         : "missed";
}

void ot_ledger_print_predictions(const ot_ledger_page *page, const char *change,
                                 ot_text_builder *out) {
  for (int64_t i = 0; i < page->num_predictions; i++) {
    const ot_ledger_prediction *const p = &page->predictions[i];
    if (change && !ot_text_equal(p->change, change)) continue;
    ot_text_appendf(out, "predicted for %s at %s: loss %.4f", p->change, p->scale, p->loss);
    if (p->bounded)
      ot_text_appendf(out, " [%.4f, %.4f]", p->low, p->high);
    else
      ot_text_put(out, " (no other change tells how far multipliers move between scales)");
    if (!isnan(p->found)) ot_text_appendf(out, ", found %.4f", p->found);
    ot_text_appendf(out, ": %s\n", ot_ledger_prediction_word(p));
  }
}

void ot_ledger_print(const ot_ledger_page *p, ot_text_builder *out) {
  ot_text_put(out,
              "change               class    verdict    pairs        m      low     high   "
              "shrunk  m total\n");
  for (int64_t i = 0; i < p->num_rows; i++) put_row(&p->rows[i], out);
  for (int64_t i = 0; i < p->num_merges; i++) {
    const ot_node *const m = p->merges[i];
    ot_text_appendf(out, "stack of %lld: m %.4f, product of the parts %.4f; %s\n",
                    (long long)ot_node_count(ot_node_child(m, "stack")),
                    exp(ot_record_real(m, "ln_m")), exp(ot_record_real(m, "sum_of_parts")),
                    ot_record_text(m, "verdict"));
  }
  ot_ledger_print_predictions(p, NULL, out);
  if (p->ledger->policy.num_scales == 1 && p->looked > 0)
    ot_text_appendf(out, "one scale, %s: what holds at larger ones is not known\n",
                    p->ledger->policy.scales[0].name);
  ot_text_appendf(out, "%d proposed, %d looked at, %d accepted, %.2g expected false\n", p->proposed,
                  p->looked, p->accepted, p->expected_false);
}

static void write_predictions(const ot_ledger_page *page, ot_json_writer *json) {
  ot_json_array(json, "predictions");
  for (int64_t i = 0; i < page->num_predictions; i++) {
    const ot_ledger_prediction *const p = &page->predictions[i];
    ot_json_object(json, NULL);
    ot_json_text(json, "change", p->change);
    ot_json_text(json, "scale", p->scale);
    ot_json_integer(json, "pairs", p->pairs);
    ot_json_real(json, "loss", p->loss);
    ot_json_real(json, "low", p->low);
    ot_json_real(json, "high", p->high);
    ot_json_real(json, "found", p->found);
    ot_json_text(json, "result", ot_ledger_prediction_word(p));
    ot_json_end(json);
  }
  ot_json_end(json);
}

const char *ot_ledger_json(const ot_ledger_page *p) {
  ot_json_writer json = ot_json_begin(p->ledger->arena, 2);
  ot_json_object(&json, NULL);
  ot_json_integer(&json, "proposed", p->proposed);
  ot_json_integer(&json, "looked", p->looked);
  ot_json_integer(&json, "accepted", p->accepted);
  ot_json_real(&json, "expected_false", p->expected_false);
  ot_json_array(&json, "changes");
  for (int64_t i = 0; i < p->num_rows; i++) {
    const ot_ledger_row *const row = &p->rows[i];
    ot_json_object(&json, NULL);
    ot_json_text(&json, "change", row->change);
    ot_json_text(&json, "class", row->class);
    ot_json_text(&json, "verdict", row->verdict);
    if (row->signer[0]) ot_json_text(&json, "signed_off", row->signer);
    if (row->look) ot_node_write_json(row->look, "look", &json);
    if (row->decided) ot_node_write_json(row->decided, "decided", &json);
    ot_json_end(&json);
  }
  ot_json_end(&json);
  ot_json_array(&json, "merges");
  for (int64_t i = 0; i < p->num_merges; i++) ot_node_write_json(p->merges[i], NULL, &json);
  ot_json_end(&json);
  write_predictions(p, &json);
  ot_json_end(&json);
  return json.text;
}
