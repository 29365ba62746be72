// SPDX-License-Identifier: Apache-2.0
// The elementary functions of the pure half, in double with + - * / only: libm differs between
// hosts, even between runs of one binary (FMA variants), but printed numbers must not. Relative
// error below 2e-16 (functions of bounded value: absolute), tested against libm.
#pragma once

double ot_log2(double x);  // x > 0
double ot_exp(double x);
double ot_log(double x);            // x > 0
double ot_pow(double x, double y);  // x > 0
double ot_sin(double x);            // |x| < 2^30
double ot_cos(double x);            // |x| < 2^30
double ot_sqrt(double x);
