#include "tests/simulation/variants.hpp"

#include "kernels/cpu/cpu_backend.hpp"
#include "runtime/checkpoint/gguf_writer.hpp"
#include "runtime/techniques/adapters/adapter_library.hpp"
#include "runtime/techniques/adapters/technique.hpp"
#include "runtime/techniques/steering/steering_file.hpp"
#include "runtime/techniques/steering/steering_library.hpp"
#include "runtime/techniques/steering/technique.hpp"
#include "tests/simulation/dice.hpp"
#include "tests/simulation/hash_model.hpp"

#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

namespace troupe::simulation {

namespace {

model_config smallest_config() {
  model_config c;
  c.family = "llama";
  c.layers = 1;
  c.hidden = c.ffn = c.head_dim = hidden_width;
  c.heads = c.kv_heads = 1;
  c.gated = true;
  c.windows = {0};
  return c;
}

/// The files of this process.
class variant_files {
public:
  variant_files() {
    std::filesystem::create_directories(folder_);
    for (std::size_t i = 0; i < adapter_names.size(); ++i)
      for (int version = 0; version < adapter_versions; ++version)
        write_adapter(adapter(adapter_names[i], version), static_cast<float>(i * 10 + version + 1));
    for (std::size_t i = 0; i < steering_names.size(); ++i)
      write_steering(steering(steering_names[i]), {std::vector<float>(hidden_width, static_cast<float>(i) - 0.5f)},
                     "llama");
  }
  ~variant_files() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  variant_files(const variant_files&) = delete;
  variant_files& operator=(const variant_files&) = delete;

  std::filesystem::path adapter(const std::string& name, int version) const {
    return folder_ / (name + std::to_string(version) + ".gguf");
  }
  std::filesystem::path steering(const std::string& name) const { return folder_ / (name + ".safetensors"); }

  static const variant_files& of_process() {
    static const variant_files made;
    return made;
  }

private:
  static void write_adapter(const std::filesystem::path& file, float value) {
    gguf_writer writer;
    writer.add("general.architecture", "llama");
    writer.add("general.type", "adapter");
    writer.add("adapter.type", "lora");
    writer.add("adapter.lora.alpha", 1.0f);
    writer.add_tensor("blk.0.attn_output.weight.lora_a", tensor_type::f32, {1, hidden_width});
    writer.add_tensor("blk.0.attn_output.weight.lora_b", tensor_type::f32, {hidden_width, 1});
    const std::vector<float> values(hidden_width, value);
    writer.write(file, [&](std::size_t) { return std::as_bytes(std::span(values)); });
  }

  const std::filesystem::path folder_ = "/dev/shm/troupe_simulation_" + std::to_string(getpid()) + "_variants";
};

/// Which file each adapter in memory was read from. Those of other simulations may be among them.
class loaded_adapters {
public:
  void add(const std::shared_ptr<const packed_adapter>& its, std::uint64_t content) {
    std::erase_if(all_, [](const auto& each) { return each.second.first.expired(); });
    all_[its.get()] = {its, content};
  }
  std::uint64_t content_of(const product_terms* terms) const { return all_.at(terms).second; }

  static loaded_adapters& now() {
    static loaded_adapters all;
    return all;
  }

private:
  // The weak pointer keeps the address from being another one's.
  std::map<const product_terms*, std::pair<std::weak_ptr<const packed_adapter>, std::uint64_t>> all_;
};

adapter_library& adapters_of(const loaded_model& model) {
  return **model.info.techniques.find<std::shared_ptr<adapter_library>>(adapters_technique);
}

std::uint64_t hash_of(std::string_view text) {
  std::uint64_t h = 3;
  for (const char c : text)
    h = mixed(h, static_cast<std::uint64_t>(c));
  return h;
}

} // namespace

void add_variants(loaded_model& model, int version) {
  static const auto config = smallest_config();
  auto& kept = model.info.techniques;
  kept.set(adapters_technique,
           std::make_shared<const std::shared_ptr<adapter_library>>(std::make_shared<adapter_library>(
             technique_model{.config = config,
                             .name = model.info.id,
                             .adds_products = true,
                             .compute = kernels::dtype::f32,
                             .open = [] { return kernels::make_cpu_backend({.threads = 1}); }},
             true)));
  for (const auto* name : adapter_names)
    load_adapter(model, name, version);
  auto vectors = std::make_shared<steering_library>(config.layers, config.hidden);
  for (const auto* name : steering_names)
    vectors->add(name, variant_files::of_process().steering(name));
  kept.set(steering_technique, std::move(vectors));
}

void load_adapter(const loaded_model& model, const std::string& name, int version) {
  auto& all = adapters_of(model);
  all.load(name, variant_files::of_process().adapter(name, version).string());
  loaded_adapters::now().add(all.find(name), mixed(hash_of(name), static_cast<std::uint64_t>(version)));
}

void unload_adapter(const loaded_model& model, const std::string& name) { adapters_of(model).unload(name); }

bool names_adapter(const generation& g) { return g.sampling.techniques.find(adapters_technique) != nullptr; }

std::uint64_t made_from(const row_features& of) {
  std::uint64_t h = 0;
  for (const auto& use : of.used) {
    if (const auto* terms = use->products())
      h = mixed(h, loaded_adapters::now().content_of(terms));
    if (&use->of() == &steering_technique)
      for (const auto& each : choices_of(use.get()))
        h = mixed(h, mixed(hash_of(each.name), static_cast<std::uint64_t>(each.strength * 16)));
  }
  return h == 0 ? of.salt : h;
}

} // namespace troupe::simulation
