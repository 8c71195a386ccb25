// The adapters that an engine has, by name, packed for its device. Bounded in number and bytes. An adapter that is
// unloaded lives on until the last row in flight that uses it is done. Any thread.
#pragma once

#include "runtime/adapters/packed_adapter.hpp"

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace troupe {

struct adapter_limits {
  std::size_t most = 64;                         // adapters
  std::size_t most_bytes = std::size_t(8) << 30; // of all, packed
};

class adapter_library {
public:
  /// Opens a backend to pack with, of the kind that will use it.
  using backend_opener = std::function<std::unique_ptr<kernels::backend>()>;

  /// `base`: the model's own name, which no adapter may have.
  adapter_library(std::string base, adapter_target target, kernels::dtype compute, backend_opener open,
                  adapter_limits limits = {})
    : base_(std::move(base)), target_(std::move(target)), compute_(compute), open_(std::move(open)), limits_(limits) {}

  /// Returns lines for the log. Throws failure(bad_request) that names the field `lora_name` if the name is empty, too
  /// long or taken, or there are too many adapters or bytes; and as read_adapter.
  std::vector<std::string> load(const std::string& name, const std::filesystem::path& path);

  /// Throws failure(not_found) if there is none of this name.
  void unload(const std::string& name);

  /// Null if there is none of this name.
  std::shared_ptr<const packed_adapter> find(const std::string& name) const;

  /// In alphabetical order.
  std::vector<std::string> names() const;

private:
  void check_room(const std::string& name, std::size_t bytes) const;

  const std::string base_;
  const adapter_target target_;
  const kernels::dtype compute_;
  const backend_opener open_;
  const adapter_limits limits_;
  std::mutex loading_; // one at a time
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const packed_adapter>> adapters_;
  std::size_t bytes_ = 0;
  std::uint64_t last_id_ = std::uint64_t{1} << 32; // beyond those of techniques, with which they salt hashes
};

} // namespace troupe
