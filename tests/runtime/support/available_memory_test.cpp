#include "runtime/support/machine/available_memory.hpp"

#include "runtime/support/text/byte_size.hpp"
#include "tests/runtime/model/model_test_data.hpp"

#include <doctest/doctest.h>

#include <limits>

using namespace troupe;

TEST_CASE("the tightest control group around a process limits it, whatever its version") {
  const test::temp_folder mount;
  const auto write = [&](const std::string& file, const std::string& text) {
    std::filesystem::create_directories((mount.path() / file).parent_path());
    test::write(mount.path() / file, text + "\n");
  };
  constexpr auto none = std::numeric_limits<std::size_t>::max();
  CHECK(memory_left_in_groups("0::/a/b\n", mount.path()) == none);
  write("a/b/memory.max", "max");
  write("a/b/memory.current", "1000");
  write("a/memory.max", "5000");
  write("a/memory.current", "3000");
  write("a/memory.stat", "anon 1\ninactive_file 500");
  CHECK(memory_left_in_groups("0::/a/b\n", mount.path()) == 2500);
  write("a/memory.stat", "anon 1\ninactive_file 500\nactive_file 300");
  CHECK(memory_left_in_groups("0::/a/b\n", mount.path()) == 2800);
  write("a/b/memory.max", "900");
  CHECK(memory_left_in_groups("0::/a/b\n", mount.path()) == 0);
  // The path of a group that is not mounted here: the root limits.
  write("memory.max", "7000");
  write("memory.current", "1000");
  CHECK(memory_left_in_groups("0::/docker/0123\n", mount.path()) == 6000);

  write("memory/c/memory.limit_in_bytes", "4000");
  write("memory/c/memory.usage_in_bytes", "3000");
  CHECK(memory_left_in_groups("5:cpu,memory:/c\n3:pids:/a\n", mount.path()) == 1000);
}

TEST_CASE("some memory is available to this process") { CHECK(available_memory() > 0); }

TEST_CASE("sizes are written with their units") {
  CHECK(to_size(512) == "512 B");
  CHECK(to_size(1536) == "1.5 KiB");
  CHECK(to_size(std::size_t(3) << 30) == "3.0 GiB");
}
