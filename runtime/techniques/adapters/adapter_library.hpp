// The adapters that an engine has, by name, packed for its device. Bounded in number and bytes. An adapter that is
// unloaded lives on until the last row in flight that uses it is done. Any thread.
#pragma once

#include "runtime/techniques/adapters/adapter_file.hpp"
#include "runtime/techniques/model_variants.hpp"
#include "runtime/techniques/technique.hpp"

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace troupe {

/// An adapter in the layout of a backend's kernels. Projections that read the same input share one product with their
/// stacked first matrices. Immutable, and lent to any number of executors.
struct packed_adapter : product_terms {
  std::uint64_t checksum = 0; // of the values, not 0: K and V of one adapter are of no use to another
  std::size_t bytes = 0;      // of device memory
};

/// Packs an adapter for activations of type `compute`, to which its values are rounded. `backend`: of the kind that
/// will use it, with low_rank_products.
packed_adapter pack_adapter(const adapter_weights& weights, const model_products& target, kernels::backend& backend,
                            kernels::dtype compute);

class adapter_library final : public model_variants {
public:
  /// None has the model's own name. `changeable`: by clients.
  adapter_library(const technique_model& model, bool changeable);

  std::string_view kind() const override { return "adapters"; }
  bool changeable() const override { return changeable_; }

  /// Returns lines for the log. Throws failure(bad_request) that names the field `lora_name` if the name is empty, too
  /// long or taken, or there are too many adapters or bytes; and as read_adapter.
  std::vector<std::string> load(const std::string& name, const std::string& path) override;
  void unload(const std::string& name) override;

  /// Null if there is none of this name.
  std::shared_ptr<const packed_adapter> find(const std::string& name) const;
  bool has(const std::string& name) const override { return find(name) != nullptr; }
  std::vector<std::string> names() const override;

private:
  void check_room(const std::string& name, std::size_t bytes) const;

  const std::string base_; // the model's name
  const model_products target_;
  const kernels::dtype compute_;
  const std::function<std::unique_ptr<kernels::backend>()> open_;
  const bool changeable_;
  std::mutex loading_; // one at a time
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const packed_adapter>> adapters_;
  std::size_t bytes_ = 0;
};

} // namespace troupe
