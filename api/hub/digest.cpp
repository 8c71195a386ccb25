#include "api/hub/digest.hpp"

#include "runtime/support/error.hpp"
#include "runtime/support/text/hex.hpp"

#include <array>

#include <openssl/evp.h>

namespace troupe::hub {

namespace {

void require_digest(int done) {
  if (done != 1)
    throw failure(errc::internal, "OpenSSL cannot compute a checksum");
}

} // namespace

void digest::free_context::operator()(evp_md_ctx_st* context) const { EVP_MD_CTX_free(context); }

digest::digest() : context_(EVP_MD_CTX_new()) {
  require_digest(EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr));
}

digest::digest(std::uint64_t blob_bytes) : context_(EVP_MD_CTX_new()) {
  require_digest(EVP_DigestInit_ex(context_.get(), EVP_sha1(), nullptr));
  const auto header = "blob " + std::to_string(blob_bytes);
  add({header.c_str(), header.size() + 1}); // with the zero behind it
}

void digest::add(std::string_view bytes) {
  require_digest(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()));
}

std::string digest::finish() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> bytes = {};
  unsigned size = 0;
  require_digest(EVP_DigestFinal_ex(context_.get(), bytes.data(), &size));
  std::string text;
  for (unsigned i = 0; i < size; ++i)
    append_hex(text, bytes[i]);
  return text;
}

} // namespace troupe::hub
