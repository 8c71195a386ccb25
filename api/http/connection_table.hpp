// Which connections are open, and who gives way when no more may be: one address must not keep out all others, whether
// its connections are idle or busy. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace troupe {

class connection_table {
public:
  using id = const void*;

  /// An address may have 7/8 of `most`, so that the rest is left to others, whatever it does.
  explicit connection_table(std::size_t most) : most_(most), most_of_one_(most - most / 8) {}

  enum class refusal : std::uint8_t { none, full, share };
  struct verdict {
    refusal why = refusal::none;
    id gives_way = nullptr; // to be closed if `why` is none: the longest idle one of the address that has most
  };
  /// Whether another connection from the address may be opened.
  verdict judge(const std::string& address) const;

  /// If no more may be open, who gives way to whoever comes: the longest idle one of the address that has most. Else null.
  id crowded_out() const;

  void open(id one, const std::string& address);
  void close(id one);
  /// Open connections are busy until they are said to be idle: without a request under way.
  void set_idle(id one, bool idle);

  std::size_t size() const { return open_.size(); }
  std::size_t size_of(const std::string& address) const;

private:
  struct connection {
    std::string address;
    std::uint64_t idle_since = 0; // number of the set_idle; 0: busy
  };

  id longest_idle_of(const std::string& address) const;

  const std::size_t most_, most_of_one_;
  std::map<id, connection> open_;
  std::map<std::string, std::size_t> by_address_;
  std::uint64_t last_idle_ = 0;
};

} // namespace troupe
