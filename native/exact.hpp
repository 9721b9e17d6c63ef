// Sums in fixed point, as feddst.core.fixedpoint defines them.
#pragma once

#include <cstdint>

namespace feddst {

// Adds scale * values to a sum of whole numbers: the nearest whole number to `coarse`, what is left in units of 2^-40 to
// `fine`; at the places `at`, or, where that is null, at 0, 1, ….
void add_exact(const float* values, std::int64_t count, double scale, const std::int64_t* at, double* coarse,
               double* fine);

}  // namespace feddst
