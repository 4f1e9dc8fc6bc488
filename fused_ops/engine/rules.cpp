// The rules for steps: the attributes of each op, and the shape of its result.

#include "engine/rules.h"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

namespace qgraph::engine {
namespace {

constexpr int64_t kMost = int64_t{1} << 31;     // the largest size, stride and pad
constexpr int64_t kLargest = int64_t{1} << 53;  // the largest code
// Limits of `standardize`, so that its sums fit into 64 bits.
constexpr int64_t kMostGuard = 26;
constexpr int64_t kLargestSquare = int64_t{1} << 52;
constexpr int64_t kMostShift = 62;
constexpr int64_t kMostBits = 32;  // of a softmax

class Rule {
  public:
    Rule(Step& step, const std::vector<int64_t>& numbers, const Network& network)
        : step_(step), numbers_(numbers), network_(network) {}

    void read() {
        const OpFacts& facts = facts_of(step_.op);
        const size_t inputs = step_.inputs.size();
        check(facts.more_inputs ? inputs >= facts.inputs : inputs == facts.inputs,
              "has the wrong number of inputs");
        check(network_.tensors[step_.output].kind == Kind::computed,
              "writes to a constant or to an entry");
        const Shape made = shape();
        check(at_ == numbers_.size(), "has more numbers than its op reads");
        check(made == output(), "computes a shape that differs from the shape of its output");
        if (network_.batch_free) check_sample_separation(step_, network_);
    }

  private:
    const Tensor& input(size_t i) const { return network_.tensors[step_.inputs[i]]; }
    const Shape& shape_of(size_t i) const { return input(i).shape; }
    const Shape& output() const { return network_.tensors[step_.output].shape; }

    void check(bool condition, const char* what) const {
        if (!condition) refuse(step_, network_, what);
    }

    int64_t number(int64_t low, int64_t high) {
        check(at_ < numbers_.size(), "has too few numbers");
        const int64_t found = numbers_[at_++];
        check(low <= found && found <= high, "has a number that is out of range");
        return found;
    }

    // Reads a count, then that many numbers.
    std::vector<int64_t> list(int64_t low, int64_t high) {
        const int64_t count = number(0, kMost);
        check(static_cast<uint64_t>(count) <= numbers_.size() - at_, "has too few numbers");
        std::vector<int64_t> found;
        for (int64_t i = 0; i < count; ++i) found.push_back(number(low, high));
        return found;
    }

    std::vector<int64_t> by_channel(int64_t low, int64_t high) {
        std::vector<int64_t> found = list(low, high);
        const Shape& x = shape_of(0);
        const auto count = static_cast<int64_t>(found.size());
        check(count <= 1 || (!x.empty() && x.back() == count),
              "needs one value, or one for each channel");
        return found;
    }

    Shape shape() {
        switch (family_of(step_.op)) {
            case Family::product:
                return product_shape();
            case Family::matrix:
                return matrix_shape();
            case Family::row:
                return row_shape();
            case Family::binary:
                return broadcast();
            case Family::unary:
                return unary_shape();
            case Family::reduction:
                return reduction_shape();
            case Family::move:
                return moved_shape();
            case Family::reshape:
                check(product(shape_of(0)) == product(output()), "changes the number of elements");
                return output();
        }
        no_case(step_.op, "engine/rules.cpp, shape");
    }

    Shape product_shape() {
        switch (as_product(step_.op)) {
            case ProductOp::conv2d:
                return conv2d();
            case ProductOp::depthwise_conv2d:
                return depthwise();
            case ProductOp::matmul:
                return matmul();
        }
        no_case(step_.op, "engine/rules.cpp, product_shape");
    }

    Shape matrix_shape() {
        switch (as_matrix(step_.op)) {
            case MatrixOp::batch_matmul:
                return batch_matmul();
        }
        no_case(step_.op, "engine/rules.cpp, matrix_shape");
    }

    Shape row_shape() {
        switch (as_row(step_.op)) {
            case RowOp::max_pool:
                return max_pool();
            case RowOp::standardize:
                return standardize();
            case RowOp::softmax:
                return softmax();
        }
        no_case(step_.op, "engine/rules.cpp, row_shape");
    }

    Shape unary_shape() {
        switch (as_unary(step_.op)) {
            case UnaryOp::clip:
                step_.lows = by_channel(-kLargest, kLargest);
                step_.highs = by_channel(-kLargest, kLargest);
                return shape_of(0);
            case UnaryOp::requantize:
                return requantize();
            case UnaryOp::lookup:
                check(input(1).kind == Kind::constant && shape_of(1).size() == 1,
                      "needs a constant table with one axis");
                step_.offset = number(-kLargest, kLargest);
                return shape_of(0);
            case UnaryOp::abs:
                return shape_of(0);
        }
        no_case(step_.op, "engine/rules.cpp, unary_shape");
    }

    Shape reduction_shape() {
        switch (as_reduction(step_.op)) {
            case ReductionOp::reduce_max:
                return reduce_max();
        }
        no_case(step_.op, "engine/rules.cpp, reduction_shape");
    }

    Shape moved_shape() {
        switch (as_move(step_.op)) {
            case MoveOp::transpose:
                return transpose();
            case MoveOp::slice:
                return slice();
            case MoveOp::concat:
                return concat();
            case MoveOp::pad:
                return pad();
            case MoveOp::take:
                return take();
            case MoveOp::embedding:
                return embedding();
        }
        no_case(step_.op, "engine/rules.cpp, moved_shape");
    }

    void read_window(bool dilated) {
        Window& window = step_.window;
        for (int64_t& stride : window.strides) stride = number(1, kMost);
        for (int64_t& dilation : window.dilations) dilation = dilated ? number(1, kMost) : 1;
        for (int64_t& pad : window.pads) pad = number(0, kMost);
    }

    Shape slid(int64_t channels) const {
        const Window& window = step_.window;
        Shape made = {shape_of(0)[0], 0, 0, channels};
        for (int axis = 0; axis < 2; ++axis) {
            const int64_t padded =
                shape_of(0)[1 + axis] + window.pads[2 * axis] + window.pads[2 * axis + 1];
            const int64_t kernel = window.kernel[axis], dilation = window.dilations[axis];
            check(kernel <= kMost && kernel - 1 <= (padded - 1) / dilation,
                  "has a window that is larger than the padded image");
            made[1 + axis] = (padded - window.span(axis)) / window.strides[axis] + 1;
        }
        return made;
    }

    void filters(size_t rank) {
        check(shape_of(0).size() == 4 && shape_of(1).size() == rank &&
                  input(1).kind == Kind::constant,
              "needs an image and constant filters");
        step_.window.kernel[0] = shape_of(1)[0];
        step_.window.kernel[1] = shape_of(1)[1];
        read_window(true);
    }

    Shape conv2d() {
        filters(4);
        step_.groups = number(1, kMost);
        const int64_t groups = step_.groups, inputs = shape_of(0)[3];
        check(inputs % groups == 0 && shape_of(1)[3] % groups == 0 &&
                  shape_of(1)[2] == inputs / groups,
              "has filters whose channels do not match its input");
        return slid(shape_of(1)[3]);
    }

    Shape depthwise() {
        filters(4);
        check(shape_of(1)[2] == shape_of(0)[3],
              "has filters whose channels do not match its input");
        return slid(product({shape_of(1)[2], shape_of(1)[3]}));
    }

    Shape matmul() {
        check(shape_of(0).size() == 2 && shape_of(1).size() == 2 &&
                  shape_of(0)[1] == shape_of(1)[0] && input(1).kind == Kind::constant,
              "needs a matrix and a constant matrix whose sizes match");
        return {shape_of(0)[0], shape_of(1)[1]};
    }

    Shape batch_matmul() const {
        Shape a = shape_of(0), b = shape_of(1);
        check(a.size() >= 2 && b.size() >= 2 && a.back() == b[b.size() - 2],
              "needs matrices whose sizes match");
        const int64_t rows = a[a.size() - 2], columns = b.back();
        a.resize(a.size() - 2), b.resize(b.size() - 2);
        Shape made = broadcast(a, b);
        made.push_back(rows), made.push_back(columns);
        return made;
    }

    Shape broadcast() const { return broadcast(shape_of(0), shape_of(1)); }

    Shape broadcast(const Shape& a, const Shape& b) const {
        Shape made(std::max(a.size(), b.size()));
        for (size_t i = 0; i < made.size(); ++i) {
            const int64_t left = i < a.size() ? a[a.size() - 1 - i] : 1;
            const int64_t right = i < b.size() ? b[b.size() - 1 - i] : 1;
            check(left == right || left == 1 || right == 1, "has inputs whose shapes do not match");
            made[made.size() - 1 - i] = std::max(left, right);
        }
        return made;
    }

    Shape requantize() {
        step_.rounding = static_cast<Rounding>(number(0, kRoundings - 1));
        step_.wrap = number(0, 1) == 1;
        step_.low = number(-kLargest, kLargest);
        step_.high = number(step_.low, kLargest);
        step_.shifts = by_channel(-kMost, kMost);
        check(!step_.shifts.empty(), "has no shift");
        const uint64_t span = static_cast<uint64_t>(step_.high - step_.low) + 1;
        check(!step_.wrap || (span & (span - 1)) == 0,
              "wraps into a range that is not a power of two");
        return shape_of(0);
    }

    Shape max_pool() {
        check(shape_of(0).size() == 4, "needs an image");
        Window& window = step_.window;
        for (int64_t& size : window.kernel) size = number(1, kMost);
        read_window(false);
        for (int i = 0; i < 4; ++i) {
            check(window.pads[i] < window.kernel[i / 2],
                  "has a window that can contain padding only");
        }
        return slid(shape_of(0)[3]);
    }

    Shape reduce_max() {
        const bool keep = number(0, 1) == 1;
        const auto rank = static_cast<int64_t>(shape_of(0).size());
        step_.list = list(0, rank - 1);
        check(std::adjacent_find(step_.list.begin(), step_.list.end(), std::greater_equal<>()) ==
                  step_.list.end(),
              "has axes that are not ascending");
        Shape made;
        for (int64_t axis = 0; axis < rank; ++axis) {
            const bool reduced =
                std::find(step_.list.begin(), step_.list.end(), axis) != step_.list.end();
            if (!reduced) made.push_back(shape_of(0)[static_cast<size_t>(axis)]);
            if (reduced && keep) made.push_back(1);
        }
        return made;
    }

    Shape transpose() {
        const Shape& x = shape_of(0);
        step_.list = list(0, static_cast<int64_t>(x.size()) - 1);
        check(step_.list.size() == x.size(), "permutes a different number of dimensions");
        Shape seen(x.size()), made;
        for (const int64_t axis : step_.list) {
            check(++seen[static_cast<size_t>(axis)] == 1, "lists an axis twice");
            made.push_back(x[static_cast<size_t>(axis)]);
        }
        return made;
    }

    // Reads the start and the stride of each dimension; the end follows from the output's shape.
    Shape slice() {
        const Shape& x = shape_of(0);
        check(output().size() == x.size(), "changes the number of dimensions");
        for (size_t i = 0; i < x.size(); ++i) {
            const int64_t begin = number(0, x[i] - 1), step = number(-kMost, kMost);
            const int64_t last = begin + (output()[i] - 1) * step;
            check(step != 0 && 0 <= last && last < x[i], "reads outside its input");
            step_.list.push_back(begin);
            step_.steps.push_back(step);
        }
        return output();
    }

    Shape concat() {
        Shape made = shape_of(0);
        check(!made.empty(), "has scalar inputs");
        step_.axis = number(0, static_cast<int64_t>(made.size()) - 1);
        const auto axis = static_cast<size_t>(step_.axis);
        made[axis] = 0;
        for (size_t i = 0; i < step_.inputs.size(); ++i) {
            Shape part = shape_of(i);
            check(part.size() == made.size(), "has inputs whose shapes do not match");
            const int64_t size = std::exchange(part[axis], made[axis]);
            check(part == made, "has inputs whose shapes do not match");
            made[axis] += size;
        }
        return made;
    }

    Shape pad() {
        Shape made = shape_of(0);
        for (int64_t& dim : made) {
            const int64_t before = number(0, kMost), after = number(0, kMost);
            dim += before + after;
            step_.list.insert(step_.list.end(), {before, after});
        }
        return made;
    }

    Shape take() {
        Shape made = shape_of(0);
        check(!made.empty(), "has a scalar input");
        step_.axis = number(0, static_cast<int64_t>(made.size()) - 1);
        int64_t& dim = made[static_cast<size_t>(step_.axis)];
        step_.list = list(0, dim - 1);
        dim = static_cast<int64_t>(step_.list.size());
        return made;
    }

    Shape embedding() const {
        check(input(1).kind == Kind::constant && !shape_of(1).empty(), "needs a constant table");
        check(input(0).low >= 0 && input(0).high < shape_of(1)[0], "has indices without a row");
        Shape made = shape_of(0);
        made.insert(made.end(), shape_of(1).begin() + 1, shape_of(1).end());
        return made;
    }

    Shape softmax() {
        check(!shape_of(0).empty(), "has a scalar input");
        check(input(1).kind == Kind::constant && shape_of(1).size() == 1 && shape_of(1)[0] > 0,
              "needs a constant table with one axis");
        step_.bits = number(0, kMostBits);
        step_.high = number(0, int64_t{1} << kMostBits);
        return shape_of(0);
    }

    Shape standardize() {
        check(!shape_of(0).empty(), "has a scalar input");
        step_.standard = {number(0, kMostGuard), number(0, kLargestSquare), number(0, kMostShift)};
        return shape_of(0);
    }

    Step& step_;
    const std::vector<int64_t>& numbers_;
    const Network& network_;
    size_t at_ = 0;
};

}  // namespace

void no_case(Op op, const char* place) {
    throw LoadFailure(std::string("op `") + name_of(op) + "` has no case in " + place);
}

void refuse(const Step& step, const Network& network, const char* what) {
    const std::string name(network.tensors[step.output].name);
    throw LoadFailure(std::string("step `") + name + "`, " + name_of(step.op) + ", " + what);
}

void read_attributes(Step& step, const std::vector<int64_t>& numbers, const Network& network) {
    Rule(step, numbers, network).read();
}

}  // namespace qgraph::engine
