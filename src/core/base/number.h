// SPDX-License-Identifier: Apache-2.0
// Numbers to text and back, exactly rounded and without libc, so that every host and the web page
// print and read the same bytes. Also sizes with units (4k, 10B, 2GiB, 15T).
#pragma once

#include <stdbool.h>
#include <stdint.h>

// Writes `value` with at most `digits` (1 to 17) significant digits, correctly rounded (ties to
// even on the exact binary value), in the style of %g without trailing zeros; "nan", "inf", "-inf".
// Returns the length; `capacity` >= 32.
int64_t ot_number_print(char *out, int64_t capacity, double value, int digits);

// The shortest text that reads back as the same double (at most 17 digits).
int64_t ot_number_print_shortest(char *out, int64_t capacity, double value);

// `decimals` (0 to 17) digits after the point, correctly rounded, like %.Nf.
int64_t ot_number_print_fixed(char *out, int64_t capacity, double value, int decimals);

// Parses all of `text` as a double, correctly rounded: digits, point, exponent, sign, and nan/inf
// in any case when `allow_special`. False for anything else, or when the number is too large for a
// double and not `allow_special`.
bool ot_number_parse(const char *text, bool allow_special, double *value);

// Parses all of `text` as an integer: a sign, digits, '_' or commas between them (1_000, 16,384),
// and one unit, after a blank or not: k M B T P E (powers of 1000; G is B), Ki Mi Gi Ti Pi Ei
// (powers of 1024), each but B with an optional B for bytes; "bytes"; " tokens" may follow. A
// decimal point or exponent is allowed if the result is whole (1.5k, 3e9). False for anything else
// or overflow.
bool ot_number_parse_size(const char *text, int64_t *value);

// The same as a double, whole or not, correctly rounded. False for one too large for a double.
bool ot_number_parse_scaled(const char *text, double *value);
