// SPDX-License-Identifier: Apache-2.0
// Planned jobs that never run: presets on nodes of eight devices, round figures from public data
// sheets.
#pragma once

#include "describe/job.h"
#include "host/heap.h"

typedef struct paper_job {
  ot_heap heap;
  ot_arena arena;
  ot_model model;
  ot_cluster cluster;
  ot_job job;
} paper_job;

// Devices of 80 GB and 989 TFLOP/s in bf16; 450 GB/s within a node of eight, 50 GB/s per device
// between nodes. `sequences` per step, `length` tokens each, recipe bf16.
void paper_job_create(const char *preset, int devices, int64_t sequences, int64_t length,
                      paper_job *out);
void paper_job_destroy(paper_job *job);

// The framework of presets/engines called `name`, or this program; read once, kept until exit.
const ot_engine *paper_engine(const char *name);

// The `index`-th framework: this program first, then the presets; null after the last.
const ot_engine *paper_engine_at(int index);

// A slow machine of nodes of four devices.
ot_cluster paper_machine(int devices);
