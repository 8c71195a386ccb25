#include "runtime/scheduling/lengths/expected_answer.hpp"

#include "kernels/ops.hpp"
#include "runtime/scheduling/blocks/block_chain.hpp"
#include "runtime/scheduling/request.hpp"

#include <algorithm>
#include <functional>
#include <span>
#include <string>

namespace troupe {

length_signs signs_of(const request& asked) {
  constexpr std::size_t most_looked_at = 8 * kernels::block_tokens;
  const std::span prompt(asked.prompt);
  std::string variant;
  for (const auto& use : asked.sampling.techniques)
    if (const auto name = use->answers_as(); !name.empty())
      variant = name;
  const auto named = [](const std::string& name) { return name.empty() ? 0 : std::hash<std::string>()(name) | 1; };
  return {.chain = block_chain(prompt.first(std::min(prompt.size(), most_looked_at)), 0),
          .prompt_tokens = static_cast<std::int32_t>(prompt.size()),
          .most = std::max(asked.sampling.max_tokens, 1),
          .constrained = asked.follows != nullptr,
          .chat = asked.begins_text,
          .variant = named(variant),
          .client = named(asked.client)};
}

} // namespace troupe
