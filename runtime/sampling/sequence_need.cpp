#include "runtime/sampling/sequence_need.hpp"

#include <string>

namespace troupe {

std::optional<error> too_many_sequences(const sampling_params& params, int most) {
  const auto width = params.width();
  if (width <= most)
    return std::nullopt;
  const auto together = params.group();
  const bool by_technique = params.num_beams != width && together;
  const std::string field = params.num_beams == width ? "num_beams"
    : by_technique                                    ? std::string(together->field)
    : params.best_of == width                         ? "best_of"
                                                      : "n";
  return error{errc::bad_request,
               "`" + field + "` " + (by_technique ? "takes " : "is ") + std::to_string(width) + ", but at most " +
                 std::to_string(most) + " sequences can run at once",
               field};
}

error too_many_blocks(const sampling_params& params) {
  if (const auto together = params.group(); together && !together->too_large.empty())
    return {errc::bad_request, std::string(together->too_large),
            together->twin ? "max_tokens" : std::string(together->field)};
  return {errc::bad_request, "the beams need more blocks than the KV cache has: lower `num_beams` or `max_tokens`",
          "num_beams"};
}

} // namespace troupe
