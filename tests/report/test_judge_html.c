// SPDX-License-Identifier: Apache-2.0
// run: any machine. The page of a judged step: well-formed, self-contained, with every part,
// finding and tensor; texts of a record cannot leave their place; models of any shape have a map.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "report/judge_page.h"
#include "support/arena_fixture.h"
#include "support/html_checker.h"

enum { LAYERS = 3, KINDS = 4 };

static const char *const kinds[KINDS] = {"mlp.down_proj", "mlp.experts.*.up_proj",
                                         "self_attn.q_proj", "input_layernorm"};

static void add(ot_judge_report *r, const char *name, const char *kind, int layer, double ratio) {
  r->tensors[r->num_tensors++] = (ot_judged_tensor){name, kind, layer, ratio};
}

// The tensors of a kind: two experts or one matrix.
static void add_kind(ot_judge_report *r, int layer, const char *kind) {
  const char *const star = strchr(kind, '*');
  const double fault = layer == 1 && strstr(kind, "q_proj") ? 1234567 : 0;
  for (int e = 0; e < (star ? 2 : 1); e++) {
    const char *const name =
        star ? ot_arena_format(&arena, "%.*s%d%s", (int)(star - kind), kind, e, star + 1) : kind;
    add(r, ot_arena_format(&arena, "model.layers.%d.%s.weight", layer, name),
        ot_arena_format(&arena, "model.layers.*.%s.weight", kind), layer, 0.9 + 0.01 * e + fault);
  }
}

// `layers` layers of four kinds, one of them of two experts, in the order of the backward pass.
static ot_judge_report make(int layers) {
  ot_judge_report r = {.arena = &arena, .step = "llama, recorded by <torch> & others"};
  r.tensors = ot_arena_array(&arena, layers * (KINDS + 1) + 2, sizeof *r.tensors);
  add(&r, "lm_head.weight", "lm_head.weight", -1, 0.25);
  for (int layer = layers - 1; layer >= 0; layer--) {
    for (int k = 0; k < KINDS; k++) add_kind(&r, layer, kinds[k]);
  }
  add(&r, "model.embed_tokens.weight", "model.embed_tokens.weight", -1, INFINITY);
  return r;
}

static void fill(ot_judge_report *r) {
  ot_judge_add_part(r, "gradient", false, "%s", "14 tensors of 14 </td> <b>");
  ot_judge_add_part(r, "note", true, "%s", "<script>alert('1')</script>");
  ot_judge_finding *const f = ot_judge_find(r, "factor_on_some");
  f->tensors = "model.layers.1.self_attn.q_proj.weight";
  f->axis = "\"tp\"><i>";
  f->factor = "1/dp";
  f->evidence = "gradients & more";
  f->advice = "look";
  f->confirmed = 1.25;
  ot_judge_add_sensitivity(r, "factor", 1e-7);
  ot_judge_add_sensitivity(r, "rope_base", 7.5);
  ot_judge_add_sensitivity(r, "z_loss", INFINITY);
  ot_judge_leave_open(r, "%s", "experts <may> differ");
}

static const char *html_of(const ot_judge_report *r, const char *record) {
  ot_text_builder out = {.arena = &arena};
  ot_judge_html(r, record, &out);
  check_document(ot_text_builder_text(&out));
  check_self_contained(ot_text_builder_text(&out));
  return ot_text_builder_text(&out);
}

static int count_of(const char *text, const char *part) {
  int count = 0;
  for (const char *at = text; (at = strstr(at, part)) != NULL; at++) count++;
  return count;
}

static void require(const char *text, const char *part) {
  if (!strstr(text, part)) fail_msg("no %s", part);
}

static void the_page_has_parts_findings_tensors_and_sensitivity(void **state) {
  (void)state;
  ot_judge_report r = make(LAYERS);
  fill(&r);
  const char *const text = html_of(&r, "records/step0");
  static const char *const parts[] = {"<h1>factor_on_some over ",
                                      "id=\"findings\"",
                                      "href=\"#tensors\"",
                                      "1. factor_on_some",
                                      "<td>1/dp</td>",
                                      "1.2 own errors remain",
                                      "Not decided: experts &lt;may&gt; differ",
                                      ">rope_base</text>",
                                      ">none</text>",
                                      "the whole fault",
                                      "The report as text"};
  for (int i = 0; i < OT_COUNT(parts); i++) require(text, parts[i]);
}

static void texts_of_a_record_are_escaped(void **state) {
  (void)state;
  ot_judge_report r = make(LAYERS);
  fill(&r);
  const char *const text = html_of(&r, "a\"><img onload='x' \001>");
  assert_null(strstr(text, "<script"));
  assert_null(strstr(text, "<img"));
  assert_null(strstr(text, "\001"));
  require(text, "&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;");
  require(text, "recorded by &lt;torch&gt; &amp; others");
}

static void a_cell_has_the_largest_error_of_its_tensors(void **state) {
  (void)state;
  const ot_judge_report r = make(LAYERS);
  const char *const text = html_of(&r, "record");
  // The map: a title for each cell, and for both tensors outside of layers.
  assert_int_equal(count_of(text, "<title>model.layers."), LAYERS * KINDS);
  require(text, "mlp.experts.1.up_proj.weight: 0.91 own errors, the largest of 2 tensors");
  require(text, "<title>model.layers.1.self_attn.q_proj.weight: 1.23M own errors</title>");
  require(text, "class=\"c-dp\"");
  require(text, ">model.embed_tokens: not finite</text>");
  require(text, ">mlp.experts.*.up_proj</text>");
  // The table has every tensor.
  assert_int_equal(count_of(text, "<th scope=\"row\">model.layers."), LAYERS * (KINDS + 1));
}

static void models_of_any_depth_have_a_map(void **state) {
  (void)state;
  static const int layers[] = {1, 40, 126, 500};
  for (int i = 0; i < OT_COUNT(layers); i++) {
    const ot_judge_report r = make(layers[i]);
    assert_int_equal(count_of(html_of(&r, "record"), "<title>model.layers."), layers[i] * KINDS);
  }
  ot_judge_report none = {.arena = &arena, .step = ""};
  assert_null(strstr(html_of(&none, "record"), "id=\"tensors\""));
  none = make(0);
  assert_int_equal(count_of(html_of(&none, "record"), "own errors</title>"), 2);
}

static void two_records_have_three_maps(void **state) {
  (void)state;
  ot_judged_pair pair = {.paths = {"a<b", "b"},
                         .records = {make(LAYERS), make(LAYERS)},
                         .difference = make(LAYERS),
                         .conclusion = "record 1 agrees"};
  ot_text_builder out = {.arena = &arena};
  fill(&pair.difference);
  pair.difference.findings[0].record = 2;
  ot_judged_pair_html(&pair, &out);
  const char *const text = ot_text_builder_text(&out);
  check_document(text);
  check_self_contained(text);
  assert_int_equal(count_of(text, "<title>model.layers."), 3 * LAYERS * KINDS);
  require(text, "Record 1: a&lt;b");
  require(text, "1. factor_on_some in record 2");
  require(text, "Which is right: record 1 agrees.");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, finish)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(the_page_has_parts_findings_tensors_and_sensitivity),
      TEST(texts_of_a_record_are_escaped),
      TEST(a_cell_has_the_largest_error_of_its_tensors),
      TEST(models_of_any_depth_have_a_map),
      TEST(two_records_have_three_maps),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
