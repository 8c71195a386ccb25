// A point in the work of an asynchronous device, to poll or wait for. Actors that own the device's streams pass events
// in messages instead of waiting.
#pragma once

#include <memory>

namespace troupe::kernels {

class device_event {
public:
  virtual ~device_event() = default;

  // Both throw device_error if the device failed before this point.
  virtual bool happened() const = 0;
  virtual void synchronise() const = 0;
};

using device_event_ptr = std::shared_ptr<const device_event>;

} // namespace troupe::kernels
