#include "dispatch.hpp"

#include <stdexcept>

namespace feddst {

// FEDDST_ISAS comes from CMake: X(avx512) X(avx2) X(baseline), best first, as far as they are compiled.
#define X(isa) const Kernels* kernels_##isa();
FEDDST_ISAS
#undef X

namespace {

struct Compiled {
    const char* name;
    const Kernels* (*kernels)();
};

#define X(isa) {#isa, kernels_##isa},
constexpr Compiled compiled[] = {FEDDST_ISAS};
#undef X

// On x86 the builtin knows whether the operating system saves the registers, too.
bool runs(const std::string& isa) {
#if defined(__x86_64__)
    if (isa == "avx512") {
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") && runs("avx2");
    }
    if (isa == "avx2") {
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    }
#endif
    return isa == "baseline";
}

}  // namespace

std::vector<std::string> supported() {
    std::vector<std::string> names;
    for (const Compiled& one : compiled) {
        if (runs(one.name)) {
            names.emplace_back(one.name);
        }
    }
    return names;
}

const Kernels& pick(const std::string& name) {
    std::string choice;
    for (const std::string& isa : supported()) {
        choice += (choice.empty() ? "" : ", ") + isa;
    }
    for (const Compiled& one : compiled) {
        if (name == one.name) {
            if (!runs(name)) {
                throw std::invalid_argument("this CPU cannot run kernels for " + name + ", only for " + choice);
            }
            return *one.kernels();
        }
    }
    throw std::invalid_argument("no kernels are compiled for '" + name + "'; this CPU can run those for " + choice);
}

}  // namespace feddst
