// Runs networks of one input and one output in the engine, on one thread, for counts of
// instructions (benchmarks/aarch64). Arguments: number of the level, runs, folders. A folder has
// network.qgi and the codes input.bin; the output is written to output.bin. A call of getppid
// before and after the runs of a network marks the counts.

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace {

using namespace qgraph::engine;
using Bytes = std::vector<char>;

Bytes read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

int64_t bytes_of(const Network& network, uint32_t tensor) {
    int64_t size = size_of(network.tensors[tensor].storage);
    for (const int64_t axis : network.shape(tensor, 1)) size *= axis;
    return size;
}

void run(const std::string& folder, Level level, int runs) {
    Engine engine(folder + "/network.qgi", {1, level, true, int64_t{1} << 30});
    const Network& network = engine.network();
    const uint32_t entry = network.entries.at(0), exit = network.exits.at(0);
    Bytes input = read(folder + "/input.bin");
    input.resize(static_cast<size_t>(bytes_of(network, entry)));
    Bytes output(static_cast<size_t>(bytes_of(network, exit)));
    const auto once = [&] { engine.run(1, {input.data()}, {exit}, {output.data()}); };
    once();
    getppid();
    for (int i = 0; i < runs; ++i) once();
    getppid();
    std::ofstream(folder + "/output.bin", std::ios::binary)
        .write(output.data(), static_cast<std::streamsize>(output.size()));
}

}  // namespace

int main(int count, char** arguments) {
    if (count < 4) return 1;
    const auto level = static_cast<Level>(std::atoi(arguments[1]));
    if (!supports(level)) {
        std::fprintf(stderr, "this CPU does not support the level\n");
        return 1;
    }
    for (int i = 3; i < count; ++i) run(arguments[i], level, std::atoi(arguments[2]));
}
