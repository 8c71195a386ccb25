// Runs tests on a GPU, or on the emulated one. Cases that need a device are in the suite "cuda"; without one they are
// left out and named. Exit status: 1 if a test failed, 77 if none failed but cases were skipped, 0 if all ran. With
// TROUPE_CUDA_REQUIRED set, skipped cases are failures.
#define DOCTEST_CONFIG_IMPLEMENT
#include "tests/kernels/cuda/skips.hpp"
#include "tests/kernels/cuda/support.hpp"

#include <cstring>

namespace {

namespace skips = troupe::kernels::cuda::testing;

constexpr int some_skipped = 77;

/// Names the cases that are left out without a device.
struct skip_report : doctest::IReporter {
  explicit skip_report(const doctest::ContextOptions&) {}
  void test_case_skipped(const doctest::TestCaseData& test) override {
    if (!skips::why_no_device().empty() && std::strcmp(test.m_test_suite, "cuda") == 0)
      skips::report_skip(test.m_name, skips::why_no_device());
  }
  void report_query(const doctest::QueryData&) override {}
  void test_run_start() override {}
  void test_run_end(const doctest::TestRunStats&) override {}
  void test_case_start(const doctest::TestCaseData&) override {}
  void test_case_reenter(const doctest::TestCaseData&) override {}
  void test_case_end(const doctest::CurrentTestCaseStats&) override {}
  void test_case_exception(const doctest::TestCaseException&) override {}
  void subcase_start(const doctest::SubcaseSignature&) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData&) override {}
  void log_message(const doctest::MessageData&) override {}
};

REGISTER_LISTENER("skips", 1, skip_report);

} // namespace

int main(int argc, char** argv) {
  doctest::Context context(argc, argv);
  if (!skips::why_no_device().empty())
    context.addFilter("test-suite-exclude", "cuda");
  const int status = context.run();
  if (status != 0 || context.shouldExit() || skips::skipped() == 0)
    return status;
  std::printf("%d cases were skipped\n", skips::skipped());
  return skips::is_required() ? 1 : some_skipped;
}
