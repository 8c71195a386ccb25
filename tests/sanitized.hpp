// Which sanitizer the program runs with, for tests that would take too long or too much memory there. Asked as it runs, as
// compiled tests are linked with and without AddressSanitizer.
#pragma once

extern "C" {
void __asan_init() __attribute__((weak));
void __tsan_init() __attribute__((weak));
}

namespace troupe::testing {

inline bool address_sanitized() { return &__asan_init != nullptr; }
inline bool thread_sanitized() { return &__tsan_init != nullptr; }
inline bool sanitized() { return address_sanitized() || thread_sanitized(); }

} // namespace troupe::testing
