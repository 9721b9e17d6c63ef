// A readjustment: the smallest weights leave, and others grow where the gradient is largest.
#include <algorithm>

#include "selection.hpp"
#include "session.hpp"

namespace feddst {
namespace {

// Calls action(value) for a layer's active values, by rising place in the weight tensor.
template <class Action>
void for_active(const LayerStructure& s, Action action) {
    if (s.rising.empty() && s.mask.empty())
        for (std::int32_t value = 0; value < s.count(); ++value) action(value);
    else
        for (std::int32_t value : s.rising) action(value);
}

// The ranks of a layer's gradients as they lie in what dense kernels add up, or, of a convolution, as its weights lie.
class Gradients {
public:
    Gradients(const Layer& layer, const LayerStructure& s, const std::vector<float>& whole,
              std::vector<std::uint32_t>& room)
        : layer_(layer), structure_(s), ranks_(room) {
        ranks_.resize(s.size);
        if (layer.op.kind == Kind::linear)
            std::transform(whole.begin(), whole.begin() + s.size, ranks_.begin(), rank_of);
        else
            for (std::int64_t i = 0; i < s.size; ++i) ranks_[i] = rank_of(whole[tap_index(layer, i)]);
    }

    // Nothing grows where a weight is kept.
    void leave_out(const std::uint8_t* kept) {
        const LayerStructure& s = structure_;
        if (layer_.op.kind == Kind::convolution) {
            for (std::int64_t place = 0; place < s.size; ++place) ranks_[place] = kept[place] ? 0 : ranks_[place];
        } else if (s.mode == Mode::dense) {
            for (std::int64_t i = 0; i < s.count(); ++i)
                if (kept[s.position[i]]) ranks_[i] = 0;
        } else {
            const std::int32_t inputs = layer_.input.size();
            for (std::int64_t e = 0; e < s.count(); ++e)
                if (kept[s.position[e]])
                    ranks_[std::int64_t(s.input(e, inputs)) * layer_.op.outputs + s.output[e] / kFeatureScale] = 0;
        }
    }

    // The places in the weight tensor of the `count` largest. Among equals those come first that were `held`, then those
    // before others.
    std::vector<std::int64_t> largest(std::int64_t count) const {
        std::vector<std::int64_t> found, level;
        if (count == 0) return found;
        const std::uint32_t least = nth_largest(ranks_, count);
        for (std::int64_t i = 0; i < std::int64_t(ranks_.size()); ++i)
            if (ranks_[i] >= least) (ranks_[i] > least ? found : level).push_back(place_of(i));
        const std::int64_t missing = count - std::int64_t(found.size());
        if (missing < std::int64_t(level.size())) {
            std::vector<std::uint8_t> held(structure_.size, 0);
            for_active(structure_, [&](std::int32_t value) { held[structure_.position[value]] = 1; });
            std::sort(level.begin(), level.end(), [&](std::int64_t a, std::int64_t b) {
                return held[a] != held[b] ? held[a] > held[b] : a < b;
            });
        }
        found.insert(found.end(), level.begin(), level.begin() + missing);
        return found;
    }

private:
    std::int64_t place_of(std::int64_t i) const {
        if (layer_.op.kind == Kind::convolution) return i;
        return i % layer_.op.outputs * layer_.input.size() + i / layer_.op.outputs;
    }

    const Layer& layer_;
    const LayerStructure& structure_;
    std::vector<std::uint32_t>& ranks_;
};

}  // namespace

// Zeroes the smallest `leaving` of a layer's active weights, and their slots; writes a mask of the others. Of equals
// the last ones leave.
void Session::drop(int w, std::int64_t leaving, std::uint8_t* kept) {
    const LayerStructure& s = structure_->layer(w);
    Numbers& numbers = weights_[w];
    std::vector<std::uint32_t> ranks;
    ranks.reserve(structure_->active(w));
    for_active(s, [&](std::int32_t value) { ranks.push_back(rank_of(numbers.value[value])); });
    const std::int64_t staying = std::int64_t(ranks.size()) - leaving;
    const std::uint32_t least = staying ? nth_largest(ranks, staying) : 0xffffffffu;
    std::int64_t level = staying - std::count_if(ranks.begin(), ranks.end(), [&](auto rank) { return rank > least; });
    std::fill_n(kept, s.size, 0);
    auto rank = ranks.begin();
    for_active(s, [&](std::int32_t value) {
        const bool stays = *rank > least || (*rank == least && level-- > 0);
        ++rank;
        kept[s.position[value]] = stays;
        if (stays) return;
        numbers.value[value] = 0.0f;
        for (std::vector<float>& slot : numbers.slots) slot[value] = 0.0f;
    });
}

void Session::readjust(const Images& images, const std::int64_t* order, std::int64_t count,
                       const std::vector<std::optional<Exchange>>& exchanges, const std::vector<std::uint8_t*>& masks) {
    for (int w = 0; w < network_->weighted_count(); ++w)
        if (exchanges[w]) drop(w, exchanges[w]->leaving, masks[w]);
    lay_out();
    pass(images, order, count, 1.0f, {true, nullptr});
    for (int w = 0; w < network_->weighted_count(); ++w) {
        if (!exchanges[w]) continue;
        Gradients gradients(network_->weighted(w), structure_->layer(w), whole_[w], ranks_);
        gradients.leave_out(masks[w]);
        for (std::int64_t place : gradients.largest(exchanges[w]->entering)) masks[w][place] = 1;
    }
}

std::vector<float> Session::packed_under(const std::vector<const std::uint8_t*>& masks) const {
    std::vector<float> found, whole;
    for (int w = 0; w < network_->weighted_count(); ++w) {
        const LayerStructure& s = structure_->layer(w);
        const std::vector<float>&value = weights_[w].value, &bias = biases_[w].value;
        const std::uint8_t* mask = masks[w];
        whole.assign(s.size, 0.0f);
        for (std::int64_t i = 0; i < s.count(); ++i) whole[s.position[i]] = value[i];
        const std::size_t begin = found.size();
        found.resize(begin + s.size + 1);  // one more: each is written before it is known whether it counts
        float* to = found.data() + begin;
        for (std::int64_t place = 0; place < s.size; ++place) {
            *to = whole[place];
            to += !mask || mask[place];
        }
        found.resize(to - found.data());
        found.insert(found.end(), bias.begin(), bias.end());
    }
    return found;
}

}  // namespace feddst
