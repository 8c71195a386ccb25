#include "runtime/engine/loading/replica_roles.hpp"

#include <doctest/doctest.h>

#include <algorithm>

using namespace troupe;

namespace {

std::vector<replica_role> roles_of(const std::string& text, int replicas = 1, bool prefix_cache = true) {
  engine_options o;
  o.roles = text;
  o.replicas = replicas;
  o.prefix_cache = prefix_cache;
  return replica_roles(o);
}

std::string roles_refusal(const std::string& text, int replicas = 1, bool prefix_cache = true) {
  try {
    roles_of(text, replicas, prefix_cache);
  } catch (const failure& f) {
    CHECK(f.what_failed().param == "roles");
    CHECK(f.what_failed().code == errc::bad_request);
    return f.what();
  }
  return {};
}

} // namespace

TEST_CASE("without roles all replicas do everything") {
  CHECK(roles_of("", 3) == std::vector(3, replica_role::any));
  CHECK(roles_of("") == std::vector(1, replica_role::any));
}

TEST_CASE("roles are counted, in any order, those that prefill first") {
  const std::vector expected{replica_role::prefill, replica_role::prefill, replica_role::decode};
  CHECK(roles_of("prefill:2,decode:1") == expected);
  CHECK(roles_of("decode:1,prefill:2") == expected);
}

TEST_CASE("roles that cannot be are refused with a sentence") {
  CHECK(roles_refusal("prefill:0,decode:1") ==
        "`roles` needs a number from 1 to 1024 behind `prefill:`, not `prefill:0`");
  CHECK(roles_refusal("prefill,decode:1") == "`roles` needs a number from 1 to 1024 behind `prefill:`, not `prefill`");
  for (const auto* number : {"-1", "x", "1x", " 1", "+1", "1.5", "99999999999999999999", "1025", "1:2"})
    CHECK(
      roles_refusal("prefill:1,decode:" + std::string(number)).starts_with("`roles` needs a number from 1 to 1024"));
  CHECK(roles_refusal("prefil:1,decode:1") ==
        "`roles` are prefill and decode, as in prefill:1,decode:1; there is no role `prefil`");
  CHECK(roles_refusal("prefill:1, decode:1").ends_with("there is no role ` decode`"));
  CHECK(roles_refusal("prefill:1,,decode:1").ends_with("there is no role ``"));
  CHECK(roles_refusal(",").ends_with("there is no role ``"));
  CHECK(roles_refusal("prefill:1") ==
        "`roles` needs at least one replica for each role, as in prefill:1,decode:1; there is none for decode");
  CHECK(roles_refusal("decode:2").ends_with("there is none for prefill"));
  CHECK(roles_refusal("prefill:1,prefill:1,decode:1") == "`roles` names prefill twice");
  CHECK(roles_refusal("prefill:1,decode:1", 2) ==
        "`roles` already says how many replicas there are: leave out `replicas`");
  CHECK(roles_refusal("prefill:1,decode:1", 1, false).starts_with("`roles` needs the prefix cache"));
}
