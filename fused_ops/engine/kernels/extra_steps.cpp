#include "engine/kernels/extra_steps.h"

#include <algorithm>
#include <array>

namespace qgraph::engine::kernels {
namespace {

constexpr int kMost = 128;       // largest sum of weights of one sign
constexpr int64_t kLongest = 2;  // longest chunk: 4 steps would need too many registers
// Cost per step by chunk length; the unit is a step in chunks of one. Measured on a Zen 3.
constexpr double kCosts[] = {0, 1, 0.8};
constexpr double kExtraCost = 1.1;

// The part of a weight that counts for sums of this sign.
int part(int8_t weight, int sign) { return std::max(sign * weight, 0); }
int part(const int8_t* pair, int sign) { return part(pair[0], sign) + part(pair[1], sign); }

// One chunk of the sums that are computed together.
class Chunk {
  public:
    Chunk(int8_t* weights, int64_t bytes, int64_t first_step, int64_t steps, int64_t width,
          ExtraSteps& extra)
        : weights_(weights),
          bytes_(bytes),
          first_step_(first_step),
          steps_(steps),
          width_(width),
          extra_(extra) {
        extra_of_.fill(-1);
    }

    // False where a step would need two extra steps.
    bool move_excess() {
        for (int64_t lane = 0; lane < bytes_; lane += 2) {
            for (const int sign : {1, -1}) {
                int sum = 0;
                for (int64_t step = 0; step < steps_; ++step) sum += part(pair(step, lane), sign);
                for (int over = sum - kMost; over > 0;) {
                    const int taken = take(lane, sign, over);
                    if (taken == 0) return false;
                    over -= taken;
                }
            }
        }
        return true;
    }

  private:
    int8_t* pair(int64_t step, int64_t lane) { return weights_ + step * bytes_ + lane; }
    int8_t* rest(int64_t step, int64_t lane) {
        return extra_.weights.data() + extra_of_[static_cast<size_t>(step)] * width_ + lane;
    }
    bool has_extra(int64_t step) const { return extra_of_[static_cast<size_t>(step)] >= 0; }

    int movable_excess(int64_t step, int64_t lane, int sign) {
        const int left = has_extra(step) ? kMost - part(rest(step, lane), sign) : kMost;
        return std::min(part(pair(step, lane), sign), left);
    }

    // Moves up to `over` from weights to an extra step; steps that already have one come first.
    int take(int64_t lane, int sign, int over) {
        int64_t best = 0;
        const auto worth = [&](int64_t step) {
            const int found = std::min(movable_excess(step, lane, sign), over);
            return found + (has_extra(step) && found > 0 ? 4 * kMost : 0);
        };
        for (int64_t step = 1; step < steps_; ++step) {
            if (worth(step) > worth(best)) best = step;
        }
        over = std::min(over, movable_excess(best, lane, sign));
        if (over > 0 && !has_extra(best)) {
            extra_of_[static_cast<size_t>(best)] = static_cast<int64_t>(extra_.steps.size());
            extra_.steps.push_back(static_cast<int32_t>(first_step_ + best));
            extra_.weights.resize(extra_.weights.size() + static_cast<size_t>(width_));
        }
        for (int left = over, i = 0; left > 0; ++i) {
            const int moved = std::min(part(pair(best, lane)[i], sign), left) * sign;
            pair(best, lane)[i] = static_cast<int8_t>(pair(best, lane)[i] - moved);
            rest(best, lane)[i] = static_cast<int8_t>(rest(best, lane)[i] + moved);
            left -= moved * sign;
        }
        return over;
    }

    int8_t* weights_;
    int64_t bytes_, first_step_, steps_, width_;
    ExtraSteps& extra_;
    std::array<int64_t, kLongest> extra_of_;  // the extra step of each step, or -1
};

// False where a step would need two extra steps.
bool move_excess(std::vector<int8_t>& weights, const std::vector<Together>& all, int64_t steps,
                 int64_t width, ExtraSteps& extra) {
    for (const Together& sums : all) {
        extra.first.push_back(static_cast<int64_t>(extra.steps.size()));
        for (int64_t step = 0; step < steps; step += extra.chunk) {
            const int64_t count = std::min(extra.chunk, steps - step);
            int8_t* at = weights.data() + sums.at + step * sums.bytes;
            if (!Chunk(at, sums.bytes, step, count, width, extra).move_excess()) return false;
        }
    }
    extra.first.push_back(static_cast<int64_t>(extra.steps.size()));
    return true;
}

}  // namespace

ExtraSteps make_extra_steps(std::vector<int8_t>& weights, const std::vector<Together>& all,
                            int64_t steps, int64_t width) {
    const std::vector<int8_t> whole = weights;
    ExtraSteps best;
    for (int64_t chunk = 1; chunk <= kLongest; ++chunk) {
        std::vector<int8_t> rest = whole;
        ExtraSteps extra;
        extra.chunk = chunk;
        if (!move_excess(rest, all, steps, width, extra)) break;
        const double products = static_cast<double>(steps) * static_cast<double>(all.size());
        extra.cost =
            kCosts[chunk] + kExtraCost * static_cast<double>(extra.steps.size()) / products;
        if (chunk > 1 && extra.cost >= best.cost) break;
        best = std::move(extra);
        weights = std::move(rest);
    }
    return best;
}

bool fit_words(const int8_t* weights, int64_t count, bool shifted) {
    const auto fits = [](const int8_t* pair) {
        return part(pair, 1) <= kMost && part(pair, -1) <= kMost;
    };
    for (int64_t i = 0; i < count; i += 4) {
        if (!fits(weights + i) || !fits(weights + i + 2)) return false;
        if (shifted && !fits(weights + i + 1)) return false;
    }
    return true;
}

}  // namespace qgraph::engine::kernels
