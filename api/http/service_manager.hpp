// What a service manager is told (sd_notify(3)): systemd, or whoever else has set NOTIFY_SOCKET. Without one, nothing is
// told. Thread-safe.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace troupe {

class service_manager {
public:
  /// Takes NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID from the environment, so that programs started from here do not
  /// speak for this one. Throws failure(bad_request) if the socket's name is no path and not abstract, or too long.
  service_manager();
  ~service_manager();
  service_manager(const service_manager&) = delete;
  service_manager& operator=(const service_manager&) = delete;

  /// Assignments such as "READY=1", one on each line. Waits up to 5 s where the manager is behind, unless `flags` has
  /// MSG_DONTWAIT; what cannot be sent then is lost.
  void tell(std::string_view assignments, int flags = 0) const;

  /// "STATUS=..." as one line, and time to load: the manager waits so much longer.
  void loading(std::string_view line) const;
  void ready() const { tell("READY=1\nSTATUS="); }
  void reloading() const; // until ready() again
  void stopping() const { tell("STOPPING=1"); }
  void alive() const { tell("WATCHDOG=1"); }

  /// How often the manager wants to hear that the program is alive, twice in its limit; nothing: it does not.
  std::optional<std::chrono::microseconds> watchdog() const { return watchdog_; }

private:
  std::string address_; // of sockaddr_un::sun_path; empty: there is none
  int socket_ = -1;
  std::optional<std::chrono::microseconds> watchdog_;
};

} // namespace troupe
