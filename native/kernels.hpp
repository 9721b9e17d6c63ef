// The arithmetic of sparse training, as plain functions over plain memory.
//
// Everything works on a block of images with the images innermost: value (channel, y, x) of image n lies at
// data[channel * plane + y * row + x * images + n]. A weight is then one multiply-add over contiguous memory, whatever
// its neighbours are, so that unstructured sparsity costs nothing for each weight that is left.
//
// `images` is always 8 or 16. kernels.cpp is compiled once for each instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

namespace feddst {

// Planes of a block: where they lie, and how far apart. `height` and `width` in pixels.
struct Map {
    float* data;
    std::ptrdiff_t plane;
    std::ptrdiff_t row;
    int planes;
    int height;
    int width;
    int images;
};

// Sparse convolutions read so many offsets ahead: their lists have as many more at their end, which mean nothing.
constexpr int kAhead = 4;

// The weights of a convolution with stride 1, sorted by the plane they add to, then by their row in the window.
//
// Entries of plane p that read the window's row k are start[p * (rows + 1) + k] to start[p * (rows + 1) + k + 1].
// Entry e reads the source at offset[e] pixels, counted from the output's own place (plane 0, same y and x).
struct Taps {
    const std::int32_t* start;
    const std::int32_t* offset;
    const float* weight;
    int rows;
};

// Which rows of the window can hit anything for output row y: those k with 0 <= y - k < height. With height 0 all of
// them do.
struct Reach {
    int height;
};

struct SparseConvolution {
    Map source;
    Map output;
    Taps taps;
    Reach reach;
    const float* bias;  // one for each output plane, or null
};

// Output planes that share each load of a dense convolution.
constexpr int kDensePlanes = 4;

// All weights of a convolution: weight[(block * sources * rows * columns + tap) * kDensePlanes + lane] belongs to the
// output plane kDensePlanes * block + lane; taps count source, window row and window column in this order.
struct DenseConvolution {
    Map source;
    Map output;
    const float* weight;
    std::ptrdiff_t window_row;     // how far apart the window's rows are: negative if it is mirrored
    std::ptrdiff_t window_column;
    int rows;
    int columns;
    Reach reach;
    const float* bias;
};

struct SparseConvolutionGradient {
    Map source;
    Map gradient;               // of the output
    const std::int32_t* start;  // entries of each output plane: start[p] to start[p + 1]
    const std::int32_t* offset;  // in pixels, as in `Taps`
    float* sums;                // `width` floats for each entry, added to
    float* bias_gradient;       // one for each plane, added to; null if there is no bias
};

struct DenseConvolutionGradient {
    Map source;
    Map gradient;
    int rows;
    int columns;
    float* weight_gradient;  // [output planes, source planes, rows, columns], added to
    float* bias_gradient;    // as above
};

// Numbers of a linear layer: [slices, features, images], with `stride` floats between slices.
struct Features {
    float* data;
    std::ptrdiff_t stride;
    int count;
    int images;
    int slices;
};

constexpr int kInputTile = 256;   // inputs of a linear layer that the nearest cache can hold
constexpr int kGroup = 4;         // inputs that are gone through together, a weight of each in a step
constexpr int kBlock = 4;         // steps, after which gradients fill a vector of any width
constexpr int kFeatureScale = 8;  // places of inputs and outputs are held times this, as an address needs them
static_assert(kInputTile % kGroup == 0 && kGroup == 4 && kGroup * kBlock % 16 == 0 && 8 % kFeatureScale == 0);

// A linear layer's active weights in two orders.
//
// Forward: by tile, then by output. Those of tile t and output o are start[t * outputs + o] to the next. An entry's lower
// half is the input that it reads, times kFeatureScale, its upper half which weight it is.
//
// Backward, as `weight` has them: a tile's inputs go by how many weights they hold, fewest first. kGroup of them are a
// group, and have so many weights in common as the first of them holds: one of each input, then another of each, and so
// on. Whole blocks of kBlock such steps come first, of all groups; then the steps that are left; then what inputs hold
// alone, which is all that the last inputs hold if they are too few for a group.
struct SparseLinearForward {
    Features input;
    Features output;
    const std::int32_t* start;
    const std::uint64_t* entry;
    const float* weight;
    const float* bias;
};

// What an optimizer goes down from: its gradient is that of the loss, with L2 regularisation and the proximal term.
struct Descent {
    float* weight;
    const float* gradient;
    const float* anchor;  // the received weights, or null without a proximal term
    const float* mask;    // 1 or 0 for each weight, or null if all are active
    std::int64_t count;
    float decay, proximal;
};

// SGD's.
struct Step {
    Descent descent;
    float* velocity;
    float rate, momentum;
};

// Adam's. `rate` and `scale`, the factor on `square`, make up for both having begun at zero.
struct AdamStep {
    Descent descent;
    float* mean;
    float* square;
    float rate, scale;
    float weight_kept;
    float mean_kept, mean_new, square_kept, square_new;
    float epsilon;
};

struct SparseLinearBackward {
    Features input;
    Features gradient;        // of the output
    Features input_gradient;  // may be the input's own memory; data is null if nobody wants it
    const std::int32_t* order;   // the inputs as they are gone through
    const std::int32_t* held;    // how many weights the k-th of them holds
    const std::int32_t* output;  // of each weight, times kFeatureScale
    std::int32_t rest, alone;    // where weights begin that fill no block, and those that inputs hold alone
    const float* weight;
    float* weight_gradient;
    bool first;        // nothing has been added to the gradient yet, whatever lies there
    const Step* step;  // with the gradient of all images, taken at once; null if some are still to come
};

// The same with every weight there: weight[i * outputs + o].
struct DenseLinearForward {
    Features input;
    Features output;
    const float* weight;
    const float* bias;
};

struct DenseLinearBackward {
    Features input;
    Features gradient;
    Features input_gradient;
    const float* weight;
    float* weight_gradient;  // added to
    float* transposed;       // room for slices * images * (outputs rounded up to 16)
};

struct Window {
    int rows, columns;
    int row_stride, column_stride;
    int row_padding, column_padding;
};

struct MaxPool {
    Map source;  // forward: input; backward: its gradient, written
    Map output;  // forward: output; backward: its gradient
    Window window;
    std::int8_t* column_choice;  // [planes, source height, output width, images]; null if nobody will ask
    std::int8_t* row_choice;     // [planes, output height, output width, images]; -1 where ReLU cuts off
    float* scratch;              // [source height, output width, images]
    bool relu;
};

struct AveragePool {
    Map source;
    Map output;
    Window window;
    bool count_padding;
};

struct Kernels {
    int width;  // floats in a vector
    void (*sparse_convolution)(const SparseConvolution&);
    void (*dense_convolution)(const DenseConvolution&);
    void (*sparse_convolution_gradient)(const SparseConvolutionGradient&);
    void (*dense_convolution_gradient)(const DenseConvolutionGradient&);
    void (*sparse_linear_forward)(const SparseLinearForward&);
    void (*sparse_linear_backward)(const SparseLinearBackward&);
    void (*dense_linear_forward)(const DenseLinearForward&);
    void (*dense_linear_backward)(const DenseLinearBackward&);
    void (*max_pool_forward)(const MaxPool&);
    void (*max_pool_backward)(const MaxPool&);
    void (*average_pool_forward)(const AveragePool&);
    void (*average_pool_backward)(const AveragePool&);
    void (*relu_forward)(const Map&);
    void (*relu_backward)(const Map& output, const Map& gradient);
    void (*plane_sums)(const Map& gradient, float* sums);  // one for each plane, added to
    void (*lane_sums)(const float* lanes, std::int64_t count, float* sums);  // of `width` floats each
    void (*step)(const Step&);
    void (*adam_step)(const AdamStep&);
};

}  // namespace feddst
