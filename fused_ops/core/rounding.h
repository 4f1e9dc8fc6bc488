#pragma once

#include <cstdint>

namespace qgraph {

// For each of `groups` problems: integers q [rows, columns] in [low, high], columns independent,
// with a small (q - v)^T H (q - v). All arrays are in C order.
struct RoundingShape {
    int64_t groups, rows, columns;
    double low, high;
};

// Rounds row after row; the following rows compensate for the error of each: q[j] is the integer in
// the range nearest to v[j] + sum(lower[j, i] * (v[i] - q[i])), with i from 0 to j in this order.
// lower is [groups, rows, rows]. Products and sums are rounded one by one.
void round_in_turn(const double* v, const double* lower, double* codes, const RoundingShape& shape);

// Changes codes by one, row after row, while this lowers the error; at most `sweeps` times through
// all rows. hessian [groups, rows, rows] is symmetric.
void descend(double* codes, const double* v, const double* hessian, int64_t sweeps,
             const RoundingShape& shape);

}  // namespace qgraph
