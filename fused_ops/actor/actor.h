#pragma once

// Runs the program of a block. The block is not copied.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "actor/program.h"
#include "core/aligned.h"

namespace qgraph::actor {

class Actor {
  public:
    // `block` is aligned to 64 bytes and must stay valid as long as the actor uses it. Throws
    // Refusal. The checksum is not checked: a damaged block gives wrong numbers, but is safe to
    // run.
    Actor(const char* block, int64_t size, Level level);

    // Changes to another block of the same program and bits. Throws Refusal and then keeps the old
    // one.
    void use(const char* block, int64_t size);

    // Computes all outputs of x [samples, observation]; false if x has NaN or infinity. Outputs are
    // valid until the next run.
    bool run(const float* x, int64_t samples);
    const float* output(size_t i) const { return value(program_.outputs[i]); }

    const Program& program() const { return program_; }
    const char* block() const { return block_; }

  private:
    struct Prepared {
        int64_t size = 0;             // of the output of one sample
        Product product{};            // the fields that are the same in each run
        std::vector<int64_t> pixels;  // of a product: where each pixel begins
        int64_t padded_row = 0;       // numbers in a row of an image, with padding
        int64_t padded_size = 0;      // numbers in a quantized sample, with padding
        bool quantized = false;       // the previous step has quantized the same input
    };

    void prepare();
    void reserve(int64_t samples);
    int64_t unpacked_size(const Product& product, int64_t samples) const;
    const float* value(uint32_t i) const { return i == 0 ? x_ : values_[i]; }
    float* result(uint32_t i) { return values_[i]; }
    void run_step(const Step& step, const Prepared& prepared, int64_t samples);
    void run_product(const Step& step, const Prepared& prepared, int64_t samples);
    void quantize(const Step& step, const Prepared& prepared, int64_t samples);
    void quantize_padded(const Step& step, const Prepared& prepared, int64_t samples);
    void pad(const Step& step, const Prepared& prepared, int64_t samples);
    void concat(const Step& step, int64_t samples);
    void slice(const Step& step, int64_t samples);
    void transpose(const Step& step, int64_t samples);
    void matmul(const Step& step, int64_t samples);
    const float* vector(const Step& step, size_t i) const;

    Program program_;
    std::vector<char> tables_;
    const Kernels* kernels_;
    const char* block_;
    std::vector<Prepared> prepared_;
    std::vector<int64_t> sizes_;  // of each value, for one sample
    const float* x_ = nullptr;
    bool checked_ = false;  // x has no NaN and no infinity
    std::vector<float*> values_;
    AlignedVector<float> memory_;
    std::vector<Range> ranges_;
    AlignedVector<char> codes_;  // the quantized input of a product
    int64_t most_codes_ = 0;     // largest size of a quantized sample, in bytes
    AlignedVector<char> unpacked_;
    int64_t reserved_ = 0;  // number of samples that memory is reserved for
};

}  // namespace qgraph::actor
