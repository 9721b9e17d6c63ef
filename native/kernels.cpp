// Compiled once for each instruction set, with FEDDST_ISA its name. Nothing of the standard library is used here: what
// it would leave behind as weak symbols could be called on a processor that lacks the instructions.
#include "kernels.hpp"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#define FEDDST_JOIN_(a, b) a##b
#define FEDDST_JOIN(a, b) FEDDST_JOIN_(a, b)
#define INLINE inline __attribute__((always_inline))
#define INDEPENDENT _Pragma("GCC ivdep")  // no turn of the loop reads what another one writes

namespace feddst {
namespace {

#if defined(__AVX512F__)
#define FEDDST_WIDTH 16
#elif defined(__AVX2__)
#define FEDDST_WIDTH 8
#else
#define FEDDST_WIDTH 4
#endif

constexpr int kWidth = FEDDST_WIDTH;
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int kRegisters = 32;
#else
constexpr int kRegisters = 16;
#endif

#include "vectors.inc"
#include "convolution.inc"
#include "linear.inc"
#include "sliding.inc"
#include "pooling.inc"
#include "elementwise.inc"

const Kernels table = {
    kWidth,
    sparse_convolution,
    dense_convolution,
    sparse_convolution_gradient,
    dense_convolution_gradient,
    sparse_linear_forward,
    sparse_linear_backward,
    dense_linear_forward,
    dense_linear_backward,
    max_pool_forward,
    max_pool_backward,
    average_pool_forward,
    average_pool_backward,
    relu_forward,
    relu_backward,
    plane_sums,
    lane_sums,
    step,
    adam_step,
};

}  // namespace

const Kernels* FEDDST_JOIN(kernels_, FEDDST_ISA)() { return &table; }

}  // namespace feddst
