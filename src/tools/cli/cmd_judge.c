// SPDX-License-Identifier: Apache-2.0
// `orthant judge`: an independent verdict on a training step that other software computed.
#include <stdio.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "host/cores.h"
#include "judge/judge.h"

static void show_progress(void *context, int done, int all) {
  (void)context;
  fprintf(stderr, "\r%d/%d blocks%s", done, all, done == all ? "\n" : "");
  fflush(stderr);
}

static ot_status run(const ot_options *options) {
  ot_arena *const arena = ot_options_arena(options);
  ot_judge_report *const report = ot_arena_take(arena, sizeof *report);
  const ot_judge_request request = {.record = ot_options_argument(options, 0),
                                    .type = (ot_judge_type)ot_options_choice(options, "type"),
                                    .threads = ot_host_threads(1),
                                    .progress = isatty(STDERR_FILENO) ? show_progress : NULL};
  OT_TRY(ot_judge_record(&request, arena, report));
  if (ot_options_json(options)) {
    puts(ot_judge_report_json(report));
  } else {
    fputs(ot_judge_report_print(report), stdout);
  }
  return report->verdict == OT_VERDICT_FINDING ? ot_fail(OT_FINDINGS, "%s", "") : OT_OK;
}

static const ot_option rows[] = {
    {"type", OT_OPTION_CHOICE, "auto|fp32|bf16|autocast", "auto",
     .help = "how the step was computed: whose rounding is its own"},
};

const ot_verb ot_verb_judge = {
    .name = "judge",
    .summary = "an independent verdict on a training step that other software computed",
    .arguments = "RECORD",
    .min_arguments = 1,
    .max_arguments = 1,
    .details =
        "RECORD is a folder that tools/orthant_record.py writes from a step of Megatron-core,\n"
        "torchtitan, FSDP2, DeepSpeed, the Trainer or other PyTorch software (docs/record.md), or\n"
        "`orthant train --record` from a step of its own.\n"
        "The step is computed again in float64 (float32 for records in bf16), in the types of the\n"
        "record, and under each hypothesis of a fault. Loss, gradients, copies on ranks, norm,\n"
        "clipping and update are compared; differences beyond the judge's own rounding are named:\n"
        "class, tensors, axis, factor. The smallest fault that would have shown is always stated.\n"
        "Exit code 1 when there is a finding.",
    .examples =
        "  orthant judge records/step0\n"
        "  orthant judge records/step0 --type autocast --json",
    .options = rows,
    .num_options = OT_COUNT(rows),
    .json = true,
    .run = run,
};
