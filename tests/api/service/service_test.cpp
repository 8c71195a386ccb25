#include "tests/api/service/fake_service.hpp"

#include <doctest/doctest.h>

using namespace troupe;
using namespace troupe::test;

namespace {

/// Serves several models.
class several final : public fake_service {
public:
  std::vector<std::shared_ptr<const served_model>> models() const override { return all; }
  std::vector<std::shared_ptr<const served_model>> all;
};

std::shared_ptr<const served_model> named(const std::string& id) {
  const auto model = byte_model();
  model->id = id;
  return model;
}

} // namespace

TEST_CASE("a service finds a model by its name, also as Ollama's clients write it; no name means the first") {
  several models;
  CHECK_FALSE(models.find(""));
  models.all = {named("a"), named("org/b"), named("c:latest")};
  CHECK(models.find("") == models.all[0]);
  CHECK(models.find("a") == models.all[0]);
  CHECK(models.find("org/b") == models.all[1]);
  CHECK(models.find("org/b:latest") == models.all[1]);
  CHECK(models.find("c:latest") == models.all[2]);
  for (const auto* other : {"b", "A", "a:8b", ":latest", "latest"})
    CHECK_FALSE(models.find(other));
}
