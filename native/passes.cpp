// How a block of images passes through the layers of a network, forward and back.
#include <algorithm>
#include <utility>

#include "session.hpp"

namespace feddst {
namespace {

bool pools(const Layer& layer) { return layer.op.kind == Kind::max_pool || layer.op.kind == Kind::average_pool; }

}  // namespace

Workspace& Session::workspace(int block) {
    if (spaces_[block].images) return spaces_[block];
    Workspace space;
    space.images = kBlocks[block].images;
    space.slices = kBlocks[block].slices;
    const std::size_t images = std::size_t(space.images) * space.slices;
    space.input = Buffer(network_->input().size() * images);
    const auto& layers = network_->layers();
    space.layers.resize(layers.size());
    for (std::size_t i = 0; i < layers.size(); ++i) {
        const Layer& layer = layers[i];
        LayerMemory& memory = space.layers[i];
        if (owner_[i] != int(i)) continue;
        const bool relu_next = i + 1 < layers.size() && layers[i + 1].op.kind == Kind::relu;
        memory.passing = i + 1 < layers.size() && pools(layers[i + 1]);
        memory.values = Buffer(layer.to.size() * (memory.passing ? space.images : images));
        // ReLU passes a gradient by what it gave out, so that the two must not share memory.
        if (relu_next) memory.gradient = Buffer(layer.to.size() * images);
        if (layer.op.kind == Kind::convolution) {
            if (!layer.geometry.direct) memory.relaid = Buffer(layer.geometry.source.size() * images);
            if (layer.to.tight() && !layer.padded.tight()) memory.padded = Buffer(layer.padded.size() * images);
        }
        if (layer.op.kind == Kind::linear) memory.scratch = Buffer((layer.op.outputs + 16) * images);
        if (layer.op.kind == Kind::max_pool) {
            const std::size_t maxima = std::size_t(layer.input.height) * layer.output.width;  // of a plane's columns
            memory.scratch = Buffer(maxima * space.images);
            memory.column_choice.resize(layer.input.planes * maxima * images);
            memory.row_choice.resize(layer.output.size() * images);
        }
    }
    return spaces_[block] = std::move(space);
}

Map Session::map(const Layout& layout, float* data, const Workspace& space, int slice) const {
    const Shape& s = layout.shape;
    const std::ptrdiff_t images = space.images;
    return {data + (std::ptrdiff_t(slice) * layout.size() + layout.origin()) * images, layout.plane() * images,
            layout.row() * images, s.planes, s.height, s.width, space.images};
}

// What a layer is given: the images, or what the layer before made of them.
Map Session::input(Workspace& space, int layer, int slice) const {
    if (layer == 0) return map({network_->input()}, space.input.data(), space, slice);
    return values(space, layer - 1, slice);
}

Map Session::values(Workspace& space, int layer, int slice) const {
    const int owner = owner_[layer];
    const LayerMemory& memory = space.layers[owner];
    return map(network_->layers()[owner].to, memory.values.data(), space, memory.passing ? 0 : slice);
}

Map Session::gradient(Workspace& space, int layer, int slice) const {
    const int owner = owner_[layer];
    const LayerMemory& memory = space.layers[owner];
    float* data = memory.gradient ? memory.gradient.data() : memory.values.data();
    return map(network_->layers()[owner].to, data, space, memory.passing ? 0 : slice);
}

// All slices of a map that has no gaps, given its first.
Features Session::features(const Workspace& space, const Map& first) {
    const int count = first.planes * first.height * first.width;
    return {first.data, std::ptrdiff_t(count) * space.images, count, space.images, space.slices};
}

void Session::take_in(Workspace& space, const float* pixels, const std::int64_t* order, int count) const {
    const std::ptrdiff_t size = network_->input().size();
    float* to = space.input.data();
    for (int slice = 0; slice < space.slices; ++slice) {
        const int first = slice * space.images, there = std::max(0, std::min(count - first, space.images));
        const float* from[kMostImages];
        for (int n = 0; n < there; ++n) from[n] = pixels + (order ? order[first + n] : first + n) * size;
        for (std::ptrdiff_t i = 0; i < size; ++i, to += space.images) {
            for (int n = 0; n < there; ++n) to[n] = from[n][i];
            for (int n = there; n < space.images; ++n) to[n] = 0.0f;
        }
    }
}

void Session::forward(Workspace& space, bool training) {
    const int count = int(network_->layers().size());
    for (int slice = 0; slice < space.slices; ++slice)
        for (int i = 0; i < tail_; ++i) forward(space, i, slice, training);
    for (int i = tail_; i < count; ++i) {
        if (network_->layers()[i].op.kind == Kind::linear)
            connect(space, i);
        else
            for (int slice = 0; slice < space.slices; ++slice) forward(space, i, slice, training);
    }
}

void Session::forward(Workspace& space, int i, int slice, bool training) {
    const Kind kind = network_->layers()[i].op.kind;
    if (kind == Kind::convolution) convolve(space, i, slice);
    if (kind == Kind::max_pool || kind == Kind::average_pool) pool(space, i, slice, training);
    if (kind != Kind::relu) return;
    const Map map = values(space, i, slice);
    if (i == 0) std::copy_n(input(space, 0, slice).data, std::ptrdiff_t(map.planes) * map.plane, map.data);
    kernels_.relu_forward(map);
}

void Session::backward(Workspace& space, const Purpose& purpose) {
    const int first = network_->first();
    for (int i = int(network_->layers().size()) - 1; i >= std::max(first, tail_); --i) {
        if (network_->layers()[i].op.kind == Kind::linear)
            connect_back(space, i, purpose);
        else
            for (int slice = 0; slice < space.slices; ++slice) backward(space, i, slice, purpose.whole);
    }
    for (int slice = space.slices - 1; slice >= 0; --slice)
        for (int i = tail_ - 1; i >= first; --i) backward(space, i, slice, purpose.whole);
}

void Session::backward(Workspace& space, int i, int slice, bool whole) {
    const Kind kind = network_->layers()[i].op.kind;
    if (kind == Kind::convolution) convolve_back(space, i, slice, whole);
    if (kind == Kind::max_pool || kind == Kind::average_pool) pool_back(space, i, slice);
    if (kind == Kind::relu) kernels_.relu_backward(values(space, i, slice), gradient(space, i, slice));
}

// Takes an input apart into the planes of a convolution's source, or puts the gradient of those together again.
template <class Action>
void Session::for_relaid_rows(const Layer& layer, const Map& input, const Map& source, Action action) const {
    const Window& w = layer.op.window;
    for (int plane = 0; plane < source.planes; ++plane) {
        const int column_phase = plane % w.column_stride, rest = plane / w.column_stride;
        const int row_phase = rest % w.row_stride, channel = rest / w.row_stride;
        for (int y = 0; y < source.height; ++y) {
            const int row = y * w.row_stride + row_phase - w.row_padding;
            if (row < 0 || row >= input.height) continue;
            for (int x = 0; x < source.width; ++x) {
                const int column = x * w.column_stride + column_phase - w.column_padding;
                if (column < 0 || column >= input.width) continue;
                action(input.data + channel * input.plane + row * input.row + column * std::ptrdiff_t(input.images),
                       source.data + plane * source.plane + y * source.row + x * std::ptrdiff_t(source.images));
            }
        }
    }
}

Map Session::source_of(Workspace& space, int i, int slice) const {
    const Layer& layer = network_->layers()[i];
    if (layer.geometry.direct) return input(space, i, slice);
    return map(layer.geometry.source, space.layers[i].relaid.data(), space, slice);
}

void Session::convolve(Workspace& space, int i, int slice) {
    const Layer& layer = network_->layers()[i];
    const LayerStructure& s = structure_->layer(layer.weights);
    const Geometry& g = layer.geometry;
    const Map source = source_of(space, i, slice), output = values(space, i, slice);
    if (!g.direct)
        for_relaid_rows(layer, input(space, i, slice), source,
                        [&](const float* from, float* to) { std::copy_n(from, space.images, to); });
    const float* bias = layer.op.bias ? biases_[layer.weights].value.data() : nullptr;
    if (s.mode == Mode::sparse) {
        const Taps taps = {s.forward_start.data(), s.forward_offset.data(), weights_[layer.weights].value.data(), 1};
        kernels_.sparse_convolution({source, output, taps, {0}, bias});
    } else {
        kernels_.dense_convolution({source, output, forward_[layer.weights].data(), source.row, space.images, g.rows,
                                    g.columns, {0}, bias});
    }
}

// The gradient of a convolution's output with zeros around it.
Map Session::padded_gradient(Workspace& space, int i, int slice) const {
    const Layer& layer = network_->layers()[i];
    const Map tight = gradient(space, i, slice);
    if (!space.layers[i].padded) return tight;
    const Map padded = map(layer.padded, space.layers[i].padded.data(), space, slice);
    for (int plane = 0; plane < tight.planes; ++plane)
        for (int y = 0; y < tight.height; ++y)
            std::copy_n(tight.data + plane * tight.plane + y * tight.row, tight.width * std::ptrdiff_t(tight.images),
                        padded.data + plane * padded.plane + y * padded.row);
    return padded;
}

// First the gradient of the weights: that of the input overwrites what it needs.
void Session::convolve_back(Workspace& space, int i, int slice, bool whole) {
    const Layer& layer = network_->layers()[i];
    const int w = layer.weights;
    const LayerStructure& s = structure_->layer(w);
    const Geometry& g = layer.geometry;
    const Map source = source_of(space, i, slice), given = padded_gradient(space, i, slice);
    float* bias = layer.op.bias ? biases_[w].gradient.data() : nullptr;
    if (whole || s.mode == Mode::dense)
        kernels_.dense_convolution_gradient({source, given, g.rows, g.columns, whole_[w].data(), bias});
    else
        kernels_.sparse_convolution_gradient(
            {source, given, s.start.data(), s.forward_offset.data(), sums_[w].data(), bias});
    if (layer.first) return;
    const Map back = g.direct ? gradient(space, i - 1, slice) : source;
    const Reach reach = {given.height};
    if (s.mode == Mode::sparse) {
        const Taps taps = {s.backward_start.data(), s.backward_offset.data(), backward_[w].data(), g.rows};
        kernels_.sparse_convolution({given, back, taps, reach, nullptr});
    } else {
        kernels_.dense_convolution({given, back, backward_[w].data(), -given.row, -space.images, g.rows, g.columns,
                                    reach, nullptr});
    }
    if (g.direct) return;
    const Map to = gradient(space, i - 1, slice);
    for (int plane = 0; plane < to.planes; ++plane)
        for (int y = 0; y < to.height; ++y)
            std::fill_n(to.data + plane * to.plane + y * to.row, to.width * std::ptrdiff_t(to.images), 0.0f);
    for_relaid_rows(layer, to, source, [&](float* at, const float* from) { std::copy_n(from, space.images, at); });
    // Where the source is beyond the input it must be zero again when the next images come.
    std::fill_n(source.data, std::ptrdiff_t(source.planes) * source.plane, 0.0f);
}

void Session::connect(Workspace& space, int i) {
    const Layer& layer = network_->layers()[i];
    const int w = layer.weights;
    const LayerStructure& s = structure_->layer(w);
    const Features from = features(space, input(space, i, 0)), to = features(space, values(space, i, 0));
    const float* bias = layer.op.bias ? biases_[w].value.data() : nullptr;
    if (s.mode == Mode::sparse)
        kernels_.sparse_linear_forward({from, to, s.tile_start.data(), s.tile_entry.data(),
                                        weights_[w].value.data(), bias});
    else
        kernels_.dense_linear_forward({from, to, weights_[w].value.data(), bias});
}

void Session::connect_back(Workspace& space, int i, const Purpose& purpose) {
    const Layer& layer = network_->layers()[i];
    const int w = layer.weights;
    const LayerStructure& s = structure_->layer(w);
    const Features from = features(space, input(space, i, 0)), given = features(space, gradient(space, i, 0));
    Features back = from;
    back.data = layer.first ? nullptr : gradient(space, i - 1, 0).data;
    const float* weight = weights_[w].value.data();
    if (layer.op.bias)
        for (int slice = 0; slice < space.slices; ++slice)
            kernels_.plane_sums(gradient(space, i, slice), biases_[w].gradient.data());
    const bool sparse = s.mode == Mode::sparse;
    if (purpose.whole || !sparse) {
        Features wanted = back;
        if (sparse) wanted.data = nullptr;
        kernels_.dense_linear_backward({from, given, wanted, weight, whole_[w].data(), space.layers[i].scratch.data()});
    }
    if (!sparse) return;
    const bool moves = purpose.last && purpose.rates && weights_[w].trained;
    const Step taken = moves ? weights_[w].sgd_step(descent(w, *purpose.rates), *purpose.rates) : Step{};
    kernels_.sparse_linear_backward({from, given, back, s.order.data(), s.held.data(), s.output.data(), s.rest, s.alone,
                                     weight, weights_[w].gradient.data(), purpose.first, moves ? &taken : nullptr});
}

MaxPool Session::max_pool(Workspace& space, int i, int slice, const Map& source, const Map& output) const {
    const Layer& layer = network_->layers()[i];
    LayerMemory& memory = space.layers[i];
    std::int8_t* columns = memory.column_choice.data() + slice * (memory.column_choice.size() / space.slices);
    std::int8_t* rows = memory.row_choice.data() + slice * (memory.row_choice.size() / space.slices);
    return {source, output, layer.op.window, columns, rows, memory.scratch.data(), layer.relu};
}

void Session::pool(Workspace& space, int i, int slice, bool training) {
    const Layer& layer = network_->layers()[i];
    const Map source = input(space, i, slice), output = values(space, i, slice);
    if (layer.op.kind == Kind::average_pool)
        return kernels_.average_pool_forward({source, output, layer.op.window, layer.op.count_padding});
    MaxPool c = max_pool(space, i, slice, source, output);
    if (!training) c.column_choice = c.row_choice = nullptr;
    kernels_.max_pool_forward(c);
}

void Session::pool_back(Workspace& space, int i, int slice) {
    const Layer& layer = network_->layers()[i];
    const Map source = gradient(space, i - 1, slice), output = gradient(space, i, slice);
    if (layer.op.kind == Kind::average_pool)
        return kernels_.average_pool_backward({source, output, layer.op.window, layer.op.count_padding});
    kernels_.max_pool_backward(max_pool(space, i, slice, source, output));
}

}  // namespace feddst
