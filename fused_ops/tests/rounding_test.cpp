// Compares the rounding of codes with its definition, which is written out row by row.

#include "core/rounding.h"

#include <cmath>
#include <cstdint>
#include <vector>

#include "core/parallel.h"
#include "core/quantize.h"
#include "tests/check.h"

namespace qgraph {
namespace {

using Doubles = std::vector<double>;

struct Problem {
    RoundingShape shape;
    Doubles v, lower, hessian;

    explicit Problem(const RoundingShape& s) : shape(s) {
        unsigned state = 1;
        const auto random = [&] {
            state = state * 1664525 + 1013904223;
            return static_cast<double>(state >> 8) * 0x1p-24 - 0.5;
        };
        for (int64_t i = 0; i < s.groups * s.rows * s.columns; ++i) v.push_back(12 * random());
        for (int64_t i = 0; i < s.groups * s.rows * s.rows; ++i) lower.push_back(random());
        hessian.resize(lower.size());
        for (int64_t at = 0; at < s.groups * s.rows * s.rows; ++at) {
            const int64_t i = at / s.rows % s.rows;
            const int64_t j = at % s.rows;
            const int64_t turned = at - i * s.rows - j + j * s.rows + i;
            hessian[at] = (lower[at] + lower[turned]) / 2 + (i == j ? 2 : 0);
        }
    }

    Doubles in_turn() const {
        Doubles codes(v.size());
        for_columns([&](int64_t base, int64_t square) {
            for (int64_t row = 0; row < shape.rows; ++row) {
                double left = v[base + row * shape.columns];
                for (int64_t i = 0; i < row; ++i) {
                    const int64_t at = base + i * shape.columns;
                    left += lower[square + row * shape.rows + i] * (v[at] - codes[at]);
                }
                codes[base + row * shape.columns] =
                    std::nearbyint(std::min(std::max(left, shape.low), shape.high)) + 0.0;
            }
        });
        return codes;
    }

    Doubles descended(Doubles codes, int64_t sweeps) const {
        for_columns([&](int64_t base, int64_t square) {
            const double* h = hessian.data() + square;
            Doubles slope(static_cast<size_t>(shape.rows));
            const auto add = [&](int64_t i, double off) {
                for (int64_t row = 0; row < shape.rows; ++row) {
                    slope[row] += h[row * shape.rows + i] * off;
                }
            };
            for (int64_t i = 0; i < shape.rows; ++i) {
                add(i, codes[base + i * shape.columns] - v[base + i * shape.columns]);
            }
            for (int64_t sweep = 0; sweep < sweeps; ++sweep) {
                for (int64_t i = 0; i < shape.rows; ++i) {
                    double& code = codes[base + i * shape.columns];
                    const double step = slope[i] > 0 ? -1 : 1;
                    const bool pays = std::fabs(slope[i]) > h[i * shape.rows + i] * (0.5 + 1e-9);
                    if (!pays || code + step < shape.low || code + step > shape.high) continue;
                    code += step;
                    add(i, step);
                }
            }
        });
        return codes;
    }

  private:
    template <class Body>
    void for_columns(Body body) const {
        for (int64_t group = 0; group < shape.groups; ++group) {
            for (int64_t c = 0; c < shape.columns; ++c) {
                body(group * shape.rows * shape.columns + c, group * shape.rows * shape.rows);
            }
        }
    }
};

}  // namespace

void test_rounding() {
    const InstructionSet best = chosen();
    for (const RoundingShape& shape : {RoundingShape{1, 150, 70, -8, 7},
                                       {5, 9, 1, -4, 3},
                                       {2, 64, 33, -2, 1},
                                       {3, 1, 2, 0, 3},
                                       {1, 200, 32, -128, 127}}) {
        const Problem problem(shape);
        const Doubles in_turn = problem.in_turn();
        const Doubles few = problem.descended(in_turn, 1);
        const Doubles many = problem.descended(in_turn, 8);
        for (const InstructionSet set :
             {InstructionSet::plain, InstructionSet::avx2, InstructionSet::avx512}) {
            if (!choose(set)) continue;
            for (const int count : {1, 3}) {
                set_threads(count);
                Doubles codes(problem.v.size(), 99);
                round_in_turn(problem.v.data(), problem.lower.data(), codes.data(), shape);
                CHECK(same(codes, in_turn));
                descend(codes.data(), problem.v.data(), problem.hessian.data(), 1, shape);
                CHECK(same(codes, few));
                codes = in_turn;
                descend(codes.data(), problem.v.data(), problem.hessian.data(), 8, shape);
                CHECK(same(codes, many));
            }
        }
    }
    choose(best);
}

}  // namespace qgraph
