// SPDX-License-Identifier: Apache-2.0
// Colours stand for what an error means, so that maps of different records are read alike; each
// cell that has room for it has its number, too.
#include <math.h>

#include "base/extremes.h"
#include "base/quantity.h"
#include "base/text.h"
#include "judge/attribution.h"
#include "report/chart.h"
#include "report/judge_page.h"

enum { LEFT = 64, RIGHT = 100, TOP = 108, WIDTH = OT_CHART_WIDTH - LEFT - RIGHT };

static const double gap = 1;  // between cells

const char *ot_judged_ratio_text(ot_arena *arena, double ratio) {
  if (!isfinite(ratio)) return "not finite";
  if (ratio < 10) return ot_arena_format(arena, "%.2g", ratio);
  return ratio < 1000 ? ot_arena_format(arena, "%.0f", ratio) : ot_figure_count(arena, ratio);
}

// ---- what a colour means ----

static const struct {
  double most;                                // error in own errors
  const char *class, *text, *name, *meaning;  // text: the class of a text on it
} shades[] = {{OT_RATIO_TYPICAL, "c-again s3", "m small", "up to 1.5", "as rounding"},
              {OT_RATIO_FINE, "c-again", "m small", "up to 4", "agrees"},
              {OT_RATIO_FINDING, "c-cp", "m small", "up to 10", "needs an explanation"},
              {1000, "c-tp", "m small on", "up to 1,000", "beyond rounding"},
              {INFINITY, "c-dp", "m small on", "more, or not finite", "far beyond rounding"}};

static int shade_of(double ratio) {
  int i = 0;
  while (ratio > shades[i].most) i++;
  return i;
}

static void put_keys(double y, ot_text_builder *out) {
  ot_chart_key keys[OT_COUNT(shades)];
  for (int i = 0; i < OT_COUNT(shades); i++)
    keys[i] = (ot_chart_key){shades[i].class, shades[i].name, shades[i].meaning};
  ot_chart_keys(out, y, keys, OT_COUNT(shades));
}

// ---- the map ----

// The tensors of a layer and kind.
typedef struct map_cell {
  int count;
  double ratio;      // the largest
  const char *name;  // of that tensor
} map_cell;

typedef struct tensor_map {
  ot_arena *arena;
  ot_text_builder *out;
  int num_layers, num_kinds, num_others;
  const char **kinds;               // [num_kinds] in the order of the forward pass
  const ot_judged_tensor **others;  // [num_others] outside of layers, in that order
  map_cell *cells;                  // [num_layers, num_kinds]
  double row, column;               // size of a cell
} tensor_map;

static int kind_of(const tensor_map *m, const char *kind) {
  int k = 0;
  while (k < m->num_kinds && !ot_text_equal(m->kinds[k], kind)) k++;
  return k;
}

static void list_kinds(const ot_judge_report *r, tensor_map *m) {
  m->kinds = ot_arena_array(m->arena, r->num_tensors + 1, sizeof *m->kinds);
  m->others = ot_arena_array(m->arena, r->num_tensors + 1, sizeof *m->others);
  for (int t = r->num_tensors - 1; t >= 0; t--) {
    const ot_judged_tensor *const at = &r->tensors[t];
    if (at->layer < 0) {
      m->others[m->num_others++] = at;
      continue;
    }
    const int k = kind_of(m, at->kind);
    m->kinds[k] = at->kind;
    m->num_kinds += k == m->num_kinds;
    m->num_layers = at->layer >= m->num_layers ? at->layer + 1 : m->num_layers;
  }
}

static void fill_cells(const ot_judge_report *r, tensor_map *m) {
  m->cells = ot_arena_array(m->arena, (int64_t)m->num_layers * m->num_kinds, sizeof *m->cells);
  for (int t = 0; t < r->num_tensors; t++) {
    const ot_judged_tensor *const at = &r->tensors[t];
    if (at->layer < 0) continue;
    map_cell *const cell = &m->cells[(int64_t)at->layer * m->num_kinds + kind_of(m, at->kind)];
    if (cell->count++ > 0 && at->ratio <= cell->ratio) continue;
    cell->ratio = at->ratio;
    cell->name = at->name;
  }
}

// "self_attn.q_proj" of "model.layers.*.self_attn.q_proj.weight".
static const char *short_name(const tensor_map *m, const char *kind) {
  static const char star[] = "*.", ending[] = ".weight";
  const char *const at = ot_text_find(kind, star);
  const char *const from = at ? at + sizeof star - 1 : kind;
  const int64_t length = ot_text_length(from);
  return ot_arena_text(
      m->arena, from,
      ot_text_ends_with(from, ending) ? length - (int64_t)sizeof ending + 1 : length);
}

static void put_heads(const tensor_map *m) {
  for (int k = 0; k < m->num_kinds; k++)
    ot_chart_slanted(m->out, LEFT + (k + 0.5) * m->column, TOP - 6, short_name(m, m->kinds[k]));
}

static void put_cell(const tensor_map *m, ot_box box, const map_cell *cell, const char *text) {
  const char *const ratio = ot_judged_ratio_text(m->arena, cell->ratio);
  const char *const title =
      cell->count > 1 ? ot_arena_format(m->arena, "%s: %s own errors, the largest of %d tensors",
                                        cell->name, ratio, cell->count)
                      : ot_arena_format(m->arena, "%s: %s own errors", cell->name, ratio);
  const int shade = shade_of(cell->ratio);
  ot_chart_box(m->out, shades[shade].class, box, title);
  if (text)
    ot_chart_text(m->out, shades[shade].text, box.x + box.width / 2, box.y + box.height / 2 + 3.5,
                  text);
}

static void put_layer(const tensor_map *m, int layer) {
  const double y = TOP + layer * m->row;
  const bool roomy = m->row >= 12 && m->column >= 34;
  for (int k = 0; k < m->num_kinds; k++) {
    const map_cell *const cell = &m->cells[(int64_t)layer * m->num_kinds + k];
    const ot_box box = {LEFT + k * m->column, y, m->column - gap,
                        m->row - ot_smaller(gap, m->row / 10)};
    if (cell->count == 0) continue;
    put_cell(m, box, cell, roomy ? ot_judged_ratio_text(m->arena, cell->ratio) : NULL);
  }
}

enum { OTHERS = 4, OTHER_ROW = 24 };  // others in a row, and its height

static double others_height(const tensor_map *m) {
  return m->num_others > 0 ? 8 + (double)((m->num_others + OTHERS - 1) / OTHERS * OTHER_ROW) : 0;
}

static void put_others(const tensor_map *m, double y) {
  const double width = (double)WIDTH / OTHERS;
  for (int i = 0; i < m->num_others; i++) {
    const ot_judged_tensor *const at = m->others[i];
    const map_cell cell = {1, at->ratio, at->name};
    const ot_box box = {LEFT + i % OTHERS * width, y + i / OTHERS * OTHER_ROW, width - gap,
                        OTHER_ROW - gap};
    put_cell(m, box, &cell,
             ot_arena_format(m->arena, "%s: %s", short_name(m, at->name),
                             ot_judged_ratio_text(m->arena, at->ratio)));
  }
}

static void put_layers(const tensor_map *m) {
  const int every = m->row >= 11 ? 1 : (int)(11 / m->row) + 1;
  for (int layer = 0; layer < m->num_layers; layer++) {
    put_layer(m, layer);
    if (layer % every == 0)
      ot_chart_text(m->out, m->row < 11 ? "e dim small" : "e dim", LEFT - 8,
                    TOP + (layer + 0.5) * m->row + 4, ot_arena_format(m->arena, "%d", layer));
  }
  if (m->num_layers > 0) ot_chart_text(m->out, "e dim", LEFT - 8, TOP - 6, "layer");
}

void ot_chart_judged_tensors(const ot_judge_report *r, const char *label, ot_text_builder *out) {
  tensor_map m = {.arena = out->arena, .out = out};
  list_kinds(r, &m);
  fill_cells(r, &m);
  m.row = ot_larger(4, ot_smaller(22, 900.0 / ot_larger(m.num_layers, 1)));
  m.column = (double)WIDTH / ot_larger(m.num_kinds, 1);
  const double bottom = TOP + m.num_layers * m.row;
  const double end = bottom + others_height(&m);
  ot_chart_begin(out, end + 8 + ot_chart_keys_height(OT_COUNT(shades)), label);
  put_heads(&m);
  put_layers(&m);
  put_others(&m, bottom + 8);
  put_keys(end + 8, out);
  ot_chart_end(out);
}

// ---- sensitivity ----

void ot_chart_sensitivities(const ot_judge_report *r, ot_text_builder *out) {
  enum { NAMES = 250, VALUES = 90, ROW = 22, HEAD = 24 };
  ot_scale x = {true, 1e-3, 1, NAMES, OT_CHART_WIDTH - VALUES};
  for (int i = 0; i < r->num_sensitivities; i++) {
    const double factor = r->sensitivities[i].factor;
    if (factor > 0) x.minimum = ot_smaller(x.minimum, factor / 2);
    if (isfinite(factor)) x.maximum = ot_larger(x.maximum, factor);
  }
  const double bottom = HEAD + r->num_sensitivities * ROW;
  ot_chart_begin(out, bottom + 26, "The smallest fault of each class that would have shown");
  for (int i = 0; i < r->num_sensitivities; i++) {
    const ot_sensitivity *const s = &r->sensitivities[i];
    const double y = HEAD + i * ROW, end = isfinite(s->factor) ? ot_scale_at(&x, s->factor) : x.to;
    ot_chart_text(out, "e", NAMES - 10, y + 14, s->what);
    ot_chart_box(out, s->factor < 1 ? "c-again" : "c-dp",
                 (ot_box){NAMES, y + 3, end - NAMES, ROW - 7}, NULL);
    ot_chart_text(out, "", end + 6, y + 14,
                  isfinite(s->factor) ? ot_arena_format(out->arena, "%.2g", s->factor) : "none");
  }
  ot_chart_line(out, "limit", (ot_box){ot_scale_at(&x, 1), HEAD - 6, 0, bottom - HEAD + 6});
  ot_chart_text(out, "e dim", ot_scale_at(&x, 1) + 4, bottom + 16, "the whole fault");
  ot_chart_text(out, "dim", NAMES, bottom + 16, "smaller is better (logarithmic)");
  ot_chart_end(out);
}
