// The memory of the emulated device: a guard behind each piece, and detection of writes after free.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <mutex>
#include <string>

namespace troupe::kernels::cuda::emulated {

/// Writes beyond a piece or to a freed piece are found at the next check; AddressSanitizer reports reads and writes
/// there immediately. Used by any thread.
class watched_memory {
public:
  watched_memory() = default;
  ~watched_memory();
  watched_memory(const watched_memory&) = delete;
  watched_memory& operator=(const watched_memory&) = delete;

  /// Zeros, aligned to 256 bytes; pages that are never written take no memory. Null if there is no room.
  void* allocate(std::size_t bytes);

  /// Keeps the piece for a while, poisoned.
  void free(void* memory);

  /// Whether the address is in an allocated piece.
  bool owns(const void* at);

  /// Check the guards, or guards and freed pieces. Throw device_error if any was written, until forget_writes.
  void check_guards();
  void check_everything();
  void forget_writes();

private:
  /// `given`: memory of the host; `memory`: the aligned piece within.
  struct piece {
    void* given = nullptr;
    unsigned char* memory = nullptr;
    std::size_t bytes = 0;
  };

  static void release(const piece& p);
  void check_guard(const piece& p);
  void check_freed(const piece& p);
  void throw_if_written() const;

  std::mutex mutex_;
  std::map<const unsigned char*, piece> pieces_;
  std::deque<piece> freed_;
  std::size_t freed_bytes_ = 0;
  std::string written_; // describes the last forbidden write
};

} // namespace troupe::kernels::cuda::emulated
