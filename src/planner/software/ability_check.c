// SPDX-License-Identifier: Apache-2.0
// Whether the software of a job can run it, and the configuration of a candidate. A refusal names
// the capability, and the software that has it where the engine file knows.
#include "software/ability_check.h"

#include "base/text.h"
#include "describe/pipeline_rules.h"

enum { LIST_BYTES = 160, NAME_BYTES = 64 };

// "1f1b, interleaved".
static void print_names(const ot_names *names, char *out, int64_t capacity) {
  int64_t length = 0;
  for (int64_t i = 0; i < names->num && length < capacity; i++) {
    length +=
        ot_text_format(out + length, capacity - length, "%s%s", i > 0 ? ", " : "", names->name[i]);
  }
}

// `what`: the capability with its kind, as in the engine file's `elsewhere`.
static ot_status refuse(const ot_engine *engine, const char *what, const char *has) {
  const ot_abilities *const a = &engine->runs;
  const bool named = a->versions && a->versions[0] != '\0';
  const char *where = NULL;
  for (int64_t i = 0; i < a->num_elsewhere; i++) {
    if (ot_text_equal(a->elsewhere[i].what, what)) where = a->elsewhere[i].where;
  }
  return ot_fail(OT_USAGE, "plan: engine %s%s%s%s does not support %s; supported%s %s",
                 engine->name, named ? " (" : "", named ? a->versions : "", named ? ")" : "", what,
                 where ? " by" : ":", where ? where : has);
}

// Whether `names` holds `name`; `kind` stands before the name and `with` after it ("zero 3 with
// pp").
static ot_status check(const ot_engine *engine, const ot_names *names, const char *kind,
                       const char *name, const char *with) {
  char has[LIST_BYTES] = "", what[NAME_BYTES];
  if (ot_names_allow(names, name)) return OT_OK;
  print_names(names, has, sizeof has);
  ot_text_format(what, sizeof what, "%s%s%s", kind, name, with);
  return refuse(engine, what, has);
}

static ot_status check_axes(const ot_engine *engine, const ot_candidate *c) {
  const struct {
    const char *name;
    int degree;
  } axes[] = {{"dp", c->dp}, {"tp", c->tp}, {"pp", c->pp}, {"cp", c->cp}, {"ep", c->ep}};
  for (int i = 0; i < OT_COUNT(axes); i++) {
    if (axes[i].degree > 1) OT_TRY(check(engine, &engine->runs.axes, "", axes[i].name, ""));
  }
  return OT_OK;
}

static ot_status check_zero(const ot_engine *engine, const ot_candidate *c) {
  const ot_abilities *const a = &engine->runs;
  static const char *const names[] = {"0", "1", "2", "3"};
  if (c->zero < 0 || c->zero > 3) return OT_OK;
  const char *const name = names[c->zero];
  // Over one rank all stages are the same.
  if (c->dp == 1) return OT_OK;
  OT_TRY(check(engine, &a->zero, "zero ", name, ""));
  if (c->pp > 1) OT_TRY(check(engine, &a->zero_with_pp, "zero ", name, " with pp"));
  if (c->tp > 1 || c->cp > 1) OT_TRY(check(engine, &a->zero_with_tp, "zero ", name, " with tp"));
  if (c->zero == 0 || c->dp_shard == 0 || c->dp_shard >= c->dp) return OT_OK;
  return check(engine, &a->zero_in_groups, "zero ", name, " over a part of dp");
}

static ot_status check_recompute(const ot_engine *engine, const ot_candidate *c) {
  const ot_abilities *const a = &engine->runs;
  if ((int)c->recompute < 0) return OT_OK;
  OT_TRY(check(engine, &a->recompute, "recompute ", ot_recompute_names[c->recompute], ""));
  for (int m = 0; m < (int)OT_RECOMPUTE_MODULES; m++) {
    if (!(c->modules & OT_MODULE_SET(m))) continue;
    const ot_names none = {.num = 1, .name = (const char *const[]){"none"}};
    OT_TRY(check(engine, a->modules.num > 0 ? &a->modules : &none, "recompute of ",
                 ot_recompute_module_names[m], ""));
  }
  return OT_OK;
}

ot_status ot_ability_check(const ot_engine *engine, const ot_candidate *c) {
  const ot_abilities *const a = &engine->runs;
  OT_TRY(check_axes(engine, c));
  OT_TRY(check_zero(engine, c));
  OT_TRY(check_recompute(engine, c));
  if ((int)c->pipeline < 0 || c->pp == 1) return OT_OK;
  return check(engine, &a->pipelines, "", ot_pipeline_name(c->pipeline), "");
}

static ot_status check_hosts(const ot_job *job) {
  const ot_cluster *const cluster = job->cluster;
  const int most = job->engine->runs.hosts;
  int each = cluster->host_devices;
  if (each == 0) each = cluster->num_levels > 1 ? cluster->level[0].size : cluster->num_devices;
  const int hosts = (job->devices + each - 1) / each;
  OT_CHECK(most == 0 || hosts <= most, OT_USAGE,
           "plan: engine %s (%s) runs on %d host%s: %d devices of %s are on %d (try --gpus %d)",
           job->engine->name, job->engine->runs.versions, most, most > 1 ? "s" : "", job->devices,
           cluster->name, hosts, most * each);
  return OT_OK;
}

static ot_status check_modules(const ot_job *job) {
  const ot_candidate *const given = &job->given;
  if (!given->modules) return OT_OK;
  OT_CHECK((int)given->recompute < 0 || given->recompute == OT_RECOMPUTE_SELECTIVE, OT_USAGE,
           "recompute_modules needs recompute selective, not %s",
           ot_recompute_names[given->recompute]);
  OT_TRY(ot_module_set_check(given->modules, job->model));
  ot_candidate selective = *given;
  selective.recompute = OT_RECOMPUTE_SELECTIVE;
  return check_recompute(job->engine, &selective);
}

ot_status ot_ability_check_job(const ot_job *job) {
  const ot_abilities *const a = &job->engine->runs;
  OT_TRY(check_modules(job));
  OT_TRY(check_hosts(job));
  OT_TRY(check(job->engine, &a->families, "", ot_family_name(job->model->family), ""));
  OT_TRY(check(job->engine, &a->precisions, "", ot_dtype_name(job->recipe.products), ""));
  return ot_ability_check(job->engine, &job->given);
}
