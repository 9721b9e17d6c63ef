// Compiled without contraction: a product that is not rounded would leave another rest.
#include "exact.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace feddst {
namespace {

constexpr double kFinePerCoarse = 1099511627776.0;  // 2^40

// Below this, adding and taking away 3 * 2^51 rounds to the nearest whole number, ties to even.
constexpr double kRoundable = 2251799813685248.0;  // 2^51
constexpr double kRounder = 3 * kRoundable;

// The largest magnitude. Those of floats are in the order of their bits, which the compiler can compare side by side.
float largest(const float* values, std::int64_t count) {
    std::int32_t most = 0;
    for (std::int64_t i = 0; i < count; ++i) {
        std::int32_t bits;
        std::memcpy(&bits, values + i, sizeof bits);
        most = std::max(most, bits & 0x7fffffff);
    }
    float found;
    std::memcpy(&found, &most, sizeof found);
    return found;
}

double rounded(double x) { return (x + kRounder) - kRounder; }

// Adds up at the places that `at` gives for 0, 1, ….
template <class At>
void add_up(const float* values, std::int64_t count, double scale, At at, double* coarse, double* fine) {
    if (double(largest(values, count)) * scale < kRoundable) {
        for (std::int64_t i = 0; i < count; ++i) {
            const double term = double(values[i]) * scale, whole = rounded(term);
            coarse[at(i)] += whole;
            fine[at(i)] += rounded((term - whole) * kFinePerCoarse);
        }
        return;
    }
    for (std::int64_t i = 0; i < count; ++i) {
        const double term = double(values[i]) * scale, whole = std::nearbyint(term);
        coarse[at(i)] += whole;
        fine[at(i)] += std::nearbyint((term - whole) * kFinePerCoarse);
    }
}

}  // namespace

void add_exact(const float* values, std::int64_t count, double scale, const std::int64_t* at, double* coarse,
               double* fine) {
    if (at)
        add_up(values, count, scale, [at](std::int64_t i) { return at[i]; }, coarse, fine);
    else
        add_up(values, count, scale, [](std::int64_t i) { return i; }, coarse, fine);
}

}  // namespace feddst
