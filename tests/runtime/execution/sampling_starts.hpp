// What sampling begins with, for tests of samplers and runners.
#pragma once

#include "runtime/scheduling/step.hpp"

#include <memory>
#include <utility>
#include <vector>

namespace troupe::testing {

inline std::shared_ptr<const sampling_start> start_with(sampling_params params, std::vector<token_id> prompt,
                                                        std::vector<token_id> emitted = {}) {
  auto asked = std::make_shared<request>();
  asked->prompt = std::move(prompt);
  asked->sampling = std::move(params);
  return std::make_shared<const sampling_start>(sampling_start{std::move(asked), std::move(emitted)});
}

} // namespace troupe::testing
