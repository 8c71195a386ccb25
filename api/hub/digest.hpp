// The checksums by which the hub names files: SHA-256 for large files, Git's blob name for others. Computed by OpenSSL.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

struct evp_md_ctx_st;

namespace troupe::hub {

class digest {
public:
  /// SHA-256.
  digest();
  /// Git's SHA-1 of a blob of so many bytes.
  explicit digest(std::uint64_t blob_bytes);

  void add(std::string_view bytes);

  /// In hexadecimal digits. Ends the digest.
  std::string finish();

private:
  struct free_context {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, free_context> context_;
};

} // namespace troupe::hub
