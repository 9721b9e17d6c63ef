// Which of the compiled kernels this CPU can run.
#pragma once

#include <string>
#include <vector>

#include "kernels.hpp"

namespace feddst {

// The names of the instruction sets to choose from, best first.
std::vector<std::string> supported();

// Throws std::invalid_argument for a name that is not among them.
const Kernels& pick(const std::string& name);

}  // namespace feddst
