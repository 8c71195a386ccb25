#include "runtime/sampling/sequence_need.hpp"

#include <string>

namespace troupe {

std::optional<error> too_many_sequences(const sampling_params& params, int most) {
  const auto width = params.width();
  if (width <= most)
    return std::nullopt;
  const std::string field = params.num_beams == width ? "num_beams"
    : params.paired()                                 ? "guidance_scale"
    : params.searched()                               ? "search"
    : params.best_of == width                         ? "best_of"
                                                      : "n";
  return error{errc::bad_request,
               "`" + field + "` " + (params.paired() || params.searched() ? "takes " : "is ") + std::to_string(width) +
                 ", but at most " + std::to_string(most) + " sequences can run at once",
               field};
}

error too_many_blocks(const sampling_params& params) {
  if (params.paired())
    return {errc::bad_request,
            "prompt, negative prompt and answer need more blocks than the KV cache has: lower `max_tokens`",
            "max_tokens"};
  if (params.searched())
    return {errc::bad_request,
            "the search needs more blocks than the KV cache has: lower its `parallel`, or `max_tokens`", "search"};
  return {errc::bad_request, "the beams need more blocks than the KV cache has: lower `num_beams` or `max_tokens`",
          "num_beams"};
}

} // namespace troupe
