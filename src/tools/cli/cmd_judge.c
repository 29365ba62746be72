// SPDX-License-Identifier: Apache-2.0
// `orthant judge`: an independent verdict on a training step that other software computed.
#include <stdio.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "files/output_file.h"
#include "host/cores.h"
#include "judge/judge_logprobs.h"
#include "report/judge_page.h"

static void show_progress(void *context, int done, int all) {
  (void)context;
  fprintf(stderr, "\r%d/%d blocks%s", done, all, done == all ? "\n" : "");
  fflush(stderr);
}

// A report in all its forms.
typedef struct result {
  ot_verdict verdict;
  const char *text, *json;
  ot_text_builder page;
} result;

static ot_status judge_one(const ot_options *options, const ot_judge_request *request,
                           result *out) {
  ot_judge_report *const report = ot_arena_take(out->page.arena, sizeof *report);
  OT_TRY(ot_judge_record(request, out->page.arena, report));
  out->verdict = report->verdict;
  out->text = ot_judge_report_print(report);
  out->json = ot_judge_report_json(report);
  if (ot_options_text(options, "html")) ot_judge_html(report, request->record, &out->page);
  return OT_OK;
}

static ot_status judge_both(const ot_options *options, const ot_judge_request *request,
                            result *out) {
  ot_judged_pair *const pair = ot_arena_take(out->page.arena, sizeof *pair);
  OT_TRY(ot_judge_pair(request, ot_options_argument(options, 1), out->page.arena, pair));
  out->verdict = pair->difference.verdict;
  out->text = ot_judged_pair_print(pair);
  out->json = ot_judged_pair_json(pair);
  if (ot_options_text(options, "html")) ot_judged_pair_html(pair, &out->page);
  return OT_OK;
}

// Known before the step is computed, which may take long.
static ot_status check_page(const ot_options *options) {
  const char *const html = ot_options_text(options, "html");
  if (!html) return OT_OK;
  if (ot_output_file_is_stdout(html) && ot_options_json(options)) {
    ot_fail(OT_USAGE, "--html %s and --json both print on stdout", html);
    return ot_fail_hint(OT_USAGE, "give --html a file of its own");
  }
  return ot_output_file_check(html);
}

static ot_status print_result(const ot_options *options, const result *r) {
  const char *const html = ot_options_text(options, "html");
  if (html) OT_TRY(ot_output_file_replace(html, ot_text_builder_text(&r->page), r->page.length));
  if (html && ot_output_file_is_stdout(html)) return OT_OK;
  if (html) fprintf(stderr, "page: %s\n", html);
  if (ot_options_json(options)) {
    puts(r->json);
  } else {
    fputs(r->text, stdout);
  }
  return OT_OK;
}

// "A..B"; *given is false without the option.
static ot_status read_layers(const ot_options *options, ot_judge_layers *layers, bool *given) {
  const char *const text = ot_options_text(options, "layers");
  int end = 0;
  *given = text != NULL;
  if (!text) return OT_OK;
  const int found = sscanf(text, "%6d..%6d%n", &layers->first, &layers->last, &end);
  OT_CHECK(found == 2 && text[end] == '\0', OT_USAGE,
           "--layers: \"%s\" is not A..B, the numbers of the first and the last layer from 0 on",
           text);
  return OT_OK;
}

static ot_status judge_records(const ot_options *options, result *out) {
  const int count = ot_options_num_arguments(options);
  ot_judge_layers layers = {0, 0};
  bool some;
  OT_CHECK(count <= 2, OT_USAGE,
           "judge: one record or two, or logprobs A.jsonl B.jsonl [CHECKPOINT]; got %d arguments",
           count);
  OT_TRY(read_layers(options, &layers, &some));
  OT_CHECK(!some || count == 1, OT_USAGE, "judge: --layers is for one record; got %d", count);
  const ot_judge_request request = {.record = ot_options_argument(options, 0),
                                    .type = (ot_judge_type)ot_options_choice(options, "type"),
                                    .layers = some ? &layers : NULL,
                                    .threads = ot_host_threads(1),
                                    .progress = isatty(STDERR_FILENO) ? show_progress : NULL};
  return count > 1 ? judge_both(options, &request, out) : judge_one(options, &request, out);
}

static ot_status judge_logprobs(const ot_options *options, result *out) {
  static const char *const of_records[] = {"html", "layers"};
  ot_judge_report *const report = ot_arena_take(out->page.arena, sizeof *report);
  const int count = ot_options_num_arguments(options);
  OT_CHECK(count >= 3, OT_USAGE, "judge logprobs: needs two files: A.jsonl B.jsonl [CHECKPOINT]");
  for (int i = 0; i < OT_COUNT(of_records); i++)
    OT_CHECK(!ot_options_text(options, of_records[i]), OT_USAGE,
             "judge logprobs: --%s is for records of a step", of_records[i]);
  const ot_judge_logprobs_request request = {
      .path = {ot_options_argument(options, 1), ot_options_argument(options, 2)},
      .checkpoint = count > 3 ? ot_options_argument(options, 3) : NULL,
      .type = (ot_judge_type)ot_options_choice(options, "type"),
      .most_tokens = ot_options_integer(options, "tokens"),
      .threads = ot_host_threads(1),
      .progress = isatty(STDERR_FILENO) ? show_progress : NULL};
  OT_TRY(ot_judge_logprobs(&request, out->page.arena, report));
  out->verdict = report->verdict;
  out->text = ot_judge_report_print(report);
  out->json = ot_judge_report_json(report);
  return OT_OK;
}

static ot_status run(const ot_options *options) {
  result r = {.page = {.arena = ot_options_arena(options)}};
  const bool logprobs = ot_text_equal(ot_options_argument(options, 0), "logprobs");
  OT_TRY(check_page(options));
  OT_TRY(logprobs ? judge_logprobs(options, &r) : judge_records(options, &r));
  OT_TRY(print_result(options, &r));
  return r.verdict == OT_VERDICT_FINDING ? ot_fail(OT_FINDINGS, "%s", "") : OT_OK;
}

static const ot_option rows[] = {
    {"type", OT_OPTION_CHOICE, "auto|fp32|bf16|autocast", "auto",
     .help = "how it was computed: whose rounding is its own"},
    {"html", OT_OPTION_PATH, "FILE",
     .help = "also write a page with a map of the errors of all tensors, without scripts"},
    {"tokens", OT_OPTION_INTEGER, "N", "16384", 1, 1 << 22,
     .help = "logprobs: tokens to compute again, whole texts"},
    {"layers", OT_OPTION_TEXT, "A..B",
     .help = "judge these layers only, from 0 on, by recorded activations"},
};

const ot_verb ot_verb_judge = {
    .name = "judge",
    .summary = "an independent verdict on a training step that other software computed",
    .arguments = "RECORD [RECORD2] | logprobs A.jsonl B.jsonl [CHECKPOINT]",
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
        "Recorded outputs of layers and their gradients name the layer in which a step departs;\n"
        "recorded choices of experts are used. With --layers A..B, layers A to B are computed "
        "from\n"
        "the recorded output of layer A - 1 and the gradient of that of layer B, nothing else.\n"
        "RECORD2 is another record of the same step: of another layout, version or run. Both are\n"
        "judged, and compared: which tensors differ, whether that is rounding, whether the step\n"
        "repeats, and which of the two departs from the recomputed one. Records of different "
        "steps\n"
        "(weights, samples, settings) are refused.\n"
        "logprobs: log-probabilities of the same tokens by two programs, A of the sampler; lines\n"
        "of `orthant score` and answers of OpenAI servers, vLLM, SGLang, llama.cpp. With the\n"
        "CHECKPOINT they are computed again in float64. Named are temperature, truncated "
        "sampling,\n"
        "shifts, bos, padding, positions, other weights (docs/judge.md).\n"
        "Exit code 1 when there is a finding.",
    .examples =
        "  orthant judge records/step0\n"
        "  orthant judge records/step0 --type autocast --json\n"
        "  orthant judge records/step0-tp2 records/step0-dp2\n"
        "  orthant judge records/step0 --layers 3..3\n"
        "  orthant judge records/step0 --html verdict.html\n"
        "  orthant judge logprobs vllm.jsonl trainer.jsonl model --json",
    .options = rows,
    .num_options = OT_COUNT(rows),
    .json = true,
    .run = run,
};
