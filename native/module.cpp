// `feddst._native`: sessions for Python. Everything that comes in is checked here; the kernels trust what they are given.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <chrono>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <variant>

#include "denormals.hpp"
#include "dispatch.hpp"
#include "exact.hpp"
#include "session.hpp"

namespace nb = nanobind;

namespace feddst {
namespace {

using Floats = nb::ndarray<float, nb::c_contig, nb::device::cpu>;
using ConstFloats = nb::ndarray<const float, nb::c_contig, nb::device::cpu>;
using Doubles = nb::ndarray<double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Integers = nb::ndarray<const std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Bytes = nb::ndarray<std::uint8_t, nb::c_contig, nb::device::cpu>;
using ConstBytes = nb::ndarray<const std::uint8_t, nb::c_contig, nb::device::cpu>;
using Sides = std::tuple<int, int, int, int, int, int>;
using Description = std::tuple<std::string, int, Sides, bool, bool>;

Kind kind_named(const std::string& name) {
    if (name == "convolution") return Kind::convolution;
    if (name == "linear") return Kind::linear;
    if (name == "max_pool") return Kind::max_pool;
    if (name == "average_pool") return Kind::average_pool;
    if (name == "relu") return Kind::relu;
    if (name == "softmax") return Kind::softmax;
    throw std::invalid_argument("there is no layer " + name);
}

std::shared_ptr<Network> make_network(std::tuple<int, int, int> input, const std::vector<Description>& layers) {
    std::vector<Operation> operations;
    for (const auto& [kind, outputs, sides, bias, count_padding] : layers) {
        const auto [rows, columns, row_stride, column_stride, row_padding, column_padding] = sides;
        operations.push_back({kind_named(kind), outputs,
                              {rows, columns, row_stride, column_stride, row_padding, column_padding}, bias,
                              count_padding});
    }
    const auto [planes, height, width] = input;
    return std::make_shared<Network>(Shape{planes, height, width}, operations);
}

void expect(bool holds, const std::string& what) {
    if (!holds) throw std::invalid_argument(what);
}

// The addresses of masks, checked; null where there is none.
template <class Array>
std::vector<typename Array::Scalar*> mask_addresses(const Network& network,
                                                    const std::vector<std::optional<Array>>& masks) {
    expect(int(masks.size()) == network.weighted_count(), "one mask, or None, is needed for each layer with weights");
    std::vector<typename Array::Scalar*> found;
    for (int w = 0; w < network.weighted_count(); ++w) {
        expect(!masks[w] || std::int64_t(masks[w]->size()) == Network::size(network.weighted(w)),
               "a mask has another size than its weights");
        found.push_back(masks[w] ? masks[w]->data() : nullptr);
    }
    return found;
}

std::shared_ptr<Structure> make_structure(std::shared_ptr<Network> network,
                                          const std::vector<std::optional<ConstBytes>>& masks,
                                          std::optional<std::vector<bool>> dense) {
    const std::vector<const std::uint8_t*> found = mask_addresses(*network, masks);
    expect(!dense || int(dense->size()) == network->weighted_count(), "one mode is needed for each layer with weights");
    std::vector<Mode> modes;
    if (dense)
        for (bool all : *dense) modes.push_back(all ? Mode::dense : Mode::sparse);
    nb::gil_scoped_release release;
    return std::make_shared<Structure>(network, found, dense ? &modes : nullptr);
}

// The addresses of a list of weight or bias tensors, checked. Biases are None where there are none.
template <class Array>
std::vector<typename Array::Scalar*> addresses(const Network& network, const std::vector<std::optional<Array>>& arrays,
                                               bool biases) {
    expect(int(arrays.size()) == network.weighted_count(), "one tensor is needed for each layer with weights");
    std::vector<typename Array::Scalar*> found;
    for (int w = 0; w < network.weighted_count(); ++w) {
        const Layer& layer = network.weighted(w);
        const bool wanted = !biases || layer.op.bias;
        const std::int64_t size = biases ? layer.op.outputs : Network::size(layer);
        expect(arrays[w].has_value() == wanted, "a tensor is missing, or there is one too many");
        expect(!wanted || std::int64_t(arrays[w]->size()) == size, "a tensor has another size than its layer");
        found.push_back(wanted ? arrays[w]->data() : nullptr);
    }
    return found;
}

// Class labels, or a number for each output.
using AnyTargets = std::variant<Integers, ConstFloats>;

Loss loss_named(const std::string& name) {
    if (name == "cross-entropy") return Loss::cross_entropy;
    if (name == "squared-error") return Loss::squared_error;
    if (name == "binary") return Loss::binary;
    throw std::invalid_argument("there is no loss " + name);
}

// What `images` images' outputs should be, checked.
Targets checked(const Network& network, const AnyTargets& targets, const std::string& name, std::int64_t images) {
    const Loss loss = loss_named(name);
    const bool classes = loss == Loss::cross_entropy;
    expect(classes == std::holds_alternative<Integers>(targets), "cross-entropy needs labels, and other losses numbers");
    if (!classes) {
        const ConstFloats& numbers = std::get<ConstFloats>(targets);
        expect(std::int64_t(numbers.size()) == images * network.outputs(), "the targets do not fit the images and outputs");
        return {loss, nullptr, numbers.data()};
    }
    const Integers& labels = std::get<Integers>(targets);
    expect(std::int64_t(labels.size()) == images, "the images do not fit the network");
    for (std::int64_t i = 0; i < images; ++i)
        expect(labels.data()[i] >= 0 && labels.data()[i] < network.outputs(), "a label is out of range");
    return {loss, labels.data(), nullptr};
}

// A client's images, checked against each other, and the order in which they are to be seen.
Images checked(const Network& network, const ConstFloats& inputs, const AnyTargets& targets, const std::string& loss,
               const Integers& order) {
    const std::int64_t images = std::int64_t(inputs.size()) / network.input().size();
    expect(images * network.input().size() == std::int64_t(inputs.size()), "the images do not fit the network");
    const Targets wanted = checked(network, targets, loss, images);
    for (std::size_t i = 0; i < order.size(); ++i)
        expect(order.data()[i] >= 0 && order.data()[i] < images, "an image is out of range");
    return {inputs.data(), wanted};
}

// Lets Python look, now and then, whether somebody has pressed Ctrl-C; only its main thread is ever told.
class Interruption {
public:
    Interruption() {
        const nb::module_ threading = nb::module_::import_("threading");
        listens_ = threading.attr("current_thread")().is(threading.attr("main_thread")());
    }

    // To be called without Python's lock; throws if the handler raised something.
    void check() {
        const auto now = std::chrono::steady_clock::now();
        if (!listens_ || now - last_ < std::chrono::milliseconds(100)) return;
        last_ = now;
        nb::gil_scoped_acquire acquire;
        if (PyErr_CheckSignals()) throw nb::python_error();
    }

private:
    bool listens_;
    std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

// Steps on minibatches, one after another; returns the sum of the images' losses for each.
std::vector<double> train(Session& session, const ConstFloats& inputs, const AnyTargets& targets, const Integers& order,
                          const std::vector<int>& sizes, float rate, float momentum, float decay, float proximal,
                          const std::string& loss, const std::optional<std::tuple<double, double, double>>& adam,
                          std::int64_t taken, bool decoupled) {
    const Images images = checked(session.network(), inputs, targets, loss, order);
    std::int64_t all = 0;
    for (int size : sizes) {
        expect(size > 0, "a minibatch is empty");
        all += size;
    }
    expect(all == std::int64_t(order.size()), "the minibatches do not add up to the images");
    expect(session.structure(), "no weights are loaded");
    expect(adam || !decoupled, "only Adam's decay can be decoupled");
    Rates rates = {rate, momentum, decoupled ? 0.0f : decay, proximal, std::nullopt};
    if (adam) {
        const auto [beta1, beta2, epsilon] = *adam;
        rates.adam = Moments{beta1, beta2, epsilon, decoupled ? 1.0 - double(rate) * decay : 1.0};
    }
    expect(session.slots() == rates.slots(), "the weights were loaded with the slots of another optimizer");
    expect(taken >= 0, "fewer steps than none were taken");
    Interruption interruption;
    nb::gil_scoped_release release;
    FlushDenormals flush;
    std::vector<double> losses;
    const std::int64_t* next = order.data();
    for (int size : sizes) {
        if (session.stopped()) throw std::runtime_error("the session was stopped");
        interruption.check();
        losses.push_back(session.step(images, next, size, rates, taken++));
        next += size;
    }
    return losses;
}

void mean_gradient(Session& session, const ConstFloats& inputs, const AnyTargets& targets, const Integers& order,
                   float temperature, const std::vector<std::optional<Floats>>& weights,
                   const std::vector<std::optional<Floats>>& biases, const std::string& loss) {
    const Images images = checked(session.network(), inputs, targets, loss, order);
    const auto to = addresses(session.network(), weights, false), bias = addresses(session.network(), biases, true);
    expect(order.size() > 0, "a gradient needs an image");
    expect(session.structure(), "no weights are loaded");
    nb::gil_scoped_release release;
    FlushDenormals flush;
    session.mean_gradient(images, order.data(), std::int64_t(order.size()), temperature, to, bias);
}

// How many weights of a layer leave, and how many enter; None where nothing changes.
using Moves = std::vector<std::optional<std::tuple<std::int64_t, std::int64_t>>>;

void readjust(Session& session, const ConstFloats& inputs, const AnyTargets& targets, const Integers& order,
              const Moves& moves, const std::vector<std::optional<Bytes>>& masks, const std::string& loss) {
    const Network& network = session.network();
    const Images images = checked(network, inputs, targets, loss, order);
    const std::vector<std::uint8_t*> to = mask_addresses(network, masks);
    expect(order.size() > 0, "a gradient needs an image");
    expect(session.structure(), "no weights are loaded");
    expect(moves.size() == to.size(), "one pair of numbers, or None, is needed for each layer with weights");
    std::vector<std::optional<Exchange>> exchanges(moves.size());
    for (int w = 0; w < network.weighted_count(); ++w) {
        expect(moves[w].has_value() == (to[w] != nullptr), "a mask is missing, or there is one too many");
        if (!moves[w]) continue;
        const auto [leaving, entering] = *moves[w];
        const std::int64_t active = session.structure()->active(w), size = Network::size(network.weighted(w));
        expect(leaving >= 0 && leaving <= active, "fewer weights than none leave a layer, or more than it has");
        expect(entering >= 0 && entering <= size - active + leaving, "fewer weights than none enter a layer, or more than it lacks");
        exchanges[w] = Exchange{leaving, entering};
    }
    nb::gil_scoped_release release;
    FlushDenormals flush;
    session.readjust(images, order.data(), std::int64_t(order.size()), exchanges, to);
}

void scores(Session& session, const ConstFloats& inputs, const Floats& outputs) {
    const std::int64_t images = std::int64_t(inputs.size()) / session.network().input().size();
    expect(images * session.network().input().size() == std::int64_t(inputs.size()), "the images do not fit the network");
    expect(images * session.network().outputs() == std::int64_t(outputs.size()), "the outputs do not fit the network");
    expect(session.structure(), "no weights are loaded");
    float* to = outputs.data();
    nb::gil_scoped_release release;
    FlushDenormals flush;
    session.scores(inputs.data(), images, to);
}

nb::ndarray<nb::numpy, float, nb::ndim<1>> packed(const Session& session,
                                                  const std::optional<std::vector<std::optional<ConstBytes>>>& masks) {
    expect(session.structure(), "no weights are loaded");
    const auto places = masks ? mask_addresses(session.network(), *masks) : std::vector<const std::uint8_t*>();
    auto found = std::make_unique<std::vector<float>>();
    {
        nb::gil_scoped_release release;
        *found = masks ? session.packed_under(places) : session.packed();
    }
    const nb::capsule owner(found.get(), [](void* floats) noexcept { delete static_cast<std::vector<float>*>(floats); });
    std::vector<float>& floats = *found.release();
    return {floats.data(), {floats.size()}, owner};
}

using MaybeConst = std::vector<std::optional<ConstFloats>>;
using MaybeFloats = std::vector<std::optional<Floats>>;

}  // namespace
}  // namespace feddst

NB_MODULE(_native, m) {
    using namespace feddst;
    m.def("supported", &supported);
    m.def("add_exact",
          [](const ConstFloats& values, double scale, const Doubles& coarse, const Doubles& fine,
             const std::optional<Integers>& at) {
              const std::int64_t size = std::int64_t(coarse.size()), count = std::int64_t(values.size());
              expect(size == std::int64_t(fine.size()), "the sums have another size");
              expect((at ? std::int64_t(at->size()) : size) == count, "the values are more or fewer than their places");
              const std::int64_t* places = at ? at->data() : nullptr;
              double *to = coarse.data(), *rest = fine.data();
              nb::gil_scoped_release release;
              for (std::int64_t i = 0; places && i < count; ++i)
                  expect(places[i] >= 0 && places[i] < size, "a place is out of range");
              add_exact(values.data(), count, scale, places, to, rest);
          },
          nb::arg("values"), nb::arg("scale"), nb::arg("coarse").noconvert(), nb::arg("fine").noconvert(),
          nb::arg("at") = nb::none());
    nb::class_<Network>(m, "Network")
        .def(nb::new_(&make_network), nb::arg("shape"), nb::arg("layers"))
        .def_prop_ro("outputs", &Network::outputs)
        .def_prop_ro("sizes", [](const Network& network) {
            std::vector<std::int64_t> sizes;
            for (int w = 0; w < network.weighted_count(); ++w) sizes.push_back(Network::size(network.weighted(w)));
            return sizes;
        });
    nb::class_<Structure>(m, "Structure")
        .def(nb::new_(&make_structure), nb::arg("network"), nb::arg("masks"), nb::arg("dense") = nb::none())
        .def_prop_ro("dense", [](const Structure& structure) {
            std::vector<bool> dense;
            for (int w = 0; w < structure.network().weighted_count(); ++w)
                dense.push_back(structure.layer(w).mode == Mode::dense);
            return dense;
        })
        .def_prop_ro("active", [](const Structure& structure) {
            std::vector<std::int64_t> active;
            for (int w = 0; w < structure.network().weighted_count(); ++w) active.push_back(structure.active(w));
            return active;
        });
    nb::class_<Weights>(m, "Weights")
        .def(nb::new_([](std::shared_ptr<Structure> structure, const MaybeConst& weights, const MaybeConst& biases) {
                 const Network& network = structure->network();
                 return std::make_shared<Weights>(structure, addresses(network, weights, false),
                                                  addresses(network, biases, true));
             }),
             nb::arg("structure"), nb::arg("weights"), nb::arg("biases"))
        .def_prop_ro("structure",
                     [](const Weights& weights) { return std::const_pointer_cast<Structure>(weights.structure()); });
    nb::class_<Session>(m, "Session")
        .def("__init__",
             [](Session* at, std::shared_ptr<Network> network, const std::string& isa) {
                 new (at) Session(network, pick(isa));
             },
             nb::arg("network"), nb::arg("isa"))
        .def("load",
             [](Session& session, const Weights& weights, int slots) {
                 expect(&weights.structure()->network() == &session.network(), "the weights are of another network");
                 expect(slots == 1 || slots == 2, "an optimizer has one slot or two");
                 session.load(weights, slots);
             },
             nb::arg("weights"), nb::arg("slots") = 1)
        .def("load_slot",
             [](Session& session, int slot, const MaybeConst& weights, const MaybeConst& biases) {
                 expect(session.structure(), "no weights are loaded");
                 expect(slot >= 0 && slot < session.slots(), "the optimizer has no such slot");
                 session.load_slot(slot, addresses(session.network(), weights, false),
                                   addresses(session.network(), biases, true));
             },
             nb::arg("slot"), nb::arg("weights"), nb::arg("biases"))
        .def("store",
             [](const Session& session, const MaybeFloats& weights, const MaybeFloats& biases, std::optional<int> slot) {
                 expect(session.structure(), "no weights are loaded");
                 expect(!slot || (*slot >= 0 && *slot < session.slots()), "the optimizer has no such slot");
                 session.store(addresses(session.network(), weights, false), addresses(session.network(), biases, true),
                               slot);
             },
             nb::arg("weights").noconvert(), nb::arg("biases").noconvert(), nb::arg("slot") = nb::none())
        .def("set_trained",
             [](Session& session, const std::vector<bool>& weights, const std::vector<bool>& biases) {
                 const std::size_t layers = session.network().weighted_count();
                 expect(weights.size() == layers && biases.size() == layers, "one flag is needed for each layer");
                 session.set_trained(weights, biases);
             },
             nb::arg("weights"), nb::arg("biases"))
        .def("set_anchor",
             [](Session& session, std::shared_ptr<Weights> anchor) {
                 expect(anchor->structure().get() == session.structure(), "the anchor is of another structure");
                 session.set_anchor(anchor);
             },
             nb::arg("anchor"))
        .def("packed", &packed, nb::arg("masks") = nb::none())
        .def("stop", &Session::stop)
        .def("train", &train, nb::arg("inputs"), nb::arg("targets"), nb::arg("order"), nb::arg("sizes"), nb::arg("rate"),
             nb::arg("momentum"), nb::arg("decay"), nb::arg("proximal"), nb::arg("loss") = "cross-entropy",
             nb::arg("adam") = nb::none(), nb::arg("taken") = 0, nb::arg("decoupled") = false)
        .def("mean_gradient", &mean_gradient, nb::arg("inputs"), nb::arg("targets"), nb::arg("order"),
             nb::arg("temperature"), nb::arg("weights").noconvert(), nb::arg("biases").noconvert(),
             nb::arg("loss") = "cross-entropy")
        .def("readjust", &readjust, nb::arg("inputs"), nb::arg("targets"), nb::arg("order"), nb::arg("moves"),
             nb::arg("masks").noconvert(), nb::arg("loss") = "cross-entropy")
        .def("scores", &scores, nb::arg("inputs"), nb::arg("outputs").noconvert());
}
