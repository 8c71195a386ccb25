// The memory of the emulated device: pieces with a guard behind each, and watch over those that were given back.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <mutex>
#include <string>

namespace troupe::kernels::cuda::emulated {

/// Nobody may touch what is behind a piece, nor what has been given back. Whoever writes there is found out at the next
/// look; AddressSanitizer sees at once who reads or writes there. Used by any thread.
class watched_memory {
public:
  watched_memory() = default;
  ~watched_memory();
  watched_memory(const watched_memory&) = delete;
  watched_memory& operator=(const watched_memory&) = delete;

  /// Zeros, of which only those that are written take memory, aligned to 256 bytes. Null where there is no room.
  void* allocate(std::size_t bytes);

  /// What was given back last stays for a while, forbidden to all.
  void free(void* memory);

  /// Whether it is memory that `allocate` gave.
  bool owns(const void* at);

  /// Behind every piece, or there and into what was given back. Throws device_error where something was written since
  /// the memory was allocated, until that is forgotten.
  void check_guards();
  void check_everything();
  void forget_writes();

private:
  /// Memory as it came from the host, and what was given of it.
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
  std::string written_; // where it must not be
};

} // namespace troupe::kernels::cuda::emulated
