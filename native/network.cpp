#include "network.hpp"

#include <limits>
#include <stdexcept>

namespace feddst {
namespace {

int pooled(int size, int window, int stride, int padding) { return (size + 2 * padding - window) / stride + 1; }

int ceiling(int a, int b) { return (a + b - 1) / b; }

// Whatever is counted in pixels must fit into an int.
void check_size(std::int64_t planes, std::int64_t height, std::int64_t width) {
    constexpr std::int64_t most = std::int64_t(1) << 30;
    if (planes > most || height > most || width > most || height * width > most || planes > most / (height * width))
        throw std::invalid_argument("a layer is too large");
}

void check_window(const Window& w, const Shape& input) {
    const bool sound = w.rows > 0 && w.columns > 0 && w.row_stride > 0 && w.column_stride > 0 && w.row_padding >= 0 &&
                       w.column_padding >= 0;
    if (!sound) throw std::invalid_argument("a window must have positive sides and strides");
    for (int side : {w.rows, w.columns, w.row_stride, w.column_stride, w.row_padding, w.column_padding})
        if (side > 1 << 15) throw std::invalid_argument("a window is too large");
    if (w.rows > input.height + 2 * w.row_padding || w.columns > input.width + 2 * w.column_padding)
        throw std::invalid_argument("a window is larger than its input");
}

Shape after_window(const Shape& input, const Window& w, int planes) {
    check_window(w, input);
    return {planes, pooled(input.height, w.rows, w.row_stride, w.row_padding),
            pooled(input.width, w.columns, w.column_stride, w.column_padding)};
}

Shape after_pool(const Shape& input, const Window& w) {
    const Shape output = after_window(input, w, input.planes);
    if (2 * w.row_padding > w.rows || 2 * w.column_padding > w.columns)
        throw std::invalid_argument("a pool's padding is more than half its window");
    return output;
}

Geometry geometry_of(const Layer& layer) {
    const Window& w = layer.op.window;
    Geometry g;
    g.rows = ceiling(w.rows, w.row_stride);
    g.columns = ceiling(w.columns, w.column_stride);
    const std::int64_t planes = std::int64_t(layer.input.planes) * w.row_stride * w.column_stride;
    check_size(planes, layer.output.height + g.rows - 1, layer.output.width + g.columns - 1);
    check_size(planes * g.rows * g.columns, layer.op.outputs, 1);
    check_size(layer.output.planes, layer.output.height, layer.output.width + 2 * (g.columns - 1));
    g.planes = int(planes);
    g.direct = w.row_stride == 1 && w.column_stride == 1 && w.row_padding == 0 && w.column_padding == 0;
    g.source = {{g.planes, layer.output.height + g.rows - 1, layer.output.width + g.columns - 1}};
    return g;
}

Shape output_shape(const Operation& op, const Shape& input) {
    switch (op.kind) {
        case Kind::convolution: return after_window(input, op.window, op.outputs);
        case Kind::linear: return {op.outputs, 1, 1};
        case Kind::max_pool:
            if (op.window.rows > 127 || op.window.columns > 127)
                throw std::invalid_argument("a maximum is taken over at most 127 rows and columns");
            return after_pool(input, op.window);
        case Kind::average_pool: return after_pool(input, op.window);
        default: return input;
    }
}

// Whether what follows layer i needs its output without gaps.
bool read_in_one_piece(const std::vector<Layer>& layers, std::size_t i) {
    std::size_t next = i + 1;
    while (next < layers.size() && layers[next].op.kind == Kind::relu) ++next;
    return next == layers.size() || layers[next].op.kind == Kind::linear || layers[next].op.kind == Kind::softmax;
}

}  // namespace

Network::Network(Shape input, const std::vector<Operation>& operations) : input_(input) {
    if (input.planes < 1 || input.height < 1 || input.width < 1) throw std::invalid_argument("the input is empty");
    check_size(input.planes, input.height, input.width);
    for (const Operation& operation : operations) place(operation);
    if (weighted_.empty()) throw std::invalid_argument("no layer has weights");
    const Shape& last = layers_.back().output;
    if (last.height != 1 || last.width != 1) throw std::invalid_argument("the last layer must give one row of scores");
    lay_out();
}

std::int64_t Network::size(const Layer& layer) {
    if (layer.op.kind == Kind::linear) return std::int64_t(layer.input.size()) * layer.op.outputs;
    return std::int64_t(layer.input.planes) * layer.op.window.rows * layer.op.window.columns * layer.op.outputs;
}

void Network::place(const Operation& op) {
    if (!layers_.empty() && layers_.back().op.kind == Kind::softmax)
        throw std::invalid_argument("nothing may follow a softmax");
    // A maximum commutes with ReLU, and is the better place for it.
    if (op.kind == Kind::relu && !layers_.empty() && layers_.back().op.kind == Kind::max_pool) {
        layers_.back().relu = true;
        return;
    }
    Layer layer;
    layer.op = op;
    if (op.kind == Kind::max_pool && !layers_.empty() && layers_.back().op.kind == Kind::relu) {
        layers_.pop_back();
        layer.relu = true;
    }
    layer.input = layers_.empty() ? input_ : layers_.back().output;
    const bool has_weights = op.kind == Kind::convolution || op.kind == Kind::linear;
    if (has_weights && op.outputs < 1) throw std::invalid_argument("a layer has no outputs");
    layer.output = output_shape(op, layer.input);
    check_size(layer.output.planes, layer.output.height, layer.output.width);
    if (op.kind == Kind::linear) {
        check_size(layer.input.size(), kFeatureScale, 1);
        check_size(layer.output.size(), kFeatureScale, 1);
    }
    if (op.kind == Kind::convolution) layer.geometry = geometry_of(layer);
    if (has_weights) {
        if (size(layer) > std::numeric_limits<std::int32_t>::max())
            throw std::invalid_argument("a layer has too many weights");
        layer.first = weighted_.empty();
        layer.weights = static_cast<int>(weighted_.size());
        weighted_.push_back(static_cast<int>(layers_.size()));
    }
    layers_.push_back(layer);
}

// A convolution's output has zeros to the left and right if its gradient is to be convolved in turn. None are needed
// above and below: `Reach` keeps kernels from going there.
void Network::lay_out() {
    Layout before = {input_};
    for (std::size_t i = 0; i < layers_.size(); ++i) {
        Layer& layer = layers_[i];
        layer.to = {layer.output};
        if (layer.op.kind == Kind::convolution) {
            Geometry& g = layer.geometry;
            if (g.direct) g.source = before;
            layer.padded = {layer.output, layer.first ? 0 : g.columns - 1};
            if (!read_in_one_piece(layers_, i)) layer.to = layer.padded;
        }
        if (layer.op.kind == Kind::relu) layer.to = before;
        before = layer.to;
    }
}

}  // namespace feddst
