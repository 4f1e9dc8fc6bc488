#include "engine/engine.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <stdexcept>

namespace qgraph::engine {
namespace {

constexpr size_t kPlans = 8;  // that are kept

template <typename T>
bool in_range(const void* data, int64_t count, const Tensor& tensor) {
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
    : file_(path), network_(parse(file_.data(), file_.size())), options_(options) {
    plan(1, {});  // packs the weights, and says now what does not fit
}

Plan& Engine::plan(int64_t samples, const std::vector<uint32_t>& wanted) {
    std::vector<bool> kept(network_.tensors.size());
    for (const uint32_t tensor : network_.exits) kept[tensor] = true;
    for (const uint32_t tensor : wanted) kept[tensor] = true;
    const Key key{samples, kept};
    const auto found = std::find_if(plans_.begin(), plans_.end(),
                                    [&](const auto& made) { return made.first == key; });
    if (found != plans_.end()) {
        plans_.splice(plans_.begin(), plans_, found);
    } else {
        plans_.emplace_front(key, make_plan(network_, samples, kept, options_, packed_));
        if (plans_.size() > kPlans) plans_.pop_back();
    }
    return plans_.front().second;
}

void Engine::run(int64_t samples, const std::vector<const void*>& entries,
                 const std::vector<uint32_t>& wanted, const std::vector<void*>& results) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (samples < 1 || (samples > 1 && !network_.batch_free)) {
        throw std::invalid_argument("the network does not take so many samples at once");
    }
    const Plan& plan = this->plan(samples, wanted);
    for (size_t i = 0; i < entries.size(); ++i) {
        const Tensor& tensor = network_.tensors[network_.entries[i]];
        const Place& place = plan.layout.places[network_.entries[i]];
        const int64_t count = product(place.shape);
        bool fits = true;
        with_type(tensor.storage,
                  [&](auto type) { fits = in_range<decltype(type)>(entries[i], count, tensor); });
        if (!fits) {
            throw std::invalid_argument("codes of `" + std::string(tensor.name) + "` leave " +
                                        std::to_string(tensor.low) + ".." +
                                        std::to_string(tensor.high));
        }
        std::memcpy(place.data, entries[i], static_cast<size_t>(count * size_of(tensor.storage)));
    }
    for (const Call& call : plan.calls) call.run();
    for (size_t i = 0; i < wanted.size(); ++i) {
        const Place& place = plan.layout.places[wanted[i]];
        std::memcpy(results[i], place.data,
                    static_cast<size_t>(product(place.shape) * size_of(place.storage)));
    }
}

std::vector<std::pair<std::vector<uint32_t>, double>> Engine::profile(int64_t samples, int runs) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const Plan& plan = this->plan(samples, {});
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
    return plan(samples, {}).layout.bytes;
}

}  // namespace qgraph::engine
