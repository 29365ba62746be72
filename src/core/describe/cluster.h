// SPDX-License-Identifier: Apache-2.0
// The machine of a run: devices and the links between them, as plain values. It has nominal figures
// and, separately, the achieved fractions of them, measured or fitted (docs/pricing.md). With a
// fraction of 0 the nominal figure is used, as of a machine whose rates were measured. A mixed
// cluster consists of pools, each of one kind of device.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/choices.h"
#include "base/dtype.h"
#include "base/status.h"

enum { OT_MAX_LINK_LEVELS = 6, OT_MAX_POOLS = 4 };

// Whose driver and libraries software needs.
typedef enum ot_vendor {
  OT_VENDOR_OTHER,  // or not stated
  OT_VENDOR_NVIDIA,
  OT_VENDOR_AMD,
  OT_VENDOR_GOOGLE,
  OT_VENDOR_INTEL,
  OT_VENDOR_AMAZON,
  OT_VENDORS,
} ot_vendor;

typedef struct ot_device_kind {
  const char *name;  // "h100"
  ot_vendor vendor;
  double flops[OT_DTYPE_COUNT];  // dense peak FLOP/s of GEMMs by dtype; 0 = unsupported
  double other_flops_per_s;      // elementwise work and reductions; 0 = not known
  double memory_bytes_per_s;     // > 0
  bool packs;                    // GEMMs pack, multiply and store one after the other (a CPU);
                                 // otherwise they load and store during the multiplications
  double launch_s;               // host time per launch
  double host_op_s;              // host time of an op that a framework dispatches from Python
  double step_s;                 // host time per step outside its kernels: data, loss, logs
  int64_t memory_bytes;          // of one rank, as sold, > 0
  int64_t usable_bytes;          // as the driver reports it; 0: not known (memory_bytes)
  double power_w;                // at most, of the device alone; 0: not known
  int threads;  // of each rank when the figures were measured, with all ranks of one machine
                // active; 0 = figures are independent of it

  // kernel efficiency of a GPU or TPU; 0 where unknown
  int processors;                 // SMs or cores over which the tiles of a GEMM are distributed
  double matrix_efficiency;       // fraction of flops in a large GEMM, (0, 1]
  double memory_efficiency;       // fraction of memory_bytes_per_s in a long pass, (0, 1]
  double attention_efficiency;    // fraction of flops in fused attention written for the device
                                  // (FlashAttention 3, cuDNN 9)
  double attention_1_efficiency;  // the same for FlashAttention 1; 0: no other
  double attention_2_efficiency;  // the same for FlashAttention 2; 0: no other
  bool attention_2_common;        // much software on it runs FlashAttention 2
  double power_share;             // limit of power, fraction of the rated; 0: rated
  double half_keys;               // keys at which fused attention reaches half of that
  double unaligned_efficiency;    // fraction of a GEMM whose rows are not multiples of 16 bytes
  double contention;              // slowdown of kernels during communication, >= 1
} ot_device_kind;

// Factor of the clock under the power limit: of GEMMs and fused attention, not of memory.
double ot_device_clock_share(const ot_device_kind *device);

// One level of the network: it connects devices in groups of `size`.
typedef struct ot_link_level {
  const char *name;    // "nvlink", "node", "rack"
  int size;            // devices per group; a multiple of the inner level's
  double bytes_per_s;  // of one device, one direction, > 0
  double latency_s;    // per message, >= 0
  double efficiency;   // fraction of bytes_per_s for long messages; 0 = all
  bool reduces;        // switches reduce in the network (NVLS, SHARP)
  bool mesh;           // no switch: links join pairs, and a group has only those between its
                       // members
} ot_link_level;

// Quality of a fitted formula.
typedef struct ot_fit_quality {
  int samples;      // timings in the fit, each of several runs
  double residual;  // median of |formula / timing - 1|
  double spread;    // median of (third quartile - first) / median of the runs of a timing
} ot_fit_quality;

// The cost of one kind of kernel on one rank of a measured machine while all ranks work:
//   call_s + fork_s (with several threads) + matrix_flops / w matrix_flops_per_s
//     + elementwise flops / w other_flops_per_s + bytes / w bytes_per_s
// with w the threads that share the call (ops/shares.h). A rate of 0 costs no time.
typedef struct ot_kernel_rates {
  const char *op;  // name in the catalog
  int threads;     // per rank; 1 on a GPU
  ot_dtype dtype;  // precision of the measured run; other types of a CPU are scaled, those of a GPU
                   // have their own rates
  double call_s, fork_s;
  double matrix_flops_per_s, other_flops_per_s, bytes_per_s;
  ot_fit_quality fit;
} ot_kernel_rates;

// The cost of a collective, or "message", among `ranks` ranks of a measured machine or cluster,
// from the arrival of the last rank: latency_s + bytes / bytes_per_s, bytes as in ot_collective
// (simulate/price.h). If the ranks are on several hosts, all ranks of the hosts worked at the same
// time, in groups alike, and shared the links of their hosts.
typedef struct ot_collective_rates {
  const char *op;
  int ranks;  // >= 2
  int hosts;  // on which the ranks are, equally many on each; >= 1
  double latency_s, bytes_per_s;
  ot_fit_quality fit;
} ot_collective_rates;

// Measurements for display only; the cost model does not use them.
typedef struct ot_measured_product {
  int64_t rows, columns, depth;
  ot_dtype dtype;      // of the operands
  double flops_per_s;  // per rank
  double spread;       // (third quartile - first) / median
} ot_measured_product;

typedef struct ot_measured_traffic {
  int64_t bytes;  // read and written by each of many calls
  double bytes_per_s;
  double spread;
} ot_measured_traffic;

// Arrays have the lengths of their counts and are allocated with the cluster.
typedef struct ot_measured_machine {
  int cores;  // shared by all ranks, of all hosts; 0: a GPU was measured, or the cluster was
              // described, or measured by a version without these figures
  const ot_kernel_rates *kernels;  // [num_kernels]
  int64_t num_kernels;
  const ot_collective_rates *collectives;  // [num_collectives]
  int64_t num_collectives;
  const ot_measured_product *products;  // [num_products]
  int64_t num_products;
  const ot_measured_traffic *traffic;  // [num_traffic]
  int64_t num_traffic;
  double sharing;  // the step of two ranks a core over twice that of one; 0 = not known, taken as 1
  double disk_bytes_per_s;  // written and synced; 0 = not known
  double round_trip_s;      // of a cache line between two cores; 0 = not known; for display only
  // of a GPU; for display only. 0 = not known
  double launch_s;                 // from call to call of a kernel that does nearly nothing
  double to_device_bytes_per_s;    // copies from pinned memory of the host
  double from_device_bytes_per_s;  // and to it
} ot_measured_machine;

// Source of a cluster's efficiencies, which determines how reliable predictions are.
typedef enum ot_cluster_basis {
  OT_BASIS_UNKNOWN,       // unspecified
  OT_BASIS_FITTED,        // fitted to published runs on these devices
  OT_BASIS_EXTRAPOLATED,  // fitted to runs on other devices of the same generation
  OT_BASIS_GUESSED,       // no published run on these devices
  OT_BASIS_MEASURED,      // `orthant bench` on this machine
  OT_BASIS_QUICK,         // `orthant bench --quick` on this machine
  OT_BASIS_CALIBRATED,    // corrected by measured steps (`orthant plan --calibrate`)
  OT_BASIS_COUNT,
} ot_cluster_basis;

typedef struct ot_cluster {
  const char *name;
  ot_cluster_basis basis;
  const char *assumed;  // figures that its file does not state, with the values of guessed devices:
                        // "matrix_efficiency 0.6, ..."; null: none
  int num_devices;      // >= 1
  int host_devices;  // per host, for launching; 0 = the size of the innermost level, or all of one
                     // measured machine
  ot_device_kind device;
  int num_levels;  // [0, OT_MAX_LINK_LEVELS]; innermost first, the last joins all devices
  ot_link_level level[OT_MAX_LINK_LEVELS];
  double jitter;  // fraction of a step lost to waiting for the slowest rank, per doubling of the
                  // groups of the innermost level
  ot_measured_machine measured;
  double threads_per_core;  // threads of all ranks per core of a measured machine, if above 1; 0:
                            // cores are not shared
  // A mixed cluster: all members but the name and the devices are those of ot_cluster_pool(0).
  int num_pools;  // [2, OT_MAX_POOLS]; 0: one kind of device
  const struct ot_cluster
      *pools;             // [num_pools] without pools of their own, in order of their ranks
  ot_link_level between;  // joins the pools; its size is not used
} ot_cluster;

// Whether the device is the host's own CPU, on which this program runs, and no accelerator.
bool ot_device_is_host(const ot_device_kind *device);

// Whether Orthant may run on the device: a CPU, or a GPU of NVIDIA or of a vendor that is not
// stated.
bool ot_device_may_train(const ot_device_kind *device);

// Memory that the software of one rank can use.
int64_t ot_device_capacity(const ot_device_kind *device);

// The back end whose kernels and workspace a plan for the device holds: that of CUDA on every
// accelerator.
ot_backend ot_device_kind_backend(const ot_device_kind *device);

// Spellings of ot_vendor, then a null.
extern const char *const ot_vendor_names[OT_VENDORS + 1];

// "fitted", "extrapolated", ...
const char *ot_cluster_basis_name(ot_cluster_basis basis);

// Whether `orthant bench` measured the figures, on the machine itself.
bool ot_cluster_basis_measured(ot_cluster_basis basis);

ot_status ot_cluster_check(const ot_cluster *cluster);

// Whether it has several kinds of device.
static inline bool ot_cluster_is_mixed(const ot_cluster *cluster) { return cluster->num_pools > 0; }

// Number of pools: 1 for a cluster of one kind of device.
int ot_cluster_pools(const ot_cluster *cluster);

// Nominal memory of the device with the most.
int64_t ot_cluster_most_memory(const ot_cluster *cluster);

// Watts of a device at its limit of power, in the mean over all devices; 0: not known of some.
double ot_cluster_mean_power(const ot_cluster *cluster);

// Devices of pool `pool`.
int ot_cluster_pool_devices(const ot_cluster *cluster, int pool);

// The whole cluster as a rank of pool `pool` sees it: its own devices first, over the links of its
// pool, and those of all other pools beyond the links between the pools. Links of the pool with the
// same figures as those between the pools are one network with them. A cluster without pools: a
// copy. `out` may not be `cluster`.
void ot_cluster_pool(const ot_cluster *cluster, int pool, ot_cluster *out);

// The cluster as rank 0 sees it: all devices are like its own. `out` may not be `cluster`.
void ot_cluster_alike(const ot_cluster *cluster, ot_cluster *out);

// Makes a cluster of `pools` [num_pools], joined by `between`, and checks it. Keeps `pools`.
ot_status ot_cluster_join(const char *name, const ot_cluster *pools, int num_pools,
                          const ot_link_level *between, ot_cluster *out);

// Index of the innermost level that joins two devices; -1 for a device and itself.
int ot_cluster_level(const ot_cluster *cluster, int device, int other);

// True if the ranks of several hosts were measured (`orthant bench` under a launcher).
bool ot_cluster_has_hosts(const ot_cluster *cluster);

// The cluster as seen by `ranks` ranks of `threads` threads. If several hosts were measured, they
// are as many hosts as needed of the measured kind. Devices that were measured as ranks of
// one machine share its cores and memory equally: rates are scaled to the threads, at most to the
// rank's share of the machine. If the machine's cores are known, rates stay those of a rank with
// exclusive cores, and `threads_per_core` states the threads per core. OT_USAGE when other devices
// are fewer than the ranks. `out` may be `cluster`.
ot_status ot_cluster_share(const ot_cluster *cluster, int ranks, int threads, ot_cluster *out);

// Threads of each of `ranks` ranks for a requested number `asked`; for 0, an equal share of the
// threads of a measured machine, at least one.
int ot_cluster_threads(const ot_cluster *cluster, int ranks, int asked);

// The cluster with `devices` devices: fewer, or more on the outermost links, in whole groups of the
// next inner level. OT_USAGE when there is only one level and it is too small. `out` may be
// `cluster`.
ot_status ot_cluster_resize(const ot_cluster *cluster, int devices, ot_cluster *out);

int64_t ot_cluster_print(const ot_cluster *cluster, char *out, int64_t capacity);
uint64_t ot_cluster_hash(const ot_cluster *cluster);
