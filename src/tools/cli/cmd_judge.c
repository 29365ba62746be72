// SPDX-License-Identifier: Apache-2.0
// `orthant judge`: an independent verdict on a training step that other software computed.
#include <stdio.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "host/cores.h"
#include "judge/judge_logprobs.h"

static void show_progress(void *context, int done, int all) {
  (void)context;
  fprintf(stderr, "\r%d/%d blocks%s", done, all, done == all ? "\n" : "");
  fflush(stderr);
}

static ot_status judge_record(const ot_options *options, ot_judge_report *report) {
  const ot_judge_request request = {.record = ot_options_argument(options, 0),
                                    .type = (ot_judge_type)ot_options_choice(options, "type"),
                                    .threads = ot_host_threads(1),
                                    .progress = isatty(STDERR_FILENO) ? show_progress : NULL};
  OT_CHECK(ot_options_num_arguments(options) == 1, OT_USAGE,
           "judge: one RECORD, or logprobs A.jsonl B.jsonl [CHECKPOINT]");
  return ot_judge_record(&request, ot_options_arena(options), report);
}

static ot_status judge_logprobs(const ot_options *options, ot_judge_report *report) {
  const int count = ot_options_num_arguments(options);
  OT_CHECK(count >= 3, OT_USAGE, "judge logprobs: needs two files: A.jsonl B.jsonl [CHECKPOINT]");
  const ot_judge_logprobs_request request = {
      .path = {ot_options_argument(options, 1), ot_options_argument(options, 2)},
      .checkpoint = count > 3 ? ot_options_argument(options, 3) : NULL,
      .type = (ot_judge_type)ot_options_choice(options, "type"),
      .most_tokens = ot_options_integer(options, "tokens"),
      .threads = ot_host_threads(1),
      .progress = isatty(STDERR_FILENO) ? show_progress : NULL};
  return ot_judge_logprobs(&request, ot_options_arena(options), report);
}

static ot_status run(const ot_options *options) {
  ot_judge_report *const report = ot_arena_take(ot_options_arena(options), sizeof *report);
  const bool logprobs = ot_text_equal(ot_options_argument(options, 0), "logprobs");
  OT_TRY(logprobs ? judge_logprobs(options, report) : judge_record(options, report));
  if (ot_options_json(options)) {
    puts(ot_judge_report_json(report));
  } else {
    fputs(ot_judge_report_print(report), stdout);
  }
  return report->verdict == OT_VERDICT_FINDING ? ot_fail(OT_FINDINGS, "%s", "") : OT_OK;
}

static const ot_option rows[] = {
    {"type", OT_OPTION_CHOICE, "auto|fp32|bf16|autocast", "auto",
     .help = "how it was computed: whose rounding is its own"},
    {"tokens", OT_OPTION_INTEGER, "N", "16384", 1, 1 << 22,
     .help = "logprobs: tokens to compute again, whole texts"},
};

const ot_verb ot_verb_judge = {
    .name = "judge",
    .summary = "an independent verdict on a training step that other software computed",
    .arguments = "RECORD | logprobs A.jsonl B.jsonl [CHECKPOINT]",
    .min_arguments = 1,
    .max_arguments = 4,
    .details =
        "RECORD is a folder that tools/orthant_record.py writes from a step of Megatron-core,\n"
        "torchtitan, FSDP2, DeepSpeed, the Trainer or other PyTorch software (docs/record.md), or\n"
        "`orthant train --record` from a step of its own.\n"
        "The step is computed again in float64 (float32 for records in bf16), in the types of the\n"
        "record, and under each hypothesis of a fault. Loss, gradients, copies on ranks, norm,\n"
        "clipping and update are compared; differences beyond the judge's own rounding are named:\n"
        "class, tensors, axis, factor. The smallest fault that would have shown is always stated.\n"
        "logprobs: log-probabilities of the same tokens by two programs, A of the sampler; lines\n"
        "of `orthant score` and answers of OpenAI servers, vLLM, SGLang, llama.cpp. With the\n"
        "CHECKPOINT they are computed again in float64. Named are temperature, truncated "
        "sampling,\n"
        "shifts, bos, padding, positions, other weights (docs/judge.md).\n"
        "Exit code 1 when there is a finding.",
    .examples =
        "  orthant judge records/step0\n"
        "  orthant judge records/step0 --type autocast --json\n"
        "  orthant judge logprobs vllm.jsonl trainer.jsonl model --json",
    .options = rows,
    .num_options = OT_COUNT(rows),
    .json = true,
    .run = run,
};
