// SPDX-License-Identifier: Apache-2.0
// `orthant bench`: measures this machine and writes it as a cluster file.
#include <stdio.h>
#include <string.h>

#include "base/json_writer.h"
#include "base/text.h"
#include "cli/installed.h"
#include "cli/ranks.h"
#include "cli/run_options.h"
#include "cli/verbs.h"
#include "describe/measured_keys.h"
#include "files/config_file.h"
#include "files/disk.h"
#include "files/output_file.h"
#include "measure/measure.h"
#include "runtime/model_runtime.h"

static ot_status default_path(ot_arena *arena, const char **path) {
  const char *const user = ot_installed_user_directory(arena);
  OT_CHECK(user, OT_ENVIRONMENT, "bench: there is no home directory to write to (--out FILE)");
  const char *const clusters = ot_disk_join(arena, user, "clusters");
  OT_TRY(ot_disk_make_directory(clusters));
  *path = ot_disk_join(arena, clusters, "this-machine.yaml");
  return OT_OK;
}

static void print_fit(ot_json_writer *json, const ot_fit_quality *fit) {
  ot_json_integer(json, "samples", fit->samples);
  ot_json_real(json, "residual", fit->residual);
  ot_json_real(json, "spread", fit->spread);
}

static void print_kernels_json(const ot_measured_machine *m, ot_json_writer *json) {
  ot_json_array(json, "kernels");
  for (int64_t i = 0; i < m->num_kernels; i++) {
    const ot_kernel_rates *const k = &m->kernels[i];
    ot_json_object(json, NULL);
    ot_json_text(json, "op", k->op);
    ot_json_integer(json, "threads", k->threads);
    ot_json_text(json, "dtype", ot_dtype_name(k->dtype));
    ot_json_real(json, "call_s", k->call_s);
    ot_json_real(json, "fork_s", k->fork_s);
    ot_json_real(json, "matrix_flops_per_s", k->matrix_flops_per_s);
    ot_json_real(json, "other_flops_per_s", k->other_flops_per_s);
    ot_json_real(json, "bytes_per_s", k->bytes_per_s);
    print_fit(json, &k->fit);
    ot_json_end(json);
  }
  ot_json_end(json);
  ot_json_array(json, "collectives");
  for (int64_t i = 0; i < m->num_collectives; i++) {
    const ot_collective_rates *const c = &m->collectives[i];
    ot_json_object(json, NULL);
    ot_json_text(json, "op", c->op);
    ot_json_integer(json, "ranks", c->ranks);
    ot_json_integer(json, "hosts", c->hosts);
    ot_json_real(json, "latency_s", c->latency_s);
    ot_json_real(json, "bytes_per_s", c->bytes_per_s);
    print_fit(json, &c->fit);
    ot_json_end(json);
  }
  ot_json_end(json);
}

static void print_json(const ot_cluster *c, const char *path, ot_arena *arena) {
  ot_json_writer json = ot_json_begin(arena, 2);
  ot_json_object(&json, NULL);
  ot_json_text(&json, "file", path);
  ot_json_text(&json, "device", c->device.name);
  ot_json_integer(&json, "ranks", c->num_devices);
  ot_json_integer(&json, "cores", c->measured.cores);
  ot_json_real(&json, "flops_bf16", c->device.flops[OT_BF16]);
  ot_json_real(&json, "flops_fp32", c->device.flops[OT_F32]);
  ot_json_real(&json, "flops_fp64", c->device.flops[OT_F64]);
  ot_json_real(&json, "other_flops_per_s", c->device.other_flops_per_s);
  ot_json_real(&json, "sharing", c->measured.sharing);
  ot_json_real(&json, "round_trip_seconds", c->measured.round_trip_s);
  ot_json_real(&json, "memory_bytes_per_s", c->device.memory_bytes_per_s);
  ot_json_real(&json, "disk_bytes_per_s", c->measured.disk_bytes_per_s);
  ot_json_integer(&json, "memory_bytes", c->device.memory_bytes);
  ot_json_real(&json, "launch_s", c->measured.launch_s);
  ot_json_real(&json, "to_device_bytes_per_s", c->measured.to_device_bytes_per_s);
  ot_json_real(&json, "from_device_bytes_per_s", c->measured.from_device_bytes_per_s);
  if (c->num_levels > 0) {
    ot_json_real(&json, "link_bytes_per_s", c->level[0].bytes_per_s);
    ot_json_real(&json, "link_latency_s", c->level[0].latency_s);
  }
  print_kernels_json(&c->measured, &json);
  ot_json_end(&json);
  puts(json.text);
}

static void print_products(const ot_measured_machine *m) {
  for (int64_t i = 0; i < m->num_products; i++) {
    const ot_measured_product *const p = &m->products[i];
    printf("  product %s %4lld x %4lld x %4lld %6.1f GFLOP/s  +- %.0f %%\n",
           ot_dtype_name(p->dtype), (long long)p->rows, (long long)p->columns, (long long)p->depth,
           p->flops_per_s / 1e9, 50 * p->spread);
  }
  for (int64_t i = 0; i < m->num_traffic; i++) {
    const ot_measured_traffic *const t = &m->traffic[i];
    printf("  memory %10.1f MB       %6.1f GB/s     +- %.0f %%\n", (double)t->bytes / 1e6,
           t->bytes_per_s / 1e9, 50 * t->spread);
  }
}

// Prints the kernels that dominate a step; the file has all.
static void print_kernels(const ot_measured_machine *m) {
  static const char *const shown[] = {"linear",    "linear_dx",      "linear_dw",
                                      "attention", "attention_grad", "head_loss"};
  for (int64_t i = 0; i < m->num_kernels; i++) {
    const ot_kernel_rates *const k = &m->kernels[i];
    bool is_shown = false;
    for (int j = 0; j < OT_COUNT(shown); j++) is_shown |= strcmp(shown[j], k->op) == 0;
    if (!is_shown) continue;
    printf("  %-16s %s %2d thread%s %7.1f GFLOP/s  off by %.0f %%, runs +- %.0f %%\n", k->op,
           ot_dtype_name(k->dtype), k->threads, k->threads == 1 ? " " : "s",
           k->matrix_flops_per_s / 1e9, 100 * k->fit.residual, 50 * k->fit.spread);
  }
  for (int64_t i = 0; i < m->num_collectives; i++) {
    const ot_collective_rates *const c = &m->collectives[i];
    printf("  %-16s %2d ranks", c->op, c->ranks);
    if (c->hosts > 1) printf(" of %2d hosts", c->hosts);
    printf("   %7.3f GB/s, %.0f us  off by %.0f %%, runs +- %.0f %%\n", c->bytes_per_s / 1e9,
           1e6 * c->latency_s, 100 * c->fit.residual, 50 * c->fit.spread);
  }
}

static void print_gpu(const ot_cluster *c) {
  const ot_measured_machine *const m = &c->measured;
  printf("%d x %s, %.1f GB each:\n", c->num_devices, c->device.name,
         (double)c->device.memory_bytes / 1e9);
  print_products(m);
  printf("  copies on the device %8.1f GB/s, from the host %.1f, to the host %.1f\n",
         c->device.memory_bytes_per_s / 1e9, m->to_device_bytes_per_s / 1e9,
         m->from_device_bytes_per_s / 1e9);
  if (c->num_levels > 0) {
    printf("  copies between GPUs  %8.1f GB/s\n", c->level[0].bytes_per_s / 1e9);
  }
  printf("  launches             %8.1f us each, %.1f us in a graph\n", 1e6 * m->launch_s,
         1e6 * c->device.launch_s);
  printf("in steps:\n");
  print_kernels(m);
}

static void print_cpu(const ot_cluster *c) {
  printf("%d core%s; %d concurrent rank%s, each:\n", c->measured.cores,
         ot_text_plural(c->measured.cores, "s"), c->num_devices,
         ot_text_plural(c->num_devices, "s"));
  printf("  matrix products  %8.1f GFLOP/s fp32, %.1f fp64\n", c->device.flops[OT_F32] / 1e9,
         c->device.flops[OT_F64] / 1e9);
  print_products(&c->measured);
  printf("in steps, per thread, and between ranks:\n");
  print_kernels(&c->measured);
}

static void print_text(const ot_cluster *c, const char *path) {
  if (ot_device_is_host(&c->device)) {
    print_cpu(c);
  } else {
    print_gpu(c);
  }
  printf("disk               %8.2f GB/s\n", c->measured.disk_bytes_per_s / 1e9);
  printf("written to %s\n", path);
}

// A GPU with a preset keeps the rates of its data sheet, by which MFU is counted everywhere, and
// the measured ones as fractions of them.
static ot_status use_data_sheet(ot_cluster *c, ot_arena *arena) {
  static const char *const names[][2] = {
      {"NVIDIA H100 80GB HBM3", "h100"}, {"NVIDIA H200", "h200"}, {"NVIDIA B200", "b200"}};
  const ot_presets presets = ot_installed_presets(arena);
  for (int i = 0; i < OT_COUNT(names); i++) {
    ot_cluster sheet;
    bool found;
    if (strcmp(c->device.name, names[i][0]) != 0) continue;
    OT_TRY(ot_cluster_file_load(names[i][1], &presets, arena, &sheet, &found));
    if (found) ot_measured_relate(c, &sheet.device);
  }
  return OT_OK;
}

static void print_line(void *context, const char *what) {
  const ot_comm *const comm = context;
  if (!comm || ot_comm_rank(comm) == 0) fprintf(stderr, "measuring %s\n", what);
}

static ot_status report(const ot_options *options, ot_cluster *cluster, const char *path) {
  ot_arena *const arena = ot_options_arena(options);
  OT_TRY(use_data_sheet(cluster, arena));
  OT_TRY(ot_cluster_check(cluster));
  OT_TRY(ot_cluster_file_save(cluster, path));
  const char *const doubt = ot_measured_warning(cluster, arena);
  if (doubt) fprintf(stderr, "warning: %s\n", doubt);
  if (ot_output_file_is_stdout(path)) return OT_OK;
  if (ot_options_json(options)) {
    print_json(cluster, path, arena);
  } else {
    print_text(cluster, path);
  }
  return OT_OK;
}

// `comm`: the ranks of a launcher; null without one.
static ot_status measure(const ot_options *options, ot_comm *comm) {
  ot_arena *const arena = ot_options_arena(options);
  const char *path = ot_options_text(options, "out");
  ot_cluster cluster;
  if (!path) OT_TRY(default_path(arena, &path));
  char target[OT_PATH_BYTES];
  OT_TRY(ot_output_file_follow(path, target));
  const bool disk = !ot_output_file_is_stream(path);
  const ot_measure_request request = {
      .backend = ot_model_options_backend(options),
      .ranks = comm ? 0 : (int)ot_options_integer(options, "ranks"),
      .quick = ot_options_flag(options, "quick"),
      .disk_file = disk ? ot_arena_format(arena, "%s.disk", target) : NULL,
      .comm = comm,
      .say = print_line,
      .context = comm};
  if (!comm) {
    OT_TRY(ot_measure_machine(&request, arena, &cluster));
    return report(options, &cluster, path);
  }
  OT_TRY(ot_measure_cluster(&request, arena, &cluster));
  const bool leads = ot_comm_rank(comm) == 0;
  return ot_comm_agree(comm, leads ? report(options, &cluster, path) : OT_OK);
}

static ot_status measure_ranks(ot_comm *comm, void *context) { return measure(context, comm); }

// The file of a cluster is no file of this machine.
static ot_status prepare_ranks(void *context, int ranks) {
  const ot_options *const options = context;
  OT_CHECK(ot_options_text(options, "out"), OT_USAGE,
           "bench: %d ranks of a launcher are not this machine (--out CLUSTER.yaml)", ranks);
  return OT_OK;
}

static ot_status bench(const ot_options *options) {
  int ranks;
  bool processes;
  OT_TRY(ot_ranks_count(options, &ranks, &processes));
  if (!processes) return measure(options, NULL);
  const ot_ranks_verb verb = {prepare_ranks, measure_ranks, (void *)options};
  return ot_ranks_run(options, &verb);
}

static const ot_option rows[] = {
    {"out", OT_OPTION_TEXT, "CLUSTER.yaml",
     .help = "output file; default: the user's this-machine"},
    {"ranks", OT_OPTION_INTEGER, "N", "0", 0, 4096,
     .help = "concurrent ranks of a CPU; 0: one per core"},
    {"quick", OT_OPTION_FLAG,
     .help = "takes seconds; less exact, so plans have wider ranges and large jobs are refused"},
    {.shared = &ot_option_device},
};

const ot_verb ot_verb_bench = {
    .name = "bench",
    .summary = "measure this machine for predictions",
    .arguments = "",
    .details =
        "Measures matrix products by shape, memory and caches, every kind of kernel inside steps "
        "of\n"
        "small models, collectives and messages by size and number of ranks, and the disk, while\n"
        "all ranks work concurrently. Writes a cluster file with the errors of its formulas and\n"
        "the spread of the timings. Of a GPU (--device) it measures products by shape and type,\n"
        "memory, attention, launches, copies to and from the host and to other GPUs, and the\n"
        "kernels of steps in bf16 and fp32. `cluster:` of a run names such a file; the default,\n"
        "this-machine, is the last one written by this verb. Takes a minute on an idle machine;\n"
        "figures of a busy machine are poor. Runs on a GPU are predicted from a file of a GPU "
        "only,\n"
        "and runs on a CPU from one of a CPU.\n"
        "Started by mpirun or srun with as many ranks as a run will have, on the same hosts, it\n"
        "measures the first host and communication within and across hosts. Runs of any number "
        "of\n"
        "such hosts are predicted from that file, and `train` checks that ranks stand as they "
        "did.",
    .examples =
        "  orthant bench\n"
        "  orthant bench --device cpu --out cpu.yaml\n"
        "  orthant bench --ranks 2 --out two-ranks.yaml\n"
        "  mpirun -n 16 orthant bench --device cpu --out cluster.yaml",
    .options = rows,
    .num_options = OT_COUNT(rows),
    .json = true,
    .run = bench,
};
