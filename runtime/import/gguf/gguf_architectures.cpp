#include "runtime/import/gguf/gguf_architectures.hpp"

#include "runtime/import/gguf/gguf_own.hpp"
#include "runtime/model/families/family.hpp"

#include <set>

namespace troupe {

gguf_architecture gguf_architecture_of(const gguf_file& file) {
  constexpr std::string_view key = "general.architecture";
  if (file.metadata().find("adapter.type"))
    throw failure(errc::unsupported, file.name() + ": is an adapter (LoRA), not a model; merge it into its base model");
  const auto name = file.metadata().string(key);
  if (!name)
    throw failure(errc::bad_file, file.metadata().label(key) + " is missing");
  if (*name == "clip")
    throw failure(errc::unsupported,
                  file.name() +
                    ": holds the encoders of a multimodal model (mmproj), not its text; name the file of the "
                    "text, which alone is supported");
  if (*name == own_architecture)
    return {.name = own_architecture};
  std::set<std::string_view> listed;
  std::string known;
  for (const std::size_t usual : {0, 1}) // what a family's models usually have comes first
    for (const auto* family : all_families()) {
      auto architecture = family->gguf[usual];
      architecture.family = family->name;
      if (architecture.name.empty())
        continue;
      if (architecture.name == *name && !architecture.is(gguf_architecture::only_written))
        return architecture;
      if (listed.insert(architecture.name).second)
        known += std::string(architecture.name) + ", ";
    }
  throw failure(errc::unsupported,
                file.metadata().label(key) + " is " + shown(*name) + ", supported are " + known +
                  std::string(own_architecture));
}

gguf_architecture gguf_architecture_of_family(std::string_view family) {
  const auto* found = find_family(family);
  return found ? found->gguf[0] : gguf_architecture();
}

std::string_view gguf_architecture_for(const model_config& model) {
  const auto* family = find_family(model.family);
  if (!family)
    return {};
  const auto& other = family->gguf[1];
  const bool is_other = (other.is(gguf_architecture::with_experts) && model.experts.count > 0) ||
    (other.is(gguf_architecture::encodes) && model.encoder);
  return family->gguf[is_other ? 1 : 0].name;
}

} // namespace troupe
