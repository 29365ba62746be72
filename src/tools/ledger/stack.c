// SPDX-License-Identifier: Apache-2.0
#include "ledger/stack.h"

#include <math.h>
#include <string.h>

#include "base/text.h"
#include "base/text_builder.h"
#include "describe/run_keys.h"
#include "files/disk.h"
#include "files/output_file.h"
#include "files/tree_file.h"
#include "ledger/experiment.h"
#include "ledger/processes.h"
#include "ledger/rerun.h"

// Loads the parts, runs the baseline and reads its losses.
static ot_status begin(ot_ledger *l, const ot_ledger_stack_request *request, ot_ledger_stack *s) {
  const char *const name = request->write;
  *s = (ot_ledger_stack){.ledger = l, .num_parts = request->num_parts};
  OT_CHECK(!name || !ot_text_find(name, "/"), OT_USAGE,
           "--write takes the name of a file next to %s, not %s", l->policy.base, name);
  OT_CHECK(!name || !ot_disk_is_file(ot_ledger_base_path(l, name)), OT_USAGE, "--write: %s exists",
           name);
  OT_CHECK(s->num_parts >= 1 && s->num_parts <= OT_LEDGER_PARTS, OT_USAGE,
           "merge takes 1 to %d changes, %d given", OT_LEDGER_PARTS, s->num_parts);
  for (int i = 0; i < s->num_parts; i++) {
    ot_ledger_change *const change = ot_arena_take(l->arena, sizeof *change);
    OT_TRY(ot_ledger_load_registered(l, request->parts[i], change));
    s->part[i] = change;
  }
  OT_TRY(ot_ledger_choose_pairs(l, request->pairs, &s->pairs));
  const ot_ledger_arms arms = ot_ledger_list_base(l, s->pairs);
  OT_TRY(ot_ledger_run_arms(l, &arms));
  return ot_ledger_gather_base(l, s->pairs, &s->base);
}

// The parts of `mask`, kept by the arena.
static const ot_ledger_change *const *subset(const ot_ledger_stack *s, unsigned mask, int *count) {
  const ot_ledger_change **const list =
      ot_arena_array(s->ledger->arena, s->num_parts + 1, sizeof *list);
  *count = 0;
  for (int i = 0; i < s->num_parts; i++)
    if (mask >> i & 1) list[(*count)++] = s->part[i];
  return list;
}

// Runs the parts of `mask` together and reads their losses; those of the baseline for no part.
static ot_status run_parts(const ot_ledger_stack *s, unsigned mask, ot_changed *out) {
  ot_ledger_arm_facts facts;
  int count;
  const ot_ledger_change *const *const list = subset(s, mask, &count);
  if (count == 0) {
    memcpy(out->ln_compute, s->base.ln_compute, sizeof out->ln_compute);
    memcpy(out->loss, s->base.loss, sizeof out->loss);
    return OT_OK;
  }
  OT_TRY(ot_ledger_run_change(s->ledger, list, count, s->pairs));
  OT_TRY(ot_ledger_gather(s->ledger, list, count, s->pairs, &facts));
  OT_CHECK(facts.diverged == 0, OT_NUMERIC, "%d runs of a part of the stack diverged",
           facts.diverged);
  *out = facts.arm;
  return OT_OK;
}

// ---- leaving one out ----

// A bias in sums over many ranks is invisible on the ladder: the stack is audited at the target's.
static ot_status audit_precision(const ot_ledger_stack *s) {
  ot_ledger *const l = s->ledger;
  const ot_ledger_arm arm = ot_ledger_arm_of(l, s->part, s->num_parts);
  const ot_ledger_audit_request wanted = {"precision", "--planned-ranks", l->policy.planned.gpus};
  const char *finding = NULL;
  if (l->policy.audit == OT_LEDGER_AUDIT_NONE || l->policy.planned.gpus == 0) return OT_OK;
  OT_TRY(ot_ledger_audit_arm(l, &arm, &wanted, &finding));
  if (!finding) return OT_OK;
  finding = ot_arena_format(l->arena, "%s on %d ranks", finding, l->policy.planned.gpus);
  return ot_ledger_veto(l, ot_ledger_arm_name(&arm, l->arena), finding);
}

static ot_status run_all(const ot_ledger_stack *s, ot_stack_result *out) {
  ot_arena *const arena = s->ledger->arena;
  const unsigned all = (1u << s->num_parts) - 1;
  ot_changed *const whole = ot_arena_take(arena, sizeof *whole);
  ot_changed *const alone = ot_arena_array(arena, s->num_parts, sizeof *alone);
  ot_changed *const without = ot_arena_array(arena, s->num_parts, sizeof *without);
  OT_TRY(run_parts(s, all, whole));
  for (int i = 0; i < s->num_parts; i++) {
    OT_TRY(run_parts(s, 1u << i, &alone[i]));
    OT_TRY(run_parts(s, all & ~(1u << i), &without[i]));
  }
  const ot_stack stack = {s->num_parts, s->pairs, whole, alone, without};
  ot_stack_estimate(&s->base, &stack, out);
  return OT_OK;
}

// Among parts that mask each other, the best one stays.
static void unmask(ot_ledger_merge_result *m) {
  int best = -1, masked = 0;
  for (int i = 0; i < m->stack.num_parts; i++) {
    if (!ot_text_equal(m->fate[i], "masked")) continue;
    masked++;
    if (best < 0 || m->effect.alone[i].value > m->effect.alone[best].value) best = i;
  }
  if (masked > 1) m->fate[best] = "stays";
}

static void judge(ot_ledger_merge_result *m) {
  const ot_ledger_policy *const p = &m->stack.ledger->policy;
  const double level = p->looks.one_sided;
  ot_text_builder text = {.arena = m->stack.ledger->arena};
  for (int i = 0; i < m->stack.num_parts; i++) {
    const ot_measured *const share = &m->effect.share[i];
    const bool small = share->high < log(p->margins.practical);
    const bool masked = m->effect.alone[i].p <= level;
    m->fate[i] = share->p <= level ? "stays" : masked ? "masked" : small ? "barnacle" : "undecided";
  }
  unmask(m);
  for (int i = 0; i < m->stack.num_parts; i++)
    if (!ot_text_equal(m->fate[i], "stays"))
      ot_text_appendf(&text, "%s%s: %s", text.length > 0 ? ", " : "", m->stack.part[i]->name,
                      m->fate[i]);
  m->verdict = text.length > 0 ? ot_text_builder_text(&text) : "every part stays";
}

// ---- the new base ----

// Paths that a change has relative to its own file become relative to `folder`.
//   value, written   the same tree with absolute paths, and as in the file
static void move_paths(ot_arena *arena, ot_node *value, const ot_node *written,
                       const char *folder) {
  if (value->kind == OT_NODE_SCALAR && !ot_text_equal(value->text, written->text))
    value->text = ot_disk_path_from(arena, value->text, folder);
  const ot_node *other = written->first;
  for (ot_node *child = value->first; child; child = child->next, other = other->next)
    move_paths(arena, child, other, folder);
}

static ot_status parse_value(ot_arena *arena, const char *set, const char **key, ot_node **out) {
  const char *const equals = ot_text_find(set, "=");
  *key = ot_arena_text(arena, set, equals - set);
  const ot_tree_origin origin = {.name = *key};
  return ot_tree_parse_yaml(&origin, equals + 1, ot_text_length(equals + 1), arena, out);
}

// The base with the settings of the parts that stay.
static ot_status write_base(const ot_ledger_merge_result *m, const char *path) {
  ot_ledger *const l = m->stack.ledger;
  ot_node *tree;
  OT_TRY(ot_tree_load(l->policy.base, l->arena, &tree));
  ot_settings settings = {.schema = &ot_run_schema, .arena = l->arena, .tree = tree};
  ot_text_builder text = {.arena = l->arena};
  for (int i = 0; i < m->stack.num_parts; i++) {
    const ot_ledger_change *const part = m->stack.part[i];
    if (!ot_text_equal(m->fate[i], "stays")) continue;
    ot_text_appendf(&text, "# with %s\n", part->name);
    for (int k = 0; k < part->sets.count; k++) {
      const char *key;
      ot_node *value, *written;
      OT_TRY(parse_value(l->arena, part->sets.text[k], &key, &value));
      OT_TRY(parse_value(l->arena, part->sets.written[k], &key, &written));
      move_paths(l->arena, value, written, tree->directory);
      OT_TRY(ot_settings_put(&settings, key, value));
    }
  }
  ot_node_print_yaml(tree, 0, &text);
  return ot_output_file_replace(path, ot_text_builder_text(&text), text.length);
}

// ---- the record ----

static void write_parts(const ot_ledger_stack *s, ot_json_writer *line, const char *key,
                        const ot_measured *values) {
  ot_json_object(line, key);
  for (int i = 0; i < s->num_parts; i++) ot_json_real(line, s->part[i]->name, values[i].value);
  ot_json_end(line);
}

static void write_result(const ot_ledger_merge_result *m, ot_json_writer *line) {
  const ot_ledger_stack *const s = &m->stack;
  const ot_stack_result *const r = &m->effect;
  ot_json_array(line, "stack");
  for (int i = 0; i < s->num_parts; i++) ot_json_text(line, NULL, s->part[i]->name);
  ot_json_end(line);
  ot_json_integer(line, "pairs", s->pairs);
  ot_json_real(line, "ln_m", r->whole.value);
  ot_record_add_pair(line, "ci", r->whole.low, r->whole.high);
  ot_json_real(line, "sum_of_parts", r->sum.value);
  ot_json_real(line, "gap", r->gap.value);
  ot_record_add_pair(line, "gap_ci", r->gap.low, r->gap.high);
  write_parts(s, line, "alone", r->alone);
  write_parts(s, line, "leave_one_out", r->share);
  ot_json_object(line, "parts");
  for (int i = 0; i < s->num_parts; i++) ot_json_text(line, s->part[i]->name, m->fate[i]);
  ot_json_end(line);
  ot_json_text(line, "verdict", m->verdict);
}

// `name`: of the new base; null: none.
static ot_status finish(const ot_ledger_merge_result *m, const char *name) {
  ot_ledger *const l = m->stack.ledger;
  const char *const path = name ? ot_ledger_base_path(l, name) : NULL;
  const char *bits = NULL;
  ot_ledger after = *l;
  if (path) {
    OT_TRY(write_base(m, path));
    OT_TRY(ot_ledger_set_base(&after, path));
    OT_TRY(ot_ledger_find_bits(&after, NULL, &bits));
  }
  ot_json_writer line = ot_record_begin(&l->record, "merge", l->arena);
  write_result(m, &line);
  ot_json_text(&line, "base", l->base_hash);
  if (path) {
    ot_json_text(&line, "new_base", name);
    ot_json_text(&line, "new_base_hash", after.base_hash);
    ot_json_text(&line, "bits", bits);
  }
  OT_TRY(ot_record_append(&l->record, &line, l->arena));
  if (path) ot_ledger_announce(l, "wrote %s; name it as `base` in %s", path, l->policy.path);
  return OT_OK;
}

ot_status ot_ledger_merge(ot_ledger *ledger, const ot_ledger_stack_request *request,
                          ot_ledger_merge_result *out) {
  OT_TRY(begin(ledger, request, &out->stack));
  OT_TRY(audit_precision(&out->stack));
  OT_TRY(run_all(&out->stack, &out->effect));
  judge(out);
  return finish(out, request->write);
}

// ---- screening: all effects from one fractional factorial design ----

typedef struct contrast_arms {
  const ot_ledger_screening *screening;
  const ot_changed *arm;  // [design.runs]
} contrast_arms;

static void contrasts(const void *context, int left_out, double *values) {
  const contrast_arms *const c = context;
  const ot_ledger_screening *const s = c->screening;
  const ot_baseline *const base = &s->stack.base;
  double ln_m[16];
  for (int r = 0; r < s->design.runs; r++) {
    ln_m[r] = 0;
    for (int scale = 0; scale < base->scales; scale++)
      ln_m[r] += ot_ln_multiplier(base, &c->arm[r], scale, left_out) / base->scales;
  }
  for (int i = 0; i < s->count; i++) values[i] = ot_factorial_effect(&s->design, s->mask[i], ln_m);
}

static const char *name_of(const ot_ledger_stack *s, unsigned mask) {
  ot_text_builder text = {.arena = s->ledger->arena};
  for (int i = 0; i < s->num_parts; i++)
    if (mask >> i & 1)
      ot_text_appendf(&text, "%s%s", text.length > 0 ? " x " : "", s->part[i]->name);
  return ot_text_builder_text(&text);
}

// The interactions that the effect of `mask` cannot be told apart from; null: none.
static const char *aliases_of(const ot_ledger_screening *s, unsigned mask) {
  const unsigned long long aliases = ot_factorial_aliases(&s->design, mask);
  ot_text_builder text = {.arena = s->stack.ledger->arena};
  for (int j = 1; j < s->stack.num_parts; j++)
    for (int i = 0; i < j; i++)
      if (aliases >> (j * 8 + i) & 1)
        ot_text_appendf(&text, "%s%s", text.length > 0 ? ", " : "",
                        name_of(&s->stack, 1u << i | 1u << j));
  return text.length > 0 ? ot_text_builder_text(&text) : NULL;
}

ot_status ot_ledger_screen(ot_ledger *l, const ot_ledger_stack_request *request,
                           ot_ledger_screening *s) {
  OT_TRY(begin(l, request, &s->stack));
  const int n = s->stack.num_parts;
  OT_CHECK(ot_factorial_design(n, &s->design), OT_USAGE,
           "--factorial takes 2 to 8 changes, %d given", n);
  ot_changed *const arm = ot_arena_array(l->arena, s->design.runs, sizeof *arm);
  for (int r = 0; r < s->design.runs; r++) OT_TRY(run_parts(&s->stack, s->design.run[r], &arm[r]));
  s->count = 0;
  for (int i = 0; i < n; i++) s->mask[s->count++] = 1u << i;
  for (int j = 1; j < n; j++)
    for (int i = 0; i < j; i++) s->mask[s->count++] = 1u << i | 1u << j;
  const contrast_arms arms = {s, arm};
  const ot_jackknife jackknife = {contrasts, &arms, s->stack.pairs, s->count, 0.95};
  ot_jackknife_estimate(&jackknife, s->effect);
  for (int i = 0; i < s->count; i++) {
    ot_baseline_widen(&s->stack.base, &s->effect[i]);
    s->name[i] = name_of(&s->stack, s->mask[i]);
    s->same[i] = aliases_of(s, s->mask[i]);
  }
  return OT_OK;
}

ot_status ot_ledger_record_screening(const ot_ledger_screening *s) {
  ot_ledger *const l = s->stack.ledger;
  ot_json_writer line = ot_record_begin(&l->record, "factorial", l->arena);
  ot_json_integer(&line, "runs", s->design.runs);
  ot_json_integer(&line, "resolution", s->design.resolution);
  ot_json_integer(&line, "pairs", s->stack.pairs);
  ot_json_array(&line, "effects");
  for (int i = 0; i < s->count; i++) {
    ot_json_object(&line, NULL);
    ot_json_text(&line, "effect", s->name[i]);
    ot_json_real(&line, "ln_m", s->effect[i].value);
    ot_record_add_pair(&line, "ci", s->effect[i].low, s->effect[i].high);
    ot_json_text(&line, "or", s->same[i]);
    ot_json_end(&line);
  }
  ot_json_end(&line);
  return ot_record_append(&l->record, &line, l->arena);
}
