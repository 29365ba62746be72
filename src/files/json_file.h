// SPDX-License-Identifier: Apache-2.0
// Reading JSON with errors that name file, line and column, and typed access to the members of an
// object with errors that name the key. Duplicate keys are always refused: a parser that keeps one
// of two silently reads another file than the one that was written. Parser: jansson.
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

// Parses `text` [bytes]; `name` stands for it in messages. The caller ends `*root` with
// json_decref.
ot_status ot_json_parse(const char *name, const char *text, int64_t bytes, json_t **root);

// Parses the file at `path`, of at most `limit` bytes.
ot_status ot_json_load(const char *path, int64_t limit, json_t **root);

// The member `key` of `object`, of the type asked for; absent or of another type is an error that
// names `where` (a file, or a file and a key) and `key`. What is returned is borrowed from
// `object`.
ot_status ot_json_member_object(const char *where, const json_t *object, const char *key,
                                json_t **value);
ot_status ot_json_member_text(const char *where, const json_t *object, const char *key,
                              const char **value);
// A whole number that is not negative.
ot_status ot_json_member_count(const char *where, const json_t *object, const char *key,
                               int64_t *value);

// Fails with OT_USAGE naming the first key of `object` that is not one of `allowed` [..., null].
ot_status ot_json_check_keys(const char *where, const json_t *object, const char *const *allowed);
