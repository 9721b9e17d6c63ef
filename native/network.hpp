// A chain of layers, as shapes: what is computed from what, and how it lies in memory. Holds no numbers.
#pragma once

#include <string>
#include <vector>

#include "kernels.hpp"

namespace feddst {

enum class Kind { convolution, linear, max_pool, average_pool, relu, softmax };

struct Operation {
    Kind kind;
    int outputs = 0;  // of a convolution or a linear layer
    Window window = {1, 1, 1, 1, 0, 0};
    bool bias = false;
    bool count_padding = true;
};

struct Shape {
    int planes, height, width;
    int size() const { return planes * height * width; }
};

// Where the planes of a block lie, counted in pixels: rows may have zeros before and after them.
struct Layout {
    Shape shape;
    int around = 0;

    int row() const { return shape.width + 2 * around; }
    int plane() const { return shape.height * row(); }
    int origin() const { return around; }
    int size() const { return shape.planes * plane(); }
    bool tight() const { return around == 0; }
};

// A convolution as the kernels know it, with stride 1 and no padding. With a stride, each input plane is taken apart
// into row_stride * column_stride planes of every other row and column, and the window accordingly.
struct Geometry {
    int planes;  // of the source
    int rows, columns;
    Layout source;
    bool direct;  // the input is the source as it is

    int taps() const { return planes * rows * columns; }
};

struct Layer {
    Operation op;
    Shape input, output;
    Geometry geometry = {};  // of a convolution
    Layout to = {};          // how the output and its gradient lie
    Layout padded = {};      // how a convolution wants the gradient of its output
    bool relu = false;       // a maximum is followed by ReLU
    bool first = false;      // no layer before it has weights
    int weights = -1;        // its place among the layers with weights
};

class Network {
public:
    Network(Shape input, const std::vector<Operation>& operations);

    const Shape& input() const { return input_; }
    int outputs() const { return layers_.back().output.size(); }
    const std::vector<Layer>& layers() const { return layers_; }
    const Layer& weighted(int index) const { return layers_[weighted_[index]]; }
    int first() const { return weighted_.front(); }  // the first layer with weights
    int weighted_count() const { return static_cast<int>(weighted_.size()); }

    // How many numbers the weights of a layer have.
    static std::int64_t size(const Layer& layer);

private:
    void place(const Operation& operation);
    void lay_out();

    Shape input_;
    std::vector<Layer> layers_;
    std::vector<int> weighted_;
};

}  // namespace feddst
