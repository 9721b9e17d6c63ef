#include "selection.hpp"

#include <algorithm>
#include <functional>

namespace feddst {
namespace {

using Ranks = std::vector<std::uint32_t>;

// One in so many is looked at for a guess: a prime, so that no width of a layer has a common period with it. At least so
// many of these lie above it.
constexpr std::size_t kOneIn = 61;
constexpr std::int64_t kAtLeast = 16;

std::uint32_t nth(Ranks& ranks, std::int64_t count) {
    std::nth_element(ranks.begin(), ranks.begin() + (count - 1), ranks.end(), std::greater<>());
    return ranks[count - 1];
}

// Those that may be among the `count` largest, where a sample tells that these are few; else none.
Ranks contenders(const Ranks& ranks, std::int64_t count) {
    Ranks sample, found;
    for (std::size_t i = 0; i < ranks.size(); i += kOneIn) sample.push_back(ranks[i]);
    const std::int64_t place = 2 * count / std::int64_t(kOneIn) + kAtLeast;
    if (4 * place > std::int64_t(sample.size())) return found;
    const std::uint32_t guess = nth(sample, place);
    for (std::uint32_t rank : ranks)
        if (rank >= guess) found.push_back(rank);
    if (std::int64_t(found.size()) < count) found.clear();
    return found;
}

// Those that share their first 12 bits with the count-th largest. Takes from `count` how many are larger than all of them.
Ranks neighbours(const Ranks& ranks, std::int64_t& count) {
    constexpr int shift = 20;
    std::vector<std::int64_t> sizes(2 << (32 - shift), 0);
    // Two counts, by turns: numbers that follow each other are often alike, and would wait for each other.
    for (std::size_t i = 0; i < ranks.size(); ++i) ++sizes[2 * (ranks[i] >> shift) + i % 2];
    std::uint32_t first = (1u << (32 - shift)) - 1;
    for (std::int64_t here; count > (here = sizes[2 * first] + sizes[2 * first + 1]); --first) count -= here;
    Ranks found;
    for (std::uint32_t rank : ranks)
        if (rank >> shift == first) found.push_back(rank);
    return found;
}

}  // namespace

std::uint32_t nth_largest(const Ranks& ranks, std::int64_t count) {
    Ranks few = contenders(ranks, count);
    if (few.empty()) few = neighbours(ranks, count);
    return nth(few, count);
}

}  // namespace feddst
