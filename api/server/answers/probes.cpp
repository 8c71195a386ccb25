#include "api/server/answers/answers.hpp"
#include "api/server/figures/metrics.hpp"
#include "runtime/support/json/json_object.hpp"
#include "runtime/support/text/utf8.hpp"

namespace troupe {

reply tell_health(const call& c) {
  if (c.draining)
    return reply::json(json_object().text("status", "draining").str(), 503);
  const auto status = c.engine.status();
  if (status.ready && !status.degraded.empty())
    return reply::json(json_object().text("status", "degraded").text("detail", to_utf8(status.degraded)).str());
  if (status.ready)
    return reply::json(json_object().text("status", "ok").str());
  const auto done = static_cast<double>(status.done_bytes), total = static_cast<double>(status.total_bytes);
  auto result = reply::json(json_object()
                              .text("status", status.state)
                              .raw("progress", json_number(total > 0 ? done / total : 0))
                              .number("done_bytes", status.done_bytes)
                              .number("total_bytes", status.total_bytes)
                              .text("detail", to_utf8(status.line))
                              .str(),
                            503);
  if (status.state == "loading")
    result.headers.emplace_back("Retry-After", "1");
  return result;
}

reply tell_metrics(const call& c) { return {200, c.counted.text(), "text/plain; version=0.0.4; charset=utf-8", {}}; }

} // namespace troupe
