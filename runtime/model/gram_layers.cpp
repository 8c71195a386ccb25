#include "runtime/model/gram_layers.hpp"

#include "runtime/support/error.hpp"
#include "runtime/support/types.hpp"

#include <algorithm>
#include <cstring>

namespace troupe {

wanted_tensor gram_tensors::named(const std::string& name, std::vector<std::size_t> shape) const {
  return {"model.layers." + std::to_string(layer_) + ".grams." + name, std::move(shape)};
}

wanted_tensor gram_tensors::norm(const char* name) const { return named(name, {as_size(config_.residual_width())}); }

wanted_tensor gram_tensors::table(int part) const {
  const auto& grams = config_.grams;
  const auto each = grams.part_rows(layer_), first = std::min(part * each, grams.table_rows(layer_));
  return named("table." + std::to_string(part) + ".weight",
               {static_cast<std::size_t>(std::min(each, grams.table_rows(layer_) - first)), as_size(grams.dim)});
}

wanted_tensor gram_tensors::key() const {
  return named("key_proj.weight", {as_size(config_.residual_width()), as_size(config_.grams.width())});
}

wanted_tensor gram_tensors::value() const {
  return named("value_proj.weight", {as_size(config_.hidden), as_size(config_.grams.width())});
}

wanted_tensor gram_tensors::convolution() const {
  return named("conv.weight", {as_size(config_.residual_width()), as_size(config_.grams.taps)});
}

std::vector<wanted_tensor> gram_tensors::all() const {
  std::vector<wanted_tensor> result{key(), value(), key_norm(), stream_norm(), value_norm(), convolution()};
  for (int part = 0; part < config_.grams.parts; ++part)
    result.push_back(table(part));
  return result;
}

void gram_rows(const gram_config& config, int layer, token_id token, std::span<const std::int32_t> before,
               std::int64_t* to) {
  const auto& hashes = config.layers[as_size(layer)];
  std::uint64_t mixed = std::uint64_t(token) * std::uint64_t(hashes.multipliers[0]);
  std::int64_t first = 0;
  std::size_t head = 0;
  bool stopped = false;
  for (int n = 2; n <= config.size; ++n) {
    const auto k = as_size(n - 1);
    stopped = stopped || before[k - 1] < 0 || before[k - 1] == config.stop;
    mixed ^= std::uint64_t(stopped ? config.stop : before[k - 1]) * std::uint64_t(hashes.multipliers[k]);
    for (int h = 0; h < config.heads; ++h, ++head) {
      const auto rows = hashes.rows[head];
      const auto rest = static_cast<std::int64_t>(mixed) % rows;
      *to++ = first + (rest < 0 ? rest + rows : rest);
      first += rows;
    }
  }
}

void check_stored_hashes(const checkpoint& tensors, const gram_config& config, int layer) {
  const auto& hashes = config.layers[as_size(layer)];
  std::vector<std::int64_t> firsts{0};
  for (std::size_t i = 0; i + 1 < hashes.rows.size(); ++i)
    firsts.push_back(firsts.back() + hashes.rows[i]);
  const auto compare = [&](const std::string& what, const std::vector<std::int64_t>& expected) {
    const auto name = "model.layers." + std::to_string(layer) + ".grams." + what;
    const auto* info = tensors.find(name);
    if (!info)
      return;
    std::vector<std::int64_t> found(expected.size());
    const bool alike = info->type == tensor_type::i64 && info->shape == std::vector{expected.size()};
    if (alike)
      std::memcpy(found.data(), tensors.read(name).get(), found.size() * sizeof(found[0]));
    if (!alike || found != expected)
      throw failure(errc::bad_file,
                    tensors.where(name) + ": tensor " + shown(name) +
                      " is not what the configuration gives for the hashes of n-grams");
  };
  compare("multipliers", hashes.multipliers);
  compare("rows", hashes.rows);
  compare("first_rows", firsts);
}

} // namespace troupe
