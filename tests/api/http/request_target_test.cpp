#include "api/http/request_target.hpp"

#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>

#include <doctest/doctest.h>

#include <string>

using namespace troupe;

namespace http = boost::beast::http;

namespace {

/// The error in the head, or nothing. Sets `path` and `host`.
std::string fault(const std::string& text, std::string* path = nullptr, std::string* host = nullptr) {
  http::request_parser<http::empty_body> parser;
  boost::system::error_code ec;
  parser.put(boost::asio::buffer(text), ec);
  if (ec)
    return "malformed: " + ec.message();
  try {
    const auto target = read_target(parser.get());
    if (path)
      *path = target.path;
    if (host)
      *host = target.host ? target.host->host : "";
    return {};
  } catch (const failure& f) {
    return f.what();
  }
}

std::string post(const std::string& headers, const std::string& version = "1.1") {
  return "POST /x HTTP/" + version + "\r\nHost: a\r\n" + headers + "\r\n";
}

std::string get(const std::string& target, const std::string& headers = "Host: a\r\n") {
  return "GET " + target + " HTTP/1.1\r\n" + headers + "\r\n";
}

} // namespace

TEST_CASE("A body's length is given in one way, or the request is refused") {
  CHECK(fault(post("Content-Length: 3\r\n")).empty());
  CHECK(fault(post("Transfer-Encoding: chunked\r\n")).empty());
  CHECK(fault(post("Transfer-Encoding:  Chunked \r\n")).empty());
  for (const auto* headers : {"Transfer-Encoding: identity\r\n",
                              "Transfer-Encoding: gzip\r\n",
                              "Transfer-Encoding: gzip, chunked\r\n",
                              "Transfer-Encoding: chunked, gzip\r\n",
                              "Transfer-Encoding: chunked, chunked\r\n",
                              "Transfer-Encoding:\r\n",
                              "Transfer-Encoding: xchunked\r\n",
                              "Transfer-Encoding: chunked;q=1\r\n",
                              "Transfer-Encoding: \"chunked\"\r\n",
                              "Transfer-Encoding: ,chunked\r\n",
                              "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n",
                              "Transfer-Encoding: identity\r\nContent-Length: 3\r\n",
                              "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n",
                              "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
                              "Transfer-Encoding : chunked\r\n",
                              "Content-Length: 3\r\nContent-Length: 4\r\n",
                              "Content-Length: 3, 4\r\n",
                              "Content-Length: +3\r\n",
                              "Content-Length: 0x3\r\n",
                              "Content-Length: 3 3\r\n",
                              "Content-Length:\r\n"}) {
    CAPTURE(headers);
    CHECK_FALSE(fault(post(headers)).empty());
  }
  CHECK(fault(post("Transfer-Encoding: chunked\r\n", "1.0")) == "an HTTP/1.0 request has no Transfer-Encoding");
  CHECK(fault(post("Transfer-Encoding: gzip\r\n")) ==
        "the only supported Transfer-Encoding is `chunked`, once; this is `gzip`");
}

TEST_CASE("A target is a path or a URL, whose host overrides the header") {
  std::string path, host;
  CHECK(fault(get("/v1/models?x=/"), &path, &host).empty());
  CHECK(path == "/v1/models?x=/");
  CHECK(host == "a");
  CHECK(fault(get("http://b:8080/v1/models?x"), &path, &host).empty());
  CHECK(path == "/v1/models?x");
  CHECK(host == "b");
  CHECK(fault(get("HTTPS://[::1]?x"), &path, &host).empty());
  CHECK(path == "/");
  CHECK(host == "::1");
  CHECK(fault("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", &path).empty());
  CHECK(path == "*");
  for (const auto* target : {"*", "v1/models", "http://", "http:///v1/models", "http://u@b/", "ftp://b/", "b:80"})
    CHECK_FALSE(fault(get(target)).empty());
}

TEST_CASE("A request names one host") {
  std::string host;
  CHECK(fault("GET / HTTP/1.0\r\n\r\n", nullptr, &host).empty());
  CHECK(host.empty());
  CHECK(fault(get("/", "Host: A.example_1:80\r\n"), nullptr, &host).empty());
  CHECK(host == "A.example_1");
  CHECK(fault(get("/", "Host: [::1]:8080\r\n"), nullptr, &host).empty());
  CHECK(host == "::1");
  CHECK(fault(get("/", "Host: a:\r\n")).empty());
  for (const auto* headers : {"", "Host:\r\n", "Host: a\r\nHost: a\r\n", "Host: a\r\nhost: b\r\n", "Host: a b\r\n",
                              "Host: a, b\r\n", "Host: u@a\r\n", "Host: http://a\r\n", "Host: a/b\r\n", "Host: :80\r\n",
                              "Host: a:b\r\n", "Host: a:1:2\r\n", "Host: a:123456\r\n", "Host: [::1\r\n",
                              "Host: [a]\r\n", "Host: [::1]80\r\n", "Host: ::1\r\n", "Host: \xc3\xa9\r\n"}) {
    CAPTURE(headers);
    CHECK_FALSE(fault(get("/", headers)).empty());
    CHECK_FALSE(fault(get("http://a/", headers)).empty());
  }
}
