// SPDX-License-Identifier: Apache-2.0
// `orthant bench`: measures this machine and writes it as a cluster file.
#include <stdio.h>

#include "base/json_writer.h"
#include "cli/installed.h"
#include "cli/measure.h"
#include "cli/verbs.h"
#include "device/heap.h"
#include "train/cluster_file.h"
#include "train/disk.h"
#include "train/instance.h"

static ot_status default_path(ot_arena *arena, const char **path) {
  const char *const user = ot_installed_user_directory(arena);
  OT_CHECK(user, OT_ENVIRONMENT, "bench: there is no home directory to write to (--out FILE)");
  const char *const clusters = ot_disk_join(arena, user, "clusters");
  OT_TRY(ot_disk_make_directory(clusters));
  *path = ot_disk_join(arena, clusters, "this-machine.yaml");
  return OT_OK;
}

static void print_json(const ot_cluster *c, const char *path, ot_arena *arena) {
  ot_json_writer json = ot_json_begin(arena, 2);
  ot_json_object(&json, NULL);
  ot_json_text(&json, "file", path);
  ot_json_integer(&json, "ranks", c->num_devices);
  ot_json_real(&json, "flops_fp32", c->device.flops[OT_F32]);
  ot_json_real(&json, "flops_fp64", c->device.flops[OT_F64]);
  ot_json_real(&json, "other_flops_per_s", c->device.other_flops_per_s);
  ot_json_real(&json, "memory_bytes_per_s", c->device.memory_bytes_per_s);
  if (c->num_levels > 0) {
    ot_json_real(&json, "link_bytes_per_s", c->level[0].bytes_per_s);
    ot_json_real(&json, "link_latency_s", c->level[0].latency_s);
  }
  ot_json_end(&json);
  puts(json.text);
}

static void print_text(const ot_cluster *c, const char *path) {
  printf("%d rank%s at once, each:\n", c->num_devices, c->num_devices == 1 ? "" : "s");
  printf("  matrix products  %8.1f GFLOP/s fp32, %.1f fp64\n", c->device.flops[OT_F32] / 1e9,
         c->device.flops[OT_F64] / 1e9);
  printf("  elementwise      %8.1f GFLOP/s\n", c->device.other_flops_per_s / 1e9);
  printf("  memory           %8.1f GB/s\n", c->device.memory_bytes_per_s / 1e9);
  if (c->num_levels > 0) {
    printf("  between ranks    %8.1f GB/s, %.1f us a message\n", c->level[0].bytes_per_s / 1e9,
           c->level[0].latency_s * 1e6);
  }
  printf("written to %s\n", path);
}

static ot_status bench(const ot_options *options, ot_arena *arena) {
  const char *path = ot_options_text(options, "out");
  const int cores = ot_instance_cores();
  const int ranks = (int)ot_options_integer(options, "ranks");
  const int used = ranks > 0 ? ranks : cores;
  ot_cluster cluster;
  if (!path) OT_TRY(default_path(arena, &path));
  // Ranks that must share cores take turns: the best moment of one of them says nothing.
  const int threads = used < cores ? cores / used : 1;
  OT_TRY(ot_measure_machine(used < cores ? used : cores, threads, &cluster));
  OT_TRY(ot_cluster_share(&cluster, used, threads, &cluster));
  OT_TRY(ot_cluster_file_save(&cluster, path));
  if (ot_options_json(options)) {
    print_json(&cluster, path, arena);
  } else {
    print_text(&cluster, path);
  }
  return OT_OK;
}

static ot_status run(const ot_options *options) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  const ot_status status = bench(options, &arena);
  ot_heap_release(&heap);
  return status;
}

static const ot_option rows[] = {
    {.name = "out",
     .kind = OT_OPTION_TEXT,
     .value = "CLUSTER.yaml",
     .help = "where to write; default: the user's this-machine"},
    {.name = "ranks",
     .kind = OT_OPTION_INTEGER,
     .value = "N",
     .fallback = "0",
     .minimum = 0,
     .maximum = 4096,
     .help = "ranks that work at once; 0: one a core"},
};

const ot_verb ot_verb_bench = {
    .name = "bench",
    .summary = "measure this machine for predictions",
    .arguments = "",
    .details =
        "Measures matrix products, elementwise work, memory and messages between two ranks while\n"
        "as many ranks as asked for work at once, and writes a cluster file. `cluster:` of a run\n"
        "names one; this-machine, the default, is what this verb wrote last.",
    .examples =
        "  orthant bench\n"
        "  orthant bench --ranks 2 --out two-ranks.yaml",
    .options = rows,
    .num_options = OT_COUNT(rows),
    .json = true,
    .run = run,
};
