#include "api/serving/catalogue.hpp"

namespace troupe {

service_status catalogue::status() const {
  using stage = load_status::stage;
  const auto now = only_.status();
  service_status status{now.now == stage::ready, "", now.done_bytes, now.total_bytes,
                        now.why ? now.why->message : now.line};
  switch (now.now) {
    case stage::loading: status.state = "loading"; break;
    case stage::ready: status.state = "ready"; break;
    case stage::failed: status.state = "failed"; break;
    case stage::stopped: status.state = "stopped"; break;
  }
  status.degraded = now.degraded;
  return status;
}

std::vector<std::shared_ptr<const served_model>> catalogue::models() const {
  const std::lock_guard lock(mutex_);
  if (!model_)
    if (const auto loaded = only_.model())
      model_ = std::make_shared<const served_model>(*loaded);
  if (!model_)
    return {};
  return {model_};
}

request_handle catalogue::submit(generation request, event_sink sink) {
  if (const auto model = request.model.empty() ? nullptr : only_.model(); model && request.model != model->id) {
    sink(error{errc::not_found, "the model `" + request.model + "` is not served any more", "model"});
    return {};
  }
  return only_.submit(std::move(request), std::move(sink));
}

} // namespace troupe
