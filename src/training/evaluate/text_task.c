// SPDX-License-Identifier: Apache-2.0
// From lines to sequences.
#include "evaluate/text_task.h"

#include <math.h>
#include <string.h>

#include "base/text.h"
#include "files/disk.h"
#include "files/json_file.h"
#include "host/heap.h"
#include "tokenizer/unicode.h"

enum { MOST_BYTES = 1 << 30, MOST_TOKENS = 256 };

typedef struct reading {
  const ot_text_task_source *source;
  ot_arena *arena;
  ot_encoder *encoder;
  ot_text_task *task;
  const char *line;  // "FILE:LINE"
  int64_t sequences_capacity, questions_capacity;
} reading;

// ---- texts ----

static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// Words as lm-evaluation-harness counts them: the pieces between runs of white space, empty ones
// at the ends included (re.split(r"\s+", text)).
static int64_t count_words(const char *text) {
  const int64_t length = ot_text_length(text);
  int64_t words = 1;
  bool after_space = false;
  for (int64_t i = 0, width; i < length; i += width) {
    int bytes;
    const bool space =
        ot_unicode_is_white(ot_unicode_first((const uint8_t *)text + i, length - i, &bytes));
    words += space && !after_space;
    after_space = space;
    width = bytes;
  }
  return words;
}

// The length of `text` without white space at its end (str.rstrip).
static int64_t stripped_length(const char *text) {
  int64_t length = ot_text_length(text);
  int width;
  while (length > 0 &&
         ot_unicode_is_white(ot_unicode_last((const uint8_t *)text, length, &width))) {
    length -= width;
  }
  return length;
}

static int64_t count_characters(const char *text) {
  int64_t count = 0;
  for (int64_t i = 0; text[i] != '\0'; i++) count += ((unsigned char)text[i] & 0xc0) != 0x80;
  return count;
}

static ot_stop_text trim(const char *text, int64_t length) {
  while (length > 0 && is_space(text[0])) {
    text++;
    length--;
  }
  while (length > 0 && is_space(text[length - 1])) length--;
  return (ot_stop_text){text, length};
}

static ot_status text_of(const reading *r, const json_t *object, const char *key,
                         const char **text) {
  const json_t *const value = json_object_get(object, key);
  OT_CHECK(json_is_string(value), OT_USAGE, "%s: needs \"%s\", a text", r->line, key);
  *text = json_string_value(value);
  OT_CHECK(ot_text_length(*text) == (int64_t)json_string_length(value), OT_USAGE,
           "%s: \"%s\" holds a zero character", r->line, key);
  return OT_OK;
}

// A text or a list of texts, none of them empty; none: *count is 0.
static ot_status texts_of(const reading *r, const json_t *value, const char *key,
                          const ot_stop_text **texts, int *count) {
  const bool list = json_is_array(value);
  const size_t n = list ? json_array_size(value) : value != NULL;
  ot_stop_text *const made = ot_arena_array(r->arena, (int64_t)n + 1, sizeof *made);
  for (size_t i = 0; i < n; i++) {
    const json_t *const text = list ? json_array_get(value, i) : value;
    OT_CHECK(json_is_string(text) && json_string_length(text) > 0, OT_USAGE,
             "%s: \"%s\" is not a text or a list of texts", r->line, key);
    const int64_t length = (int64_t)json_string_length(text);
    made[i] = (ot_stop_text){ot_arena_text(r->arena, json_string_value(text), length), length};
  }
  *texts = made;
  *count = (int)n;
  return OT_OK;
}

// ---- sequences ----

// Appends the ids of `text`; at the start of a text, after what begins texts.
static ot_status encode(reading *r, const char *text, int64_t length, bool begins,
                        ot_token_list *to) {
  const int32_t prefix = r->task->special.prefix;
  if (begins && prefix >= 0) OT_TRY(ot_token_list_append(to, &prefix, 1));
  const ot_status status = ot_encoder_encode(r->encoder, text, length, to);
  return status == OT_OK ? OT_OK : ot_fail(status, "%s: %s", r->line, ot_fail_message());
}

static ot_text_task_sequence *add_sequence(reading *r, const int32_t *ids, int64_t count) {
  ot_text_task *const task = r->task;
  task->sequences = ot_arena_grow(r->arena, task->sequences, task->num_sequences,
                                  &r->sequences_capacity, sizeof *task->sequences);
  int32_t *const copy = ot_arena_array(r->arena, count, sizeof *copy);
  memcpy(copy, ids, (size_t)count * sizeof *copy);
  ot_text_task_sequence *const made = &task->sequences[task->num_sequences++];
  *made = (ot_text_task_sequence){.ids = copy, .count = count, .first = 1};
  if (count > task->positions) task->positions = count;
  return made;
}

// ---- choice ----

// How a choice follows the context.
typedef struct choice_text {
  const char *context;
  const char *delimiter;  // between the two, no part of the choice; null: a space at the beginning
                          // of the choice, if there is one
  const char *choice;
} choice_text;

// Characters of the choice without the delimiter, by which acc_norm divides (lm-evaluation-harness:
// len(choice), without target_delimiter).
static int64_t characters_of(const choice_text *t) {
  const bool begins_with_it = !t->delimiter && t->choice[0] == ' ' && t->choice[1] != '\0';
  return count_characters(t->choice) - begins_with_it;
}

// Without a context the tokens follow what begins texts, unless they begin with it themselves.
static ot_status encode_alone(reading *r, const char *text, ot_token_list *before,
                              ot_token_list *all) {
  const int32_t prefix = r->task->special.prefix;
  ot_token_list ids = {0};
  ot_status status = encode(r, text, ot_text_length(text), false, &ids);
  const bool begins = status == OT_OK && ids.count > 0 && ids.ids[0] == prefix;
  if (status == OT_OK && prefix >= 0) status = ot_token_list_append(before, &prefix, 1);
  if (status == OT_OK && prefix >= 0 && !begins) status = ot_token_list_append(all, &prefix, 1);
  if (status == OT_OK) status = ot_token_list_append(all, ids.ids, ids.count);
  ot_token_list_release(&ids);
  return status;
}

// Context and choice are encoded together, and the choice's tokens are those after as many as the
// context alone has; white space at the end of the context belongs to the choice.
static ot_status add_choice(reading *r, const choice_text *t) {
  const char *const whole =
      ot_arena_format(r->arena, "%s%s%s", t->context, t->delimiter ? t->delimiter : "", t->choice);
  const int64_t kept = stripped_length(t->context);
  ot_token_list before = {0}, all = {0};
  ot_status status = kept > 0 ? encode(r, t->context, kept, false, &before)
                              : encode_alone(r, whole, &before, &all);
  if (status == OT_OK && kept > 0) status = encode(r, whole, ot_text_length(whole), false, &all);
  const int64_t most = r->source->model->max_positions;
  if (status == OT_OK && before.count == 0) {
    status = ot_fail(OT_USAGE,
                     "%s: the context is empty, and the tokenizer has no begin-of-text or "
                     "end-of-text token to begin with",
                     r->line);
  } else if (status == OT_OK && all.count <= before.count) {
    status = ot_fail(OT_USAGE, "%s: a choice adds no token to the context", r->line);
  } else if (status == OT_OK && all.count > most) {
    status = ot_fail(OT_USAGE, "%s: %lld tokens, the model has positions for %lld", r->line,
                     (long long)all.count, (long long)most);
  }
  if (status == OT_OK) {
    ot_text_task_sequence *const made = add_sequence(r, all.ids, all.count);
    made->first = before.count;
    made->characters = characters_of(t);
  }
  ot_token_list_release(&before);
  ot_token_list_release(&all);
  return status;
}

static ot_status read_choice(reading *r, const json_t *object) {
  ot_text_task *const task = r->task;
  const json_t *const choices = json_object_get(object, "choices");
  const json_t *const answer = json_object_get(object, "answer");
  const int64_t count = (int64_t)json_array_size(choices), first = task->num_sequences;
  choice_text text = {.context = ""};
  OT_TRY(text_of(r, object, "context", &text.context));
  if (json_object_get(object, "delimiter")) {
    OT_TRY(text_of(r, object, "delimiter", &text.delimiter));
  }
  OT_CHECK(json_is_array(choices) && count > 1, OT_USAGE,
           "%s: \"choices\" is not a list of two texts or more", r->line);
  const int64_t index = json_is_integer(answer) ? json_integer_value(answer) : -1;
  OT_CHECK(index >= 0 && index < count, OT_USAGE,
           "%s: \"answer\" is not the index of a choice, 0 to %lld", r->line, (long long)count - 1);
  for (int64_t i = 0; i < count; i++) {
    const json_t *const choice = json_array_get(choices, (size_t)i);
    text.choice = json_is_string(choice) ? json_string_value(choice) : "";
    OT_CHECK(text.choice[0] != '\0', OT_USAGE, "%s: choices[%lld] is not a text", r->line,
             (long long)i);
    OT_TRY(add_choice(r, &text));
  }
  task->questions = ot_arena_grow(r->arena, task->questions, task->num_questions,
                                  &r->questions_capacity, sizeof *task->questions);
  task->questions[task->num_questions++] = (ot_text_task_question){first, count, index};
  return OT_OK;
}

// ---- perplexity ----

// The tokens after the first of each window are scored, all of them once; the last window begins as
// early as it can (lm-evaluation-harness, get_rolling_token_windows).
static void add_windows(reading *r, const ot_token_list *tokens) {
  const int64_t most = r->source->model->max_positions - 1, scored = tokens->count - 1;
  for (int64_t done = 0, n; done < scored; done += n) {
    n = scored - done < most ? scored - done : most;
    const int64_t end = done + n, begin = done == 0 ? 0 : end - most;
    ot_text_task_sequence *const made = add_sequence(r, tokens->ids + begin, end + 1 - begin);
    made->first = done + 1 - begin;
  }
  r->task->tokens += scored;
}

static ot_status read_text(reading *r, const json_t *object) {
  const char *text = "";
  OT_TRY(text_of(r, object, "text", &text));
  ot_token_list tokens = {0};
  ot_status status = encode(r, text, ot_text_length(text), true, &tokens);
  if (status == OT_OK && tokens.count < 2) {
    status = ot_fail(OT_USAGE, "%s: no token to score", r->line);
  }
  if (status == OT_OK) add_windows(r, &tokens);
  ot_token_list_release(&tokens);
  r->task->bytes += ot_text_length(text);
  r->task->words += count_words(text);
  return status;
}

// ---- generation ----

static ot_status check_room(const reading *r, int64_t prompt, const json_t *given, int64_t *most) {
  const int64_t room = r->source->model->max_positions - prompt + 1;
  OT_CHECK(room > 0, OT_USAGE, "%s: a prompt of %lld tokens, the model has positions for %lld",
           r->line, (long long)prompt, (long long)r->source->model->max_positions);
  *most = room < MOST_TOKENS ? room : MOST_TOKENS;
  if (!given) return OT_OK;
  *most = json_is_integer(given) ? json_integer_value(given) : 0;
  OT_CHECK(*most > 0 && *most <= room, OT_USAGE,
           "%s: \"max_tokens\" is not from 1 to %lld, for which the model has positions after the "
           "prompt",
           r->line, (long long)room);
  return OT_OK;
}

static ot_status read_answers(reading *r, const json_t *object, ot_text_task_sequence *to) {
  const ot_stop_text *answers;
  const json_t *const answer = json_object_get(object, "answer");
  OT_CHECK(answer, OT_USAGE, "%s: needs \"answer\", a text or a list of texts", r->line);
  OT_TRY(texts_of(r, answer, "answer", &answers, &to->num_answers));
  ot_stop_text *const trimmed = ot_arena_array(r->arena, to->num_answers + 1, sizeof *trimmed);
  for (int i = 0; i < to->num_answers; i++) trimmed[i] = trim(answers[i].bytes, answers[i].length);
  to->answers = trimmed;
  OT_TRY(texts_of(r, json_object_get(object, "stop"), "stop", &to->stops, &to->num_stops));
  OT_CHECK(to->num_stops <= OT_MOST_STOPS, OT_USAGE, "%s: more than %d texts to stop at", r->line,
           OT_MOST_STOPS);
  return OT_OK;
}

static ot_status read_prompt(reading *r, const json_t *object) {
  const char *prompt = "";
  OT_TRY(text_of(r, object, "prompt", &prompt));
  ot_token_list tokens = {0};
  int64_t most = 0;
  ot_status status = encode(r, prompt, ot_text_length(prompt), prompt[0] == '\0', &tokens);
  if (status == OT_OK && tokens.count == 0) {
    status = ot_fail(OT_USAGE, "%s: the prompt is empty", r->line);
  }
  if (status == OT_OK) {
    status = check_room(r, tokens.count, json_object_get(object, "max_tokens"), &most);
  }
  if (status == OT_OK) {
    ot_text_task_sequence *const made = add_sequence(r, tokens.ids, tokens.count);
    made->max_tokens = most;
    if (made->count + most - 1 > r->task->positions) r->task->positions = made->count + most - 1;
    status = read_answers(r, object, made);
  }
  ot_token_list_release(&tokens);
  return status;
}

// ---- lines ----

static ot_status read_object(reading *r, const json_t *object) {
  static const struct {
    const char *key;
    ot_status (*read)(reading *r, const json_t *object);
  } kinds[] = {[OT_TEXT_TASK_CHOICE] = {"choices", read_choice},
               [OT_TEXT_TASK_PERPLEXITY] = {"text", read_text},
               [OT_TEXT_TASK_GENERATION] = {"prompt", read_prompt}};
  for (int kind = 0; kind < OT_COUNT(kinds); kind++) {
    if (!json_object_get(object, kinds[kind].key)) continue;
    if (r->task->num_sequences == 0) r->task->kind = (ot_text_task_kind)kind;
    OT_CHECK(kind == (int)r->task->kind, OT_USAGE,
             "%s: has \"%s\", the lines before it have \"%s\": one kind a file", r->line,
             kinds[kind].key, kinds[r->task->kind].key);
    return kinds[kind].read(r, object);
  }
  return ot_fail(OT_USAGE,
                 "%s: needs \"choices\" with \"context\" and \"answer\", or \"text\", or "
                 "\"prompt\" with \"answer\"",
                 r->line);
}

static ot_status read_line(reading *r, const char *text, int64_t length) {
  json_t *object = NULL;
  OT_CHECK(trim(text, length).length > 0, OT_USAGE, "%s: the line is empty", r->line);
  if (ot_json_parse(r->line, text, length, &object) != OT_OK) {
    const char *const reason = ot_fail_message();
    return ot_fail(OT_USAGE, "%s", ot_arena_text(r->arena, reason, ot_text_length(reason)));
  }
  const ot_status status = json_is_object(object)
                               ? read_object(r, object)
                               : ot_fail(OT_USAGE, "%s: not a JSON object", r->line);
  json_decref(object);
  return status;
}

static ot_status read_lines(reading *r, const char *text, int64_t bytes) {
  int64_t number = 1;
  for (int64_t at = 0, end; at < bytes; at = end + 1, number++) {
    const char *const newline = memchr(text + at, '\n', (size_t)(bytes - at));
    end = newline ? newline - text : bytes;
    r->line = ot_arena_format(r->arena, "%s:%lld", r->source->path, (long long)number);
    OT_TRY(read_line(r, text + at, end - at));
  }
  OT_CHECK(r->task->num_sequences > 0, OT_USAGE, "%s holds no line", r->source->path);
  return OT_OK;
}

// "arc" for "tasks/arc.jsonl".
static const char *name_of(const ot_text_task_source *source, ot_arena *arena) {
  if (source->name[0] != '\0')
    return ot_arena_text(arena, source->name, ot_text_length(source->name));
  const char *const base = ot_disk_base_name(source->path);
  const char *const dot = strrchr(base, '.');
  return ot_arena_text(arena, base, dot && dot > base ? dot - base : ot_text_length(base));
}

ot_status ot_text_task_read(const ot_text_task_source *source, ot_arena *arena,
                            ot_text_task *task) {
  ot_heap heap = {0};
  ot_arena scratch = ot_heap_arena_create(&heap);
  char *text = NULL;
  int64_t bytes = 0;
  *task = (ot_text_task){.name = name_of(source, arena),
                         .special = ot_special_tokens_of(source->tokenizer, source->model)};
  reading r = {.source = source, .arena = arena, .task = task};
  ot_status status = ot_disk_read(&scratch, source->path, MOST_BYTES, &text, &bytes);
  if (status == OT_OK) status = ot_encoder_create(source->tokenizer, &r.encoder);
  if (status == OT_OK) {
    ot_encoder_limit(r.encoder, source->model->vocab_size);
    status = read_lines(&r, text, bytes);
  }
  if (status == OT_OK) task->hash = ot_hash_bytes(OT_HASH_START, text, bytes);
  ot_encoder_destroy(&r.encoder);
  ot_heap_release(&heap);
  return status;
}

// ---- figures ----

// The first of the largest.
static int64_t best_of(const ot_text_task *task, const ot_text_task_question *q,
                       const double *results, bool by_character) {
  int64_t best = -1;
  double largest = -INFINITY;
  for (int64_t i = 0; i < q->count; i++) {
    const int64_t at = q->first + i;
    const double value =
        by_character ? results[at] / (double)task->sequences[at].characters : results[at];
    if (!(value > largest)) continue;
    largest = value;
    best = i;
  }
  return best;
}

static double share_right(const ot_text_task *task, const double *results, bool by_character) {
  int64_t right = 0;
  for (int64_t i = 0; i < task->num_questions; i++) {
    const ot_text_task_question *const q = &task->questions[i];
    right += best_of(task, q, results, by_character) == q->answer;
  }
  return (double)right / (double)task->num_questions;
}

// Mean nats of the right answers, per question: smooth where accuracy is at chance.
static double answer_nats(const ot_text_task *task, const double *results) {
  double sum = 0;
  for (int64_t i = 0; i < task->num_questions; i++) {
    sum -= results[task->questions[i].first + task->questions[i].answer];
  }
  return sum / (double)task->num_questions;
}

static double sum_of(const ot_text_task *task, const double *results) {
  double sum = 0;
  for (int64_t i = 0; i < task->num_sequences; i++) sum += results[i];
  return sum;
}

int ot_text_task_figures(const ot_text_task *task, const double *results,
                         ot_text_task_figure figures[OT_TEXT_TASK_FIGURES]) {
  const double sum = sum_of(task, results);
  int count = 0;
  switch (task->kind) {
    case OT_TEXT_TASK_CHOICE:
      figures[count++] = (ot_text_task_figure){"acc", share_right(task, results, false)};
      figures[count++] = (ot_text_task_figure){"acc_norm", share_right(task, results, true)};
      figures[count++] = (ot_text_task_figure){"answer_nats", answer_nats(task, results)};
      return count;
    case OT_TEXT_TASK_PERPLEXITY:
      figures[count++] =
          (ot_text_task_figure){"bits_per_byte", -sum / (double)task->bytes / log(2)};
      figures[count++] = (ot_text_task_figure){"word_perplexity", exp(-sum / (double)task->words)};
      figures[count++] = (ot_text_task_figure){"token_nats", -sum / (double)task->tokens};
      return count;
    case OT_TEXT_TASK_GENERATION:
      figures[count++] = (ot_text_task_figure){"exact_match", sum / (double)task->num_sequences};
      return count;
  }
  OT_UNREACHABLE();
}
