// CRC-32C (Castagnoli), the checksum of files, and XXH64, the digest of rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace cohort::base {

// The CRC of `bytes`, or of what came before (its CRC) and `bytes` together.
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before = 0);

// crc32c() on a processor without AVX-512; each processor of the last fifteen years has the instruction that it needs.
uint32_t crc32c_without_folds(std::span<const std::byte> bytes, uint32_t before = 0);

// crc32c() by all threads.
uint32_t crc32c_parallel(std::span<const std::byte> bytes, uint32_t before = 0);

// Yann Collet's XXH64: 64 bits, from two bytes in a cycle of short rows to six of long ones.
uint64_t xxh64(std::span<const std::byte> bytes, uint64_t seed = 0);

}  // namespace cohort::base
