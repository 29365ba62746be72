// SPDX-License-Identifier: Apache-2.0
#include "base/text_builder.h"
#include "judge/judge_pair.h"
#include "judge/report_parts.h"

const char *ot_judged_pair_print(const ot_judged_pair *p) {
  ot_text_builder out = {.arena = p->difference.arena};
  for (int i = 0; i < 2; i++) {
    ot_text_appendf(&out, "record %d: %s: %s\n", i + 1, p->paths[i], p->records[i].step);
    ot_judge_report_put_parts(&p->records[i], &out);
  }
  ot_text_appendf(&out, "judge: %s\n", p->difference.step);
  ot_judge_report_put_parts(&p->difference, &out);
  ot_judge_report_put_findings(&p->difference, &out);
  ot_text_appendf(&out, "which: %s\n", p->conclusion);
  ot_judge_report_put_verdict(&p->difference, &out);
  return ot_text_builder_text(&out);
}

static void write_tensors(const ot_judged_pair *p, ot_json_writer *w) {
  ot_json_array(w, "tensors");
  for (int t = 0; t < p->difference.num_tensors; t++) {
    const ot_judged_tensor *const tensor = &p->difference.tensors[t];
    ot_json_object(w, NULL);
    ot_json_text(w, "name", tensor->name);
    ot_json_array(w, "ratios");
    for (int i = 0; i < 2; i++) ot_json_real(w, NULL, p->compared[t].ratio[i]);
    ot_json_end(w);
    ot_json_real(w, "difference", tensor->ratio);
    ot_json_integer(w, "elements", p->compared[t].elements);
    ot_json_end(w);
  }
  ot_json_end(w);
}

static void write_difference(const ot_judged_pair *p, ot_json_writer *w) {
  ot_json_object(w, "difference");
  ot_json_boolean(w, "same_layout", p->same_layout);
  ot_json_boolean(w, "same_types", p->same_types);
  ot_json_boolean(w, "same_software", p->same_software);
  ot_json_boolean(w, "same_values", p->same_values);
  ot_json_array(w, "departs");
  for (int i = 0; i < 2; i++) {
    if (p->departs[i]) ot_json_integer(w, NULL, i + 1);
  }
  ot_json_end(w);
  ot_json_text(w, "conclusion", p->conclusion);
  write_tensors(p, w);
  ot_json_end(w);
}

const char *ot_judged_pair_json(const ot_judged_pair *p) {
  ot_json_writer w = ot_json_begin(p->difference.arena, 2);
  ot_json_object(&w, NULL);
  ot_judge_report_write(&p->difference, &w);
  ot_json_array(&w, "records");
  for (int i = 0; i < 2; i++) {
    ot_json_object(&w, NULL);
    ot_json_text(&w, "record", p->paths[i]);
    ot_judge_report_write(&p->records[i], &w);
    ot_judge_report_write_tensors(&p->records[i], &w);
    ot_json_end(&w);
  }
  ot_json_end(&w);
  write_difference(p, &w);
  ot_json_end(&w);
  return w.text;
}
