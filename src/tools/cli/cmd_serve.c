// SPDX-License-Identifier: Apache-2.0
// `orthant serve`: answers the OpenAI API with a model, until a signal.
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/json_writer.h"
#include "base/quantity.h"
#include "base/text.h"
#include "cli/installed.h"
#include "cli/model_engine.h"
#include "cli/ranks.h"
#include "cli/verbs.h"
#include "files/disk.h"
#include "serve/address.h"
#include "serve/server.h"

enum {
  MOST_DEFAULT_LENGTH = 4096,
  MOST_BODY_BYTES = 4 << 20,  // and of lessons:
  LESSON_ROW_BYTES = 80,
  LEAST_REQUESTS = 4,  // of the largest size, that there is memory for
  READ_BYTES = 48,     // of memory for a byte of a long request while it is read and encoded
  MOST_TIMEOUT_S = 1000000000,
  IDLE_S = 60,
};

typedef struct serving {
  const ot_options *options;
  ot_arena *arena;
  ot_opened_model model;
  sigset_t signals;  // that end it
  ot_config taught;  // the run of --teach, with this model as its teacher
  ot_teacher *teacher;
  ot_service *service;
  ot_server *server;
} serving;

static ot_status find_template(serving *s, const ot_chat_template **chat) {
  const char *const name = ot_options_text(s->options, "chat-template");
  const char *note = NULL;
  *chat = name ? ot_chat_template_find(name)
               : ot_chat_template_choose(s->model.tokenizer, s->arena, &note);
  if (note) fprintf(stderr, "note: %s\n", note);
  OT_CHECK(!name || *chat, OT_USAGE, "no chat template is called %s (known: %s)", name,
           ot_chat_template_names);
  return OT_OK;
}

static int64_t max_length_of(const serving *s) {
  const int64_t given = ot_options_integer(s->options, "max-length");
  const int64_t model = s->model.files.model.max_positions;
  if (given > 0) return given;
  return model > 0 && model < MOST_DEFAULT_LENGTH ? model : MOST_DEFAULT_LENGTH;
}

static ot_status find_shape(const serving *s, ot_inference_shape *shape) {
  const ot_options *const o = s->options;
  const ot_model *const model = &s->model.files.model;
  const int64_t max_length = max_length_of(s);
  OT_CHECK(
      model->max_positions <= 0 || max_length <= model->max_positions, OT_USAGE,
      "--max-length: %lld is out of range; allowed: 1 to %lld, the model's positions, and 0 for "
      "as many as fit",
      (long long)max_length, (long long)model->max_positions);
  const int64_t slots = ot_options_integer(o, "slots"), chunk = ot_options_integer(o, "chunk");
  const int64_t cache = ot_options_integer(o, "cache-tokens");
  const int64_t tokens = cache > max_length ? cache : max_length;
  *shape = (ot_inference_shape){.slots = slots,
                                .chunk = chunk > slots ? chunk : slots,
                                .positions = max_length,
                                .pages = (tokens + OT_PAGE_SLOTS - 1) / OT_PAGE_SLOTS};
  return OT_OK;
}

// The last part of the path.
static const char *model_name(const serving *s) {
  const char *const given = ot_options_text(s->options, "name");
  const char *const slash = strrchr(s->model.files.path, '/');
  return given ? given : slash && slash[1] ? slash + 1 : s->model.files.path;
}

static ot_status check_ranks(const serving *s, int ranks) {
  OT_CHECK(ranks == 1 || !ot_options_text(s->options, "teach"), OT_RANKS,
           "--teach with %d ranks: a teacher has all its weights on one rank", ranks);
  return OT_OK;
}

static ot_status read_taught(serving *s) {
  const ot_config_request wanted = {.path = ot_options_text(s->options, "teach"),
                                    .presets = ot_installed_presets(s->arena)};
  if (!wanted.path) return OT_OK;
  OT_TRY(ot_config_load(&wanted, s->arena, &s->taught));
  ot_run *const run = &s->taught.run;
  OT_CHECK(ot_run_has_teacher(run), OT_USAGE, "--teach: distill.objective is none (%s)",
           wanted.path);
  run->distill.from = OT_DISTILL_LIVE;
  run->distill.teacher = s->model.files.path;
  run->device = (ot_run_device)ot_options_choice(s->options, "device");
  return OT_OK;
}

static ot_status create_teacher(serving *s, ot_service_options *options) {
  const ot_run *const run = &s->taught.run;
  const ot_teacher_request request = {.run = run,
                                      .ids = ot_teacher_ids(run),
                                      .threads = (int)ot_options_integer(s->options, "threads"),
                                      .backend = ot_runtime_choose_device(run->device, 1)};
  if (!ot_options_text(s->options, "teach")) return OT_OK;
  ot_lesson_facts *const facts = &options->facts;
  ot_lesson_facts_of(run, s->model.tokenizer, facts);
  facts->vocab_size = s->model.files.model.vocab_size;
  facts->positions = s->model.files.model.max_positions;
  OT_TRY(ot_teacher_hash(s->model.files.path, facts->teacher));
  OT_TRY(ot_teacher_create(&request, s->model.tokenizer, &s->teacher));
  options->teacher = s->teacher;
  return OT_OK;
}

// ---- sizes ----

static int64_t most_body_bytes(const ot_lesson_facts *facts) {
  return MOST_BODY_BYTES + LESSON_ROW_BYTES * facts->sequences * facts->sequence_length;
}

// The bytes of --request-memory plus those of micro-batches for the teacher.
static int64_t request_bytes(const serving *s, const ot_lesson_facts *facts) {
  const int64_t lessons = most_body_bytes(facts) - MOST_BODY_BYTES;
  return ot_options_integer(s->options, "request-memory") +
         LEAST_REQUESTS * (lessons > 0 ? 2 * (lessons + ot_lesson_answer_bytes(facts)) : 0);
}

static ot_status create_service(serving *s, ot_runtime *runtime) {
  ot_service_options options = {.tokenizer = s->model.tokenizer,
                                .model = model_name(s),
                                .runtime = runtime,
                                .positions = max_length_of(s),
                                .most_waiting = ot_options_integer(s->options, "queue"),
                                .timeout_s = ot_options_real(s->options, "timeout"),
                                .comment_s = IDLE_S / 3.0};
  OT_TRY(find_template(s, &options.chat));
  OT_TRY(create_teacher(s, &options));
  options.memory_bytes = request_bytes(s, &options.facts);
  return ot_service_create(&options, &s->service);
}

static ot_status create_server(serving *s) {
  const char *const key = ot_options_text(s->options, "api-key");
  ot_server_options options = {
      .host = ot_options_text(s->options, "host"),
      .port = (int)ot_options_integer(s->options, "port"),
      .names = ot_options_text(s->options, "allow-host"),
      .most_connections = (int)ot_options_integer(s->options, "connections"),
      .most_body_bytes = most_body_bytes(&ot_service_options_of(s->service)->facts),
      .idle_s = IDLE_S,
      .step = s->model.files.step,
  };
  if (key) OT_TRY(ot_disk_read_line(s->arena, key, &options.key));
  return ot_server_create(&options, s->service, &s->server);
}

// ---- what is printed ----

static void warn(const serving *s) {
  const char *const host = ot_options_text(s->options, "host");
  const char *const key = ot_options_text(s->options, "api-key");
  const char *const exposure = key ? ot_disk_exposure(s->arena, key) : NULL;
  if (exposure) fprintf(stderr, "warning: --api-key: %s\n", exposure);
  if (!key && !ot_address_is_loopback(host)) {
    fprintf(stderr,
            "warning: --host %s without --api-key: every host that reaches this address can use "
            "the model\n",
            host);
  }
}

static void print_start(const serving *s, const ot_runtime *runtime) {
  const ot_service_options *const o = ot_service_options_of(s->service);
  const char *const host = ot_options_text(s->options, "host");
  const bool is_v6 = strchr(host, ':') != NULL;
  const char *const address = ot_arena_format(s->arena, "http://%s%s%s:%d", is_v6 ? "[" : "", host,
                                              is_v6 ? "]" : "", ot_server_port(s->server));
  const int64_t planned = ot_runtime_schedule(runtime)->memory.peak_bytes;
  const int64_t read = READ_BYTES * most_body_bytes(&o->facts);
  if (ot_options_json(s->options)) {
    ot_json_writer w = ot_json_begin(s->arena, 0);
    ot_json_object(&w, NULL);
    ot_json_text(&w, "address", address);
    ot_json_text(&w, "model", o->model);
    ot_json_integer(&w, "step", s->model.files.step);
    ot_json_integer(&w, "model_bytes", planned);
    ot_json_integer(&w, "request_bytes", o->memory_bytes);
    ot_json_integer(&w, "read_bytes", read);
    ot_json_end(&w);
    printf("%s\n", w.text);
  } else {
    fprintf(stderr,
            "memory: %s for the model and its cache, at most %s for requests and answers "
            "(--request-memory) and %s while a long one is read\n",
            ot_figure_bytes(s->arena, (double)planned),
            ot_figure_bytes(s->arena, (double)o->memory_bytes),
            ot_figure_bytes(s->arena, (double)read));
    fprintf(stderr, "serving %s at %s; Ctrl-C ends it\n", o->model, address);
    printf("%s\n", address);
  }
  fflush(stdout);
}

static ot_status prepare(void *context, int ranks) {
  serving *const s = context;
  OT_TRY(check_ranks(s, ranks));
  OT_TRY(ot_model_options_open(s->options, s->arena, &s->model));
  OT_TRY(read_taught(s));
  OT_CHECK(s->model.tokenizer, OT_USAGE, "%s holds no tokenizer.json; name one with --tokenizer",
           s->model.files.path);
  return OT_OK;
}

static ot_status serve(serving *s, ot_runtime *runtime) {
  int signal_number = 0;
  OT_TRY(create_service(s, runtime));
  warn(s);
  OT_TRY(create_server(s));
  print_start(s, runtime);
  sigwait(&s->signals, &signal_number);
  return OT_OK;
}

static ot_status serve_rank(ot_comm *comm, void *context) {
  serving *const s = context;
  const bool leads = ot_comm_rank(comm) == 0;
  ot_model_engine engine;
  ot_model_engine_request request = {.options = s->options, .comm = comm, .model = &s->model};
  if (leads) request.status = find_shape(s, &request.shape);
  ot_status status = ot_model_engine_create(&request, &engine);
  if (status == OT_OK) {
    status = leads ? serve(s, engine.runtime) : ot_inference_follow(engine.runtime);
  }
  if (leads) ot_server_destroy(&s->server, &s->service);
  if (leads) ot_teacher_destroy(&s->teacher);
  ot_model_engine_destroy(&engine);
  return status;
}

static ot_status run(const ot_options *options) {
  serving s = {.options = options, .arena = ot_options_arena(options)};
  const ot_ranks_verb verb = {.prepare = prepare, .run = serve_rank, .context = &s};
  sigemptyset(&s.signals);
  sigaddset(&s.signals, SIGINT);
  sigaddset(&s.signals, SIGTERM);
  // Before threads start, which inherit it. Ranks that follow end when rank 0 does.
  pthread_sigmask(SIG_BLOCK, &s.signals, NULL);
  const ot_status status = ot_ranks_run(options, &verb);
  ot_opened_model_release(&s.model);
  return status;
}

static const ot_option rows[] = {
    {"host", OT_OPTION_TEXT, "ADDRESS", "127.0.0.1",
     .help = "address to listen at; by default this machine only"},
    {"port", OT_OPTION_INTEGER, "N", "8000", 0, 65535, .help = "0: any that is free"},
    {.shared = &ot_option_ranks},
    {.shared = &ot_option_pp},
    {"api-key", OT_OPTION_PATH, "FILE", .help = "its first line is the bearer key of all requests"},
    {"allow-host", OT_OPTION_TEXT, "NAME,...",
     .help = "names that requests without a key may have as their Host"},
    {"max-length", OT_OPTION_INTEGER, "N", "0", 0, 1 << 24,
     .help = "tokens of a prompt and its text; 0: the model's positions, up to 4096"},
    {"slots", OT_OPTION_INTEGER, "N", "8", 1, 1024, .help = "sequences computed at once"},
    {"chunk", OT_OPTION_INTEGER, "N", "128", 1, 65536, .help = "tokens of an iteration"},
    {"cache-tokens", OT_OPTION_INTEGER, "N", "16384", 1, 1 << 30,
     .help = "tokens that the cache holds"},
    {"queue", OT_OPTION_INTEGER, "N", "1024", 1, 1 << 20,
     .help = "sequences in work and waiting; more are refused"},
    {"request-memory", OT_OPTION_INTEGER, "BYTES", "256MiB", 32 << 20, 1LL << 40,
     .help = "memory for all requests and answers; more are refused"},
    {"timeout", OT_OPTION_REAL, "SECONDS", "600", 1, MOST_TIMEOUT_S,
     .help = "most time for a request"},
    {"connections", OT_OPTION_INTEGER, "N", "256", 1, 1000, .help = "clients at once; more wait"},
    {"teach", OT_OPTION_PATH, "RUN.yaml",
     .help = "also answers that run, which learns from this model (distill.from: server)"},
    {"chat-template", OT_OPTION_TEXT, "NAME",
     .help = "chatml, llama3 or gemma; default: by the model's template, if that is known, or its "
             "tokens"},
    {"name", OT_OPTION_TEXT, "NAME", .help = "of the model in answers; default: its directory"},
    {.shared = &ot_option_tokenizer},
    {.shared = &ot_option_model_set},
    {.shared = &ot_option_threads},
    {.shared = &ot_option_device},
};

const ot_verb ot_verb_serve = {
    .name = "serve",
    .summary = "answer requests of the OpenAI API with a trained model",
    .arguments = "CHECKPOINT",
    .min_arguments = 1,
    .max_arguments = 1,
    .details =
        "CHECKPOINT is a checkpoint directory, a run directory (its newest) or an HF\n"
        "directory. POST /v1/completions, /v1/chat/completions, /tokenize, /detokenize; GET\n"
        "/v1/models, /tokenizer_info, /health, /metrics. Runs that learn from the model ask\n"
        "/v1/teacher and /v1/teacher/targets (--teach; docs/distill.md). Prints its address, and\n"
        "answers until Ctrl-C, SIGINT or SIGTERM. Evaluation harnesses such as lm_eval work with\n"
        "it. With --host, others than this machine can use it: give it an --api-key. Limits and\n"
        "what requests may send: docs/serve.md.",
    .examples =
        "  orthant serve runs/demo/run\n"
        "  orthant serve model_dir --port 9000 --api-key key.txt --max-length 2048",
    .options = rows,
    .absent = "cp",
    .instead = ot_option_instead_of_cp,
    .num_options = OT_COUNT(rows),
    .json = true,
    .run = run,
};
