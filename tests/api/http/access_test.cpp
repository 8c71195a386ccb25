#include "api/http/access.hpp"
#include "runtime/support/error.hpp"

#include <boost/asio/ip/host_name.hpp>

#include <doctest/doctest.h>

using namespace troupe;

namespace {

known_hosts listening_on(const char* address, std::string_view host, const std::vector<std::string>& more = {}) {
  return {boost::asio::ip::make_address(address), host, more};
}

} // namespace

TEST_CASE("A server on loopback accepts only loopback names and addresses") {
  for (const auto* address : {"127.0.0.1", "::1"}) {
    const auto hosts = listening_on(address, "Box.Example");
    for (const auto* known :
         {"localhost", "LocalHost", "localhost.", "127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1", "box.example"})
      CHECK(hosts.allow(known));
    for (const auto* foreign : {"", ".", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "0.0.0.0",
                                "10.0.0.1", "xlocalhost", "::", "2001:db8::1"})
      CHECK_FALSE(hosts.allow(foreign));
  }
}

TEST_CASE("A server on other addresses accepts every address and this machine's name") {
  const auto hosts = listening_on("0.0.0.0", "0.0.0.0");
  boost::system::error_code ec;
  const auto machine = boost::asio::ip::host_name(ec);
  for (const auto* known : {"localhost", "10.0.0.1", "2001:db8::1", machine.c_str()})
    CHECK(hosts.allow(known));
  CHECK_FALSE(hosts.allow("evil.example"));
  CHECK_FALSE(hosts.allow("10.0.0.1.evil.example"));
}

TEST_CASE("Hosts are allowed by name, or all of them") {
  const auto hosts = listening_on("127.0.0.1", "127.0.0.1", {"api.example", "10.0.0.1", "[2001:db8::1]", "::2"});
  for (const auto* known : {"API.example", "10.0.0.1", "2001:db8::1", "::2", "localhost"})
    CHECK(hosts.allow(known));
  CHECK_FALSE(hosts.allow("other.example"));
  CHECK(listening_on("127.0.0.1", "127.0.0.1", {"*"}).allow("other.example"));
  for (const auto* wrong : {"", "a:80", "http://a", "a/b", "[::1"})
    CHECK_THROWS_AS(listening_on("127.0.0.1", "127.0.0.1", {wrong}), failure);
}
