#include "base/profiler_range.h"

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define COHORT_WITH_NVTX
#endif

namespace cohort::base {

#ifdef COHORT_WITH_NVTX

namespace {

nvtxDomainHandle_t domain() {
  static const nvtxDomainHandle_t handle = nvtxDomainCreateA("cohort");
  return handle;
}

}  // namespace

// A range of the process and not of a thread: each batch that is sampled ahead has a thread of its own.
ProfilerRange::ProfilerRange(const char* name, uint64_t batch) {
  nvtxEventAttributes_t event{};
  event.version = NVTX_VERSION;
  event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  event.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
  event.payload.ullValue = batch;
  event.messageType = NVTX_MESSAGE_TYPE_ASCII;
  event.message.ascii = name;
  id_ = nvtxDomainRangeStartEx(domain(), &event);
}

ProfilerRange::~ProfilerRange() { nvtxDomainRangeEnd(domain(), id_); }

#else

ProfilerRange::ProfilerRange(const char*, uint64_t) {}
ProfilerRange::~ProfilerRange() = default;

#endif

}  // namespace cohort::base
