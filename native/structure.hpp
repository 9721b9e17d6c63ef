// Which weights of a network are active, as the lists that the kernels go through. Never changes, so that any number of
// sessions can share one.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "network.hpp"

namespace feddst {

// How a layer's weights are gone through.
enum class Mode { sparse, dense };

struct LayerStructure {
    Mode mode;
    std::int64_t size;                    // of the whole weight tensor
    std::vector<std::int32_t> position;   // of each value that is held: its place in the weight tensor
    std::vector<float> mask;              // dense: 1 where a value is active; empty if all are
    std::vector<std::int32_t> rising;     // the active values by rising place; empty if that is all in their order
    // sparse linear: each tile's inputs by rising number of values, and how many each holds; the output of each value,
    // times kFeatureScale; where values begin that do not fill blocks, and where those that an input holds alone
    std::vector<std::int32_t> order, held, output;
    std::int32_t rest = 0, alone = 0;
    std::vector<std::int32_t> start;      // sparse convolution: values of output plane p are start[p] to start[p + 1]
    // sparse linear: the same values as they are read forward
    std::vector<std::int32_t> tile_start;
    std::vector<std::uint64_t> tile_entry;
    // sparse convolution, forward: one range for each plane; backward: one for each plane and row of the window
    std::vector<std::int32_t> forward_start, forward_offset;
    std::vector<std::int32_t> backward_start, backward_offset, backward_value;
    // dense convolution: where each value lies among the kernels' taps, and in the two forms that the kernels read
    std::vector<std::int32_t> tap, forward_place, backward_place;

    // The input of a value of a sparse linear layer that has so many of them.
    std::int32_t input(std::int64_t value, std::int32_t inputs) const {
        return position[value] - output[value] / kFeatureScale * inputs;
    }

    std::int64_t count() const { return static_cast<std::int64_t>(position.size()); }
};

class Structure {
public:
    // masks: for each layer with weights one byte a weight, or null if all are active. modes: null to choose by density.
    Structure(std::shared_ptr<const Network> network, const std::vector<const std::uint8_t*>& masks,
              const std::vector<Mode>* modes);

    const Network& network() const { return *network_; }
    const LayerStructure& layer(int weighted) const { return layers_[weighted]; }

    // How many weights of a layer are active.
    std::int64_t active(int weighted) const;

private:
    std::shared_ptr<const Network> network_;
    std::vector<LayerStructure> layers_;
};

// A weight's place among a convolution's taps [outputs, source planes, rows, columns].
std::int64_t tap_index(const Layer& layer, std::int64_t position);

// How many floats the dense convolution reads for so many output planes and taps.
std::int64_t packed_size(int planes, int taps);

}  // namespace feddst
