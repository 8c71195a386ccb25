// Owns an open file, or none, and closes it; with functions that use one. Any thread.
#pragma once

#include <cstddef>
#include <filesystem>
#include <utility>

#include <unistd.h>

namespace troupe {

class descriptor {
public:
  descriptor() = default;
  explicit descriptor(int opened) : opened_(opened) {}
  descriptor(descriptor&& other) noexcept : opened_(std::exchange(other.opened_, -1)) {}
  descriptor& operator=(descriptor&& other) noexcept {
    std::swap(opened_, other.opened_);
    return *this;
  }
  ~descriptor() {
    if (opened_ >= 0)
      ::close(opened_);
  }

  explicit operator bool() const { return opened_ >= 0; }
  int get() const { return opened_; }

private:
  int opened_ = -1;
};

/// All of it, or false: errno is 0 where the file has ended.
bool read_whole(const descriptor& from, void* to, std::size_t bytes);
bool write_whole(const descriptor& to, const void* from, std::size_t bytes);

/// Acquires a lock that ends with the process. False if another process holds it (EWOULDBLOCK), or it cannot be had.
bool try_lock(const descriptor& opened);

/// Whether this is the name of what is open, and not of what has taken its place.
bool is_called(int opened, const std::filesystem::path& name);

} // namespace troupe
