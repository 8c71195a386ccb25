#include "runtime/techniques/adapters/adapter_library.hpp"

#include "kernels/low_rank.hpp"
#include "runtime/model/model_products.hpp"
#include "runtime/scheduling/prefix_salt.hpp"
#include "runtime/support/error.hpp"

namespace troupe {

namespace {

constexpr std::size_t most_adapters = 64, most_packed_bytes = std::size_t(8) << 30, most_adapter_name_bytes = 128;

[[noreturn]] void refuse_adapter(const std::string& complaint) {
  throw failure(errc::bad_request, complaint, "lora_name");
}

struct site_range {
  projection first, last;
};
constexpr std::array<site_range, product_site_count> site_ranges{{{projection::q, projection::v},
                                                                  {projection::o, projection::o},
                                                                  {projection::gate, projection::up},
                                                                  {projection::down, projection::down}}};

product_terms::term pack_site(const std::array<low_rank, projection_count>& layer,
                              const std::array<model_products::shape, projection_count>& shapes, site_range range,
                              std::size_t behind, kernels::low_rank_products& backend, kernels::dtype compute) {
  std::vector<kernels::low_rank_pair> pairs;
  std::size_t outputs = 0, inputs = 0;
  for (auto p = static_cast<std::size_t>(range.first); p <= static_cast<std::size_t>(range.last); ++p) {
    const auto& values = layer[p];
    if (values.rank > 0) {
      pairs.push_back({outputs, shapes[p].outputs, values.rank, values.a.data(), values.b.data()});
      inputs = shapes[p].inputs;
    }
    outputs += shapes[p].outputs;
  }
  const bool gated = range.first == projection::gate && shapes[static_cast<std::size_t>(projection::gate)].outputs > 0;
  return pairs.empty() ? nullptr : backend.pack_low_rank(pairs, inputs, outputs + behind, compute, gated);
}

} // namespace

packed_adapter pack_adapter(const adapter_weights& weights, const model_products& target, kernels::backend& backend,
                            kernels::dtype compute) {
  auto& products = dynamic_cast<kernels::low_rank_products&>(backend);
  packed_adapter result;
  value_sum values;
  for (std::size_t i = 0; i < weights.layers.size(); ++i) {
    auto& layer = result.layers.emplace_back();
    for (const auto& each : weights.layers[i]) {
      values.add(each.a);
      values.add(each.b);
    }
    for (std::size_t s = 0; s < product_site_count; ++s) {
      const bool of_attention = s == static_cast<std::size_t>(product_site::qkv);
      const auto behind = of_attention && !target.gates.empty() ? target.gates[i] : 0;
      layer[s] = pack_site(weights.layers[i], target.layers[i], site_ranges[s], behind, products, compute);
      result.bytes += layer[s] ? layer[s]->bytes : 0;
    }
  }
  result.checksum = values.value();
  return result;
}

adapter_library::adapter_library(const technique_model& model, bool changeable)
  : base_(model.name),
    target_(products_of(model.config)),
    compute_(model.compute),
    open_(model.open),
    changeable_(changeable) {}

void adapter_library::check_room(const std::string& name, std::size_t bytes) const {
  const std::lock_guard lock(mutex_);
  if (name == base_ || adapters_.contains(name))
    refuse_adapter("there is a model with the name `" + name + "` already");
  if (adapters_.size() >= most_adapters)
    refuse_adapter("there are " + std::to_string(most_adapters) + " adapters already, which is the most");
  if (bytes_ + bytes > most_packed_bytes)
    refuse_adapter("the adapters would take " + std::to_string((bytes_ + bytes) >> 20) + " MiB, at most " +
                   std::to_string(most_packed_bytes >> 20) + " MiB are possible");
}

std::vector<std::string> adapter_library::load(const std::string& name, const std::string& path) {
  if (name.empty() || name.size() > most_adapter_name_bytes)
    refuse_adapter("the name of an adapter must have 1 to " + std::to_string(most_adapter_name_bytes) + " bytes, not " +
                   std::to_string(name.size()));
  const std::lock_guard one(loading_);
  check_room(name, 0);
  auto weights = read_adapter(path, target_);
  const auto backend = open_();
  auto packed = std::make_shared<const packed_adapter>(pack_adapter(weights, target_, *backend, compute_));
  check_room(name, packed->bytes);
  const std::lock_guard lock(mutex_);
  bytes_ += packed->bytes;
  adapters_.emplace(name, std::move(packed));
  return std::move(weights.remarks);
}

void adapter_library::unload(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto found = adapters_.find(name);
  if (found == adapters_.end())
    throw failure(errc::not_found, "there is no adapter named `" + name.substr(0, most_adapter_name_bytes) + "`",
                  "lora_name");
  bytes_ -= found->second->bytes;
  adapters_.erase(found);
}

std::shared_ptr<const packed_adapter> adapter_library::find(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const auto found = adapters_.find(name);
  return found == adapters_.end() ? nullptr : found->second;
}

std::vector<std::string> adapter_library::names() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> all;
  for (const auto& [name, _] : adapters_)
    all.push_back(name);
  return all;
}

} // namespace troupe
