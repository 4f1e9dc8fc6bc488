#include "engine/kernels/finish.h"

#include <algorithm>
#include <cstring>

#include "engine/kernels/stages.h"

namespace qgraph::engine::kernels {
namespace {

constexpr int64_t kInfinity = int64_t{1} << 60;
constexpr int kArrays = 12;  // most arrays that a stage needs

bool in_s32(int64_t v) { return v >= INT32_MIN && v <= INT32_MAX; }
int64_t clamp(int64_t v, int64_t low, int64_t high) { return std::min(std::max(v, low), high); }

// Translates stages into steps. It tracks the range of values to know where 32 bits are enough.
// Additions are merged until another kind of stage follows. Clips are deferred: all later steps are
// monotone, so a clip can follow them with other limits. Most clips move to the end, where a single
// clip costs least.
class Compiler {
  public:
    Compiler(Code y, const std::vector<Block>& blocks, int lanes, const Sums& sums, char* memory,
             int64_t at)
        : blocks_(blocks),
          lanes_(lanes),
          memory_(memory),
          at_(at),
          low_(sums.low),
          high_(sums.high),
          least_(low_.size(), -kInfinity),
          most_(low_.size(), kInfinity),
          waiting_(low_.size(), 0),
          start_(sums.start.begin(), sums.start.end()) {
        finish_.y = y;
        finish_.count = 0;
    }

    Finish run(Stages stages) {
        for (int i = 0; i < stages.count; ++i) {
            const Stage& stage = stages.stages[i];
            if (stage.kind == Stage::Kind::add) {
                add(stage.term);
            } else {
                if (stage.kind == Stage::Kind::requantize) shift(stage);
                clip(stage.low, stage.high);
            }
        }
        end();
        return finish_;
    }

  private:
    template <typename Change>  // a function of a value and the channel
    void all(Values* values, const Change& change) {
        for (size_t c = 0; c < values->size(); ++c) (*values)[c] = change((*values)[c], c);
    }

    template <typename Of>  // a function of the channel
    int64_t array(const Of& of) {
        const int64_t begin = at_;
        for (const Block& block : blocks_) {
            const int64_t size = int64_t{4} * lanes_ * block.vectors;
            for (int64_t i = 0; i < size; ++i) {
                const int64_t channel =
                    std::min(channel_in_block(block, lanes_, i), block.channels - 1);
                const auto value = static_cast<int32_t>(of(block.channel + channel));
                std::memcpy(memory_ + at_, &value, 4);
                at_ += 4;
            }
        }
        at_ = aligned(at_);
        return begin;
    }

    Step& step(Step::Kind kind) {
        Step& step = finish_.steps[finish_.count++];
        step = Step{};
        step.kind = kind;
        return step;
    }

    void add(const Numbers& term) {
        const auto plus = [&](int64_t v, size_t c) {
            return v <= -kInfinity || v >= kInfinity ? v : v + term[static_cast<int64_t>(c)];
        };
        const auto fits = [&] {
            for (size_t c = 0; c < low_.size(); ++c) {
                if (!in_s32(plus(low_[c], c)) || !in_s32(plus(high_[c], c))) return false;
            }
            return true;
        };
        if (!fits()) clip_now();
        for (Values* values : {&low_, &high_, &least_, &most_, &waiting_}) all(values, plus);
        // The caller guarantees that true values fit.
        for (Values* values : {&low_, &high_}) {
            all(values, [](int64_t v, size_t) { return clamp(v, INT32_MIN, INT32_MAX); });
        }
    }

    void clip(const Numbers& low, const Numbers& high) {
        for (Values* values : {&least_, &most_}) {
            all(values, [&](int64_t v, size_t c) {
                const auto channel = static_cast<int64_t>(c);
                return clamp(v, low[channel], high[channel]);
            });
        }
    }

    void add_now() {
        if (std::all_of(waiting_.begin(), waiting_.end(), [](int64_t v) { return v == 0; })) return;
        if (finish_.count == 0) {
            for (size_t c = 0; c < start_.size(); ++c) start_[c] += waiting_[c];
        } else {
            step(Step::Kind::add).a = array([&](int64_t c) { return waiting_[c]; });
            terms_ = waiting_;
        }
        std::fill(waiting_.begin(), waiting_.end(), 0);
    }

    void clip_now() {
        bool needed = false;
        for (size_t c = 0; c < low_.size(); ++c) {
            needed |= least_[c] > low_[c] || most_[c] < high_[c];
        }
        if (needed) {
            add_now();
            Step& now = step(Step::Kind::clip);
            const auto in_32 = [](int64_t v) { return clamp(v, INT32_MIN, INT32_MAX); };
            now.a = array([&](int64_t c) { return in_32(least_[c]); });
            now.b = array([&](int64_t c) { return in_32(most_[c]); });
        }
        for (size_t c = 0; c < low_.size(); ++c) {
            low_[c] = clamp(low_[c], least_[c], most_[c]);
            high_[c] = clamp(high_[c], least_[c], most_[c]);
            least_[c] = -kInfinity;
            most_[c] = kInfinity;
        }
    }

    void shift(const Stage& stage) {
        const auto right = [&](int64_t c) { return std::max(stage.shift[c], 0); };
        const auto left = [&](int64_t c) {
            return std::min(std::max(-int64_t{stage.shift[c]}, int64_t{0}), int64_t{32});
        };
        const auto half = [&](int64_t c) {
            const bool none = right(c) == 0 || stage.rounding == Rounding::floor;
            return none ? 0 : int64_t{1} << (std::min(right(c), 40) - 1);
        };
        bool any_right = false;
        bool any_left = false;
        bool same = true;
        for (size_t c = 0; c < low_.size(); ++c) {
            any_right |= right(static_cast<int64_t>(c)) > 0;
            any_left |= left(static_cast<int64_t>(c)) > 0;
            same &= stage.shift[static_cast<int64_t>(c)] == stage.shift[0];
        }
        const auto fits = [&] {
            for (size_t c = 0; c < low_.size(); ++c) {
                const auto channel = static_cast<int64_t>(c);
                if (right(channel) > 31 || !in_s32(high_[c] + half(channel) + 1)) return false;
            }
            return true;
        };
        if (any_right) {
            if (!fits()) clip_now();
            if (fits()) {
                round(stage, right, half, same);
            } else {
                exact(stage, right);
            }
            after([&](int64_t v, int64_t c) { return round_shift(v, right(c), stage.rounding); });
            if (finish_.count == 1) {
                first_low_ = low_;
                first_high_ = high_;
            }
            shift_ = stage.shift[0];
        }
        if (any_left) {
            add_now();
            for (size_t c = 0; c < low_.size(); ++c) {
                const int64_t factor = int64_t{1} << left(static_cast<int64_t>(c));
                left_fits_ &= in_s32(low_[c] * factor) && in_s32(high_[c] * factor);
            }
            Step& now = step(Step::Kind::left);
            now.a = array([&](int64_t c) { return std::min<int64_t>(left(c), 31); });
            now.b = array([&](int64_t c) { return left(c) > 31 ? 0 : INT32_MIN >> left(c); });
            now.c = array([&](int64_t c) { return left(c) > 31 ? 0 : INT32_MAX >> left(c); });
            after([&](int64_t v, int64_t c) {
                return clamp(round_shift(v, -static_cast<int>(left(c)), stage.rounding), -kInfinity,
                             kInfinity);
            });
        }
    }

    template <typename Right, typename Half>
    void round(const Stage& stage, const Right& right, const Half& half, bool same) {
        all(&waiting_, [&](int64_t v, size_t c) { return v + half(static_cast<int64_t>(c)); });
        add_now();
        Step& now = step(Step::Kind::round);
        now.rounding = stage.rounding;
        now.uniform = same;
        now.a = array(right);
        now.b = array([&](int64_t c) { return (int64_t{1} << right(c)) - 1; });
        now.c = array([&](int64_t c) { return right(c) > 0 ? 1 : 0; });
    }

    template <typename Right>
    void exact(const Stage& stage, const Right& right) {
        add_now();
        Step& now = step(Step::Kind::exact);
        now.rounding = stage.rounding;
        now.a = array(right);
    }

    template <typename Function>  // a monotone function of a value and the channel
    void after(const Function& function) {
        for (Values* values : {&low_, &high_, &least_, &most_}) {
            all(values, [&](int64_t v, size_t c) {
                if (v <= -kInfinity || v >= kInfinity) return v;
                return function(v, static_cast<int64_t>(c));
            });
        }
        for (Values* values : {&low_, &high_}) {
            all(values, [](int64_t v, size_t) { return clamp(v, INT32_MIN, INT32_MAX); });
        }
    }

    void end() {
        add_now();
        const int64_t low = low_of(finish_.y);
        const int64_t high = high_of(finish_.y);
        for (Values* values : {&least_, &most_}) {
            all(values, [&](int64_t v, size_t) { return clamp(v, low, high); });
        }
        finish_.start = array([&](int64_t c) { return start_[c]; });
        finish_.low = array([&](int64_t c) { return least_[c]; });
        finish_.high = array([&](int64_t c) { return most_[c]; });
        if (size_of(finish_.y) == 1) {
            finish_.byte_low = bytes(least_);
            finish_.byte_high = bytes(most_);
        }
        finish_.chain = chain();
    }

    int64_t bytes(const Values& values) {
        const int64_t begin = at_;
        for (const int64_t v : values) memory_[at_++] = static_cast<char>(v);
        std::memset(memory_ + at_, 0, kAlign);
        at_ = aligned(at_ + kAlign);
        return begin;
    }

    Finish::Chain chain() const {
        using Kind = Step::Kind;
        const Step* steps = finish_.steps;
        if (finish_.count == 1 && steps[0].kind == Kind::round) return Finish::Chain::round;
        const bool rounds_last =
            finish_.count == 3 && steps[1].kind == Kind::add && steps[2].kind == Kind::round;
        if (rounds_last && steps[0].kind == Kind::left && left_fits_) {
            return Finish::Chain::left_round;
        }
        if (rounds_last && steps[0].kind == Kind::round && steps[0].rounding == steps[2].rounding) {
            return short_is_enough(steps[2]) ? Finish::Chain::twice_short : Finish::Chain::twice;
        }
        return Finish::Chain::any;
    }

    // True if the second of two roundings can use saturated 16-bit arithmetic: wherever it
    // saturates, the last clip must give the same result.
    bool short_is_enough(const Step& last) const {
        if (!last.uniform || shift_ > 14 || size_of(finish_.y) != 1) return false;
        if (last.rounding == Rounding::double_) return false;  // adds to a saturated value
        const auto rounded = [&](int64_t t) {
            const int64_t q = t >> shift_;
            const bool none = (t & ((int64_t{1} << shift_) - 1)) == 0;
            if (last.rounding == Rounding::half_even && none) return q & ~int64_t{1};
            return last.rounding == Rounding::half_away && none && q <= 0 ? q - 1 : q;
        };
        for (size_t c = 0; c < terms_.size(); ++c) {
            const int64_t term = terms_[c];
            if (term != static_cast<int16_t>(term)) return false;
            const bool over = first_high_[c] + std::max<int64_t>(term, 0) > INT16_MAX;
            const bool under = first_low_[c] + std::min<int64_t>(term, 0) < INT16_MIN;
            const int64_t top = rounded(std::min<int64_t>(INT16_MAX + term, INT16_MAX));
            const int64_t bottom = rounded(std::max<int64_t>(INT16_MIN + term, INT16_MIN));
            if ((over && top < most_[c]) || (under && bottom > least_[c])) return false;
        }
        return true;
    }

    const std::vector<Block>& blocks_;
    int lanes_;
    char* memory_;
    int64_t at_;
    Finish finish_{};
    Values low_, high_;              // the range of values before the deferred clip
    Values least_, most_;            // the limits of the deferred clip
    Values waiting_;                 // the deferred addition
    Values first_low_, first_high_;  // the range of values after the first step
    Values terms_;                   // the terms of the last addition
    int32_t shift_ = 0;              // the shift of the last rounding
    bool left_fits_ = true;          // false if a left shift may saturate
    Values start_;
};

}  // namespace

int64_t channel_in_block(const Block& block, int lanes, int64_t position) {
    const int64_t vector = position / (4 * lanes);
    const int64_t lane = position / 4 % lanes;
    return 4 * block.vectors * lane + 4 * vector + position % 4;
}

std::vector<Block> blocks_of(int64_t channels, int64_t groups, int lanes, bool whole) {
    const int64_t wide = int64_t{4} * lanes;
    const int64_t size = channels / groups;
    std::vector<Block> blocks;
    int64_t position = 0;
    for (int64_t group = 0; group < groups; ++group) {
        for (int64_t channel = 0; channel < size; channel += 4 * wide) {
            const int64_t left = std::min(size - channel, 4 * wide);
            const int vectors = whole || left > 2 * wide ? 4 : left > wide ? 2 : 1;
            blocks.push_back({group * size + channel, left, position, vectors, false});
            position += wide * vectors;
        }
    }
    return blocks;
}

int64_t finish_size(int64_t positions, int64_t channels, int stages) {
    return (stages * kArrays + 3) * aligned(positions * 4) + 2 * aligned(channels + kAlign);
}

Finish make_finish(Stages stages, Code y, const std::vector<Block>& blocks, int lanes,
                   const Sums& sums, char* memory, int64_t at) {
    return Compiler(y, blocks, lanes, sums, memory, at).run(stages);
}

}  // namespace qgraph::engine::kernels
