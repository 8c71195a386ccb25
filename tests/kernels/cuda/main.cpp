#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

#include <cstdio>

namespace {

/// Prints the cases that are skipped without a GPU.
struct skip_report : doctest::IReporter {
  explicit skip_report(const doctest::ContextOptions&) {}
  void test_case_skipped(const doctest::TestCaseData& test) override {
    if (test.m_skip)
      std::printf("skipped, no CUDA device: %s\n", test.m_name);
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
