#include "engine/engine.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "core/parallel.h"

namespace qgraph::engine {
namespace {

constexpr size_t kKept = 8;  // plans kept, one for each combination of batch size and outputs
// The size of a slice's tensors: what fits the caches or, if that is more, a share of the weights'
// size, since each slice reads the weights again.
constexpr int64_t kSlice = 4 << 20;
constexpr int64_t kShare = 4;
constexpr int64_t kEven = 4;  // after this many rounds, an incomplete last round costs little

template <typename T>
bool in_range(const void* data, int64_t count, const Tensor& tensor) {
    using Limits = std::numeric_limits<T>;
    if (tensor.low <= int64_t{Limits::min()} && tensor.high >= int64_t{Limits::max()}) return true;
    const T* codes = static_cast<const T*>(data);
    T low = codes[0], high = codes[0];
    for (int64_t i = 0; i < count; ++i) {
        low = codes[i] < low ? codes[i] : low;
        high = codes[i] > high ? codes[i] : high;
    }
    return static_cast<int64_t>(low) >= tensor.low && static_cast<int64_t>(high) <= tensor.high;
}

}  // namespace

Engine::Engine(const std::string& path, const Options& options)
    : file_(path),
      network_(parse(file_.data(), file_.size())),
      options_(options),
      // Packs the weights, and reports now if memory is too small.
      bytes_(make_plan(network_, 1, kept({}), options_, packed_).layout.bytes) {}

Engine::Kept Engine::kept(const std::vector<uint32_t>& wanted) const {
    Kept kept(network_.tensors.size());
    for (const uint32_t tensor : network_.exits) kept[tensor] = true;
    for (const uint32_t tensor : wanted) kept[tensor] = true;
    return kept;
}

Engine::Slices Engine::make_slices(int64_t samples, const Kept& kept) {
    // One sample for each thread, unless too many threads would be idle in the last round.
    const int64_t threads = options_.threads;
    const bool even = samples % threads == 0 || samples >= kEven * threads;
    const int64_t lanes = even ? threads : 1;
    int64_t constants = 0;
    for (const Tensor& tensor : network_.tensors) {
        if (tensor.kind == Kind::constant)
            constants += product(tensor.shape) * size_of(tensor.storage);
    }
    const int64_t bytes = std::max(kSlice, constants / kShare);
    const int64_t most = std::clamp<int64_t>(bytes / std::max<int64_t>(bytes_, 1), 1,
                                             std::max<int64_t>(samples / lanes, 1));
    const auto up = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
    Slices slices;
    slices.samples = up(samples, up(up(samples, most), lanes) * lanes);
    slices.count = up(samples, slices.samples);
    Options options = options_;
    if (lanes > 1) options.threads = 1;
    const auto plan = [&](int64_t count) {
        return make_plan(network_, count, kept, options, packed_);
    };
    for (int64_t i = 0; i < std::min(lanes, slices.count); ++i) {
        slices.plans.push_back(plan(slices.samples));
        check_memory(static_cast<int64_t>(slices.plans.size()) * slices.plans[0].layout.bytes,
                     options_.memory);
    }
    if (samples % slices.samples != 0) slices.last.push_back(plan(samples % slices.samples));
    return slices;
}

Engine::Slices& Engine::slices(int64_t samples, const std::vector<uint32_t>& wanted) {
    const auto found = std::find_if(slices_.begin(), slices_.end(), [&](const auto& made) {
        return made.first.first == samples && made.first.second == wanted;
    });
    if (found != slices_.end()) {
        slices_.splice(slices_.begin(), slices_, found);
    } else {
        slices_.emplace_front(Key{samples, wanted}, make_slices(samples, kept(wanted)));
        if (slices_.size() > kKept) slices_.pop_back();
    }
    return slices_.front().second;
}

void Engine::check_codes(int64_t samples, const std::vector<const void*>& entries) const {
    for (size_t i = 0; i < entries.size(); ++i) {
        const Tensor& tensor = network_.tensors[network_.entries[i]];
        const int64_t count = product(network_.shape(network_.entries[i], samples));
        bool fits = true;
        with_type(tensor.storage,
                  [&](auto type) { fits = in_range<decltype(type)>(entries[i], count, tensor); });
        if (!fits) {
            throw std::invalid_argument("codes of `" + std::string(tensor.name) + "` leave " +
                                        std::to_string(tensor.low) + ".." +
                                        std::to_string(tensor.high));
        }
    }
}

void Engine::for_slices(int64_t samples, const std::vector<uint32_t>& wanted, const RunSlice& run) {
    const Slices& slices = this->slices(samples, wanted);
    std::atomic<int64_t> next{0};
    const auto lanes = static_cast<int64_t>(slices.plans.size());
    run_tasks(lanes, lanes, [&](int64_t lane) {
        for (int64_t i = next++; i < slices.count; i = next++) {
            const bool is_last = i == slices.count - 1 && !slices.last.empty();
            const Plan& plan = is_last ? slices.last[0] : slices.plans[static_cast<size_t>(lane)];
            const int64_t first = i * slices.samples;
            run(plan, first, std::min(slices.samples, samples - first));
        }
    });
}

void Engine::check_samples(int64_t samples) const {
    if (samples < 1 || (samples > 1 && !network_.batch_free)) {
        throw std::invalid_argument("too many samples for one call of this network");
    }
}

void Engine::run(int64_t samples, const std::vector<const void*>& entries,
                 const std::vector<uint32_t>& wanted, const std::vector<void*>& results) {
    const std::lock_guard<std::mutex> lock(mutex_);
    check_samples(samples);
    check_codes(samples, entries);
    for_slices(samples, wanted, [&](const Plan& plan, int64_t first, int64_t count) {
        for (size_t i = 0; i < entries.size(); ++i) {
            const Place& place = plan.layout.places[network_.entries[i]];
            const int64_t bytes = product(place.shape) * size_of(place.storage);
            const char* from = static_cast<const char*>(entries[i]) + first * (bytes / count);
            std::memcpy(place.data, from, static_cast<size_t>(bytes));
        }
        for (const Call& call : plan.calls) call.run();
        for (size_t i = 0; i < wanted.size(); ++i) {
            if (first > 0 && network_.tensors[wanted[i]].kind == Kind::constant) continue;
            const Place& place = plan.layout.places[wanted[i]];
            const int64_t bytes = product(place.shape) * size_of(place.storage);
            char* to = static_cast<char*>(results[i]) + first * (bytes / count);
            std::memcpy(to, place.data, static_cast<size_t>(bytes));
        }
    });
}

void Engine::run_floats(int64_t samples, const float* x, const FloatEntry& entry,
                        const std::vector<uint32_t>& wanted, const std::vector<int32_t>& exponents,
                        const std::vector<float*>& results) {
    const std::lock_guard<std::mutex> lock(mutex_);
    check_samples(samples);
    const Tensor& tensor = network_.tensors[network_.entries.at(0)];
    if (network_.entries.size() != 1 || static_cast<int64_t>(entry.low) < tensor.low ||
        static_cast<int64_t>(entry.high) > tensor.high) {
        throw std::invalid_argument("the number of inputs differs from the network's");
    }
    std::atomic<bool> numbers{true};
    for_slices(samples, wanted, [&](const Plan& plan, int64_t first, int64_t count) {
        const Place& place = plan.layout.places[network_.entries[0]];
        const int64_t size = product(place.shape);
        if (!to_codes(x + first * (size / count), size, entry, place.storage, place.data)) {
            numbers = false;
            return;
        }
        for (const Call& call : plan.calls) call.run();
        for (size_t i = 0; i < wanted.size(); ++i) {
            const Place& made = plan.layout.places[wanted[i]];
            const int64_t elements = product(made.shape);
            to_floats(made.data, elements, made.storage, exponents[i],
                      results[i] + first * (elements / count));
        }
    });
    if (!numbers) throw std::invalid_argument("the input contains NaN");
}

std::vector<std::pair<std::vector<uint32_t>, double>> Engine::profile(int64_t samples, int runs) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const Plan plan = make_plan(network_, samples, kept({}), options_, packed_);
    for (const uint32_t entry : network_.entries) {
        const Place& place = plan.layout.places[entry];
        std::memset(place.data, 0,
                    static_cast<size_t>(product(place.shape) * size_of(place.storage)));
    }
    std::vector<std::pair<std::vector<uint32_t>, double>> found;
    for (const Call& call : plan.calls) found.emplace_back(call.steps, 1e30);
    for (int i = 0; i < runs; ++i) {
        for (size_t j = 0; j < plan.calls.size(); ++j) {
            const auto begin = std::chrono::steady_clock::now();
            plan.calls[j].run();
            const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
            found[j].second = std::min(found[j].second, taken.count());
        }
    }
    return found;
}

int64_t Engine::memory(int64_t samples) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const Slices& slices = this->slices(samples, {});
    int64_t bytes = 0;
    for (const Plan& plan : slices.plans) bytes += plan.layout.bytes;
    for (const Plan& plan : slices.last) bytes += plan.layout.bytes;
    return bytes;
}

}  // namespace qgraph::engine
