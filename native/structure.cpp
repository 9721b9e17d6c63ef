#include "structure.hpp"

#include <algorithm>
#include <numeric>

namespace feddst {
namespace {

// From these densities on, going through all weights is faster than going through the active ones.
constexpr double kDenseConvolution = 0.75;
constexpr double kDenseLinear = 0.8;

std::int64_t active(const std::uint8_t* mask, std::int64_t size) {
    return mask ? std::count_if(mask, mask + size, [](std::uint8_t m) { return m != 0; }) : size;
}

Mode mode_for(const Layer& layer, const std::uint8_t* mask, std::int64_t size) {
    const double limit = layer.op.kind == Kind::linear ? kDenseLinear : kDenseConvolution;
    return double(active(mask, size)) >= limit * double(size) ? Mode::dense : Mode::sparse;
}

void sum_up(std::vector<std::int32_t>& counts) { std::partial_sum(counts.begin(), counts.end(), counts.begin()); }

// The values of a sparse linear layer by tile of inputs, then by output.
void build_tiles(const Layer& layer, LayerStructure& s) {
    const std::int32_t inputs = layer.input.size(), outputs = layer.op.outputs;
    const std::int32_t tiles = (inputs + kInputTile - 1) / kInputTile;
    s.tile_start.assign(std::size_t(tiles) * outputs + 1, 0);
    const auto pair = [&](std::int32_t e) {
        return s.input(e, inputs) / kInputTile * outputs + s.output[e] / kFeatureScale;
    };
    for (std::int32_t e = 0; e < s.count(); ++e) ++s.tile_start[pair(e) + 1];
    sum_up(s.tile_start);
    s.tile_entry.resize(s.position.size());
    std::vector<std::int32_t> next(s.tile_start.begin(), s.tile_start.end() - 1);
    for (std::int32_t e = 0; e < s.count(); ++e) {
        const std::uint64_t source = std::uint64_t(s.input(e, inputs)) * kFeatureScale;
        s.tile_entry[next[pair(e)]++] = std::uint64_t(e) << 32 | source;
    }
}

// The places of a mask's weights, rising; all places if there is no mask.
std::vector<std::int32_t> places(const std::uint8_t* mask, std::int64_t size) {
    std::vector<std::int32_t> found(mask ? 0 : size);
    if (!mask) {
        std::iota(found.begin(), found.end(), 0);
        return found;
    }
    found.resize(size);
    std::int64_t count = 0;
    for (std::int64_t i = 0; i < size; ++i) {
        found[count] = std::int32_t(i);
        count += mask[i] != 0;
    }
    found.resize(count);
    return found;
}

// Calls action(input, output, place) for each place in a linear layer.
template <class Action>
void for_connections(const std::vector<std::int32_t>& found, std::int32_t inputs, Action action) {
    std::int32_t output = 0, row = 0;
    for (std::int32_t place : found) {
        for (; place >= row + inputs; row += inputs) ++output;
        action(place - row, output, place);
    }
}

// Sorts order[from .. to), which are these numbers themselves, by their counts, none of them above `most`.
void sort_by(const std::vector<std::int32_t>& counts, std::int32_t most, std::int32_t from, std::int32_t to,
             std::vector<std::int32_t>& order) {
    std::vector<std::int32_t> next(most + 2, 0);
    for (std::int32_t i = from; i < to; ++i) ++next[counts[i] + 1];
    sum_up(next);
    for (std::int32_t i = from; i < to; ++i) order[from + next[counts[i]]++] = i;
}

// Where the values of one input lie: those that it has in common with its group, in whole blocks of steps and in the
// steps that are left, then the others.
struct Row {
    std::int32_t in_blocks, common;   // how many there are in blocks, and in blocks or steps
    std::int32_t block, rest, alone;  // where each kind begins

    std::int32_t at(std::int32_t j) const {
        if (j < in_blocks) return block + j * kGroup;
        if (j < common) return rest + (j - in_blocks) * kGroup;
        return alone + j - common;
    }
};

// The rows of all inputs in their order, by how many values each holds. Notes where `rest` and `alone` begin.
std::vector<Row> rows_of(LayerStructure& s) {
    const std::int32_t inputs = std::int32_t(s.held.size());
    std::vector<Row> rows(inputs);
    std::int32_t block = 0, rest = 0;
    for (std::int32_t k = 0; k + kGroup <= inputs; k += kGroup) {
        const std::int32_t common = s.held[k], in_blocks = common / kBlock * kBlock;
        for (std::int32_t n = 0; n < kGroup; ++n) rows[k + n] = {in_blocks, common, block + n, rest + n, 0};
        block += in_blocks * kGroup;
        rest += (common - in_blocks) * kGroup;
    }
    s.rest = block;
    s.alone = block + rest;
    std::int32_t alone = s.alone;
    for (std::int32_t k = 0; k < inputs; ++k) {
        rows[k].rest += s.rest;
        rows[k].alone = alone;
        alone += s.held[k] - rows[k].common;
    }
    return rows;
}

// Values by input, then output, but that inputs of a group take turns; a tile's inputs by rising number of values.
void build_sparse_linear(const Layer& layer, const std::uint8_t* mask, LayerStructure& s) {
    const std::int32_t inputs = layer.input.size();
    const std::vector<std::int32_t> found = places(mask, s.size);
    std::vector<std::int32_t> counts(inputs, 0), seen(inputs, 0), turn(inputs);
    for_connections(found, inputs, [&](std::int32_t i, std::int32_t, std::int32_t) { ++counts[i]; });
    s.order.resize(inputs);
    std::iota(s.order.begin(), s.order.end(), 0);
    for (std::int32_t tile = 0; tile < inputs; tile += kInputTile)
        sort_by(counts, layer.op.outputs, tile, std::min(tile + kInputTile, inputs), s.order);
    for (std::int32_t i : s.order) {
        turn[i] = std::int32_t(s.held.size());
        s.held.push_back(counts[i]);
    }
    const std::vector<Row> rows = rows_of(s);
    s.position.resize(found.size());
    s.output.resize(found.size());
    s.rising.reserve(found.size());
    for_connections(found, inputs, [&](std::int32_t i, std::int32_t o, std::int32_t place) {
        const std::int32_t e = rows[turn[i]].at(seen[i]++);
        s.rising.push_back(e);
        s.position[e] = place;
        s.output[e] = o * kFeatureScale;
    });
    build_tiles(layer, s);
}

// The active values by the places that they have in the weight tensor.
void build_rising(LayerStructure& s) {
    if (!s.rising.empty() || (s.mask.empty() && std::is_sorted(s.position.begin(), s.position.end()))) return;
    std::vector<std::int32_t> value_at(s.size, -1);
    for (std::size_t i = 0; i < s.position.size(); ++i)
        if (s.mask.empty() || s.mask[i] != 0.0f) value_at[s.position[i]] = std::int32_t(i);
    for (std::int32_t value : value_at)
        if (value >= 0) s.rising.push_back(value);
}

// All values by input, then output.
void build_dense_linear(const Layer& layer, LayerStructure& s) {
    const std::int32_t inputs = layer.input.size();
    for (std::int32_t i = 0; i < inputs; ++i)
        for (std::int32_t o = 0; o < layer.op.outputs; ++o) s.position.push_back(o * inputs + i);
}

// A weight's place in the kernels' view of a convolution.
struct Tap {
    int output, plane, row, column;

    Tap(const Layer& layer, std::int64_t position) {
        const Window& w = layer.op.window;
        const int k = int(position % w.columns), j = int(position / w.columns % w.rows);
        const int input = int(position / (w.columns * w.rows) % layer.input.planes);
        output = int(position / (std::int64_t(w.columns) * w.rows * layer.input.planes));
        plane = (input * w.row_stride + j % w.row_stride) * w.column_stride + k % w.column_stride;
        row = j / w.row_stride;
        column = k / w.column_stride;
    }
};

void build_sparse_convolution(const Layer& layer, LayerStructure& s) {
    const Geometry& g = layer.geometry;
    const Layout &source = g.source, &gradient = layer.padded;
    s.start.assign(layer.op.outputs + 1, 0);
    s.backward_start.assign(std::size_t(g.planes) * (g.rows + 1), 0);
    for (std::int32_t position : s.position) {
        const Tap tap(layer, position);
        ++s.start[tap.output + 1];
        s.forward_offset.push_back(tap.plane * source.plane() + tap.row * source.row() + tap.column);
    }
    s.forward_offset.resize(s.position.size() + kAhead);
    sum_up(s.start);
    for (int p = 0; p < layer.op.outputs; ++p) {
        s.forward_start.push_back(s.start[p]);
        s.forward_start.push_back(s.start[p + 1]);
    }
    // The same values by the plane they read from, then by row.
    s.backward_value.resize(s.position.size());
    std::iota(s.backward_value.begin(), s.backward_value.end(), 0);
    const auto key = [&](std::int32_t value) {
        const Tap tap(layer, s.position[value]);
        return tap.plane * g.rows + tap.row;
    };
    std::stable_sort(s.backward_value.begin(), s.backward_value.end(),
                     [&](std::int32_t a, std::int32_t b) { return key(a) < key(b); });
    std::vector<std::int32_t> ends(std::size_t(g.planes) * g.rows + 1, 0);
    for (std::int32_t value : s.backward_value) {
        const Tap tap(layer, s.position[value]);
        ++ends[tap.plane * g.rows + tap.row + 1];
        s.backward_offset.push_back(tap.output * gradient.plane() - tap.row * gradient.row() - tap.column);
    }
    s.backward_offset.resize(s.position.size() + kAhead);
    sum_up(ends);
    for (int plane = 0; plane < g.planes; ++plane)
        for (int row = 0; row <= g.rows; ++row)
            s.backward_start[plane * (g.rows + 1) + row] = ends[plane * g.rows + row];
}

void build_dense_convolution(const Layer& layer, LayerStructure& s) {
    const Geometry& g = layer.geometry;
    const int backward_taps = layer.op.outputs * g.rows * g.columns;
    for (std::int32_t position : s.position) {
        const Tap t(layer, position);
        const int window = t.row * g.columns + t.column;
        const int forward = t.plane * g.rows * g.columns + window, backward = t.output * g.rows * g.columns + window;
        s.tap.push_back(std::int32_t(tap_index(layer, position)));
        s.forward_place.push_back((t.output / kDensePlanes * g.taps() + forward) * kDensePlanes + t.output % kDensePlanes);
        s.backward_place.push_back((t.plane / kDensePlanes * backward_taps + backward) * kDensePlanes + t.plane % kDensePlanes);
    }
}

void build_convolution(const Layer& layer, const std::uint8_t* mask, LayerStructure& s) {
    s.position = places(s.mode == Mode::dense ? nullptr : mask, s.size);
    if (s.mode == Mode::sparse)
        build_sparse_convolution(layer, s);
    else
        build_dense_convolution(layer, s);
}

LayerStructure build(const Layer& layer, const std::uint8_t* mask, const Mode* mode) {
    LayerStructure s;
    s.size = Network::size(layer);
    s.mode = mode ? *mode : mode_for(layer, mask, s.size);
    if (layer.op.kind == Kind::convolution)
        build_convolution(layer, mask, s);
    else if (s.mode == Mode::sparse)
        build_sparse_linear(layer, mask, s);
    else
        build_dense_linear(layer, s);
    if (s.mode == Mode::dense && mask && active(mask, s.size) < s.size)
        for (std::int32_t position : s.position) s.mask.push_back(mask[position] ? 1.0f : 0.0f);
    build_rising(s);
    return s;
}

}  // namespace

Structure::Structure(std::shared_ptr<const Network> network, const std::vector<const std::uint8_t*>& masks,
                     const std::vector<Mode>* modes)
    : network_(std::move(network)) {
    for (int i = 0; i < network_->weighted_count(); ++i)
        layers_.push_back(build(network_->weighted(i), masks[i], modes ? &(*modes)[i] : nullptr));
}

std::int64_t Structure::active(int weighted) const {
    const LayerStructure& s = layers_[weighted];
    return s.rising.empty() && s.mask.empty() ? s.count() : std::int64_t(s.rising.size());
}

std::int64_t tap_index(const Layer& layer, std::int64_t position) {
    const Geometry& g = layer.geometry;
    const Tap t(layer, position);
    return std::int64_t(t.output) * g.taps() + (t.plane * g.rows + t.row) * g.columns + t.column;
}

std::int64_t packed_size(int planes, int taps) { return std::int64_t(planes + kDensePlanes - 1) / kDensePlanes * kDensePlanes * taps; }

}  // namespace feddst
