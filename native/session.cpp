#include "session.hpp"

#include <algorithm>
#include <cmath>

namespace feddst {
namespace {

void gather(const std::vector<std::int32_t>& from, const float* source, float* to) {
    for (std::size_t i = 0; i < from.size(); ++i) to[i] = source[from[i]];
}

void scatter(const std::vector<std::int32_t>& places, const float* values, float* to) {
    for (std::size_t i = 0; i < places.size(); ++i) to[places[i]] = values[i];
}

// [rows, columns] to [columns, rows], in squares that a cache can hold.
void transpose(const float* from, std::int64_t rows, std::int64_t columns, float* to) {
    constexpr std::int64_t side = 32;
    for (std::int64_t i = 0; i < rows; i += side)
        for (std::int64_t j = 0; j < columns; j += side)
            for (std::int64_t k = j; k < std::min(columns, j + side); ++k)
                for (std::int64_t l = i; l < std::min(rows, i + side); ++l) to[k * rows + l] = from[l * columns + k];
}

}  // namespace

Weights::Weights(std::shared_ptr<const Structure> structure, const std::vector<const float*>& weights,
                 const std::vector<const float*>& biases)
    : structure_(std::move(structure)) {
    for (int w = 0; w < structure_->network().weighted_count(); ++w) {
        const LayerStructure& s = structure_->layer(w);
        const Layer& layer = structure_->network().weighted(w);
        weights_.emplace_back(s.count());
        gather(s.position, weights[w], weights_[w].data());
        biases_.emplace_back(biases[w], biases[w] + (layer.op.bias ? layer.op.outputs : 0));
    }
}

void Numbers::begin(const std::vector<float>& values, int slot_count) {
    value = values;
    slots.resize(slot_count);
    for (std::vector<float>& slot : slots) slot.assign(values.size(), 0.0f);
    gradient.resize(values.size());
}

Step Numbers::sgd_step(const Descent& descent, const Rates& rates) {
    return {descent, slots[0].data(), rates.rate, rates.momentum};
}

AdamStep Numbers::adam_step(const Descent& descent, const Rates& rates, std::int64_t taken) {
    const auto [beta1, beta2, epsilon, kept] = *rates.adam;
    const double t = double(taken + 1), rate = rates.rate / (1 - std::pow(beta1, t));
    const double scale = 1 / (1 - std::pow(beta2, t));
    return {descent, slots[0].data(), slots[1].data(), float(rate), float(scale), float(kept),
            float(beta1), float(1 - beta1), float(beta2), float(1 - beta2), float(epsilon)};
}

Session::Session(std::shared_ptr<const Network> network, const Kernels& kernels)
    : network_(std::move(network)),
      kernels_(kernels),
      weights_(network_->weighted_count()),
      biases_(network_->weighted_count()),
      forward_(network_->weighted_count()),
      backward_(network_->weighted_count()),
      whole_(network_->weighted_count()),
      sums_(network_->weighted_count()) {
    for (const Layer& layer : network_->layers()) {
        const bool in_place = layer.op.kind == Kind::relu || layer.op.kind == Kind::softmax;
        owner_.push_back(in_place && !owner_.empty() ? owner_.back() : int(owner_.size()));
        softmax_ = layer.op.kind == Kind::softmax;
    }
    tail_ = 0;
    while (tail_ < int(owner_.size()) && network_->layers()[tail_].op.kind != Kind::linear) ++tail_;
}

void Session::load(const Weights& weights, int slots) {
    const std::shared_ptr<const Structure> structure = weights.structure();
    const bool other = structure != structure_;
    anchor_ = nullptr;
    structure_ = nullptr;  // until all of it is there
    slots_ = slots;
    for (int w = 0; w < network_->weighted_count(); ++w) {
        const LayerStructure& s = structure->layer(w);
        const Layer& layer = network_->weighted(w);
        weights_[w].begin(weights.weights(w), slots);
        biases_[w].begin(weights.biases(w), slots);
        if (!other) continue;
        const bool convolution = layer.op.kind == Kind::convolution, sparse = s.mode == Mode::sparse;
        const Geometry& g = layer.geometry;
        const int back_taps = layer.op.outputs * g.rows * g.columns;
        sums_[w] = convolution && sparse ? Buffer(s.count() * kernels_.width) : Buffer();
        forward_[w].clear();
        backward_[w].clear();
        if (convolution && !sparse) forward_[w].resize(packed_size(layer.op.outputs, g.taps()));
        if (convolution && !layer.first) backward_[w].resize(sparse ? s.count() : packed_size(g.planes, back_taps));
    }
    structure_ = structure;
    lay_out();
}

void Session::load_slot(int slot, const std::vector<const float*>& weights, const std::vector<const float*>& biases) {
    for (int w = 0; w < network_->weighted_count(); ++w) {
        gather(structure_->layer(w).position, weights[w], weights_[w].slots[slot].data());
        if (!biases_[w].value.empty()) std::copy_n(biases[w], biases_[w].value.size(), biases_[w].slots[slot].begin());
    }
}

void Session::store(const std::vector<float*>& weights, const std::vector<float*>& biases,
                    std::optional<int> slot) const {
    for (int w = 0; w < network_->weighted_count(); ++w) {
        const LayerStructure& s = structure_->layer(w);
        if (s.mode == Mode::sparse) std::fill_n(weights[w], s.size, 0.0f);
        scatter(s.position, (slot ? weights_[w].slots[*slot] : weights_[w].value).data(), weights[w]);
        const std::vector<float>& bias = slot ? biases_[w].slots[*slot] : biases_[w].value;
        std::copy(bias.begin(), bias.end(), biases[w]);
    }
}

std::vector<float> Session::packed() const {
    std::vector<float> found;
    for (int w = 0; w < network_->weighted_count(); ++w) {
        const LayerStructure& s = structure_->layer(w);
        const std::vector<float>&value = weights_[w].value, &bias = biases_[w].value;
        const std::size_t begin = found.size();
        found.resize(begin + structure_->active(w));
        if (s.rising.empty())
            std::copy_n(value.begin(), found.size() - begin, found.begin() + begin);
        else
            gather(s.rising, value.data(), found.data() + begin);
        found.insert(found.end(), bias.begin(), bias.end());
    }
    return found;
}

void Session::set_trained(const std::vector<bool>& weights, const std::vector<bool>& biases) {
    for (int w = 0; w < network_->weighted_count(); ++w) {
        weights_[w].trained = weights[w];
        biases_[w].trained = biases[w];
    }
}

// The smallest block that holds so many images, or the largest there is.
Workspace& Session::workspace_for(std::int64_t images) {
    int block = 0;
    while (block < 2 && images > kBlocks[block].images * kBlocks[block].slices) ++block;
    return workspace(block);
}

// The values of convolutions once more, in the orders in which other kernels read them.
void Session::lay_out() {
    for (int w = 0; w < network_->weighted_count(); ++w) {
        const LayerStructure& s = structure_->layer(w);
        const Layer& layer = network_->weighted(w);
        const float* values = weights_[w].value.data();
        if (layer.op.kind == Kind::linear) continue;
        if (s.mode == Mode::dense) {
            scatter(s.forward_place, values, forward_[w].data());
            if (!layer.first) scatter(s.backward_place, values, backward_[w].data());
        } else if (!layer.first) {
            gather(s.backward_value, values, backward_[w].data());
        }
    }
}

// The sum of the losses; leaves the gradient of `share` times that behind.
template <class Number>
double Session::losses(Workspace& space, const Targets& targets, const std::int64_t* order, int count, Number share,
                       Number temperature) const {
    const int last = int(network_->layers().size()) - 1, outputs = network_->outputs();
    std::vector<Number> first(outputs), slope(outputs);
    double sum = 0;
    for (int i = 0; i < space.images * space.slices; ++i) {
        const int slice = i / space.images, n = i % space.images;
        const Map output = values(space, last, slice), given = gradient(space, last, slice);
        if (i >= count) {
            for (int c = 0; c < outputs; ++c) given.data[c * given.plane + n] = 0.0f;
            continue;
        }
        for (int c = 0; c < outputs; ++c) first[c] = output.data[c * output.plane + n];
        if (softmax_) normalise(first);
        for (int c = 0; c < outputs; ++c) slope[c] = first[c] / temperature;
        sum += differentiate(targets, order[i], slope);
        Number along = 0;
        for (int c = 0; c < outputs; ++c) along += (slope[c] *= share / temperature) * first[c];
        for (int c = 0; c < outputs; ++c)
            given.data[c * given.plane + n] = float(softmax_ ? first[c] * (slope[c] - along) : slope[c]);
    }
    return sum;
}

// Forward and backward through all images at `order`; the gradient is that of the mean loss.
double Session::pass(const Images& images, const std::int64_t* order, std::int64_t count, float temperature,
                     Purpose purpose) {
    for (int w = 0; w < network_->weighted_count(); ++w) {
        const LayerStructure& s = structure_->layer(w);
        const Layer& layer = network_->weighted(w);
        const bool convolution = layer.op.kind == Kind::convolution;
        std::fill(biases_[w].gradient.begin(), biases_[w].gradient.end(), 0.0f);
        if (sums_[w]) std::fill_n(sums_[w].data(), s.count() * kernels_.width, 0.0f);
        const std::int64_t size = convolution ? std::int64_t(layer.op.outputs) * layer.geometry.taps() : s.size;
        if (purpose.whole || s.mode == Mode::dense) whole_[w].assign(size, 0.0f);
    }
    double sum = 0;
    for (std::int64_t done = 0; done < count;) {
        Workspace& space = workspace_for(count - done);
        const int taken = int(std::min<std::int64_t>(space.images * space.slices, count - done));
        purpose.first = done == 0;
        purpose.last = done + taken == count;
        take_in(space, images.pixels, order + done, taken);
        forward(space, true);
        // What passes through a softmax as well cancels out so far that float would leave little of it.
        sum += softmax_ ? losses<double>(space, images.targets, order + done, taken, 1.0 / double(count), temperature)
                        : losses<float>(space, images.targets, order + done, taken, 1.0f / float(count), temperature);
        backward(space, purpose);
        done += taken;
    }
    return sum;
}

// With SGD sparse linear layers take their step as soon as their gradient is there.
double Session::step(const Images& images, const std::int64_t* order, int count, const Rates& rates,
                     std::int64_t taken) {
    const Rates* at_once = rates.adam ? nullptr : &rates;
    const double sum = pass(images, order, count, 1.0f, {false, at_once});
    for (int w = 0; w < network_->weighted_count(); ++w) {
        const LayerStructure& s = structure_->layer(w);
        const bool convolution = network_->weighted(w).op.kind == Kind::convolution;
        Numbers& numbers = weights_[w];
        if (biases_[w].trained) descend(biases_[w], bias_descent(w, rates), rates, taken);
        if (!numbers.trained || (at_once && !convolution && s.mode == Mode::sparse)) continue;
        if (convolution && s.mode == Mode::sparse)
            kernels_.lane_sums(sums_[w].data(), s.count(), numbers.gradient.data());
        else if (convolution)
            gather(s.tap, whole_[w].data(), numbers.gradient.data());
        descend(numbers, descent(w, rates), rates, taken);
    }
    lay_out();
    return sum;
}

Descent Session::descent(int w, const Rates& rates) {
    const LayerStructure& s = structure_->layer(w);
    const bool apart = network_->weighted(w).op.kind == Kind::linear && s.mode == Mode::dense;
    Numbers& numbers = weights_[w];
    return {numbers.value.data(), apart ? whole_[w].data() : numbers.gradient.data(),
            anchor_ ? anchor_->weights(w).data() : nullptr, s.mask.empty() ? nullptr : s.mask.data(),
            std::int64_t(numbers.value.size()), rates.decay, rates.proximal};
}

Descent Session::bias_descent(int w, const Rates& rates) {
    Numbers& numbers = biases_[w];
    return {numbers.value.data(), numbers.gradient.data(), anchor_ ? anchor_->biases(w).data() : nullptr, nullptr,
            std::int64_t(numbers.value.size()), rates.decay, rates.proximal};
}

void Session::descend(Numbers& numbers, const Descent& descent, const Rates& rates, std::int64_t taken) {
    if (rates.adam)
        kernels_.adam_step(numbers.adam_step(descent, rates, taken));
    else
        kernels_.step(numbers.sgd_step(descent, rates));
}

void Session::mean_gradient(const Images& images, const std::int64_t* order, std::int64_t count, float temperature,
                            const std::vector<float*>& weights, const std::vector<float*>& biases) {
    pass(images, order, count, temperature, {true, nullptr});
    for (int w = 0; w < network_->weighted_count(); ++w) {
        const Layer& layer = network_->weighted(w);
        const LayerStructure& s = structure_->layer(w);
        std::copy(biases_[w].gradient.begin(), biases_[w].gradient.end(), biases[w]);
        const float* found = whole_[w].data();
        if (layer.op.kind == Kind::convolution) {
            for (std::int64_t at = 0; at < s.size; ++at) weights[w][at] = found[tap_index(layer, at)];
        } else {
            const std::int64_t inputs = layer.input.size(), outputs = layer.op.outputs;
            transpose(found, inputs, outputs, weights[w]);
        }
    }
}

void Session::scores(const float* pixels, std::int64_t count, float* outputs) {
    const int last = int(network_->layers().size()) - 1, classes = network_->outputs();
    std::vector<float> row(classes);
    for (std::int64_t done = 0; done < count;) {
        Workspace& space = workspace_for(count - done);
        const int taken = int(std::min<std::int64_t>(space.images * space.slices, count - done));
        take_in(space, pixels + done * network_->input().size(), nullptr, taken);
        forward(space, false);
        for (int i = 0; i < taken; ++i) {
            const Map output = values(space, last, i / space.images);
            for (int c = 0; c < classes; ++c) row[c] = output.data[c * output.plane + i % space.images];
            if (softmax_) normalise(row);
            std::copy(row.begin(), row.end(), outputs + (done + i) * classes);
        }
        done += taken;
    }
}

}  // namespace feddst
