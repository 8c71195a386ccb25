#include "runtime/techniques/adapters/technique.hpp"

#include "runtime/model/model_products.hpp"
#include "runtime/scheduling/prefix_salt.hpp"
#include "runtime/support/json/field_reader.hpp"
#include "runtime/support/text/integer_text.hpp"
#include "runtime/techniques/adapters/adapter_library.hpp"

#include <algorithm>
#include <array>
#include <random>
#include <utility>

namespace troupe {

namespace {

using library = std::shared_ptr<adapter_library>;

adapter_library* library_of(const technique_values& values) {
  const auto* kept = values.find<library>(adapters_technique);
  return kept ? kept->get() : nullptr;
}

/// What a request asks for and, once it is fitted to a model, the adapter.
class adapter_use final : public technique_use {
public:
  explicit adapter_use(std::string name, std::shared_ptr<const packed_adapter> adapter = {})
    : name_(std::move(name)), adapter_(std::move(adapter)) {}

  const technique& of() const override { return adapters_technique; }

  technique_use_ptr fitted(technique_use_ptr, const generation&, const technique_limits& limits) const override {
    const auto* all = limits.values ? library_of(*limits.values) : nullptr;
    auto found = all ? all->find(name_) : nullptr;
    if (!found)
      throw failure(errc::not_found, "the model `" + name_ + "` does not exist", "model");
    return std::make_shared<adapter_use>(name_, std::move(found));
  }

  std::uint64_t salt() const override { return value_salt("adapter", adapter_ ? adapter_->checksum : 0); }
  const product_terms* products() const override { return adapter_.get(); }
  std::string_view answers_as() const override { return name_; }

private:
  std::string name_;
  std::shared_ptr<const packed_adapter> adapter_; // null: not fitted yet
};

technique_use_ptr read(const field_reader& body, const technique_facts& model) {
  const auto name = body.text("model");
  const auto* all = name ? library_of(model.values) : nullptr;
  return all && all->has(std::string(*name)) ? adapted_by(std::string(*name)) : nullptr;
}

void require_products(const technique_model& model, const std::string& flag) {
  if (!model.adds_products)
    refuse_field(flag, "needs the CPU (--device cpu): " + model.device + " does not support adapters",
                 errc::unsupported);
}

/// Null without any, unless clients may load some.
std::shared_ptr<const void> load(const flag_values& flags, const technique_model& model) {
  const auto files = texts_of(flags, "lora");
  const bool changeable = flags.contains("lora_endpoints");
  if (files.empty() && !changeable)
    return nullptr;
  if (model.config.recurrent)
    refuse_field("lora",
                 "does not support models with recurrent layers yet, such as those of the family `" +
                   model.config.family + "`",
                 errc::unsupported);
  require_products(model, "lora");
  if (!model.one_device)
    refuse_field("lora", "needs all layers on one device, not " + model.device, errc::unsupported);
  auto made = std::make_shared<adapter_library>(model, changeable);
  for (const auto& text : files) {
    const auto [name, path] = parse_named_file(text);
    for (auto& line : made->load(name, path))
      model.log(std::move(line));
  }
  return std::make_shared<const library>(std::move(made));
}

model_variants* variants(const technique_values& values) { return library_of(values); }

/// Small values for all projections.
adapter_weights random_weights(const model_products& target, std::size_t rank, unsigned seed) {
  std::minstd_rand random(seed);
  std::uniform_real_distribution<float> value(-0.01f, 0.01f);
  adapter_weights result;
  for (const auto& layer : target.layers) {
    auto& to = result.layers.emplace_back();
    for (std::size_t p = 0; p < projection_count; ++p)
      if (layer[p].outputs > 0) {
        to[p].rank = rank;
        std::ranges::generate(to[p].a = std::vector<float>(rank * layer[p].inputs), [&] { return value(random); });
        std::ranges::generate(to[p].b = std::vector<float>(rank * layer[p].outputs), [&] { return value(random); });
      }
  }
  return result;
}

constexpr std::int64_t most_samples = 64;

std::vector<technique_use_ptr> samples(const flag_values& flags, const technique_model& model) {
  const auto number = [&](const char* flag, std::int64_t most, std::int64_t otherwise) {
    const auto text = text_of(flags, flag);
    return text.empty() ? otherwise : parse_integer(text, 0, most);
  };
  std::vector<technique_use_ptr> result;
  const auto count = number("adapters", most_samples, 0);
  if (count == 0)
    return result;
  require_products(model, "adapters");
  const auto rank = static_cast<std::size_t>(number("rank", most_adapter_rank, 16));
  const auto target = products_of(model.config);
  const auto backend = model.open();
  for (unsigned i = 1; i <= count; ++i)
    result.push_back(
      std::make_shared<adapter_use>(std::to_string(i),
                                    std::make_shared<const packed_adapter>(
                                      pack_adapter(random_weights(target, rank, i), target, *backend, model.compute))));
  return result;
}

using option = technique_option;

constexpr auto table = std::to_array<option>({
  {"lora", option::served, option::kind::texts, "NAME=PATH",
   "A LoRA adapter, a PEFT folder or a GGUF file, that requests choose with NAME as their model; may be given several "
   "times",
   [](std::string_view text) { parse_named_file(text); }, 0, 0, "", "lora-modules"},
  {"lora_endpoints", option::served, option::kind::on, "",
   "Let clients load and unload adapters by paths on this machine (POST /v1/load_lora_adapter, "
   "/v1/unload_lora_adapter)"},
  {"adapters", option::bench, option::kind::integer, "", "Random LoRA adapters, shared out among the sequences in turn",
   nullptr, 0, most_samples, "0"},
  {"rank", option::bench, option::kind::integer, "", "With --adapters: their rank", nullptr, 1, most_adapter_rank,
   "16"},
});

} // namespace

technique_use_ptr adapted_by(std::string name) { return std::make_shared<adapter_use>(std::move(name)); }

const technique adapters_technique{
  .name = "adapters", .options = table, .read = read, .load = load, .variants = variants, .samples = samples};

} // namespace troupe
