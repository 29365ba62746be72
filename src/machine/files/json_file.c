// SPDX-License-Identifier: Apache-2.0
// jansson with Orthant's error messages.
#include "files/json_file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "files/disk.h"

// Undoes JSON_DECODE_INT_AS_REAL for numbers that it did not round. Returns the value to put in the
// place of `value`; null: it stays.
static json_t *narrow(json_t *value) {
  static const double exact = 9007199254740992.0;  // 2^53
  size_t index;
  const char *key;
  void *next;
  json_t *item;
  if (json_is_real(value)) {
    const double real = json_real_value(value);
    return floor(real) == real && fabs(real) <= exact ? json_integer((json_int_t)real) : NULL;
  }
  json_array_foreach(value, index, item) {
    json_t *const narrowed = narrow(item);
    if (narrowed) json_array_set_new(value, index, narrowed);
  }
  json_object_foreach_safe(value, next, key, item) {
    json_t *const narrowed = narrow(item);
    if (narrowed) json_object_set_new(value, key, narrowed);
  }
  return NULL;
}

// Integers beyond 63 bits are valid JSON, such as model_max_length in many tokenizer_config.json.
// They are read as reals; where one is wanted as an integer, its type is an error.
static json_t *parse(const char *text, size_t bytes, json_error_t *error) {
  json_t *const root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, error);
  if (root || json_error_code(error) != json_error_numeric_overflow) return root;
  json_t *const reals =
      json_loadb(text, bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, error);
  if (reals) narrow(reals);
  return reals;
}

ot_status ot_json_parse(const char *name, const char *text, int64_t bytes, json_t **root) {
  json_error_t error;
  // jansson overlooks a zero byte after a number.
  const char *const zero = bytes > 0 ? memchr(text, '\0', (size_t)bytes) : NULL;
  OT_CHECK(zero == NULL, OT_ENVIRONMENT, "%s: not valid JSON: a zero byte at %lld", name,
           (long long)(zero - text));
  *root = parse(bytes > 0 ? text : "", (size_t)bytes, &error);
  OT_CHECK(*root != NULL, OT_ENVIRONMENT, "%s:%d:%d: not valid JSON: %s", name, error.line,
           error.column, error.text);
  return OT_OK;
}

ot_status ot_json_check_lists(const char *name, const char *text, int64_t bytes, int64_t most) {
  int64_t lists = 0;
  bool quoted = false;
  for (int64_t i = 0; i < bytes; i++) {
    if (text[i] == '"') quoted = !quoted;
    if (text[i] == '\\' && quoted) i++;
    lists += !quoted && (text[i] == '[' || text[i] == '{');
  }
  OT_CHECK(lists <= most, OT_USAGE, "%s has %lld lists and objects, allowed: %lld", name,
           (long long)lists, (long long)most);
  return OT_OK;
}

static ot_status load_open(int file, const char *path, int64_t limit, json_t **root) {
  int64_t bytes = 0;
  OT_TRY(ot_disk_size(file, path, limit, &bytes));
  char *const text = malloc((size_t)bytes + 1);
  OT_CHECK(text != NULL, OT_ENVIRONMENT, "out of memory for %lld bytes (%s)", (long long)bytes,
           path);
  ot_status status = ot_disk_read_at(file, path, 0, text, bytes);
  if (status == OT_OK) status = ot_json_parse(path, text, bytes, root);
  free(text);
  return status;
}

ot_status ot_json_load(const char *path, int64_t limit, json_t **root) {
  int file = -1;
  OT_TRY(ot_disk_open(path, &file));
  const ot_status status = load_open(file, path, limit, root);
  close(file);
  return status;
}

static ot_status wrong_type(const char *where, const char *key, const json_t *value,
                            const char *wanted) {
  if (value == NULL) return ot_fail(OT_ENVIRONMENT, "%s: key \"%s\" is missing", where, key);
  return ot_fail(OT_ENVIRONMENT, "%s: key \"%s\" is not %s", where, key, wanted);
}

ot_status ot_json_member_object(const char *where, const json_t *object, const char *key,
                                json_t **value) {
  *value = json_object_get(object, key);
  return json_is_object(*value) ? OT_OK : wrong_type(where, key, *value, "an object");
}

ot_status ot_json_member_text(const char *where, const json_t *object, const char *key,
                              const char **value) {
  const json_t *const found = json_object_get(object, key);
  *value = json_string_value(found);
  return *value != NULL ? OT_OK : wrong_type(where, key, found, "a text");
}

ot_status ot_json_member_count(const char *where, const json_t *object, const char *key,
                               int64_t *value) {
  const json_t *const found = json_object_get(object, key);
  *value = json_integer_value(found);
  if (!json_is_integer(found) || *value < 0)
    return wrong_type(where, key, found, "a whole number that is not negative");
  return OT_OK;
}

ot_status ot_json_check_keys(const char *where, const json_t *object, const char *const *allowed) {
  // jansson's iteration does not change the object, but its type is not const.
  json_t *const iterated = (json_t *)(uintptr_t)object;
  const char *key;
  json_t *value;
  json_object_foreach(iterated, key, value) {
    int i = 0;
    while (allowed[i] && strcmp(allowed[i], key) != 0) i++;
    OT_CHECK(allowed[i], OT_USAGE, "%s: key \"%s\" is not supported", where, key);
  }
  return OT_OK;
}
