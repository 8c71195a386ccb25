#include "api/http/tls_identity.hpp"

#include "runtime/support/error.hpp"
#include "runtime/support/files/file_reading.hpp"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <string_view>

#include <sys/stat.h>

namespace troupe {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t most_pem_bytes = std::size_t(1) << 20;
constexpr int most_in_chain = 32;
// With these, what was said stays a secret if the key is lost later (forward secrecy). TLS 1.3 has no others.
constexpr auto ciphers_of_12 = "ECDHE+AESGCM:ECDHE+CHACHA20";

struct openssl_freed {
  void operator()(BIO* of) const { BIO_free(of); }
  void operator()(X509* of) const { X509_free(of); }
  void operator()(EVP_PKEY* of) const { EVP_PKEY_free(of); }
};
template <class T>
using openssl_ptr = std::unique_ptr<T, openssl_freed>;

/// Why OpenSSL does not do what it was asked for last.
std::string openssl_reason() {
  const char* text = ERR_reason_error_string(ERR_peek_last_error());
  ERR_clear_error();
  return text ? text : "no reason is known";
}

[[noreturn]] void refuse_file(const fs::path& file, const std::string& why) {
  ERR_clear_error();
  throw failure(errc::bad_file, file.string() + ": " + why);
}

openssl_ptr<BIO> reader_of(std::string_view text) {
  return openssl_ptr<BIO>(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

/// Instead of asking for a password on the terminal.
int no_password(char*, int, int, void* asked) {
  *static_cast<bool*>(asked) = true;
  return -1;
}

void take_certificates(SSL_CTX* to, const fs::path& file, std::vector<std::string>& remarks) {
  const auto text = read_file(file, {"a certificate", most_pem_bytes});
  const auto in = reader_of(text);
  bool asked = false;
  const openssl_ptr<X509> first(PEM_read_bio_X509(in.get(), nullptr, no_password, &asked));
  if (!first)
    refuse_file(file,
                text.find("PRIVATE KEY-----") != text.npos
                  ? "this is a key, where the certificate is to be (--tls-cert)"
                  : "there is no certificate in PEM format (-----BEGIN CERTIFICATE-----)");
  if (SSL_CTX_use_certificate(to, first.get()) != 1)
    refuse_file(file, "OpenSSL refuses the certificate: " + openssl_reason());
  for (int count = 0; count < most_in_chain; ++count) {
    const openssl_ptr<X509> next(PEM_read_bio_X509(in.get(), nullptr, no_password, &asked));
    if (!next)
      break;
    if (SSL_CTX_add1_chain_cert(to, next.get()) != 1)
      refuse_file(file, "OpenSSL refuses a certificate of the chain: " + openssl_reason());
  }
  const auto last = ERR_peek_last_error(); // "no start line" is the end of the file
  if (ERR_GET_LIB(last) == ERR_LIB_PEM && ERR_GET_REASON(last) != PEM_R_NO_START_LINE)
    refuse_file(file, "a certificate of the chain is damaged");
  ERR_clear_error();
  if (X509_cmp_current_time(X509_get0_notAfter(first.get())) < 0)
    remarks.push_back(file.string() + ": the certificate has expired");
  else if (X509_cmp_current_time(X509_get0_notBefore(first.get())) > 0)
    remarks.push_back(file.string() + ": the certificate is not valid yet");
}

void take_key(SSL_CTX* to, const fs::path& file, const fs::path& certificate, std::vector<std::string>& remarks) {
  auto text = read_file(file, {"a key", most_pem_bytes});
  bool asked = false;
  const openssl_ptr<EVP_PKEY> key(PEM_read_bio_PrivateKey(reader_of(text).get(), nullptr, no_password, &asked));
  OPENSSL_cleanse(text.data(), text.size());
  if (!key)
    refuse_file(file,
                asked ? "the key has a password, which nobody could give: `openssl pkey -in OLD -out NEW` takes it away"
                      : "there is no key in PEM format (-----BEGIN PRIVATE KEY-----)");
  if (X509_check_private_key(SSL_CTX_get0_certificate(to), key.get()) != 1)
    refuse_file(file, "this is not the key of the certificate " + certificate.string());
  if (SSL_CTX_use_PrivateKey(to, key.get()) != 1)
    refuse_file(file, "OpenSSL refuses the key: " + openssl_reason());
  struct stat found = {};
  if (::stat(file.c_str(), &found) == 0 && (found.st_mode & S_IROTH))
    remarks.push_back(file.string() + ": every user of this machine can read the key (chmod o-r)");
}

/// HTTP/1.1, or 1.0 for a client that does not know it. Not called where a client names no protocol.
int choose_protocol(SSL*, const unsigned char** chosen, unsigned char* size, const unsigned char* offered,
                    unsigned int bytes, void*) {
  const std::string_view all(reinterpret_cast<const char*>(offered), bytes);
  for (const std::string_view known : {"http/1.1", "http/1.0"})
    for (std::size_t at = 0; at < all.size(); at += 1 + offered[at])
      if (all.substr(at + 1, offered[at]) == known) {
        *chosen = offered + at + 1;
        *size = offered[at];
        return SSL_TLSEXT_ERR_OK;
      }
  return SSL_TLSEXT_ERR_ALERT_FATAL;
}

} // namespace

tls_identity::tls_identity(const fs::path& certificate, const fs::path& key)
  : context_(SSL_CTX_new(TLS_server_method()), SSL_CTX_free) {
  auto* to = context_.get();
  if (!to || SSL_CTX_set_min_proto_version(to, TLS1_2_VERSION) != 1 || SSL_CTX_set_cipher_list(to, ciphers_of_12) != 1)
    throw failure(errc::unavailable, "OpenSSL cannot speak TLS: " + openssl_reason());
  // A client that ends its input without a word of TLS has ended it as over TCP: requests say themselves how long they are.
  SSL_CTX_set_options(to, SSL_OP_NO_RENEGOTIATION | SSL_OP_IGNORE_UNEXPECTED_EOF | SSL_OP_CIPHER_SERVER_PREFERENCE);
  SSL_CTX_clear_mode(to, SSL_MODE_AUTO_RETRY); // who sends what is no data keeps nobody else waiting
  SSL_CTX_set_mode(to, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_session_cache_mode(to, SSL_SESS_CACHE_OFF); // clients that come back bring a ticket
  SSL_CTX_set_alpn_select_cb(to, choose_protocol, nullptr);
  take_certificates(to, certificate, remarks_);
  take_key(to, key, certificate, remarks_);
}

} // namespace troupe
