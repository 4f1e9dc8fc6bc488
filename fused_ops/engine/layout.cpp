#include "engine/layout.h"

#include <string>

namespace qgraph::engine {
namespace {

std::vector<uint32_t> read_by(const Network& network, const Group& group) {
    std::vector<uint32_t> read = {group.x};
    for (const uint32_t index : group.steps) {
        const std::vector<uint32_t>& inputs = network.steps[index].inputs;
        read.insert(read.end(), inputs.begin(), inputs.end());
    }
    return read;
}

}  // namespace

bool is_alias(const Network& network, const Group& group) {
    const Step& step = network.steps[group.steps[0]];
    const Tensor &x = network.tensors[step.inputs[0]], &y = network.tensors[step.output];
    return step.op == Op::reshape && x.kind != Kind::constant && x.storage == y.storage;
}

void check_memory(int64_t bytes, int64_t most) {
    if (bytes > most) {
        throw LoadFailure("the network needs " + std::to_string(bytes) +
                          " bytes of memory; the limit is " + std::to_string(most));
    }
}

Layout make_layout(const Network& network, const std::vector<Group>& groups, int64_t samples,
                   const std::vector<bool>& kept, int64_t most) {
    const auto count = static_cast<uint32_t>(network.tensors.size());
    Layout layout;
    std::vector<uint32_t> root(count);  // the tensor whose memory it shares
    std::vector<Need> needs;
    std::vector<int64_t> need_of(count, -1);
    const auto begin = [&](uint32_t index, int64_t when) {
        const int64_t elements = product(layout.places[index].shape);
        const int64_t bytes = elements * size_of(network.tensors[index].storage);
        check_memory(bytes, most);
        need_of[index] = static_cast<int64_t>(needs.size());
        needs.push_back({bytes, when, when, 0});
    };
    const auto need = [&](uint32_t index) {
        const int64_t found = need_of[root[index]];
        return found < 0 ? nullptr : &needs[static_cast<size_t>(found)];
    };
    for (uint32_t i = 0; i < count; ++i) {
        const Tensor& tensor = network.tensors[i];
        // Constants are never written.
        layout.places.push_back(
            {const_cast<void*>(tensor.data), tensor.storage, network.shape(i, samples)});
        root[i] = i;
    }
    for (const uint32_t entry : network.entries) begin(entry, -1);
    const auto end = static_cast<int64_t>(groups.size());
    for (int64_t when = 0; when < end; ++when) {
        const Group& group = groups[static_cast<size_t>(when)];
        const uint32_t made = network.steps[group.steps.back()].output;
        if (is_alias(network, group)) {
            root[made] = root[group.x];
        } else {
            begin(made, when);
        }
        for (const uint32_t index : read_by(network, group)) {
            if (need(index) != nullptr) need(index)->last = when;
        }
    }
    for (uint32_t i = 0; i < count; ++i) {
        if (kept[i] && need(i) != nullptr) need(i)->last = end;
    }
    layout.bytes = place(needs);
    check_memory(layout.bytes, most);
    layout.memory = aligned(layout.bytes);
    for (uint32_t i = 0; i < count; ++i) {
        if (need(i) != nullptr) layout.places[i].data = layout.memory.get() + need(i)->offset;
    }
    return layout;
}

}  // namespace qgraph::engine
