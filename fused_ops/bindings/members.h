#pragma once

// Enumerators from Python's integers. An unknown number raises ValueError in Python: it must not be
// used as the index of a table.

#include <cstdint>
#include <iterator>
#include <stdexcept>
#include <string>

#include "core/quantize.h"
#include "engine/kernels/kernels.h"

namespace qgraph {

template <typename Member>
Member member(int64_t number, int64_t count, const char* what) {
    if (number < 0 || number >= count) {
        throw std::invalid_argument(std::string("unknown ") + what + " " + std::to_string(number) +
                                    "; there are " + std::to_string(count));
    }
    return static_cast<Member>(number);
}

inline Rounding rounding_of(int number) { return member<Rounding>(number, kRoundings, "rounding"); }

inline InstructionSet instruction_set_of(int number) {
    return member<InstructionSet>(number, kInstructionSets, "instruction set");
}

namespace engine {

inline Level level_of(int number) {
    return member<Level>(number, static_cast<int64_t>(std::size(kLevels)), "level");
}

// A level that this CPU supports.
inline Level supported_level(int number) {
    const Level level = level_of(number);
    if (!supports(level)) {
        throw std::invalid_argument("this CPU or build lacks level " + std::to_string(number));
    }
    return level;
}

inline Code code_number(int64_t number) { return member<Code>(number, kCodes, "type of codes"); }

inline Stage::Kind stage_kind(int number) {
    return member<Stage::Kind>(number, Stage::kKinds, "kind of stage");
}

}  // namespace engine
}  // namespace qgraph
