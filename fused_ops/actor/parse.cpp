#include <cstring>

#include "actor/format.h"
#include "actor/program.h"

namespace qgraph::actor {
namespace {

constexpr int64_t kMostNumbers = int64_t{1} << 24;  // of all values of one sample

void require(bool condition, const char* what) {
    if (!condition) throw Refusal(what);
}

int64_t aligned(int64_t size) { return (size + kAlignment - 1) / kAlignment * kAlignment; }

// Reads sections in order. Counts have 32 bits and records 64 bytes, so sizes cannot overflow.
class Sections {
  public:
    Sections(const char* block, int64_t size) : block_(block), size_(size) {}

    template <typename T>
    std::vector<T> next(int64_t count) {
        const int64_t bytes = count * static_cast<int64_t>(sizeof(T));
        require(bytes <= size_ - at_, "the block ends within its tables");
        std::vector<T> records(static_cast<size_t>(count));
        if (count > 0) std::memcpy(records.data(), block_ + at_, static_cast<size_t>(bytes));
        at_ = aligned(at_ + bytes);
        require(at_ <= size_, "the block ends within its tables");
        return records;
    }
    int64_t at() const { return at_; }

  private:
    const char* block_;
    int64_t size_;
    int64_t at_ = sizeof(Header);
};

Header checked_header(const char* block, int64_t size) {
    Header header;
    require(size >= static_cast<int64_t>(sizeof header), "the data is too short for a block");
    std::memcpy(&header, block, sizeof header);
    require(header.format == kFormat, "the block has an unknown format version");
    require(header.size == static_cast<uint64_t>(size) && size % kAlignment == 0,
            "the size of the block differs from its header");
    require(header.values >= 1 && header.values <= kMaxCount && header.weights <= kMaxCount &&
                header.steps <= kMaxCount && header.outputs >= 1 && header.outputs <= kMaxCount,
            "the block has impossible counts");
    return header;
}

Shape read_shape(uint32_t rank, const uint32_t (&dims)[kMaxRank]) {
    Shape shape{};
    require(rank >= 1 && rank <= kMaxRank, "a shape has an impossible rank");
    shape.rank = static_cast<int>(rank);
    int64_t size = 1;
    for (uint32_t i = 0; i < kMaxRank; ++i) {
        require(i < rank ? dims[i] >= 1 : dims[i] == 0, "a shape is impossible");
        shape.dims[i] = dims[i];
        if (i >= rank) continue;
        require(dims[i] <= kMostNumbers / size, "a shape is too large");
        size *= dims[i];
    }
    return shape;
}

class Reader {
  public:
    Reader(const char* block, int64_t size)
        : header_(checked_header(block, size)), sections_(block, size) {
        program_.size = size;
        const auto values = sections_.next<ValueRecord>(header_.values);
        const auto weights = sections_.next<WeightRecord>(header_.weights);
        const auto steps = sections_.next<StepRecord>(header_.steps);
        indices_ = sections_.next<uint32_t>(header_.indices);
        sections_.next<char>(header_.names);
        program_.tables = sections_.at();
        read_values(values);
        for (const WeightRecord& record : weights) program_.weights.push_back(read_weight(record));
        made_.resize(values.size());
        made_[0] = true;
        for (const StepRecord& record : steps) program_.steps.push_back(read_step(record));
        for (uint32_t i = 0; i < header_.outputs; ++i) {
            program_.outputs.push_back(next_index());
            require(made_[program_.outputs.back()], "an output is not computed by any step");
        }
        require(at_ == indices_.size(), "the block has indices that no step uses");
    }
    Program take() { return std::move(program_); }

  private:
    void read_values(const std::vector<ValueRecord>& records) {
        int64_t all = 0;
        for (const ValueRecord& record : records) {
            program_.values.push_back(read_shape(record.rank, record.shape));
            all += program_.values.back().size();
            require(all <= kMostNumbers, "the values take too much memory");
        }
    }

    // Data must lie after the tables and within the block.
    int64_t place(uint64_t at, int64_t bytes) const {
        require(at % kAlignment == 0 && at >= static_cast<uint64_t>(program_.tables) &&
                    at <= static_cast<uint64_t>(program_.size) &&
                    bytes <= program_.size - static_cast<int64_t>(at),
                "weights lie outside the block");
        return static_cast<int64_t>(at);
    }

    Weight read_weight(const WeightRecord& record) const {
        Weight weight{};
        weight.shape = read_shape(record.rank, record.shape);
        require(record.storage <= static_cast<uint32_t>(Storage::int4),
                "a kernel or vector has an unknown storage type");
        weight.storage = static_cast<Storage>(record.storage);
        weight.bits = static_cast<int>(record.bits & 63);
        if (!weight.is_kernel()) {
            require(weight.storage == Storage::float32, "the values of a vector are not float32");
            weight.data = place(record.data, padded(weight.shape.last()) * 4);
            return weight;
        }
        require(weight.shape.rank != 3, "a kernel has rank 3");
        require(weight.segments() * weight.length() <= kMaxSum, "a sum has too many products");
        const int64_t channels = padded(weight.shape.last());
        const int64_t of_one = bytes_of(weight.storage, weight.segments(), weight.length());
        weight.data = place(record.data, channels * of_one);
        if (weight.exact()) {
            const int least = weight.storage == Storage::int8 ? 5 : 2;
            require(record.bits >= static_cast<uint32_t>(least) &&
                        record.bits <= (weight.storage == Storage::int8 ? 8u : 4u),
                    "a kernel has an impossible number of bits");
            weight.scale = place(record.scale, channels * 4);
            weight.sums = place(record.sums, channels * 4);
        }
        return weight;
    }

    uint32_t next_index() {
        require(at_ < indices_.size(), "the block has too few indices");
        const uint32_t index = indices_[at_++];
        require(index < program_.values.size(), "the index of a value is out of range");
        return index;
    }

    Step read_step(const StepRecord& record) {
        Step step{};
        require(record.op < kOps && record.activation < kActivations,
                "a step has an unknown op or activation");
        step.op = static_cast<Op>(record.op);
        step.activation = static_cast<Activation>(record.activation);
        step.alpha = record.alpha;
        step.epsilon = record.epsilon;
        for (uint32_t i = 0; i < record.inputs; ++i) {
            step.inputs.push_back(next_index());
            require(made_[step.inputs.back()], "a value is used before a step computes it");
        }
        step.output = record.output;
        require(step.output < made_.size() && !made_[step.output],
                "two steps compute the same value");
        made_[step.output] = true;
        for (size_t i = 0; i < 2; ++i) {
            step.weights[i] = record.weights[i];
            step.strides[i] = record.strides[i];
            step.ksize[i] = record.ksize[i];
        }
        for (size_t i = 0; i < 4; ++i) step.pads[i] = record.pads[i];
        check(step);
        return step;
    }

    const Shape& value(uint32_t i) const { return program_.values[i]; }

    const Weight& weight(const Step& step, size_t i) const {
        require(step.weights[i] < program_.weights.size(), "the index of a weight is out of range");
        return program_.weights[step.weights[i]];
    }

    void has_vector(const Step& step, size_t i, int64_t size) const {
        const Weight& found = weight(step, i);
        require(!found.is_kernel() && found.shape.last() == size,
                "the size of a vector does not match its step");
    }

    static void fits(bool condition) { require(condition, "the shapes of a step do not match"); }

    // Checks that windows over x give the shape of y.
    void fits_windows(const Step& step, const Shape& x, const Shape& y, int64_t height,
                      int64_t width) const {
        fits(x.rank == 3 && y.rank == 3);
        const int64_t sizes[] = {height, width};
        for (size_t i = 0; i < 2; ++i) {
            const int64_t whole = x.dims[i] + step.pads[2 * i] + step.pads[2 * i + 1];
            fits(step.strides[i] >= 1 && sizes[i] >= 1 && whole >= sizes[i] &&
                 (whole - sizes[i]) / step.strides[i] + 1 == y.dims[i]);
            require(whole <= kMostNumbers / x.dims[1 - i], "padding is too large");
        }
        const int64_t padded_height = x.dims[0] + step.pads[0] + step.pads[1];
        const int64_t padded_width = x.dims[1] + step.pads[2] + step.pads[3];
        require(padded_height <= kMostNumbers / padded_width &&
                    padded_height * padded_width <= kMostNumbers / x.dims[2],
                "padding is too large");
    }

    void check(const Step& step) const {
        const Shape& y = value(step.output);
        const OpFacts& facts = facts_of(step.op);
        const size_t inputs = step.inputs.size();
        fits(facts.more_inputs ? inputs >= facts.inputs : inputs == facts.inputs);
        const Shape& x = value(step.inputs[0]);
        switch (step.op) {
            case Op::dense: {
                const Shape& w = weight(step, 0).shape;
                fits(x.rank == 1 && y.rank == 1 && w.rank == 2 && w.dims[0] == x.last() &&
                     w.last() == y.last());
                return has_vector(step, 1, y.last());
            }
            case Op::conv: {
                const Shape& w = weight(step, 0).shape;
                fits(w.rank == 4);
                fits_windows(step, x, y, w.dims[0], w.dims[1]);
                fits(w.dims[2] == x.last() && w.dims[3] == y.last());
                return has_vector(step, 1, y.last());
            }
            case Op::max_pool:
            case Op::avg_pool:
                fits_windows(step, x, y, step.ksize[0], step.ksize[1]);
                return fits(x.last() == y.last());
            case Op::layer_norm:
            case Op::affine:
            case Op::clip:
                has_vector(step, 0, x.last());
                has_vector(step, 1, x.last());
                return fits(x == y);
            case Op::activate:
            case Op::center:
            case Op::softmax:
                return fits(x == y);
            case Op::add:
            case Op::multiply: {
                const Shape& other = value(step.inputs[1]);
                return fits(x == y && (other == x || other == with_last(x, 1)));
            }
            case Op::concat:
                return check_concat(step, y);
            case Op::flatten:
                return fits(y.rank == 1 && y.size() == x.size());
            case Op::slice:
                fits(step.ksize[1] == y.last() && step.ksize[0] + y.last() <= x.last());
                return fits(y == with_last(x, y.last()));
            case Op::reshape:
                return fits(y.size() == x.size());
            case Op::transpose:
                return check_transpose(step, x, y);
            case Op::sum:
                return fits(y == with_last(x, 1));
            case Op::matmul:
                return check_matmul(x, value(step.inputs[1]), y);
        }
        no_case(step.op, "actor/parse.cpp, check");
    }

    static Shape with_last(Shape shape, int64_t size) {
        shape.dims[static_cast<size_t>(shape.rank - 1)] = size;
        return shape;
    }

    static void check_transpose(const Step& step, const Shape& x, const Shape& y) {
        fits(x.rank == y.rank);
        std::array<bool, kMaxRank> taken{};
        for (size_t i = 0; i < static_cast<size_t>(x.rank); ++i) {
            fits(step.pads[i] >= 1 && step.pads[i] <= x.rank);
            const auto axis = static_cast<size_t>(step.pads[i] - 1);
            fits(!taken[axis] && y.dims[i] == x.dims[axis]);
            taken[axis] = true;
        }
    }

    static void check_matmul(const Shape& a, const Shape& b, const Shape& y) {
        fits(a.rank >= 2 && b.rank == a.rank);
        const auto rows = static_cast<size_t>(a.rank - 2);
        fits(b.dims[rows] == a.last() && y == with_last(a, b.last()));
        for (size_t i = 0; i < rows; ++i) fits(a.dims[i] == b.dims[i]);
    }

    void check_concat(const Step& step, const Shape& y) const {
        int64_t last = 0;
        for (const uint32_t input : step.inputs) {
            const Shape& x = value(input);
            last += x.last();
            fits(with_last(x, y.last()) == y);
        }
        fits(last == y.last());
    }

    Header header_;
    Sections sections_;
    Program program_{};
    std::vector<uint32_t> indices_;
    std::vector<bool> made_;
    size_t at_ = 0;
};

}  // namespace

void no_case(Op op, const char* place) {
    throw Refusal(std::string("op `") + name_of(op) + "` has no case in " + place);
}

int64_t Shape::size() const {
    int64_t size = 1;
    for (int i = 0; i < rank; ++i) size *= dims[static_cast<size_t>(i)];
    return size;
}

bool Shape::operator==(const Shape& other) const {
    return rank == other.rank && dims == other.dims;
}

Panels Weight::in(const char* block) const {
    const bool integers = exact();
    return {storage,
            segments(),
            length(),
            shape.last(),
            block + data,
            integers ? reinterpret_cast<const float*>(block + scale) : nullptr,
            integers ? reinterpret_cast<const int32_t*>(block + sums) : nullptr};
}

uint64_t part_of_checksum(const char* block, int64_t begin, int64_t end, Level level) {
    return kernels_of(level)->checksum(block + begin, static_cast<uint64_t>(end - begin),
                                       static_cast<uint64_t>(begin) / sizeof(uint32_t));
}

uint64_t checksum(const char* block, int64_t size, Level level) {
    alignas(kAlignment) char header[sizeof(Header)];
    std::memcpy(header, block, sizeof header);
    std::memset(header + offsetof(Header, checksum), 0, sizeof(uint64_t));
    return part_of_checksum(header, 0, sizeof header, level) +
           part_of_checksum(block, sizeof header, size, level);
}

Program parse(const char* block, int64_t size) { return Reader(block, size).take(); }

}  // namespace qgraph::actor
