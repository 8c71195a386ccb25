#include "api/server/answers/answers.hpp"
#include "api/server/figures/metrics.hpp"

namespace troupe {

reply tell_figures(const call& c) {
  if (!c.page)
    throw failure(errc::not_found, "this server keeps no figures, as it has no web page (--no-page)");
  return reply::json(c.counted.figures());
}

} // namespace troupe
