#include "api/http/tls_identity.hpp"

#include "runtime/support/error.hpp"
#include "tests/api/http/certificates.hpp"

#include <openssl/ssl.h>

#include <doctest/doctest.h>

using namespace troupe;
using namespace troupe::test;

namespace {

/// What is wrong with the files; empty: nothing.
std::string objection_to(const certificate_and_key& files) {
  const certificate_files own(files);
  try {
    const tls_identity made(own.certificate(), own.key());
    return {};
  } catch (const failure& f) {
    CHECK(f.what_failed().code == errc::bad_file);
    return f.what();
  }
}

bool mentions(const std::string& text, std::string_view part) { return text.find(part) != text.npos; }

} // namespace

TEST_CASE("A certificate without its key, or the key of another one, is refused") {
  const auto own = make_certificate(), other = make_certificate();
  CHECK(objection_to(own).empty());
  CHECK(mentions(objection_to({own.certificate, other.key}), "this is not the key of the certificate"));
  CHECK(mentions(objection_to({own.certificate, own.certificate}), "there is no key in PEM format"));
  CHECK(mentions(objection_to({own.key, own.certificate}), "this is a key, where the certificate is to be"));
  CHECK(mentions(objection_to({"", own.key}), "there is no certificate in PEM format"));
  CHECK(mentions(objection_to({own.certificate, ""}), "there is no key in PEM format"));
  CHECK(mentions(objection_to(make_certificate({.password = "secret"})), "the key has a password"));
  const temp_folder folder;
  CHECK_THROWS_AS(tls_identity(folder.path() / "none", folder.path() / "none"), failure);
}

TEST_CASE("Files that are cut or damaged are refused wherever that is, and what they may be instead is well-formed") {
  const auto own = make_certificate(), root = make_certificate({.name = "root"});
  for (std::size_t i = 0; i < own.certificate.size() - 30; i += 7) // but for the last dashes
    CHECK_FALSE(objection_to({own.certificate.substr(0, i), own.key}).empty());
  for (std::size_t i = 0; i < own.key.size() - 30; i += 7)
    CHECK_FALSE(objection_to({own.certificate, own.key.substr(0, i)}).empty());
  auto damaged = root.certificate;
  damaged.replace(damaged.find('\n') + 10, 8, "!!!!!!!!");
  CHECK(mentions(objection_to({own.certificate + damaged, own.key}), "a certificate of the chain is damaged"));
}

TEST_CASE("Certificates behind the first one are its chain") {
  const auto own = make_certificate(), middle = make_certificate({.name = "middle"}), root = make_certificate();
  const certificate_files files({own.certificate + middle.certificate + root.certificate, own.key});
  const tls_identity made(files.certificate(), files.key());
  STACK_OF(X509)* chain = nullptr;
  SSL_CTX_get0_chain_certs(made.get(), &chain);
  CHECK(sk_X509_num(chain) == 2);
  CHECK(made.remarks().empty());
}

TEST_CASE("An operator is told of certificates that are not valid now and of keys that everybody can read") {
  const auto remark_on = [](const certificate_wish& wish, bool open = false) {
    const certificate_files files(make_certificate(wish));
    if (open)
      std::filesystem::permissions(files.key(), std::filesystem::perms::others_read,
                                   std::filesystem::perm_options::add);
    const tls_identity made(files.certificate(), files.key());
    return made.remarks().empty() ? std::string() : made.remarks().front();
  };
  CHECK(remark_on({}).empty());
  CHECK(mentions(remark_on({.ends = -60}), "the certificate has expired"));
  CHECK(mentions(remark_on({.begins = 60}), "the certificate is not valid yet"));
  CHECK(mentions(remark_on({}, true), "every user of this machine can read the key (chmod o-r)"));
}
