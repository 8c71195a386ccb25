// Certificates and keys, made on the spot. For tests only.
#pragma once

#include "tests/runtime/model/model_test_data.hpp"

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>

namespace troupe::test {

/// In PEM.
struct certificate_and_key {
  std::string certificate, key;
};

struct certificate_wish {
  std::string name = "server";
  long begins = -3600, ends = 3600; // seconds from now
  std::string password = {};        // of the key; empty: none
};

/// Signed by itself.
inline certificate_and_key make_certificate(const certificate_wish& wish = {}) {
  const auto text_of = [](const auto& write) {
    const std::unique_ptr<BIO, decltype(&BIO_free)> out(BIO_new(BIO_s_mem()), BIO_free);
    char* begin = nullptr;
    if (write(out.get()) != 1)
      throw std::runtime_error("OpenSSL writes no PEM");
    const auto size = BIO_get_mem_data(out.get(), &begin);
    return std::string(begin, static_cast<std::size_t>(size));
  };
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(EVP_EC_gen("P-256"), EVP_PKEY_free);
  const std::unique_ptr<X509, decltype(&X509_free)> made(X509_new(), X509_free);
  auto* its = made.get();
  auto* name = X509_get_subject_name(its);
  ASN1_INTEGER_set(X509_get_serialNumber(its), 1);
  X509_gmtime_adj(X509_getm_notBefore(its), wish.begins);
  X509_gmtime_adj(X509_getm_notAfter(its), wish.ends);
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>(wish.name.c_str()), -1,
                             -1, 0);
  X509_set_issuer_name(its, name);
  X509_set_pubkey(its, key.get());
  if (X509_sign(its, key.get(), EVP_sha256()) == 0)
    throw std::runtime_error("OpenSSL signs no certificate");
  return {text_of([&](BIO* to) { return PEM_write_bio_X509(to, its); }), text_of([&](BIO* to) {
            return PEM_write_bio_PKCS8PrivateKey(to, key.get(), wish.password.empty() ? nullptr : EVP_aes_256_cbc(),
                                                 wish.password.empty() ? nullptr : wish.password.data(),
                                                 static_cast<int>(wish.password.size()), nullptr, nullptr);
          })};
}

/// In a folder of their own, which only this user can read.
class certificate_files {
public:
  explicit certificate_files(const certificate_and_key& made = make_certificate()) { replace(made); }

  void replace(const certificate_and_key& made) const {
    write(certificate(), made.certificate);
    write(key(), made.key);
    std::filesystem::permissions(key(), std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  }
  std::filesystem::path certificate() const { return folder_.path() / "certificate"; }
  std::filesystem::path key() const { return folder_.path() / "key"; }

private:
  const temp_folder folder_;
};

} // namespace troupe::test
