// A point in the work of a device that works on by itself: whoever holds it can ask whether that is reached, or wait.
// Carried in messages between the actors that own the device's streams, which do not wait.
#pragma once

#include <memory>

namespace troupe::kernels {

class device_event {
public:
  virtual ~device_event() = default;

  // Both throw device_error where the device failed before it.
  virtual bool happened() const = 0;
  virtual void synchronise() const = 0;
};

using device_event_ptr = std::shared_ptr<const device_event>;

} // namespace troupe::kernels
