// The algorithms of nvCOMP behind one interface.
#pragma once

#include <nvcomp.h>

#include "bench/ibp/paper.h"

namespace cohort::ibp::paper {

inline void nvcomp_check(nvcompStatus_t status, const char* what) {
  if (status != nvcompSuccess) throw base::Error({what, "success", nvcompGetStatusString(status), ""});
}

// The functions of one algorithm and its options, behind one interface.
class Algorithm {
 public:
  Algorithm() = default;
  Algorithm(const Algorithm&) = delete;
  Algorithm& operator=(const Algorithm&) = delete;
  virtual ~Algorithm() = default;
  virtual std::size_t compress_temp(std::size_t count, std::size_t row_bytes) const = 0;
  virtual std::size_t max_compressed(std::size_t row_bytes) const = 0;
  virtual void compress(const void* const* from, const std::size_t* from_bytes, std::size_t row_bytes,
                        std::size_t count, const base::DeviceBytes& temp, void* const* to, std::size_t* to_bytes,
                        nvcompStatus_t* statuses, cudaStream_t stream) const = 0;
  virtual std::size_t decompress_temp(std::size_t count, std::size_t row_bytes) const = 0;
  virtual void decompress(const void* const* from, const std::size_t* from_bytes, const std::size_t* room_bytes,
                          std::size_t* to_bytes, std::size_t count, const base::DeviceBytes& temp, void* const* to,
                          nvcompStatus_t* statuses, cudaStream_t stream) const = 0;
};

// The seven algorithms differ in the names of these functions and in their options.
#define COHORT_NVCOMP_ALGORITHM(NAME)                                                                                \
  class NAME : public Algorithm {                                                                                    \
   public:                                                                                                           \
    nvcompBatched##NAME##CompressOpts_t compress_options = nvcompBatched##NAME##CompressDefaultOpts;                 \
    nvcompBatched##NAME##DecompressOpts_t decompress_options = nvcompBatched##NAME##DecompressDefaultOpts;           \
    std::size_t compress_temp(std::size_t count, std::size_t row_bytes) const override {                             \
      std::size_t bytes = 0;                                                                                         \
      nvcomp_check(nvcompBatched##NAME##CompressGetTempSize(count, row_bytes, compress_options, &bytes,              \
                                                            count* row_bytes, nullptr),                              \
                   #NAME ": size compression");                                                                      \
      return bytes;                                                                                                  \
    }                                                                                                                \
    std::size_t max_compressed(std::size_t row_bytes) const override {                                               \
      std::size_t bytes = 0;                                                                                         \
      nvcomp_check(nvcompBatched##NAME##CompressGetMaxOutputChunkSize(row_bytes, compress_options, &bytes),          \
                   #NAME ": size of a compressed row");                                                              \
      return bytes;                                                                                                  \
    }                                                                                                                \
    void compress(const void* const* from, const std::size_t* from_bytes, std::size_t row_bytes, std::size_t count,  \
                  const base::DeviceBytes& temp, void* const* to, std::size_t* to_bytes, nvcompStatus_t* statuses,   \
                  cudaStream_t stream) const override {                                                              \
      nvcomp_check(nvcompBatched##NAME##CompressAsync(from, from_bytes, row_bytes, count, temp.data(), temp.bytes(), \
                                                      to, to_bytes, compress_options, statuses, stream),             \
                   #NAME ": compress");                                                                              \
    }                                                                                                                \
    std::size_t decompress_temp(std::size_t count, std::size_t row_bytes) const override {                           \
      std::size_t bytes = 0;                                                                                         \
      nvcomp_check(nvcompBatched##NAME##DecompressGetTempSize(count, row_bytes, decompress_options, &bytes,          \
                                                              count* row_bytes, nullptr),                            \
                   #NAME ": size decompression");                                                                    \
      return bytes;                                                                                                  \
    }                                                                                                                \
    void decompress(const void* const* from, const std::size_t* from_bytes, const std::size_t* room_bytes,           \
                    std::size_t* to_bytes, std::size_t count, const base::DeviceBytes& temp, void* const* to,        \
                    nvcompStatus_t* statuses, cudaStream_t stream) const override {                                  \
      nvcomp_check(nvcompBatched##NAME##DecompressAsync(from, from_bytes, room_bytes, to_bytes, count, temp.data(),  \
                                                        temp.bytes(), to, decompress_options, statuses, stream),     \
                   #NAME ": decompress");                                                                            \
    }                                                                                                                \
  }

COHORT_NVCOMP_ALGORITHM(ANS);
COHORT_NVCOMP_ALGORITHM(Bitcomp);
COHORT_NVCOMP_ALGORITHM(Cascaded);
COHORT_NVCOMP_ALGORITHM(Gdeflate);
COHORT_NVCOMP_ALGORITHM(LZ4);
COHORT_NVCOMP_ALGORITHM(Snappy);
COHORT_NVCOMP_ALGORITHM(Zstd);
#undef COHORT_NVCOMP_ALGORITHM

}  // namespace cohort::ibp::paper
