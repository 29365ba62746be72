// SPDX-License-Identifier: Apache-2.0
// `orthant ledger merge`: a stack of changes against its parts, by leaving one out, or as a
// fractional factorial.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "base/text_builder.h"
#include "cli/ledger_actions.h"
#include "cli/ledger_processes.h"
#include "describe/run_keys.h"
#include "files/disk.h"
#include "files/output_file.h"
#include "files/tree_file.h"
#include "ledger/analysis.h"

typedef struct merging {
  ot_ledger_command *command;
  ot_ledger *ledger;
  int parts, pairs;
  const ot_ledger_change *part[OT_LEDGER_PARTS];  // [parts]
  ot_baseline base;
  ot_stack_result result;
  const char *fate[OT_LEDGER_PARTS];  // "stays", "barnacle", "masked", "undecided"
  const char *verdict;
} merging;

// The parts of `mask`, kept by the arena.
static const ot_ledger_change *const *subset(merging *m, unsigned mask, int *count) {
  const ot_ledger_change **const list =
      ot_arena_array(m->ledger->arena, m->parts + 1, sizeof *list);
  *count = 0;
  for (int i = 0; i < m->parts; i++)
    if (mask >> i & 1) list[(*count)++] = m->part[i];
  return list;
}

// Runs the arm of `mask` and reads its losses; the baseline's own for an empty one.
static ot_status add_arm(merging *m, unsigned mask, ot_changed *out) {
  ot_ledger_arm_facts facts;
  int count;
  const ot_ledger_change *const *const list = subset(m, mask, &count);
  if (count == 0) {
    memcpy(out->ln_compute, m->base.ln_compute, sizeof out->ln_compute);
    memcpy(out->loss, m->base.loss, sizeof out->loss);
    return OT_OK;
  }
  OT_TRY(ot_ledger_run_change(m->command, list, count, m->pairs));
  OT_TRY(ot_ledger_gather(m->ledger, list, count, m->pairs, &facts));
  OT_CHECK(facts.diverged == 0, OT_NUMERIC, "%d runs of a part of the stack diverged",
           facts.diverged);
  *out = facts.arm;
  return OT_OK;
}

static ot_status add_parts(merging *m) {
  ot_ledger *const l = m->ledger;
  m->parts = ot_options_num_arguments(m->command->options) - 1;
  OT_CHECK(m->parts >= 1 && m->parts <= OT_LEDGER_PARTS, OT_USAGE,
           "merge takes 1 to %d changes, %d given", OT_LEDGER_PARTS, m->parts);
  for (int i = 0; i < m->parts; i++) {
    ot_ledger_change *const change = ot_arena_take(l->arena, sizeof *change);
    OT_TRY(ot_ledger_take_change(l, ot_options_argument(m->command->options, i + 1), change));
    m->part[i] = change;
  }
  m->pairs = ot_options_given(m->command->options, "pairs")
                 ? (int)ot_options_integer(m->command->options, "pairs")
                 : l->policy.looks.pairs[0];
  OT_CHECK(m->pairs <= l->policy.seeds.count, OT_USAGE, "--pairs %d: the policy has %d seeds",
           m->pairs, l->policy.seeds.count);
  ot_ledger_arms arms = {0};
  OT_TRY(ot_ledger_list_base(l, m->pairs, &arms));
  OT_TRY(ot_ledger_run_arms(l, &arms, (int)ot_options_integer(m->command->options, "jobs")));
  return ot_ledger_gather_base(l, m->pairs, &m->base);
}

// ---- leaving one out ----

// A bias in sums over many ranks is invisible on the ladder: the stack is audited at the target's.
static ot_status audit_precision(merging *m) {
  ot_ledger *const l = m->ledger;
  const ot_ledger_arm arm = ot_ledger_arm_of(l, m->part, m->parts);
  const ot_ledger_audit_request wanted = {"precision", "--planned-ranks", l->policy.planned.gpus};
  const char *finding = NULL;
  if (l->policy.audit == OT_LEDGER_AUDIT_NONE || l->policy.planned.gpus == 0) return OT_OK;
  OT_TRY(ot_ledger_audit_arm(l, &arm, &wanted, &finding));
  if (!finding) return OT_OK;
  finding = ot_arena_format(l->arena, "%s on %d ranks", finding, l->policy.planned.gpus);
  return ot_ledger_veto(l, ot_ledger_arm_name(&arm, l->arena), finding);
}

static ot_status run_stack(merging *m) {
  const unsigned all = (1u << m->parts) - 1;
  OT_TRY(audit_precision(m));
  ot_arena *const arena = m->ledger->arena;
  ot_changed *const whole = ot_arena_take(arena, sizeof *whole);
  ot_changed *const alone = ot_arena_array(arena, m->parts, sizeof *alone);
  ot_changed *const without = ot_arena_array(arena, m->parts, sizeof *without);
  OT_TRY(add_arm(m, all, whole));
  for (int i = 0; i < m->parts; i++) {
    OT_TRY(add_arm(m, 1u << i, &alone[i]));
    OT_TRY(add_arm(m, all & ~(1u << i), &without[i]));
  }
  const ot_stack stack = {m->parts, m->pairs, whole, alone, without};
  ot_stack_estimate(&m->base, &stack, &m->result);
  return OT_OK;
}

// Among parts that mask each other, the best one stays.
static void unmask(merging *m) {
  int best = -1;
  for (int i = 0; i < m->parts; i++)
    if (ot_text_equal(m->fate[i], "masked") &&
        (best < 0 || m->result.alone[i].value > m->result.alone[best].value))
      best = i;
  int others = 0;
  for (int i = 0; i < m->parts; i++) others += i != best && ot_text_equal(m->fate[i], "masked");
  if (others > 0) m->fate[best] = "stays";
}

static void judge(merging *m) {
  const ot_ledger_policy *const p = &m->ledger->policy;
  const double level = p->looks.one_sided;
  ot_text_builder text = {.arena = m->ledger->arena};
  for (int i = 0; i < m->parts; i++) {
    const ot_measured *const share = &m->result.share[i], *const alone = &m->result.alone[i];
    const bool stays = share->p <= level;
    const bool small = share->high < log(p->margins.practical);
    const bool masked = !stays && alone->p <= level;
    m->fate[i] = stays ? "stays" : masked ? "masked" : small ? "barnacle" : "undecided";
  }
  unmask(m);
  for (int i = 0; i < m->parts; i++)
    if (!ot_text_equal(m->fate[i], "stays"))
      ot_text_appendf(&text, "%s%s: %s", text.length > 0 ? ", " : "", m->part[i]->name, m->fate[i]);
  m->verdict = text.length > 0 ? ot_text_builder_text(&text) : "every part stays";
}

static void write_interval(ot_json_writer *line, const char *key, const ot_measured *e) {
  ot_json_array(line, key);
  ot_json_real(line, NULL, e->low);
  ot_json_real(line, NULL, e->high);
  ot_json_end(line);
}

static void write_parts(const merging *m, ot_json_writer *line, const char *key,
                        const ot_measured *values) {
  ot_json_object(line, key);
  for (int i = 0; i < m->parts; i++) ot_json_real(line, m->part[i]->name, values[i].value);
  ot_json_end(line);
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
static ot_status write_base(const merging *m, const char *path) {
  ot_ledger *const l = m->ledger;
  ot_node *tree;
  OT_TRY(ot_tree_load(l->policy.base, l->arena, &tree));
  ot_settings settings = {.schema = &ot_run_schema, .arena = l->arena, .tree = tree};
  ot_text_builder text = {.arena = l->arena};
  for (int i = 0; i < m->parts; i++) {
    const ot_ledger_sets *const sets = &m->part[i]->sets;
    if (!ot_text_equal(m->fate[i], "stays")) continue;
    ot_text_appendf(&text, "# with %s\n", m->part[i]->name);
    for (int k = 0; k < sets->count; k++) {
      const char *key;
      ot_node *value, *written;
      OT_TRY(parse_value(l->arena, sets->text[k], &key, &value));
      OT_TRY(parse_value(l->arena, sets->written[k], &key, &written));
      move_paths(l->arena, value, written, tree->directory);
      OT_TRY(ot_settings_put(&settings, key, value));
    }
  }
  ot_node_print_yaml(tree, 0, &text);
  return ot_output_file_replace(path, ot_text_builder_text(&text), text.length);
}

static ot_status finish(merging *m) {
  ot_ledger *const l = m->ledger;
  const char *const name = ot_options_text(m->command->options, "write");
  const char *const path = name ? ot_ledger_base_path(l, name) : NULL;
  const char *bits = NULL;
  ot_ledger after = *l;
  if (path) {
    OT_TRY(write_base(m, path));
    OT_TRY(ot_ledger_set_base(&after, path));
    OT_TRY(ot_ledger_find_bits(&after, NULL, &bits));
  }
  ot_json_writer line = ot_record_begin(&l->record, "merge", l->arena);
  ot_json_array(&line, "stack");
  for (int i = 0; i < m->parts; i++) ot_json_text(&line, NULL, m->part[i]->name);
  ot_json_end(&line);
  ot_json_integer(&line, "pairs", m->pairs);
  ot_json_real(&line, "ln_m", m->result.whole.value);
  write_interval(&line, "ci", &m->result.whole);
  ot_json_real(&line, "sum_of_parts", m->result.sum.value);
  ot_json_real(&line, "gap", m->result.gap.value);
  write_interval(&line, "gap_ci", &m->result.gap);
  write_parts(m, &line, "alone", m->result.alone);
  write_parts(m, &line, "leave_one_out", m->result.share);
  ot_json_object(&line, "parts");
  for (int i = 0; i < m->parts; i++) ot_json_text(&line, m->part[i]->name, m->fate[i]);
  ot_json_end(&line);
  ot_json_text(&line, "verdict", m->verdict);
  ot_json_text(&line, "base", l->base_hash);
  if (path) {
    ot_json_text(&line, "new_base", name);
    ot_json_text(&line, "new_base_hash", after.base_hash);
    ot_json_text(&line, "bits", bits);
  }
  OT_TRY(ot_record_append(&l->record, &line, l->arena));
  if (path) fprintf(stderr, "wrote %s; name it as `base` in %s\n", path, l->policy.path);
  return OT_OK;
}

static void print(const merging *m) {
  const ot_stack_result *const r = &m->result;
  printf(
      "%d parts, %d pairs: ln m %.4f [%.4f, %.4f], sum of the parts %.4f, gap %.4f [%.4f, %.4f]\n",
      m->parts, m->pairs, r->whole.value, r->whole.low, r->whole.high, r->sum.value, r->gap.value,
      r->gap.low, r->gap.high);
  printf("  part                 alone    in the stack  95 %% interval\n");
  for (int i = 0; i < m->parts; i++)
    printf("  %-18s %8.4f  %8.4f      [%7.4f, %7.4f]  %s\n", m->part[i]->name, r->alone[i].value,
           r->share[i].value, r->share[i].low, r->share[i].high, m->fate[i]);
  printf("%s\n", m->verdict);
}

// ---- factorial ----

typedef struct screening {
  const merging *m;
  const ot_factorial *design;
  const ot_changed *arm;  // [design->runs]
  int count;
  unsigned mask[OT_JACKKNIFE_VALUES];
} screening;

static void contrasts(const void *context, int left_out, double *values) {
  const screening *const s = context;
  double ln_m[16];
  for (int r = 0; r < s->design->runs; r++) {
    ln_m[r] = 0;
    for (int scale = 0; scale < s->m->base.scales; scale++)
      ln_m[r] += ot_ln_multiplier(&s->m->base, &s->arm[r], scale, left_out) / s->m->base.scales;
  }
  for (int i = 0; i < s->count; i++) values[i] = ot_factorial_effect(s->design, s->mask[i], ln_m);
}

static const char *name_of(const merging *m, unsigned mask) {
  ot_text_builder text = {.arena = m->ledger->arena};
  for (int i = 0; i < m->parts; i++)
    if (mask >> i & 1)
      ot_text_appendf(&text, "%s%s", text.length > 0 ? " x " : "", m->part[i]->name);
  return ot_text_builder_text(&text);
}

static void report_effect(const merging *m, const ot_factorial *d, unsigned mask,
                          const ot_measured *e, ot_json_writer *line) {
  const unsigned long long aliases = ot_factorial_aliases(d, mask);
  ot_text_builder same = {.arena = m->ledger->arena};
  for (int j = 1; j < m->parts; j++)
    for (int i = 0; i < j; i++)
      if (aliases >> (j * 8 + i) & 1)
        ot_text_appendf(&same, "%s%s", same.length > 0 ? ", " : " or ",
                        name_of(m, 1u << i | 1u << j));
  ot_json_object(line, NULL);
  ot_json_text(line, "effect", name_of(m, mask));
  ot_json_real(line, "ln_m", e->value);
  write_interval(line, "ci", e);
  ot_json_text(line, "or", same.length > 0 ? ot_text_builder_text(&same) + 4 : NULL);
  ot_json_end(line);
  if (!m->command->as_json)
    printf("  %-28s %8.4f  [%7.4f, %7.4f]%s%s\n", name_of(m, mask), e->value, e->low, e->high,
           e->low > 0    ? "  helps"
           : e->high < 0 ? "  harms"
                         : "",
           ot_text_builder_text(&same));
}

static ot_status screen(merging *m) {
  ot_factorial design;
  OT_CHECK(ot_factorial_design(m->parts, &design), OT_USAGE,
           "--factorial takes 2 to 8 changes, %d given", m->parts);
  ot_changed *const arm = ot_arena_array(m->ledger->arena, design.runs, sizeof *arm);
  for (int r = 0; r < design.runs; r++) OT_TRY(add_arm(m, design.run[r], &arm[r]));
  screening s = {m, &design, arm, 0, {0}};
  for (int i = 0; i < m->parts; i++) s.mask[s.count++] = 1u << i;
  for (int j = 1; j < m->parts; j++)
    for (int i = 0; i < j; i++) s.mask[s.count++] = 1u << i | 1u << j;
  const ot_jackknife jackknife = {contrasts, &s, m->pairs, s.count, 0.95};
  ot_measured effects[OT_JACKKNIFE_VALUES];
  ot_jackknife_estimate(&jackknife, effects);
  for (int i = 0; i < s.count; i++) ot_baseline_widen(&m->base, &effects[i]);
  ot_json_writer line = ot_record_begin(&m->ledger->record, "factorial", m->ledger->arena);
  ot_json_integer(&line, "runs", design.runs);
  ot_json_integer(&line, "resolution", design.resolution);
  ot_json_integer(&line, "pairs", m->pairs);
  ot_json_array(&line, "effects");
  if (!m->command->as_json)
    printf("%d arms, %d pairs, %s\n", design.runs, m->pairs,
           design.resolution == 0   ? "full design"
           : design.resolution == 5 ? "resolution V"
                                    : "resolution IV: some interactions cannot be told apart");
  for (int i = 0; i < s.count; i++) report_effect(m, &design, s.mask[i], &effects[i], &line);
  ot_json_end(&line);
  OT_TRY(ot_record_append(&m->ledger->record, &line, m->ledger->arena));
  return OT_OK;
}

ot_status ot_ledger_merge(ot_ledger_command *command) {
  ot_ledger *const l = &command->ledger;
  merging *const m = ot_arena_take(l->arena, sizeof *m);
  *m = (merging){.command = command, .ledger = l};
  const bool factorial = ot_options_flag(command->options, "factorial");
  const char *const name = ot_options_text(command->options, "write");
  OT_CHECK(!name || !ot_text_find(name, "/"), OT_USAGE,
           "--write takes the name of a file next to %s, not %s", l->policy.base, name);
  OT_CHECK(!name || !ot_disk_is_file(ot_ledger_base_path(l, name)), OT_USAGE, "--write: %s exists",
           name);
  OT_TRY(add_parts(m));
  if (factorial) {
    OT_TRY(screen(m));
  } else {
    OT_TRY(run_stack(m));
    judge(m);
    OT_TRY(finish(m));
  }
  if (!factorial && !command->as_json) print(m);
  if (command->as_json) {
    ot_json_writer json = ot_json_begin(l->arena, 2);
    ot_node_write_json(l->record.line[l->record.count - 1].tree, NULL, &json);
    puts(json.text);
  }
  return OT_OK;
}
