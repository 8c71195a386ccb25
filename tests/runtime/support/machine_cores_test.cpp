#include "runtime/support/machine/machine_cores.hpp"

#include "tests/runtime/model/model_test_data.hpp"

#include <doctest/doctest.h>

#include <limits>

using namespace troupe;

TEST_CASE("the smallest quota of the control groups around a process limits it, whatever their version") {
  const test::temp_folder mount;
  const auto write = [&](const std::string& file, const std::string& text) {
    std::filesystem::create_directories((mount.path() / file).parent_path());
    test::write(mount.path() / file, text + "\n");
  };
  constexpr auto none = std::numeric_limits<double>::infinity();
  CHECK(quota_in_groups("0::/a/b\n", mount.path()) == none);
  write("a/b/cpu.max", "max 100000");
  CHECK(quota_in_groups("0::/a/b\n", mount.path()) == none);
  write("a/cpu.max", "250000 100000");
  CHECK(quota_in_groups("0::/a/b\n", mount.path()) == 2.5);
  write("a/b/cpu.max", "50000 100000");
  CHECK(quota_in_groups("0::/a/b\n", mount.path()) == 0.5);

  write("cpu/c/cpu.cfs_quota_us", "300000");
  write("cpu/c/cpu.cfs_period_us", "100000");
  CHECK(quota_in_groups("5:cpu,cpuacct:/c\n3:pids:/a\n", mount.path()) == 3);
  write("cpu/c/cpu.cfs_quota_us", "-1");
  CHECK(quota_in_groups("5:cpu,cpuacct:/c\n", mount.path()) == none);
}

TEST_CASE("this process may use some core, the smallest number first") {
  const auto cores = usable_cores();
  REQUIRE_FALSE(cores.numbers.empty());
  CHECK(std::is_sorted(cores.numbers.begin(), cores.numbers.end()));
  CHECK(cores.threads() >= 1);
}
