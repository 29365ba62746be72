// SPDX-License-Identifier: Apache-2.0
// `orthant convert`: HF directory to checkpoint and back.
#include <stdio.h>

#include "base/json_writer.h"
#include "base/text.h"
#include "checkpoint/convert.h"
#include "cli/output.h"
#include "cli/verbs.h"

static void print_json(const ot_convert_report *report, const char *to, ot_arena *arena) {
  ot_json_writer w = ot_json_begin(arena, 2);
  ot_json_object(&w, NULL);
  ot_json_text(&w, "from", report->from);
  ot_json_text(&w, "to", to);
  ot_json_text(&w, "made", report->to_hf ? "hf" : "checkpoint");
  ot_json_integer(&w, "tensors", report->num_tensors);
  ot_json_integer(&w, "bytes", report->bytes);
  ot_json_boolean(&w, "from_master", report->from_master);
  ot_json_integer(&w, "left_out_tensors", report->num_left_out);
  ot_json_integer(&w, "left_out_bytes", report->left_out_bytes);
  ot_json_integer(&w, "ignored_buffers", report->notes.num_ignored);
  ot_json_integer(&w, "dequantised_tensors", report->notes.num_scaled);
  ot_json_integer(&w, "further_prediction_tensors", report->notes.num_further);
  ot_json_boolean(&w, "tied_head_repeated", report->notes.tied_head);
  ot_json_end(&w);
  puts(w.text);
}

static void print_text(const ot_convert_report *report, const char *to) {
  printf("%s: %s with %d tensor%s, %lld bytes, all of %s accounted for\n", to,
         report->to_hf ? "HF directory" : "checkpoint", report->num_tensors,
         ot_text_plural(report->num_tensors, "s"), (long long)report->bytes, report->from);
  if (report->from_master) fprintf(stderr, "weights are read from the full-precision copies\n");
  if (report->notes.num_scaled > 0)
    fprintf(stderr, "dequantised: %d tensor%s of fp8\n", report->notes.num_scaled,
            ot_text_plural(report->notes.num_scaled, "s"));
  if (report->num_left_out > 0)
    fprintf(stderr, "left out: %d tensor%s of the optimizer, %lld bytes\n", report->num_left_out,
            ot_text_plural(report->num_left_out, "s"), (long long)report->left_out_bytes);
  if (report->notes.num_ignored > 0)
    fprintf(stderr, "left out: %d unused buffer%s (%s)\n", report->notes.num_ignored,
            ot_text_plural(report->notes.num_ignored, "s"), report->notes.ignored);
  if (report->notes.num_further > 0)
    fprintf(stderr, "left out: %d tensor%s of multi-token prediction layers\n",
            report->notes.num_further, ot_text_plural(report->notes.num_further, "s"));
  if (report->notes.tied_head)
    fprintf(stderr, "left out: lm_head.weight, equal to the embedding that the head shares\n");
}

static ot_status convert(const ot_options *options) {
  ot_arena *const arena = ot_options_arena(options);
  static const ot_dtype dtypes[] = {OT_BF16, OT_F32};
  const ot_convert_request request = {
      .from = ot_options_argument(options, 0),
      .to = ot_options_argument(options, 1),
      .dtype =
          ot_options_given(options, "dtype") ? &dtypes[ot_options_choice(options, "dtype")] : NULL,
      .shard_bytes = ot_options_integer(options, "shard-size"),
      .sets = ot_options_values(options, "set"),
      .num_sets = ot_options_count(options, "set"),
  };
  ot_convert_report report;
  OT_TRY(ot_convert(arena, &request, &report));
  ot_output_notes(&report.config_notes);
  if (report.note) fprintf(stderr, "note: %s\n", report.note);
  if (ot_options_json(options))
    print_json(&report, request.to, arena);
  else
    print_text(&report, request.to);
  return OT_OK;
}

static const ot_option rows[] = {
    {"dtype", OT_OPTION_CHOICE, "bf16|fp32",
     .help = "type of the written tensors; default: unchanged"},
    {"shard-size", OT_OPTION_INTEGER, "BYTES", "50G", 1, INT64_MAX,
     .help = "maximum bytes of tensors per file"},
    {"set", OT_OPTION_SETTING, "model.KEY=VALUE",
     .help = "override a key of IN's config.json; model.KEY=ignore ignores it"},
};

const ot_verb ot_verb_convert = {
    .name = "convert",
    .summary = "HF directory to checkpoint and back",
    .arguments = "IN OUT",
    .min_arguments = 2,
    .max_arguments = 2,
    .details =
        "IN is an HF directory, a checkpoint or a run directory (its newest checkpoint); OUT\n"
        "must not exist. A checkpoint becomes an HF directory, which transformers loads, without\n"
        "the optimizer state; an HF directory becomes a checkpoint of step 0. Every tensor and\n"
        "byte is accounted for: a missing tensor, one that is not part of the model, or one of\n"
        "another shape is an error that names it. --dtype fp32 uses full-precision copies if\n"
        "the checkpoint has them.",
    .examples =
        "  orthant convert runs/demo/run exported --dtype bf16\n"
        "  orthant convert gpt2_directory checkpoint",
    .options = rows,
    .num_options = OT_COUNT(rows),
    .json = true,
    .run = convert,
};
