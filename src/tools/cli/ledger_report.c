// SPDX-License-Identifier: Apache-2.0
// `orthant ledger report` and `export`.
#include <stdio.h>

#include "base/text.h"
#include "cli/ledger_actions.h"
#include "files/output_file.h"
#include "report/ledger_page.h"

ot_status ot_ledger_report(ot_ledger_command *c) {
  const ot_ledger_page page = ot_ledger_page_of(&c->ledger);
  const char *const path = ot_options_text(c->options, "html");
  ot_text_builder text = {.arena = c->ledger.arena};
  if (path) {
    ot_ledger_print_html(&page, &text);
    OT_TRY(ot_output_file_replace(path, ot_text_builder_text(&text), text.length));
    fprintf(stderr, "page: %s\n", path);
  }
  text = (ot_text_builder){.arena = c->ledger.arena};
  ot_ledger_print(&page, &text);
  if (c->as_json)
    puts(ot_ledger_json(&page));
  else if (!path || !ot_output_file_is_stdout(path))
    fputs(ot_text_builder_text(&text), stdout);
  return OT_OK;
}

// All recorded runs, one a line, as CSV; names need no quotes.
ot_status ot_ledger_export(ot_ledger_command *c) {
  static const char *const columns[] = {
      "run",           "change",      "scale",        "seed",
      "budget",        "state",       "loss",         "steps",
      "tokens",        "model_flops", "seconds",      "spikes",
      "build",         "machine",     "data_hash",    "validation_hash",
      "schedule_hash", "config_hash", "weights_hash", "base",
      "key",           "time"};
  const char *const path = ot_options_text(c->options, "out");
  const ot_record *const r = &c->ledger.record;
  ot_text_builder text = {.arena = c->ledger.arena};
  for (int i = 0; i < OT_COUNT(columns); i++)
    ot_text_appendf(&text, "%s%s", i > 0 ? "," : "", columns[i]);
  ot_text_put(&text, "\n");
  for (int64_t k = 0; k < r->count; k++) {
    if (!ot_text_equal(r->line[k].kind, "run")) continue;
    for (int i = 0; i < OT_COUNT(columns); i++)
      ot_text_appendf(&text, "%s%s", i > 0 ? "," : "", ot_record_text(r->line[k].tree, columns[i]));
    ot_text_put(&text, "\n");
  }
  if (path) return ot_output_file_replace(path, ot_text_builder_text(&text), text.length);
  fputs(ot_text_builder_text(&text), stdout);
  return OT_OK;
}
