#include "runtime/support/text/percent_encoding.hpp"

#include <boost/url/src.hpp> // Boost.URL itself, which Debian's Boost headers bring without a library

namespace troupe {

std::string percent_decoded(std::string_view text) {
  const auto encoded = boost::urls::make_pct_string_view({text.data(), text.size()});
  return encoded ? encoded->decode() : std::string(text);
}

} // namespace troupe
