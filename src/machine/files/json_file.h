// SPDX-License-Identifier: Apache-2.0
// Parses JSON with errors that name file, line and column; typed access to the members of an object
// with errors that name the key. Duplicate keys are always refused: silently keeping one of two
// would change the meaning of the file. Parser: jansson.
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

// Parses `text` [bytes]; messages use `name`. The caller frees `*root` with json_decref.
ot_status ot_json_parse(const char *name, const char *text, int64_t bytes, json_t **root);

// OT_USAGE if `text` [bytes], JSON or not, has more than `most` lists and objects. One of them
// takes a hundred times the memory of its text, other values thirty times.
ot_status ot_json_check_lists(const char *name, const char *text, int64_t bytes, int64_t most);

// Parses the file at `path`, of at most `limit` bytes.
ot_status ot_json_load(const char *path, int64_t limit, json_t **root);

// The member `key` of `object`, of the requested type; an absent member or another type is an error
// that names `where` (a file, or a file and a key) and `key`. The result is borrowed from `object`.
ot_status ot_json_member_object(const char *where, const json_t *object, const char *key,
                                json_t **value);
ot_status ot_json_member_text(const char *where, const json_t *object, const char *key,
                              const char **value);
// A nonnegative integer.
ot_status ot_json_member_count(const char *where, const json_t *object, const char *key,
                               int64_t *value);

// Fails with OT_USAGE naming the first key of `object` that is not one of `allowed` [..., null].
ot_status ot_json_check_keys(const char *where, const json_t *object, const char *const *allowed);
