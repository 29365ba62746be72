// SPDX-License-Identifier: Apache-2.0
// `orthant schedule`: builds and checks the schedule of a rank and prints it as text or JSON.
#include <stdio.h>

#include "base/json_writer.h"
#include "cli/output.h"
#include "cli/run_options.h"
#include "cli/verbs.h"
#include "ops/attributes.h"
#include "ops/catalog.h"
#include "runtime/training_request.h"
#include "train/trainer.h"

// ---- JSON ----

static void write_operand(const ot_operand *operand, ot_json_writer *w) {
  if (operand->base == OT_BASE_NONE) {
    ot_json_null(w, NULL);
    return;
  }
  ot_json_object(w, NULL);
  ot_json_text(w, "base", ot_base_name(operand->base));
  ot_json_integer(w, "offset", operand->offset);
  ot_json_text(w, "dtype", ot_dtype_name(operand->type.dtype));
  ot_json_array(w, "shape");
  for (int i = 0; i < operand->type.rank; i++) ot_json_integer(w, NULL, operand->type.dim[i]);
  ot_json_end(w);
  ot_json_end(w);
}

static void write_attributes(const ot_op_attributes *attributes, ot_json_writer *w) {
  ot_json_object(w, "attributes");
  ot_attributes_write_json(attributes, w);
  ot_json_end(w);
}

static void write_task(const ot_task *task, ot_json_writer *w) {
  const ot_op_info *const info = ot_op_info_of(task->op);
  ot_json_object(w, NULL);
  ot_json_text(w, "op", info->name);
  ot_json_text(w, "lane", ot_lane_name(task->lane));
  ot_json_integer(w, "wait", task->wait);
  if (task->joins) ot_json_boolean(w, "joins", true);
  ot_json_array(w, "in");
  for (int i = 0; i < info->num_inputs; i++) write_operand(&task->in[i], w);
  ot_json_end(w);
  ot_json_array(w, "out");
  for (int i = 0; i < info->num_outputs; i++) write_operand(&task->out[i], w);
  ot_json_end(w);
  ot_json_integer(w, "workspace", task->workspace);
  ot_json_integer(w, "workspace_bytes", task->workspace_bytes);
  write_attributes(&task->attributes, w);
  ot_json_end(w);
}

static void write_segments(const ot_schedule *schedule, ot_json_writer *w) {
  ot_json_array(w, "segments");
  for (int i = 0; i < schedule->num_segments; i++) {
    const ot_segment *const segment = &schedule->segments[i];
    ot_json_object(w, NULL);
    ot_json_text(w, "name", segment->name);
    ot_json_text(w, "phase", ot_phase_name(segment->phase));
    ot_json_integer(w, "scratch_bytes", segment->scratch_bytes);
    ot_json_array(w, "tasks");
    for (int k = 0; k < segment->num_tasks; k++) write_task(&segment->tasks[k], w);
    ot_json_end(w);
    ot_json_end(w);
  }
  ot_json_end(w);
}

static void write_entry(const ot_entry *entry, ot_json_writer *w) {
  ot_json_object(w, NULL);
  ot_json_integer(w, "segment", entry->segment);
  ot_json_text(w, "phase", ot_phase_name(entry->phase));
  ot_json_text(w, "lane", ot_lane_name(entry->lane));
  ot_json_integer(w, "block", entry->block);
  ot_json_integer(w, "micro_batch", entry->micro_batch);
  ot_json_object(w, "wait");
  for (int i = 0; i < OT_LANES; i++)
    if (entry->wait[i] >= 0) ot_json_integer(w, ot_lane_name((ot_lane)i), entry->wait[i]);
  ot_json_end(w);
  ot_json_object(w, "base");
  for (int i = 0; i < OT_BASES; i++)
    if (entry->base[i] >= 0) ot_json_integer(w, ot_base_name((ot_base)i), entry->base[i]);
  ot_json_end(w);
  ot_json_end(w);
}

static void write_orders(const ot_schedule *schedule, ot_json_writer *w) {
  ot_json_array(w, "orders");
  for (int i = 0; i < schedule->num_orders; i++) {
    const ot_order *const order = &schedule->orders[i];
    ot_json_object(w, NULL);
    ot_json_text(w, "kind", ot_order_name(order->kind));
    ot_json_integer(w, "micro_batches", order->micro_batches);
    ot_json_array(w, "entries");
    for (int k = 0; k < order->num_entries; k++) write_entry(&order->entries[k], w);
    ot_json_end(w);
    ot_json_end(w);
  }
  ot_json_end(w);
}

static void write_schedule(const ot_schedule *schedule, ot_json_writer *w) {
  ot_json_integer(w, "rank", schedule->rank);
  ot_json_integer(w, "ranks", schedule->ranks);
  ot_json_integer(w, "threads", schedule->threads);
  ot_json_text(w, "compute", ot_dtype_name(schedule->compute));
  ot_json_integer(w, "arena_bytes", schedule->arena_bytes);
  ot_json_text(
      w, "hash",
      ot_arena_format(w->arena, "%016llx", (unsigned long long)ot_schedule_hash(schedule)));
  ot_json_array(w, "regions");
  for (int i = 0; i < schedule->num_regions; i++) {
    const ot_region *const region = &schedule->regions[i];
    ot_json_object(w, NULL);
    ot_json_text(w, "name", region->name);
    ot_json_text(w, "class", ot_memory_class_name(region->class));
    ot_json_boolean(w, "persistent", region->persistent);
    ot_json_integer(w, "offset", region->offset);
    ot_json_integer(w, "bytes", region->bytes);
    ot_json_end(w);
  }
  ot_json_end(w);
  write_segments(schedule, w);
  write_orders(schedule, w);
}

static void write_names(const char *key, const ot_program *program, const int *values, int count,
                        ot_json_writer *w) {
  ot_json_array(w, key);
  for (int i = 0; i < count; i++)
    ot_json_text(w, NULL, values[i] >= 0 ? program->values[values[i]].name : NULL);
  ot_json_end(w);
}

static void write_programs(const ot_graph *graph, ot_json_writer *w) {
  ot_json_array(w, "programs");
  for (int i = 0; i < graph->num_programs; i++) {
    const ot_program *const program = &graph->programs[i];
    ot_json_object(w, NULL);
    ot_json_text(w, "name", program->name);
    ot_json_array(w, "ops");
    for (int k = 0; k < program->num_ops; k++) {
      const ot_op *const op = &program->ops[k];
      const ot_op_info *const info = ot_op_info_of(op->kind);
      ot_json_object(w, NULL);
      ot_json_text(w, "part", ot_part_name(op->part));
      ot_json_text(w, "op", info->name);
      write_names("in", program, op->in, info->num_inputs, w);
      write_names("out", program, op->out, info->num_outputs, w);
      write_attributes(&op->attributes, w);
      ot_json_end(w);
    }
    ot_json_end(w);
    ot_json_end(w);
  }
  ot_json_end(w);
}

// ---- the verb ----

static void print_json(const ot_schedule *schedule, const ot_graph *programs, ot_arena *arena) {
  ot_json_writer w = ot_json_begin(arena, 0);
  ot_json_object(&w, NULL);
  if (programs) {
    write_programs(programs, &w);
  } else {
    write_schedule(schedule, &w);
  }
  ot_json_end(&w);
  puts(w.text);
}

static void print_text(const ot_schedule *schedule, const ot_graph *programs, ot_arena *arena) {
  for (int i = 0; programs && i < programs->num_programs; i++)
    fputs(ot_program_print(&programs->programs[i], arena), stdout);
  if (!programs) fputs(ot_schedule_print(schedule, arena), stdout);
}

static ot_status show(const ot_options *options) {
  ot_arena *const arena = ot_options_arena(options);
  ot_config config;
  OT_TRY(ot_run_options_load(options, arena, &config));
  ot_output_notes(&config.notes);
  const int rank = (int)ot_options_integer(options, "rank");
  const int ranks = (int)ot_options_integer(options, "ranks");
  OT_CHECK(rank < ranks, OT_USAGE, "--rank %d: ranks are 0 to %d (--ranks)", rank, ranks - 1);
  ot_mesh mesh;
  OT_TRY(ot_run_options_mesh(&config, ranks, arena, &mesh));
  ot_rank_request request;
  OT_TRY(ot_training_request(&config.run, &mesh, rank, arena, &request));
  request.graph.backend = ot_runtime_choose_device(config.run.device, ranks);
  request.schedule.split_backward = ot_options_flag(options, "split-backward");
  ot_graph graphs[OT_MODES];
  ot_schedule schedule;
  OT_TRY(ot_runtime_plan(&request, arena, graphs, &schedule));
  OT_TRY(ot_schedule_check(&schedule, arena));
  const bool programs = ot_options_flag(options, "programs");
  const ot_graph *const train = programs ? &graphs[OT_MODE_TRAIN] : NULL;
  if (ot_options_json(options)) {
    print_json(&schedule, train, arena);
  } else {
    print_text(&schedule, train, arena);
  }
  return OT_OK;
}

static const ot_option rows[] = {
    {"rank", OT_OPTION_INTEGER, "R", "0", 0, 1 << 20, .help = "the rank"},
    {"ranks", OT_OPTION_INTEGER, "N", "1", 1, 1 << 20,
     .help = "ranks of the run; none are started"},
    {"programs", OT_OPTION_FLAG,
     .help = "print the programs of the blocks (forward and derived backward) instead"},
    {"split-backward", OT_OPTION_FLAG, .help = "separate segments for input and weight gradients"},
    {.shared = &ot_option_set},
};

const ot_verb ot_verb_schedule = {
    .name = "schedule",
    .summary = "the task list of a training step",
    .arguments = "RUN.yaml",
    .min_arguments = 1,
    .max_arguments = 1,
    .details =
        "Prints the regions of the arena, the segments with their tasks, and the step programs\n"
        "(orders) that run them, checked as before a run. docs/schedule.md explains the terms.",
    .examples =
        "  orthant schedule run.yaml --set parallel.recompute=full | less\n"
        "  orthant schedule run.yaml --ranks 8 --rank 3 --set parallel.tp=2",
    .options = rows,
    .num_options = OT_COUNT(rows),
    .json = true,
    .run = show,
};
