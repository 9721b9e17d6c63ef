// Memory for blocks of images: aligned to cache lines, zero at first.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

namespace feddst {

class Buffer {
public:
    Buffer() = default;
    explicit Buffer(std::size_t count) {
        const std::size_t bytes = (count * sizeof(float) + 63) / 64 * 64 + 64;
        data_.reset(static_cast<float*>(std::aligned_alloc(64, bytes)));
        if (!data_) throw std::bad_alloc();
        std::memset(data_.get(), 0, bytes);
    }

    float* data() const { return data_.get(); }
    explicit operator bool() const { return data_ != nullptr; }

private:
    struct Free {
        void operator()(float* data) const { std::free(data); }
    };
    std::unique_ptr<float, Free> data_;
};

}  // namespace feddst
