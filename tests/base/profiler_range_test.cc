#include "base/profiler_range.h"

#include <gtest/gtest.h>

#if __has_include(<nvtx3/nvToolsExt.h>)
#define NVTX_NO_IMPL
#include <nvtx3/nvToolsExt.h>

#include <string>
#include <vector>

namespace cohort::base {
namespace {

std::vector<std::string> seen_ranges;  // by the profiler below

nvtxDomainHandle_t create_domain(const char* name) {
  seen_ranges.push_back(std::string("domain ") + name);
  return reinterpret_cast<nvtxDomainHandle_t>(&seen_ranges);
}

nvtxRangeId_t start_range(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* event) {
  EXPECT_EQ(domain, reinterpret_cast<nvtxDomainHandle_t>(&seen_ranges));
  seen_ranges.push_back(std::string(event->message.ascii) + " " + std::to_string(event->payload.ullValue));
  return 1000 + event->payload.ullValue;
}

void end_range(nvtxDomainHandle_t, nvtxRangeId_t id) { seen_ranges.push_back("end " + std::to_string(id)); }

// What a profiler does that NVTX finds in a process.
int listen(NvtxGetExportTableFunc_t table_of) {
  const auto* callbacks = static_cast<const NvtxExportTableCallbacks*>(table_of(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned int size = 0;
  if (!callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size)) return 0;
  *table[NVTX_CBID_CORE2_DomainCreateA] = reinterpret_cast<NvtxFunctionPointer>(create_domain);
  *table[NVTX_CBID_CORE2_DomainRangeStartEx] = reinterpret_cast<NvtxFunctionPointer>(start_range);
  *table[NVTX_CBID_CORE2_DomainRangeEnd] = reinterpret_cast<NvtxFunctionPointer>(end_range);
  return 1;
}

}  // namespace
}  // namespace cohort::base

// NVTX has a weak one.
extern "C" {
NvtxInitializeInjectionNvtxFunc_t InitializeInjectionNvtx2_fnptr = cohort::base::listen;
}

namespace cohort::base {
namespace {

TEST(ProfilerRange, TellsAProfilerNameBatchAndEnd) {
  {
    const ProfilerRange fetch("fetch", 7);
    const ProfilerRange sample("sample", 8);
  }
  EXPECT_EQ(seen_ranges, (std::vector<std::string>{"domain cohort", "fetch 7", "sample 8", "end 1008", "end 1007"}));
}

}  // namespace
}  // namespace cohort::base
#endif
