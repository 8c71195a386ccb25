#include "runtime/import/gguf/gguf_own.hpp"

#include "runtime/model/config_limits.hpp"
#include "runtime/model/tensor_names.hpp"
#include "runtime/support/json/json.hpp"

namespace troupe {

namespace {

constexpr std::string_view config_key = "troupe.config", context_key = "troupe.context_length";

laid_out_tensor as_it_is(const wanted_tensor& wanted, float offset = 0) {
  return {wanted.name, wanted.shape, {{.name = wanted.name, .offset = offset}}};
}

} // namespace

bool is_own_form(const gguf_file& file) {
  return file.metadata().string("general.architecture").value_or("") == own_architecture;
}

model_config parse_own_config(const gguf_file& file) {
  const auto text = file.metadata().string(config_key);
  if (!text)
    throw failure(errc::bad_file, file.metadata().label(config_key) + " is missing");
  const auto document = json::document::parse(*text, file.metadata().label(config_key));
  auto config = parse_model_config(document);
  read_classifier(document, config); // which says that there is no head
  if (config.has_head())
    config.tied = !file.tensors().contains("lm_head.weight");
  if (const auto context = file.metadata().integer(context_key, 1, config_limits::max_positions))
    config.max_context = std::min(config.max_context, static_cast<int>(*context));
  return config;
}

void describe_own(gguf_writer& to, const std::filesystem::path& folder, const model_config& config) {
  to.add("general.architecture", own_architecture);
  to.add(config_key, simdjson::minify(json::document::load(folder / "config.json").root()));
  to.add(context_key, static_cast<std::uint32_t>(config.max_context));
}

std::vector<laid_out_tensor> own_layout(const model_source& source) {
  std::vector<laid_out_tensor> result;
  const auto all = with_mtp_layers(source.config, source.mtp);
  for (const auto& wanted : tensor_names(all).all())
    if (wanted.name.find(".act_fn.") == wanted.name.npos) // these are keys
      result.push_back(as_it_is(wanted));
  if (source.mtp)
    for (const auto& wanted : tensors_around(*source.mtp))
      result.push_back(as_it_is(wanted, wanted.shape.size() == 1 ? source.mtp->norm_offset : 0));
  return result;
}

} // namespace troupe
