#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "engine/ends.h"
#include "engine/memory.h"
#include "engine/network.h"
#include "engine/plan.h"

namespace qgraph::engine {

// A network from a file, ready to run.
class Engine {
  public:
    // Throws LoadFailure if the file is damaged or needs more memory than is allowed.
    Engine(const std::string& path, const Options& options);

    const Network& network() const { return network_; }

    // Runs `samples` samples. Calls are serialized. `entries` has the codes of every entry, in the
    // order and types of the network; the codes of the tensors `wanted` are written to `results`.
    // Throws std::invalid_argument for codes outside of their range.
    void run(int64_t samples, const std::vector<const void*>& entries,
             const std::vector<uint32_t>& wanted, const std::vector<void*>& results);

    // The same from floats [samples, ...] to floats, for a network with one entry. `exponents` are
    // those of the tensors wanted. Throws std::invalid_argument for NaN.
    void run_floats(int64_t samples, const float* x, const FloatEntry& entry,
                    const std::vector<uint32_t>& wanted, const std::vector<int32_t>& exponents,
                    const std::vector<float*>& results);

    // Runs without `wanted`; returns the steps of each call and its time in seconds.
    std::vector<std::pair<std::vector<uint32_t>, double>> profile(int64_t samples, int runs);

    int64_t memory(int64_t samples);  // bytes of all tensors that exist at the same time

  private:
    using Kept = std::vector<bool>;                         // for each tensor
    using Key = std::pair<int64_t, std::vector<uint32_t>>;  // samples, and tensors wanted

    // A slice of samples goes through all calls while its tensors are in the caches. Threads
    // process different slices: each has a plan, and the last slice has its own if it is smaller.
    struct Slices {
        int64_t samples;  // of a slice
        int64_t count;
        std::vector<Plan> plans;
        std::vector<Plan> last;
    };

    Slices& slices(int64_t samples, const std::vector<uint32_t>& wanted);
    Slices make_slices(int64_t samples, const Kept& kept);
    Kept kept(const std::vector<uint32_t>& wanted) const;
    void check_samples(int64_t samples) const;
    void check_codes(int64_t samples, const std::vector<const void*>& entries) const;
    // Calls run(plan, first, samples) for each slice; samples begin at the first.
    using RunSlice = std::function<void(const Plan&, int64_t, int64_t)>;
    void for_slices(int64_t samples, const std::vector<uint32_t>& wanted, const RunSlice& run);

    MappedFile file_;
    Network network_;
    Options options_;
    Packed packed_;
    int64_t bytes_;                             // bytes of all tensors, for one sample
    std::list<std::pair<Key, Slices>> slices_;  // the latest first
    std::mutex mutex_;
};

}  // namespace qgraph::engine
