#include "runtime/sampling/sequence_need.hpp"

#include <string>

namespace troupe {

std::optional<error> too_many_sequences(const sampling_params& params, int most) {
  const auto width = params.width();
  if (width <= most)
    return std::nullopt;
  const auto together = params.group();
  const bool by_technique = together && together->counted_by.empty();
  const std::string field = together ? std::string(together->width_field()) : params.best_of == width ? "best_of" : "n";
  return error{errc::bad_request,
               "`" + field + "` " + (by_technique ? "takes " : "is ") + std::to_string(width) + ", but at most " +
                 std::to_string(most) + " sequences can run at once",
               field};
}

error too_many_blocks(const sampling_params& params) {
  const auto together = params.group().value_or(group_kind{});
  return {errc::bad_request, std::string(together.too_large),
          together.twin ? "max_tokens" : std::string(together.width_field())};
}

} // namespace troupe
