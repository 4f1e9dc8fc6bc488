#include "engine/kernels/extra_steps.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <initializer_list>

namespace qgraph::engine::kernels {
namespace {

constexpr int64_t kLongest = 2;  // longest chunk: 4 steps would need too many registers
// Cost per step by chunk length; the unit is a step in chunks of one. Measured on a Zen 3.
constexpr double kCosts[] = {0, 1, 0.8};
constexpr double kExtraCost = 1.1;

// The part of a weight that counts for sums of this sign; 0 stands for both signs.
int part(int8_t weight, int sign) {
    return sign == 0 ? std::abs(int{weight}) : std::max(sign * weight, 0);
}

// Calls f with the first byte of each pair and each sign; false as soon as f is.
template <typename F>
bool all_sums(int64_t bytes, const PairForm& form, const F& f) {
    for (int64_t lane = 0; lane < bytes; ++lane) {
        if (lane / form.apart % 2 != 0) continue;
        if (form.by_sign ? !f(lane, 1) || !f(lane, -1) : !f(lane, 0)) return false;
    }
    return true;
}

// One chunk of the sums that are computed together.
class Chunk {
  public:
    Chunk(int8_t* weights, int64_t bytes, int64_t first_step, int64_t steps, int64_t width,
          const PairForm& form, ExtraSteps& extra)
        : weights_(weights),
          bytes_(bytes),
          first_step_(first_step),
          steps_(steps),
          width_(width),
          form_(form),
          extra_(extra) {
        extra_of_.fill(-1);
    }

    // False where a step would need two extra steps.
    bool move_excess() {
        return all_sums(bytes_, form_, [&](int64_t lane, int sign) {
            int sum = 0;
            for (int64_t step = 0; step < steps_; ++step) sum += part_of(pair(step, lane), sign);
            for (int over = sum - form_.most; over > 0;) {
                const int taken = take(lane, sign, over);
                if (taken == 0) return false;
                over -= taken;
            }
            return true;
        });
    }

  private:
    int part_of(const int8_t* pair, int sign) const {
        return part(pair[0], sign) + part(pair[form_.apart], sign);
    }
    int8_t* pair(int64_t step, int64_t lane) { return weights_ + step * bytes_ + lane; }
    int8_t* rest(int64_t step, int64_t lane) {
        return extra_.weights.data() + extra_of_[static_cast<size_t>(step)] * width_ + lane;
    }
    bool has_extra(int64_t step) const { return extra_of_[static_cast<size_t>(step)] >= 0; }

    int movable_excess(int64_t step, int64_t lane, int sign) {
        const int left =
            has_extra(step) ? form_.most - part_of(rest(step, lane), sign) : form_.most;
        return std::min(part_of(pair(step, lane), sign), left);
    }

    // Moves up to `over` from weights to an extra step; steps that already have one come first.
    int take(int64_t lane, int sign, int over) {
        int64_t best = 0;
        const auto worth = [&](int64_t step) {
            const int found = std::min(movable_excess(step, lane, sign), over);
            return found + (has_extra(step) && found > 0 ? 4 * form_.most : 0);
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
        int left = over;
        for (const int64_t i : {int64_t{0}, form_.apart}) {
            if (left == 0) break;
            int8_t& weight = pair(best, lane)[i];
            int8_t& other = rest(best, lane)[i];
            const int size = std::min(part(weight, sign), left);
            const int moved = weight < 0 ? -size : size;
            weight = static_cast<int8_t>(weight - moved);
            other = static_cast<int8_t>(other + moved);
            left -= size;
        }
        return over;
    }

    int8_t* weights_;
    int64_t bytes_, first_step_, steps_, width_;
    const PairForm& form_;
    ExtraSteps& extra_;
    std::array<int64_t, kLongest> extra_of_;  // the extra step of each step, or -1
};

// False where a step would need two extra steps.
bool move_excess(std::vector<int8_t>& weights, const std::vector<Together>& all, int64_t steps,
                 int64_t width, const PairForm& form, ExtraSteps& extra) {
    for (const Together& sums : all) {
        extra.first.push_back(static_cast<int64_t>(extra.steps.size()));
        for (int64_t step = 0; step < steps; step += extra.chunk) {
            const int64_t count = std::min(extra.chunk, steps - step);
            int8_t* at = weights.data() + sums.at + step * sums.bytes;
            Chunk chunk(at, sums.bytes, step, count, width, form, extra);
            if (!chunk.move_excess()) return false;
        }
    }
    extra.first.push_back(static_cast<int64_t>(extra.steps.size()));
    return true;
}

}  // namespace

ExtraSteps make_extra_steps(std::vector<int8_t>& weights, const std::vector<Together>& all,
                            int64_t steps, int64_t width, const PairForm& form) {
    const std::vector<int8_t> whole = weights;
    ExtraSteps best;
    for (int64_t chunk = 1; chunk <= kLongest; ++chunk) {
        std::vector<int8_t> rest = whole;
        ExtraSteps extra;
        extra.chunk = chunk;
        if (!move_excess(rest, all, steps, width, form, extra)) break;
        const double products = static_cast<double>(steps) * static_cast<double>(all.size());
        extra.cost =
            kCosts[chunk] + kExtraCost * static_cast<double>(extra.steps.size()) / products;
        if (chunk > 1 && extra.cost >= best.cost) break;
        best = std::move(extra);
        weights = std::move(rest);
    }
    return best;
}

bool fit_words(const int8_t* weights, int64_t count, bool shifted, const PairForm& form) {
    const auto fits = [&](const int8_t* pair, int sign) {
        return part(pair[0], sign) + part(pair[form.apart], sign) <= form.most;
    };
    return all_sums(count, form, [&](int64_t i, int sign) {
        if (!fits(weights + i, sign)) return false;
        // The last of the two middle taps, or a tap of padding, is moved into the next pair.
        const bool middle = form.apart == 1 && i % 4 == 0;
        return !shifted || !middle || fits(weights + i + 1, sign);
    });
}

}  // namespace qgraph::engine::kernels
