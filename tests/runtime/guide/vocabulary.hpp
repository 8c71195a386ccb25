// Vocabularies for tests of guides.
#pragma once

#include "runtime/guide/guide.hpp"

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace troupe::test {

/// All bytes, whose ids are their values, and these texts behind them. The last id ends.
inline std::shared_ptr<const guides::guide_vocabulary> vocabulary_of(std::vector<std::string> texts = {}) {
  std::vector<guides::guide_vocabulary::entry> entries;
  for (token_id b = 0; b < 256; ++b)
    entries.push_back({b, std::string(1, static_cast<char>(b))});
  for (auto& text : texts)
    entries.push_back({static_cast<token_id>(entries.size()), std::move(text)});
  const auto end = static_cast<token_id>(entries.size());
  return std::make_shared<const guides::guide_vocabulary>(std::move(entries), std::vector{end},
                                                          static_cast<std::size_t>(end) + 1);
}

} // namespace troupe::test
