// The largest of many numbers.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

namespace feddst {

// A magnitude as a whole number, larger for larger ones; what is not a number is above all, and 0 is left for what does
// not count.
inline std::uint32_t rank_of(float value) {
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    bits &= 0x7fffffffu;
    return bits > 0x7f800000u ? 0xffffffffu : bits + 1;
}

// The count-th largest of these; `count` is at least 1.
std::uint32_t nth_largest(const std::vector<std::uint32_t>& ranks, std::int64_t count);

}  // namespace feddst
