#include "actor/actor.h"

#include <cstring>

#include "actor/format.h"

namespace qgraph::actor {
namespace {

constexpr int64_t kMostUnpacked = 1 << 20;  // bytes: they stay in the caches
constexpr int64_t kSlack = 64;              // bytes after the codes that whole vectors may use

bool is_product(const Step& step) { return facts_of(step.op).layer; }

bool is_padded(const Step& step) {
    return step.pads[0] > 0 || step.pads[1] > 0 || step.pads[2] > 0 || step.pads[3] > 0;
}

}  // namespace

const Kernels* kernels_of(Level level) {
    if (!engine::supports(level)) return nullptr;
    switch (level) {
        case Level::plain:
            return plain_kernels();
        case Level::avx2:
            return avx2_kernels();
        case Level::avx512vnni:
            return avx512vnni_kernels();
        case Level::amx:
            return amx_kernels();
        case Level::neon:
            return neon_kernels();
        case Level::neon_dotprod:
            return neon_dotprod_kernels();
    }
    return nullptr;
}

Actor::Actor(const char* block, int64_t size, Level level)
    : program_(parse(block, size)),
      tables_(block, block + program_.tables),
      kernels_(kernels_of(level)),
      block_(block) {
    prepare();
    reserve(1);
}

void Actor::use(const char* block, int64_t size) {
    Header header, own;
    const auto other = [&](bool differs) {
        if (differs) throw Refusal("the block was made for a different program or different bits");
    };
    other(size != program_.size);
    std::memcpy(&header, block, sizeof header);
    std::memcpy(&own, tables_.data(), sizeof own);
    own.checksum = header.checksum;
    own.version = header.version;
    other(std::memcmp(&header, &own, sizeof header) != 0);
    other(std::memcmp(block + sizeof header, tables_.data() + sizeof header,
                      tables_.size() - sizeof header) != 0);
    block_ = block;
}

// Computes everything that depends on shapes only.
void Actor::prepare() {
    for (const Shape& shape : program_.values) sizes_.push_back(shape.size());
    values_.resize(sizes_.size());
    const Step* before = nullptr;  // the last step that quantized its input
    for (const Step& step : program_.steps) {
        Prepared made;
        made.size = sizes_[step.output];
        if (is_product(step)) {
            const Weight& kernel = program_.weights[step.weights[0]];
            const Shape& x = program_.values[step.inputs[0]];
            const int64_t bytes = kernel.exact() ? 1 : 4;
            if (step.op == Op::dense) {
                made.pixels = {0};
                made.padded_size = x.size();
            } else {
                const Shape& y = program_.values[step.output];
                made.padded_row = (x.dims[1] + step.pads[2] + step.pads[3]) * x.dims[2];
                made.padded_size = (x.dims[0] + step.pads[0] + step.pads[1]) * made.padded_row;
                for (int64_t row = 0; row < y.dims[0]; ++row) {
                    for (int64_t column = 0; column < y.dims[1]; ++column) {
                        made.pixels.push_back(bytes * (row * step.strides[0] * made.padded_row +
                                                       column * step.strides[1] * x.dims[2]));
                    }
                }
            }
            made.padded_size = (made.padded_size + kSlack - 1) / kSlack * kSlack;
            made.product.kernel = kernel.in(block_);
            made.product.activation = step.activation;
            made.product.alpha = step.alpha;
            made.product.pixel_count = static_cast<int64_t>(made.pixels.size());
            made.product.segment = made.padded_row * bytes;
            made.product.sample = made.padded_size * bytes;
            most_codes_ = std::max(most_codes_, made.padded_size * bytes + kSlack);
            made.quantized = before != nullptr && kernel.exact() && step.op == Op::dense &&
                             before->op == Op::dense && before->inputs[0] == step.inputs[0];
            const bool writes = kernel.exact() || is_padded(step);
            if (writes) before = kernel.exact() ? &step : nullptr;
        }
        prepared_.push_back(std::move(made));
    }
}

// Bytes for unpacked panels; 0 where unpacking would not be faster.
int64_t Actor::unpacked_size(const Product& product, int64_t samples) const {
    const Panels& kernel = product.kernel;
    const int64_t values = kernel.segments * rows_of(kernel.storage, kernel.length);
    const int64_t bytes = kernels_->unpacked(kernel.storage, values, samples * product.pixel_count);
    return bytes <= kMostUnpacked ? bytes : 0;
}

void Actor::reserve(int64_t samples) {
    if (samples <= reserved_) return;
    const auto padded_size = [&](size_t i) { return (sizes_[i] * samples + 15) / 16 * 16; };
    int64_t all = 0;
    for (size_t i = 1; i < sizes_.size(); ++i) all += padded_size(i);
    reserved_ = 0;
    memory_.assign(static_cast<size_t>(all), 0);
    codes_.assign(static_cast<size_t>(most_codes_ * samples + 2 * kSlack), 0);
    ranges_.resize(static_cast<size_t>(samples));
    int64_t most_unpacked = 0;
    for (const Prepared& prepared : prepared_) {
        most_unpacked = std::max(most_unpacked, unpacked_size(prepared.product, samples));
    }
    unpacked_.resize(static_cast<size_t>(most_unpacked));
    float* at = memory_.data();
    for (size_t i = 1; i < sizes_.size(); ++i) {
        values_[i] = at;
        at += padded_size(i);
    }
    reserved_ = samples;
}

bool Actor::run(const float* x, int64_t samples) {
    reserve(samples);
    x_ = x;
    checked_ = false;
    for (size_t i = 0; i < program_.steps.size(); ++i) {
        run_step(program_.steps[i], prepared_[i], samples);
    }
    return checked_ || kernels_->finite(x, samples * sizes_[0]);
}

const float* Actor::vector(const Step& step, size_t i) const {
    return reinterpret_cast<const float*>(block_ + program_.weights[step.weights[i]].data);
}

void Actor::run_step(const Step& step, const Prepared& prepared, int64_t samples) {
    const float* x = value(step.inputs[0]);
    float* y = result(step.output);
    const Shape& shape = program_.values[step.output];
    const Rows rows{x, y, samples * (prepared.size / shape.last()), shape.last()};
    switch (step.op) {
        case Op::dense:
        case Op::conv:
            return run_product(step, prepared, samples);
        case Op::affine:
            return kernels_->affine(rows, vector(step, 0), vector(step, 1));
        case Op::clip:
            return kernels_->clip(rows, vector(step, 0), vector(step, 1));
        case Op::layer_norm:
            return kernels_->layer_norm(rows, vector(step, 0), vector(step, 1), step.epsilon);
        case Op::activate:
            return kernels_->activate(rows, step.activation, step.alpha);
        case Op::center:
            return kernels_->center(rows);
        case Op::softmax:
            return kernels_->softmax(rows);
        case Op::max_pool:
        case Op::avg_pool: {
            const Shape& from = program_.values[step.inputs[0]];
            Pool pool{x,
                      y,
                      from.dims[0],
                      from.dims[1],
                      from.dims[2],
                      shape.dims[0],
                      shape.dims[1],
                      {step.ksize[0], step.ksize[1]},
                      {step.strides[0], step.strides[1]},
                      step.pads[0],
                      step.pads[2]};
            const auto run = step.op == Op::max_pool ? kernels_->max_pool : kernels_->avg_pool;
            for (int64_t i = 0; i < samples; ++i) {
                run(pool);
                pool.x += from.size();
                pool.y += prepared.size;
            }
            return;
        }
        case Op::add:
        case Op::multiply: {
            const auto run = step.op == Op::add ? kernels_->add : kernels_->multiply;
            const bool one = !(program_.values[step.inputs[1]] == shape);
            return run(rows, value(step.inputs[1]), one);
        }
        case Op::concat:
            return concat(step, samples);
        case Op::slice:
            return slice(step, samples);
        case Op::transpose:
            return transpose(step, samples);
        case Op::sum: {
            const int64_t row = program_.values[step.inputs[0]].last();
            return kernels_->sum({x, y, samples * prepared.size, row});
        }
        case Op::matmul:
            return matmul(step, samples);
        case Op::flatten:
        case Op::reshape:
            std::memcpy(y, x, static_cast<size_t>(samples * prepared.size) * sizeof(float));
            return;
    }
    no_case(step.op, "actor/actor.cpp, run_step");
}

void Actor::concat(const Step& step, int64_t samples) {
    const int64_t width = program_.values[step.output].last();
    const int64_t rows = samples * (sizes_[step.output] / width);
    float* y = result(step.output);
    for (const uint32_t input : step.inputs) {
        const int64_t own = program_.values[input].last();
        const float* x = value(input);
        for (int64_t row = 0; row < rows; ++row) {
            std::memcpy(y + row * width, x + row * own, static_cast<size_t>(own) * sizeof(float));
        }
        y += own;
    }
}

void Actor::slice(const Step& step, int64_t samples) {
    const int64_t width = program_.values[step.output].last();
    const int64_t row = program_.values[step.inputs[0]].last();
    const float* x = value(step.inputs[0]) + step.ksize[0];
    float* y = result(step.output);
    for (int64_t i = 0; i < samples * (sizes_[step.output] / width); ++i) {
        std::memcpy(y + i * width, x + i * row, static_cast<size_t>(width) * sizeof(float));
    }
}

void Actor::transpose(const Step& step, int64_t samples) {
    const Shape& from = program_.values[step.inputs[0]];
    const Shape& to = program_.values[step.output];
    // Four axes of the result, the first ones of size 1, and the way in x along each.
    const int missing = kMaxRank - from.rank;
    std::array<int64_t, kMaxRank> sizes{1, 1, 1, 1}, ways{};
    for (int i = 0; i < to.rank; ++i) {
        const auto at = static_cast<size_t>(missing + i);
        sizes[at] = to.dims[static_cast<size_t>(i)];
        ways[at] = 1;
        for (int64_t axis = step.pads[static_cast<size_t>(i)]; axis < from.rank; ++axis) {
            ways[at] *= from.dims[static_cast<size_t>(axis)];
        }
    }
    const float* x = value(step.inputs[0]);
    float* y = result(step.output);
    for (int64_t sample = 0; sample < samples; ++sample, x += sizes_[step.inputs[0]]) {
        for (int64_t a = 0; a < sizes[0]; ++a) {
            for (int64_t b = 0; b < sizes[1]; ++b) {
                for (int64_t c = 0; c < sizes[2]; ++c) {
                    const float* row = x + a * ways[0] + b * ways[1] + c * ways[2];
                    for (int64_t d = 0; d < sizes[3]; ++d) *y++ = row[d * ways[3]];
                }
            }
        }
    }
}

void Actor::matmul(const Step& step, int64_t samples) {
    const Shape& a = program_.values[step.inputs[0]];
    const Shape& b = program_.values[step.inputs[1]];
    const int64_t rows = a.dims[static_cast<size_t>(a.rank - 2)];
    Matrices m{value(step.inputs[0]),
               value(step.inputs[1]),
               result(step.output),
               rows,
               a.last(),
               b.last()};
    const int64_t count = samples * (a.size() / (m.rows * m.depth));
    for (int64_t i = 0; i < count; ++i) {
        kernels_->matmul(m);
        m.a += m.rows * m.depth;
        m.b += m.depth * m.columns;
        m.y += m.rows * m.columns;
    }
}

void Actor::run_product(const Step& step, const Prepared& prepared, int64_t samples) {
    const Weight& kernel = program_.weights[step.weights[0]];
    Product product = prepared.product;
    product.kernel.data = block_ + kernel.data;
    product.kernel.scale = reinterpret_cast<const float*>(block_ + kernel.scale);
    product.kernel.sums = reinterpret_cast<const int32_t*>(block_ + kernel.sums);
    product.bias = vector(step, 1);
    product.pixels = prepared.pixels.data();
    product.samples = samples;
    product.ranges = ranges_.data();
    product.y = result(step.output);
    product.x = codes_.data();
    product.unpacked = unpacked_size(product, samples) > 0 ? unpacked_.data() : nullptr;
    if (kernel.exact()) {
        if (!prepared.quantized) quantize(step, prepared, samples);
    } else if (is_padded(step)) {
        pad(step, prepared, samples);
    } else {
        product.x = reinterpret_cast<const char*>(value(step.inputs[0]));
        product.sample = sizes_[step.inputs[0]] * static_cast<int64_t>(sizeof(float));
    }
    kernels_->product(product);
}

void Actor::quantize(const Step& step, const Prepared& prepared, int64_t samples) {
    const int64_t size = sizes_[step.inputs[0]];
    const float* x = value(step.inputs[0]);
    auto* codes = reinterpret_cast<uint8_t*>(codes_.data());
    if (!is_padded(step)) {
        kernels_->quantize_rows(x, samples, size, ranges_.data(), codes, prepared.padded_size);
    } else {
        quantize_padded(step, prepared, samples);
    }
    if (step.inputs[0] == 0 && !checked_) {
        checked_ = true;
        for (int64_t i = 0; i < samples; ++i) {
            const float delta = ranges_[static_cast<size_t>(i)].delta;
            checked_ = checked_ && delta == delta;
        }
    }
}

void Actor::quantize_padded(const Step& step, const Prepared& prepared, int64_t samples) {
    const int64_t size = sizes_[step.inputs[0]];
    const float* x = value(step.inputs[0]);
    auto* codes = reinterpret_cast<uint8_t*>(codes_.data());
    for (int64_t i = 0; i < samples; ++i, x += size, codes += prepared.padded_size) {
        const Range range = kernels_->range(x, size);
        ranges_[static_cast<size_t>(i)] = range;
        // Row by row: numbers written after the end of a row are overwritten by the next row.
        const Shape& shape = program_.values[step.inputs[0]];
        const int64_t row = shape.dims[1] * shape.dims[2], left = step.pads[2] * shape.dims[2];
        const auto fill = [&](uint8_t* from, int64_t count) {
            std::memset(from, range.zero, static_cast<size_t>(count));
        };
        uint8_t* to = codes;
        fill(to, step.pads[0] * prepared.padded_row);
        to += step.pads[0] * prepared.padded_row;
        for (int64_t j = 0; j < shape.dims[0]; ++j, to += prepared.padded_row) {
            fill(to, left);
            kernels_->quantize(x + j * row, row, range, to + left);
            fill(to + left + row, prepared.padded_row - left - row);
        }
        fill(to, step.pads[1] * prepared.padded_row);
    }
}

void Actor::pad(const Step& step, const Prepared& prepared, int64_t samples) {
    const Shape& shape = program_.values[step.inputs[0]];
    const int64_t row = shape.dims[1] * shape.dims[2], left = step.pads[2] * shape.dims[2];
    const float* x = value(step.inputs[0]);
    auto* y = reinterpret_cast<float*>(codes_.data());
    for (int64_t i = 0; i < samples; ++i, y += prepared.padded_size) {
        std::memset(y, 0, static_cast<size_t>(prepared.padded_size) * sizeof(float));
        float* to = y + step.pads[0] * prepared.padded_row + left;
        for (int64_t j = 0; j < shape.dims[0]; ++j, x += row, to += prepared.padded_row) {
            std::memcpy(to, x, static_cast<size_t>(row) * sizeof(float));
        }
    }
}

}  // namespace qgraph::actor
