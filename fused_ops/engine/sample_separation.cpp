// Checks that a step keeps the samples of a batch separate. Samples are the first dimension of all
// tensors except constants.

#include <algorithm>

#include "engine/rules.h"

namespace qgraph::engine {
namespace {

class SampleSeparation {
  public:
    SampleSeparation(const Step& step, const Network& network) : step_(step), network_(network) {}

    void check() const {
        require(!output().empty() && output()[0] == 1);
        // Ops whose operands may each be a constant.
        const bool several =
            family_of(step_.op) == Family::binary || family_of(step_.op) == Family::matrix;
        bool any = !several && input(0).kind != Kind::constant;
        require(any || several);
        for (size_t i = 0; i < step_.inputs.size(); ++i) {
            const Shape& shape = input(i).shape;
            if (input(i).kind == Kind::constant) {
                const bool one = shape.size() < output().size() || shape[0] == 1;
                require(step_.op != Op::concat && (one || !several));
                continue;
            }
            any = true;
            require(!shape.empty() && shape[0] == 1);
            require(!several || shape.size() == output().size());
        }
        require(any);
        switch (family_of(step_.op)) {
            case Family::matrix:
                require(output().size() > 2 || input(1).kind == Kind::constant);
                return;
            case Family::row:
                require(step_.op == Op::max_pool || output().size() > 1);
                return;
            case Family::reduction:
                require(std::find(step_.list.begin(), step_.list.end(), 0) == step_.list.end());
                return;
            case Family::move:
                require(moves_within_samples());
                return;
            case Family::product:
            case Family::binary:
            case Family::unary:
            case Family::reshape:
                return;
        }
        no_case(step_.op, "engine/sample_separation.cpp, check");
    }

  private:
    bool moves_within_samples() const {
        switch (as_move(step_.op)) {
            case MoveOp::transpose:
                return step_.list[0] == 0;
            case MoveOp::slice:
                return step_.list[0] == 0 && step_.steps[0] == 1;
            case MoveOp::pad:
                return step_.list[0] == 0 && step_.list[1] == 0;
            case MoveOp::concat:
            case MoveOp::take:
                return step_.axis != 0;
            case MoveOp::embedding:
                return true;
        }
        no_case(step_.op, "engine/sample_separation.cpp, moves_within_samples");
    }

    const Tensor& input(size_t i) const { return network_.tensors[step_.inputs[i]]; }
    const Shape& output() const { return network_.tensors[step_.output].shape; }

    void require(bool separate) const {
        if (!separate) refuse(step_, network_, "mixes samples");
    }

    const Step& step_;
    const Network& network_;
};

}  // namespace

void check_sample_separation(const Step& step, const Network& network) {
    SampleSeparation(step, network).check();
}

}  // namespace qgraph::engine
