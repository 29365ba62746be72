// SPDX-License-Identifier: Apache-2.0
// Text templates filled with the numbers of a plan.
#include <string.h>

#include "answer/plan_crossing.h"
#include "answer/plan_page.h"
#include "base/quantity.h"
#include "base/quote.h"
#include "base/text.h"
#include "software/export.h"

static const char *const kind_names[OT_EMIT_OTHER] = {"run", "mpirun", "sbatch", "mpijob"};

static bool is_called(const char *known, const char *name, int64_t length) {
  return ot_text_length(known) == length && memcmp(known, name, (size_t)length) == 0;
}

ot_emit_kind ot_emit_find(const char *name, int64_t length, ot_software *software) {
  for (int i = 0; i < OT_EMIT_OTHER; i++) {
    if (is_called(kind_names[i], name, length)) return (ot_emit_kind)i;
  }
  for (int i = OT_SOFTWARE_NONE + 1; i < OT_SOFTWARES; i++) {
    *software = (ot_software)i;
    if (is_called(ot_software_names[i], name, length)) return OT_EMIT_OTHER;
  }
  return OT_EMIT_KINDS;
}

// An engine whose plans can be written for each software.
static const char *const engine_of[OT_SOFTWARES] = {
    [OT_SOFTWARE_MEGATRON] = "megatron-core",
    [OT_SOFTWARE_TORCHTITAN] = "torchtitan",
    [OT_SOFTWARE_DEEPSPEED] = "deepspeed",
    [OT_SOFTWARE_NANOTRON] = "nanotron",
};

ot_status ot_emit_check(ot_emit_kind kind, ot_software wanted, const ot_engine *engine) {
  const ot_software software = engine->software;
  if (kind == OT_EMIT_OTHER) {
    if (software == wanted) return OT_OK;
    ot_fail(OT_USAGE, "--emit %s: the plan is for engine %s", ot_software_names[wanted],
            engine->name);
    return ot_fail_hint(OT_USAGE, "--engine %s", engine_of[wanted]);
  }
  if (kind == OT_EMIT_RUN || engine == &ot_engine_orthant) return OT_OK;
  ot_fail(OT_USAGE, "--emit %s: the script would start Orthant, but the plan is for %s",
          kind_names[kind], engine->name);
  if (software == OT_SOFTWARE_NONE)
    return ot_fail_hint(OT_USAGE, "--engine orthant, or --emit run for the configuration alone");
  return ot_fail_hint(OT_USAGE, "--emit %s writes its launch script; or --engine orthant",
                      ot_software_names[software]);
}

// Values for the templates.
typedef struct emission {
  const ot_plan_page *page;
  const ot_estimate *plan;
  ot_text_builder *out;
  ot_arena *arena;  // of `out`
  const char *name;
  int ranks, ranks_per_host, hosts;
  const char *resource;  // of Kubernetes
  int stop_s;            // time from the signal to the end, for a step and a checkpoint
} emission;

// Kubernetes takes at most 63 characters (RFC 1123, DNS labels).
enum { NAME_BYTES = 63 };

// A name that Slurm and Kubernetes accept: small letters, digits and dashes, no dash at either end.
static const char *plain_name(const char *name, ot_arena *arena) {
  const char *base = name;
  for (const char *c = name; *c != '\0'; c++) {
    if (*c == '/') base = c + 1;
  }
  char *const out = ot_arena_take(arena, NAME_BYTES + 1);
  int64_t length = 0, kept = 0;
  for (const char *c = base; *c != '\0' && length < NAME_BYTES; c++) {
    const bool upper = *c >= 'A' && *c <= 'Z';
    const bool plain = upper || (*c >= 'a' && *c <= 'z') || ot_is_digit(*c);
    if (!plain && length == 0) continue;
    out[length++] = upper ? (char)(*c - 'A' + 'a') : plain ? *c : '-';
    if (plain) kept = length;
  }
  out[kept] = '\0';
  return kept > 0 ? out : "run";
}

int ot_cluster_host(const ot_cluster *cluster) {
  if (cluster->host_devices > 0) return cluster->host_devices;
  const bool one = cluster->device.threads > 0 || cluster->num_levels < 2;
  return one ? cluster->num_devices : cluster->level[0].size;
}

// The Kubernetes resource of the devices; null if the device is the host.
static const char *resource_of(const ot_cluster *cluster) {
  if (cluster->device.threads > 0) return NULL;
  static const char *const resources[OT_VENDORS] = {
      [OT_VENDOR_OTHER] = "nvidia.com/gpu",  [OT_VENDOR_NVIDIA] = "nvidia.com/gpu",
      [OT_VENDOR_AMD] = "amd.com/gpu",       [OT_VENDOR_GOOGLE] = "google.com/tpu",
      [OT_VENDOR_INTEL] = "habana.ai/gaudi", [OT_VENDOR_AMAZON] = "aws.amazon.com/neuron",
  };
  return resources[cluster->device.vendor];
}

static emission emission_of(const ot_plan_page *page, ot_text_builder *out) {
  const ot_cluster *const cluster = page->job->cluster;
  const ot_estimate *const plan = page->plans[0].estimate;
  emission e = {.page = page, .plan = plan, .out = out, .arena = out->arena};
  const int host = ot_cluster_host(cluster);
  e.name = plain_name(page->model_name, out->arena);
  e.ranks = ot_job_all_devices(page->job);
  e.ranks_per_host = host < e.ranks ? host : e.ranks;
  e.hosts = (e.ranks + e.ranks_per_host - 1) / e.ranks_per_host;
  e.resource = resource_of(cluster);
  // Two steps, and five minutes for a checkpoint.
  e.stop_s = 300 + (int)(2 * plan->step_s);
  return e;
}

// "# llama3-8b on 8 devices of h100: dp 8."
static void put_title(const emission *e) {
  const ot_cluster *const cluster = e->page->job->cluster;
  char split[256];
  ot_candidate_print(&e->plan->candidate, split, sizeof split);
  ot_text_put(e->out, "# ");
  ot_quote_comment(e->out, e->page->model_name);
  ot_text_appendf(e->out, " on %d devices of ", e->ranks);
  ot_quote_comment(e->out, cluster->name);
  ot_text_appendf(e->out, ": %s.\n", split);
  ot_crossing_put_ranks(e->page->job, &e->plan->candidate, e->out);
}

static const char *planned(const emission *e) {
  const ot_memory_estimate *const m = &e->plan->memory;
  return ot_arena_format(e->arena, "%s a step, MFU %s, %s of %s on the fullest device",
                         ot_figure_seconds(e->arena, e->plan->step_s),
                         ot_figure_share(e->arena, e->plan->mfu),
                         ot_figure_bytes(e->arena, (double)(m->reserved + m->context)),
                         ot_figure_bytes(e->arena, (double)m->capacity));
}

// The devices that the code of GPUs is compiled for.
static bool is_hopper(const char *device) {
  static const char *const names[] = {"h100", "h200", "h800", "h20", "H100", "H200", "H800", "H20"};
  for (int i = 0; i < OT_COUNT(names); i++) {
    if (ot_text_find(device, names[i])) return true;
  }
  return false;
}

// The status of Orthant on the devices (docs/gpu.md); null: it runs on them.
static const char *status_of(const emission *e) {
  const ot_device_kind *const device = &e->page->job->cluster->device;
  if (ot_device_is_host(device)) return NULL;
  if (!ot_device_may_train(device)) return "Orthant does not run on them.";
  if (!is_hopper(device->name)) {
    return "Orthant's code for GPUs is that of Hopper; on others it was never tried.";
  }
  return e->ranks > 1 ? "Orthant trains on one Hopper GPU; several were never tried." : NULL;
}

// The first lines of a script state that such a run was never tried.
static void put_script_title(const emission *e) {
  const char *const status = status_of(e);
  if (status) {
    ot_text_put(e->out, "# Planned for devices ");
    ot_quote_comment(e->out, e->page->job->cluster->device.name);
    ot_text_appendf(e->out, ". %s\n", status);
  }
  put_title(e);
  ot_text_appendf(e->out, "# Planned: %s.\n", planned(e));
}

// ---- run ----

static void put_run(const emission *e) {
  const ot_job *const job = e->page->job;
  put_title(e);
  if (job->engine == &ot_engine_orthant) {
    ot_text_appendf(e->out, "# Planned: %s.\n", planned(e));
  } else {
    ot_text_put(e->out, "# Planned with ");
    ot_quote_comment(e->out, job->engine->name);
    ot_text_appendf(e->out,
                    ": %s.\n"
                    "# Orthant trains it with its own kernels: `orthant simulate` predicts the "
                    "step.\n",
                    planned(e));
  }
  ot_node_print_yaml(ot_plan_sections(e->page, &e->plan->candidate, e->arena), 0, e->out);
  ot_text_appendf(e->out,
                  "# To be added: data and length of the run. `orthant config --example` has "
                  "every key.\n"
                  "# data: {train: PREFIX, tokenizer: tokenizer.json, sequence_length: %lld}\n"
                  "# tokens: %lld\n",
                  (long long)job->sequence_length, (long long)job->tokens);
}

// ---- launchers ----

// Ranks of a host are neighbours, tp fastest, so that tp stays on a host.
static const char *mpirun_command(const emission *e, const char *hosts, const char *run) {
  return ot_arena_format(
      e->arena,
      "exec orthant train %s --supervise --ranks %d -- mpirun -n {ranks} %s--map-by ppr:%d:node "
      "--rank-by slot --bind-to none\n",
      run, e->ranks, hosts, e->ranks_per_host);
}

static void put_mpirun(const emission *e) {
  ot_text_put(e->out, "#!/bin/sh\n");
  put_script_title(e);
  ot_text_put(e->out,
              "# usage: sh THIS [RUN.yaml [HOSTS]]   RUN.yaml: `orthant plan ... --emit run` and "
              "your data\n");
  if (e->hosts > 1) {
    ot_text_appendf(
        e->out,
        "# HOSTS has a line \"NAME slots=%d\" for each of %d hosts. With MPICH instead of Open "
        "MPI:\n"
        "#   mpiexec -n %d -ppn %d -f HOSTS orthant train RUN.yaml\n",
        e->ranks_per_host, e->hosts, e->ranks, e->ranks_per_host);
  }
  ot_text_put(
      e->out,
      "# The supervisor starts the run again after failures. TERM, INT and USR1: finish the "
      "step,\n"
      "# save, exit 75; run the script again to resume.\n"
      "run=${1:-run.yaml}\n");
  if (e->hosts > 1) ot_text_put(e->out, "hosts=${2:-hosts}\n");
  ot_text_put(e->out, mpirun_command(e, e->hosts > 1 ? "--hostfile \"$hosts\" " : "", "\"$run\""));
}

static void put_sbatch(const emission *e) {
  ot_text_put(e->out, "#!/bin/bash\n");
  put_script_title(e);
  ot_text_appendf(e->out, "#SBATCH --job-name=%s\n#SBATCH --nodes=%d\n", e->name, e->hosts);
  ot_text_appendf(e->out, "#SBATCH --ntasks=%d\n#SBATCH --ntasks-per-node=%d\n", e->ranks,
                  e->ranks_per_host);
  if (e->resource) ot_text_appendf(e->out, "#SBATCH --gpus-per-node=%d\n", e->ranks_per_host);
  ot_text_appendf(
      e->out,
      "#SBATCH --exclusive\n"
      "#SBATCH --time=24:00:00\n"
      "#SBATCH --signal=USR1@%d  # to all ranks before the limit: they save\n"
      "#SBATCH --requeue\n"
      "#SBATCH --open-mode=append\n"
      "# usage: sbatch THIS [RUN.yaml]   RUN.yaml: `orthant plan ... --emit run` and your "
      "data\n",
      e->stop_s);
  ot_text_appendf(e->out,
                  "# The supervisor starts the run again after failures.\n"
                  "orthant train \"${1:-run.yaml}\" --supervise --ranks %d -- \\\n"
                  "    srun -n {ranks} --distribution=block --wait=300\n",
                  e->ranks);
  ot_text_put(e->out,
              "code=$?\n"
              "# 75: stopped after a complete checkpoint; the same job resumes from it.\n"
              "[ \"$code\" != 75 ] || scontrol requeue \"$SLURM_JOB_ID\"\n"
              "exit \"$code\"\n");
}

static void put_container(const emission *e, const char *role) {
  ot_text_appendf(e->out,
                  "          containers:\n"
                  "            - name: %s\n"
                  "              image: IMAGE  # with orthant, Open MPI and sshd\n",
                  role);
}

static void put_volumes(const emission *e) {
  ot_text_put(e->out,
              "              volumeMounts: [{name: runs, mountPath: /runs}]\n"
              "          volumes: [{name: runs, persistentVolumeClaim: {claimName: CLAIM}}]\n");
}

static void put_mpijob(const emission *e) {
  put_script_title(e);
  ot_text_put(e->out,
              "# Fill in IMAGE and CLAIM; /runs/run.yaml: `orthant plan ... --emit run` and your "
              "data.\n"
              "apiVersion: kubeflow.org/v2beta1\n"
              "kind: MPIJob\n"
              "metadata:\n"
              "  name: ");
  ot_quote_yaml(e->out, e->name);
  ot_text_appendf(e->out,
                  "\n"
                  "spec:\n"
                  "  slotsPerWorker: %d\n"
                  "  runPolicy:\n"
                  "    cleanPodPolicy: Running\n"
                  "    backoffLimit: 1000\n"
                  "  mpiReplicaSpecs:\n"
                  "    Launcher:\n"
                  "      replicas: 1\n"
                  "      restartPolicy: OnFailure  # exit 75: restart\n"
                  "      template:\n"
                  "        spec:\n"
                  "          terminationGracePeriodSeconds: %d\n",
                  e->ranks_per_host, e->stop_s);
  put_container(e, "launcher");
  ot_text_put(e->out,
              "              command: [sh, -c]\n"
              "              args:\n"
              "                - |\n");
  ot_text_appendf(e->out, "                  %s", mpirun_command(e, "", "/runs/run.yaml"));
  put_volumes(e);
  ot_text_appendf(e->out,
                  "    Worker:\n"
                  "      replicas: %d\n"
                  "      template:\n"
                  "        spec:\n"
                  "          terminationGracePeriodSeconds: %d\n",
                  e->hosts, e->stop_s);
  put_container(e, "worker");
  if (e->resource) {
    ot_text_appendf(e->out, "              resources: {limits: {%s: %d}}\n", e->resource,
                    e->ranks_per_host);
  }
  put_volumes(e);
}

// ---- other software ----

static ot_status put_other(const emission *e) {
  const ot_plan_page *const page = e->page;
  char split[256];
  ot_candidate_print(&e->plan->candidate, split, sizeof split);
  ot_export plan = {.job = page->job,
                    .candidate = &e->plan->candidate,
                    .model_name = page->model_name,
                    .ranks_per_host = e->ranks_per_host};
  ot_text_builder summary = {.arena = e->arena};
  ot_text_put(&summary, page->model_name);
  ot_text_appendf(&summary, " on %d devices of ", e->ranks);
  ot_text_put(&summary, page->job->cluster->name);
  ot_text_appendf(&summary, ": %s; planned with engine ", split);
  ot_text_put(&summary, page->job->engine->name);
  ot_text_appendf(&summary, ": %s", planned(e));
  plan.summary = ot_text_builder_text(&summary);
  int *layers;
  OT_TRY(ot_estimate_chunks(page->estimator, plan.candidate, e->arena, &layers, &plan.num_chunks));
  plan.layers = layers;
  return ot_export_write(&plan, e->out);
}

ot_status ot_plan_emit(const ot_plan_page *page, ot_emit_kind kind, ot_text_builder *out) {
  const emission e = emission_of(page, out);
  OT_TRY(ot_crossing_check_emit(page->job, e.plan, kind, e.ranks_per_host));
  switch (kind) {
    case OT_EMIT_RUN:
      put_run(&e);
      return OT_OK;
    case OT_EMIT_MPIRUN:
      put_mpirun(&e);
      return OT_OK;
    case OT_EMIT_SBATCH:
      put_sbatch(&e);
      return OT_OK;
    case OT_EMIT_MPIJOB:
      put_mpijob(&e);
      return OT_OK;
    case OT_EMIT_OTHER:
      return put_other(&e);
    case OT_EMIT_KINDS:
      break;
  }
  OT_UNREACHABLE();
}
