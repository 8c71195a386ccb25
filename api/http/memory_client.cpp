#include "api/http/memory_client.hpp"

namespace troupe {

void memory_client::send(std::string_view bytes) {
  if (closed_)
    return;
  sent_ += bytes;
  arrived_.cancel();
}

void memory_client::hang_up() {
  hung_up_ = true;
  arrived_.cancel();
}

void memory_client::close() {
  closed_ = true;
  sent_.clear();
  arrived_.cancel();
}

} // namespace troupe
