// SPDX-License-Identifier: Apache-2.0
#include "cli/audit_rl.h"

#include <stdio.h>

#include "base/json_writer.h"
#include "base/text.h"
#include "rl/rl_audit.h"

static void print_audit_json(const ot_rl_audit *audit, ot_arena *arena) {
  ot_json_writer w = ot_json_begin(arena, 2);
  ot_json_object(&w, NULL);
  ot_json_text(&w, "audit", "rl");
  ot_json_text(&w, "verdict", audit->num_findings > 0 ? "finding" : "clean");
  ot_json_array(&w, "findings");
  for (int i = 0; i < audit->num_findings; i++) {
    const char *const text = audit->findings[i];
    ot_json_object(&w, NULL);
    ot_json_text_bytes(&w, "what", text, ot_text_find(text, ":") - text);
    ot_json_text(&w, "evidence", text);
    ot_json_end(&w);
  }
  ot_json_end(&w);
  ot_json_real(&w, "drift", audit->drift);
  ot_json_real(&w, "drift_bound", audit->drift_bound);
  const ot_rl_ratios *const caches[] = {&audit->kept, &audit->recomputed};
  for (int i = 0; i < 2; i++) {
    ot_json_object(&w, i == 0 ? "keep" : "recompute");
    ot_json_real(&w, "lag", caches[i]->lag);
    ot_json_real(&w, "ess", caches[i]->ess);
    ot_json_real(&w, "kl", caches[i]->kl);
    ot_json_end(&w);
  }
  ot_json_end(&w);
  puts(w.text);
}

static void print_audit(const ot_rl_audit *audit) {
  printf(
      "drift: %.2g nats a token between generators and trainer with equal weights (allowed: "
      "%.2g)\n",
      audit->drift, audit->drift_bound);
  printf("cache kept:       mean lag %.2f, ESS %.6f, KL %.3g\n", audit->kept.lag, audit->kept.ess,
         audit->kept.kl);
  printf("cache recomputed: mean lag %.2f, ESS %.6f, KL %.3g\n", audit->recomputed.lag,
         audit->recomputed.ess, audit->recomputed.kl);
  for (int i = 0; i < audit->num_findings; i++) {
    printf("finding %d: %s\n", i + 1, audit->findings[i]);
  }
  if (audit->num_findings == 0) printf("audit rl: clean\n");
}

ot_status ot_audit_rl(const ot_options *options, const ot_run *run, int64_t updates) {
  ot_arena *const arena = ot_options_arena(options);
  ot_rl_audit audit;
  OT_TRY(ot_rl_audit_run(run, updates, NULL, arena, &audit));
  if (ot_options_json(options)) {
    print_audit_json(&audit, arena);
  } else {
    print_audit(&audit);
  }
  return audit.num_findings > 0 ? ot_fail(OT_FINDINGS, "%s", "") : OT_OK;
}
