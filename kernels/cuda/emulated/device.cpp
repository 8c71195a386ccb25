#include "kernels/cuda/device.hpp"

#include <chrono>
#include <cstring>
#include <new>

namespace troupe::kernels::cuda {

namespace {

using clock = std::chrono::steady_clock;

} // namespace

int device_count() { return 1; }

bool is_emulated() { return true; }

device_info select_device(int) { return {"emulated", 9, 0, 4, std::size_t(1) << 32, std::size_t(1) << 32}; }

stream::stream() : begin_(new clock::time_point) {}
stream::~stream() { delete static_cast<clock::time_point*>(begin_); }
void stream::synchronise() const {}
void stream::start_timer() { *static_cast<clock::time_point*>(begin_) = clock::now(); }
float stream::stop_timer() {
  return std::chrono::duration<float, std::milli>(clock::now() - *static_cast<clock::time_point*>(begin_)).count();
}

buffer allocate(std::size_t bytes) {
  constexpr std::size_t most = std::size_t(1) << 34;
  constexpr std::align_val_t alignment{256};
  void* memory = bytes > most ? nullptr : ::operator new(bytes, alignment, std::nothrow);
  if (memory == nullptr)
    throw device_error("cudaMalloc (" + std::to_string(bytes) + " bytes): out of memory");
  std::memset(memory, 0, bytes);
  return {memory, [](void* p) { ::operator delete(p, alignment); }};
}

buffer allocate_pinned(std::size_t bytes) { return allocate(bytes); }

void copy_to_device(const stream&, void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
void copy_to_host(const stream&, void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
void copy_on_device(const stream&, void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }

void copy_rows(const stream&, void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
               std::size_t bytes, std::size_t rows) {
  for (std::size_t i = 0; i < rows; ++i)
    std::memcpy(static_cast<char*>(to) + i * to_pitch, static_cast<const char*>(from) + i * from_pitch, bytes);
}

void fill_zero(const stream&, void* at, std::size_t bytes) { std::memset(at, 0, bytes); }

} // namespace troupe::kernels::cuda
