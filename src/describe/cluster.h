// SPDX-License-Identifier: Apache-2.0
// The machine that a run is planned for: devices of one kind and the links between them, as plain
// values. Figures as sold, and beside them what of it can be had: shares that were measured or
// fitted (docs/pricing.md). A share of 0 is one that is not known: all of the figure is had.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/status.h"

enum { OT_MAX_LINK_LEVELS = 6 };

typedef struct ot_device_kind {
  const char *name;              // "h100"
  double flops[OT_DTYPE_COUNT];  // dense peak of matrix products per second by type; 0 = cannot
  double other_flops_per_s;      // elementwise work and reductions; 0 = not known
  double memory_bytes_per_s;     // > 0
  bool packs;                    // matrix products pack, multiply and store one after the other (a
                                 // CPU); else they fetch and store while they multiply
  double launch_s;               // host time of one task
  double host_op_s;              // host time of an op that a framework dispatches from Python
  double step_s;                 // host time of a step between its kernels: data, loss, logs
  int64_t memory_bytes;          // usable by one rank, > 0
  int threads;  // of each rank when the figures were measured, all ranks at once on
                // one machine; 0 = a device is what it is, whoever uses it

  // how a GPU or TPU works through kernels; 0 where it is not known
  int processors;                 // that the tiles of a product are dealt to
  double matrix_efficiency;       // share of flops in a large product, (0, 1]
  double memory_efficiency;       // share of memory_bytes_per_s in a long pass, (0, 1]
  double attention_efficiency;    // share of flops in fused attention (FlashAttention 2 and later)
  double attention_1_efficiency;  // the same of its first generation
  double half_keys;               // keys at which fused attention has half of that
  double unaligned_efficiency;    // share of a product whose rows are no whole 16 bytes
  double contention;              // kernels beside traffic take so many times as long, >= 1
} ot_device_kind;

// One level of the network: devices in groups of `size` reach each other through it.
typedef struct ot_link_level {
  const char *name;    // "nvlink", "node", "rack"
  int size;            // devices of a group; a multiple of the level before
  double bytes_per_s;  // of one device, one direction, > 0
  double latency_s;    // of one message, >= 0
  double efficiency;   // share of bytes_per_s that long messages attain; 0 = all
  bool reduces;        // switches add up (NVLS, SHARP)
  bool mesh;           // no switch: links join pairs, and a group has those between its members
} ot_link_level;

// How well a formula fits what it was fitted to.
typedef struct ot_fit_quality {
  int samples;      // timings that it was fitted to, each of several runs
  double residual;  // median of |formula / timing - 1|
  double spread;    // median of (third quartile - first) / median of the runs of a timing
} ot_fit_quality;

// What one kind of kernel takes on one rank of a measured machine, all of whose ranks work:
//   call_s + fork_s (with several threads) + matrix_flops / w matrix_flops_per_s
//     + elementwise flops / w other_flops_per_s + bytes / w bytes_per_s
// w being the threads that share the call (ops/shares.h). A rate of 0: takes no time.
typedef struct ot_kernel_rates {
  const char *op;  // the catalog's name
  int threads;     // of the rank
  double call_s, fork_s;
  double matrix_flops_per_s, other_flops_per_s, bytes_per_s;
  ot_fit_quality fit;
} ot_kernel_rates;

// What a collective, or "message", takes among `ranks` ranks of a measured machine from when all
// have come: latency_s + bytes / bytes_per_s, bytes as of ot_collective (simulate/price.h).
typedef struct ot_collective_rates {
  const char *op;
  int ranks;  // >= 2
  double latency_s, bytes_per_s;
  ot_fit_quality fit;
} ot_collective_rates;

// What was measured and nothing is priced by: for people.
typedef struct ot_measured_product {
  int64_t rows, columns, depth;
  double flops_per_s;  // of one rank
  double spread;       // (third quartile - first) / median
} ot_measured_product;

typedef struct ot_measured_traffic {
  int64_t bytes;  // read and written by one call, again and again
  double bytes_per_s;
  double spread;
} ot_measured_traffic;

// Arrays are as long as their counts and live where the cluster was read into.
typedef struct ot_measured_machine {
  int cores;  // that all ranks share; 0: the cluster was described, or measured by a version that
              // kept no such figures
  const ot_kernel_rates *kernels;  // [num_kernels]
  int64_t num_kernels;
  const ot_collective_rates *collectives;  // [num_collectives]
  int64_t num_collectives;
  const ot_measured_product *products;  // [num_products]
  int64_t num_products;
  const ot_measured_traffic *traffic;  // [num_traffic]
  int64_t num_traffic;
  double disk_bytes_per_s;  // written and synced; 0 = not known
} ot_measured_machine;

// Where the shares of a cluster come from: how far its prices are to be trusted.
typedef enum ot_cluster_basis {
  OT_BASIS_UNKNOWN,       // not said
  OT_BASIS_FITTED,        // fitted to published runs on these devices
  OT_BASIS_EXTRAPOLATED,  // fitted to runs on other devices of the same generation
  OT_BASIS_GUESSED,       // no run on these devices was at hand
  OT_BASIS_MEASURED,      // `orthant bench` on this machine
  OT_BASIS_COUNT,
} ot_cluster_basis;

typedef struct ot_cluster {
  const char *name;
  ot_cluster_basis basis;
  int num_devices;   // >= 1
  int host_devices;  // of one host, for launching; 0 = as many as the innermost level joins
  ot_device_kind device;
  int num_levels;  // [0, OT_MAX_LINK_LEVELS]; innermost first, the last holds all devices
  ot_link_level level[OT_MAX_LINK_LEVELS];
  double jitter;  // share of a step that waiting for the slowest takes, for each doubling of the
                  // groups of the innermost level
  ot_measured_machine measured;
  double crowding;  // threads of all ranks for each core of a measured machine, where above 1; 0:
                    // nobody shares
} ot_cluster;

// Whether the device is a host's own processor, which this program runs on, and no accelerator.
bool ot_device_is_host(const ot_device_kind *device);

// "fitted", "extrapolated", ...
const char *ot_cluster_basis_name(ot_cluster_basis basis);

ot_status ot_cluster_check(const ot_cluster *cluster);

// Index of the innermost level that two devices share; -1 for a device and itself.
int ot_cluster_level(const ot_cluster *cluster, int device, int other);

// The cluster as `ranks` ranks of `threads` threads find it. Devices that were measured as ranks of
// one machine share its cores and memory in equal parts: rates are those of as many threads, at
// most of a rank's part of the machine. Where the machine's cores are known, rates stay those of a
// rank that has its threads' cores to itself, and `crowding` says how many share one. OT_USAGE when
// other devices are fewer than the ranks. `out` may be `cluster`.
ot_status ot_cluster_share(const ot_cluster *cluster, int ranks, int threads, ot_cluster *out);

// Threads of each of `ranks` ranks of a run that asks for `asked`; with 0, an equal part of those
// of a machine that was measured, and at least one.
int ot_cluster_threads(const ot_cluster *cluster, int ranks, int asked);

// The cluster with `devices` devices: fewer, or more of them on the outermost links, in whole
// groups of the level inside. OT_USAGE when there is but one level and it is too small. `out` may
// be `cluster`.
ot_status ot_cluster_resize(const ot_cluster *cluster, int devices, ot_cluster *out);

int64_t ot_cluster_print(const ot_cluster *cluster, char *out, int64_t capacity);
uint64_t ot_cluster_hash(const ot_cluster *cluster);
