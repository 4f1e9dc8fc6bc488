#include "engine/kernels/kernels.h"

#include <algorithm>

#include "engine/kernels/layer.h"

#if defined(__linux__) && defined(__x86_64__)
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__linux__) && defined(__aarch64__)
#include <sys/auxv.h>
#elif defined(__APPLE__) && defined(__aarch64__)
#include <sys/sysctl.h>
#endif

namespace qgraph::engine {
namespace kernels {
namespace {

#if defined(__x86_64__) && defined(__GNUC__)
// A process must ask Linux for AMX tiles before it uses them, since they enlarge the saved state of
// a thread.
bool may_use_tiles() {
#if defined(QGRAPH_AMX) && defined(SYS_arch_prctl)
    constexpr int kRequest = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
    static const bool may =
        __builtin_cpu_supports("amx-int8") && syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
    return may;
#else
    return false;
#endif
}
#endif

#if defined(__aarch64__)
// Every CPU of this architecture that runs Linux or macOS has NEON. Dot products came later.
bool has_dot_products() {
#if defined(__linux__)
    constexpr unsigned long kDotProducts = 1ul << 20;  // HWCAP_ASIMDDP
    return (getauxval(AT_HWCAP) & kDotProducts) != 0;
#elif defined(__APPLE__)
    int found = 0;
    size_t size = sizeof found;
    return sysctlbyname("hw.optional.arm.FEAT_DotProd", &found, &size, nullptr, 0) == 0 &&
           found != 0;
#else
    return false;
#endif
}
#endif

}  // namespace

const Kernels* kernels_of(Level level) {
#if defined(__x86_64__) && defined(__GNUC__)
    __builtin_cpu_init();
    if (has_avx512(level)) {
        const bool all = __builtin_cpu_supports("avx512vnni") &&
                         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
        if (!all || (level == Level::amx && !may_use_tiles())) return nullptr;
        return avx512vnni_kernels();
    }
    if (level == Level::avx2) return __builtin_cpu_supports("avx2") ? avx2_kernels() : nullptr;
#endif
#if defined(__aarch64__)
    if (level == Level::neon) return neon_kernels();
    if (level == Level::neon_dotprod) return has_dot_products() ? neon_dotprod_kernels() : nullptr;
#endif
    return level == Level::plain ? plain_kernels() : nullptr;
}

}  // namespace kernels

using namespace kernels;

bool supports(Level level) { return kernels_of(level) != nullptr; }

Level best_level() {
    Level best = Level::plain;
    for (const Level level : kLevels) {
        if (supports(level)) best = level;
    }
    return best;
}

namespace {

const Layer& layer_of(const void* packed) { return *static_cast<const Layer*>(packed); }

// Null if the level has no special loop.
LookUp quick_look_up([[maybe_unused]] Level level) {
#if defined(__x86_64__) && defined(__GNUC__)
    static const bool has_vbmi =
        __builtin_cpu_supports("avx512vbmi") != 0 && supports(Level::avx512vnni);
    return has_avx512(level) && has_vbmi ? vbmi_look_up() : nullptr;
#else
    return level == Level::plain ? nullptr : neon_look_up();
#endif
}

}  // namespace

size_t scratch_size(const void* packed) { return static_cast<size_t>(layer_of(packed).scratch); }

int64_t blocks(const void* packed) { return layer_of(packed).blocks; }

void run(const void* packed, const void* x, void* y, Part part, void* scratch) {
    const Layer& layer = layer_of(packed);
    const Kernels& kernels = *kernels_of(layer.level);
    part.last_block = std::min(part.last_block, layer.blocks);
    if (part.begin >= part.end || part.first_block >= part.last_block) return;
    const auto run = layer.conv.depthwise ? kernels.depthwise : kernels.matrix;
    run(layer, static_cast<const char*>(x), static_cast<char*>(y), part,
        static_cast<char*>(scratch));
}

void run_map(const void* packed, const void* a, const void* b, void* y, int64_t rows) {
    const Layer& layer = layer_of(packed);
    kernels_of(layer.level)
        ->map(layer, static_cast<const char*>(a), static_cast<const char*>(b),
              static_cast<char*>(y), rows);
}

void max_pool(const Pool& pool, const void* x, void* y, int64_t begin, int64_t end, Level level) {
    kernels_of(level)->max_pool(pool, static_cast<const char*>(x), static_cast<char*>(y), begin,
                                end);
}

void look_up(const uint8_t* x, const uint8_t* table, uint8_t* y, int64_t count, Level level) {
    if (const LookUp quick = quick_look_up(level)) return quick(x, table, y, count);
    for (int64_t i = 0; i < count; ++i) y[i] = table[x[i]];
}

}  // namespace qgraph::engine
