// libFuzzer's entry point. The input is one connection; its first byte is the client's habit (drive_connection.hpp).
#include "tests/api/server/drive_connection.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto driven = troupe::test::drive_connection({reinterpret_cast<const char*>(data), size});
  if (driven.fault.empty())
    return 0;
  std::fprintf(stderr, "%s\n", driven.fault.c_str());
  std::abort();
}
