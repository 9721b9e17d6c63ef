// One client at work: its weights, its momentum, and the memory that a pass through the network needs.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "loss.hpp"
#include "memory.hpp"
#include "structure.hpp"

namespace feddst {

// Adam's constants. `kept`: what is left of a weight before each step, as in AdamW.
struct Moments {
    double beta1, beta2, epsilon, kept;
};

// An optimizer on a client's images: SGD with momentum, or Adam, which ignores it. `proximal` is FedProx's mu.
struct Rates {
    float rate, momentum, decay, proximal;
    std::optional<Moments> adam;

    int slots() const { return adam ? 2 : 1; }
};

// A client's images, [count, size], and what their outputs should be.
struct Images {
    const float* pixels;
    Targets targets;
};

// A model's weights in the order of a structure. Never change, so that any number of sessions can begin with them. A
// bias may be null where there is none.
class Weights {
public:
    Weights(std::shared_ptr<const Structure> structure, const std::vector<const float*>& weights,
            const std::vector<const float*>& biases);

    const std::shared_ptr<const Structure>& structure() const { return structure_; }
    const std::vector<float>& weights(int weighted) const { return weights_[weighted]; }
    const std::vector<float>& biases(int weighted) const { return biases_[weighted]; }

private:
    std::shared_ptr<const Structure> structure_;
    std::vector<std::vector<float>> weights_, biases_;
};

// How many weights of a layer leave, and how many enter after that.
struct Exchange {
    std::int64_t leaving, entering;
};

// One weight or bias tensor of a session, as far as it is held. `slots` are the optimizer's: SGD's momentum, or the means
// of gradients and of their squares for Adam.
struct Numbers {
    std::vector<float> value, gradient;
    std::vector<std::vector<float>> slots;
    bool trained = true;

    void begin(const std::vector<float>& values, int slot_count);
    Step sgd_step(const Descent& descent, const Rates& rates);
    AdamStep adam_step(const Descent& descent, const Rates& rates, std::int64_t taken);
};

// What a block of images needs on its way through one layer.
struct LayerMemory {
    Buffer values;    // the output; its gradient too, unless that is told apart
    Buffer gradient;  // of the output, where the output is still needed
    Buffer relaid;    // a convolution's input as its kernels want it
    Buffer padded;    // the gradient of its output likewise
    Buffer scratch;
    std::vector<std::int8_t> row_choice, column_choice;
    bool passing = false;  // one slice's output is used up before the next one's comes, so that all share its memory
};

// The blocks in which images pass through a network.
struct Block {
    int images, slices;
};
constexpr Block kBlocks[] = {{8, 1}, {16, 1}, {16, 2}};
constexpr int kMostImages = 16;  // in a slice
static_assert([] {
    for (const Block& block : kBlocks)
        if (block.images != 8 && block.images != kMostImages) return false;
    return true;
}(), "the kernels know slices of 8 and of 16 images");

// What a pass through the network is for.
struct Purpose {
    bool whole;          // gradients of all weights, not only of the active ones
    const Rates* rates;  // for a step of SGD at once; null if only gradients are wanted
    bool first = false;  // the first of the blocks, and the last of them
    bool last = false;
};

// A block of images on its way: `slices` of them, with `images` each. Convolutions and pools take one slice after
// another, which a cache can hold; linear layers take them all at once.
struct Workspace {
    int images = 0;
    int slices = 0;
    Buffer input;
    std::vector<LayerMemory> layers;
};

class Session {
public:
    Session(std::shared_ptr<const Network> network, const Kernels& kernels);

    // Take these weights; an optimizer's slots begin at zero, and nothing pulls.
    void load(const Weights& weights, int slots);
    void load_slot(int slot, const std::vector<const float*>& weights, const std::vector<const float*>& biases);

    // Write the weights, or one of the slots.
    void store(const std::vector<float*>& weights, const std::vector<float*>& biases, std::optional<int> slot) const;

    // For each layer its active weights by rising place, then its biases.
    std::vector<float> packed() const;
    void set_trained(const std::vector<bool>& weights, const std::vector<bool>& biases);

    // The weights that a proximal term pulls to, of the same structure.
    void set_anchor(std::shared_ptr<const Weights> anchor) { anchor_ = std::move(anchor); }

    // One step on the images at `order`, after `taken` others; returns the sum of their losses before it.
    double step(const Images& images, const std::int64_t* order, int count, const Rates& rates, std::int64_t taken);

    // The mean gradient over the images at `order`, with outputs divided by `temperature`, for all weights.
    void mean_gradient(const Images& images, const std::int64_t* order, std::int64_t count, float temperature,
                       const std::vector<float*>& weights, const std::vector<float*>& biases);

    // The smallest weights of some layers leave: they become zero. Others enter, that have the largest mean gradient over
    // the images at `order`. Writes the new masks of these layers, a byte for each weight; the structure stays as it is.
    void readjust(const Images& images, const std::int64_t* order, std::int64_t count,
                  const std::vector<std::optional<Exchange>>& exchanges, const std::vector<std::uint8_t*>& masks);

    // As `packed`, with other masks than those of the structure; null for a layer that is dense.
    std::vector<float> packed_under(const std::vector<const std::uint8_t*>& masks) const;

    // The network's outputs for `count` images, [count, outputs].
    void scores(const float* pixels, std::int64_t count, float* outputs);

    const Network& network() const { return *network_; }
    const Structure* structure() const { return structure_.get(); }
    int slots() const { return slots_; }

    // Have whatever is going on leave off at the next opportunity; for another thread to call.
    void stop() { stopped_ = true; }
    bool stopped() const { return stopped_; }

private:
    Workspace& workspace(int block);
    Workspace& workspace_for(std::int64_t images);
    Map map(const Layout& layout, float* data, const Workspace& space, int slice) const;
    Map input(Workspace& space, int layer, int slice) const;
    Map values(Workspace& space, int layer, int slice) const;
    Map gradient(Workspace& space, int layer, int slice) const;
    Map source_of(Workspace& space, int layer, int slice) const;
    Map padded_gradient(Workspace& space, int layer, int slice) const;
    static Features features(const Workspace& space, const Map& first);
    template <class Action>
    void for_relaid_rows(const Layer& layer, const Map& input, const Map& source, Action action) const;
    MaxPool max_pool(Workspace& space, int layer, int slice, const Map& source, const Map& output) const;

    void lay_out();
    void take_in(Workspace& space, const float* pixels, const std::int64_t* order, int count) const;
    void forward(Workspace& space, bool training);
    void backward(Workspace& space, const Purpose& purpose);
    void forward(Workspace& space, int layer, int slice, bool training);
    void backward(Workspace& space, int layer, int slice, bool whole);
    void convolve(Workspace& space, int layer, int slice);
    void convolve_back(Workspace& space, int layer, int slice, bool whole);
    void connect(Workspace& space, int layer);
    void connect_back(Workspace& space, int layer, const Purpose& purpose);
    void pool(Workspace& space, int layer, int slice, bool training);
    void pool_back(Workspace& space, int layer, int slice);
    template <class Number>
    double losses(Workspace& space, const Targets& targets, const std::int64_t* order, int count, Number share,
                  Number temperature) const;
    double pass(const Images& images, const std::int64_t* order, std::int64_t count, float temperature,
                Purpose purpose);
    void drop(int weighted, std::int64_t leaving, std::uint8_t* kept);
    Descent descent(int weighted, const Rates& rates);
    Descent bias_descent(int weighted, const Rates& rates);
    void descend(Numbers& numbers, const Descent& descent, const Rates& rates, std::int64_t taken);

    std::shared_ptr<const Network> network_;
    std::shared_ptr<const Structure> structure_;
    std::shared_ptr<const Weights> anchor_;
    const Kernels& kernels_;
    std::vector<Numbers> weights_, biases_;
    std::vector<std::vector<float>> forward_, backward_;  // convolutions' values as other kernels read them
    std::vector<std::vector<float>> whole_;  // gradients of all weights, as the dense kernels give them
    std::vector<Buffer> sums_;               // gradients of sparse convolutions, not yet summed over lanes
    std::vector<std::uint32_t> ranks_;       // of a layer's gradients
    std::vector<int> owner_;                 // for each layer, which one's memory holds its output
    int tail_;                               // the first linear layer
    int slots_ = 1;                          // of the optimizer
    bool softmax_ = false;
    std::atomic<bool> stopped_ = false;
    std::array<Workspace, 3> spaces_;
};

}  // namespace feddst
