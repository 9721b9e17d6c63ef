// What clients minimise: the loss of an image's outputs, and its gradient.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace feddst {

// Cross-entropy of the softmax of scores and a class; the mean over outputs of squared errors, or of the cross-entropy of
// the sigmoid of each and a number from 0 to 1.
enum class Loss { cross_entropy, squared_error, binary };

// What images' outputs should be: a class for each, or with the other losses numbers, [images, outputs].
struct Targets {
    Loss loss;
    const std::int64_t* labels;
    const float* numbers;
};

// Turns scores into probabilities, and gives back the logarithm of what they were divided by.
template <class Number>
Number normalise(std::vector<Number>& scores) {
    const Number most = *std::max_element(scores.begin(), scores.end());
    Number sum = 0;
    for (Number& score : scores) sum += score = std::exp(score - most);
    for (Number& score : scores) score /= sum;
    return most + std::log(sum);
}

template <class Number>
Number cross_entropy(std::vector<Number>& scores, std::int64_t label) {
    const Number right = scores[label], loss = normalise(scores) - right;
    scores[label] -= 1;
    return loss;
}

template <class Number>
Number squared_error(std::vector<Number>& outputs, const float* wanted) {
    const Number count = Number(outputs.size());
    Number sum = 0;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
        const Number error = outputs[i] - wanted[i];
        sum += error * error;
        outputs[i] = 2 * error / count;
    }
    return sum / count;
}

// No exponential is of a number above 0.
template <class Number>
Number binary(std::vector<Number>& scores, const float* wanted) {
    const Number count = Number(scores.size());
    Number sum = 0;
    for (std::size_t i = 0; i < scores.size(); ++i) {
        const Number score = scores[i], small = std::exp(-std::abs(score));
        sum += std::max(score, Number(0)) - score * wanted[i] + std::log1p(small);
        scores[i] = ((score < 0 ? small : 1) / (1 + small) - wanted[i]) / count;
    }
    return sum / count;
}

// The loss of an image with these outputs, which become its gradient.
template <class Number>
Number differentiate(const Targets& targets, std::int64_t image, std::vector<Number>& outputs) {
    if (targets.loss == Loss::cross_entropy) return cross_entropy(outputs, targets.labels[image]);
    const float* wanted = targets.numbers + image * std::int64_t(outputs.size());
    return targets.loss == Loss::binary ? binary(outputs, wanted) : squared_error(outputs, wanted);
}

}  // namespace feddst
