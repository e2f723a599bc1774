// Slows the rows that a sampler sends to other machines, as a link of so many Gbit/s would:
//   cmake --build build --target cache_paced_link
//   COHORT_PACED_GBITS=100 LD_PRELOAD=build/cache/libcache_paced_link.so cohort train --feature-placement partitioned
//   ...
// The kernel spaces the packets of each accepted connection; all connections from the other of two machines share the
// rate equally.
#include <dlfcn.h>
#include <sys/socket.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "cache/remote/row_peers.h"

extern "C" int accept4(int listener, sockaddr* address, socklen_t* bytes, int flags) {
  static const auto real = reinterpret_cast<int (*)(int, sockaddr*, socklen_t*, int)>(dlsym(RTLD_NEXT, "accept4"));
  static const char* const gbits = std::getenv("COHORT_PACED_GBITS");
  const int file = real(listener, address, bytes, flags);
  if (file < 0 || !gbits) return file;
  const auto rate =
      static_cast<uint64_t>(std::atof(gbits) * 1e9 / 8 / cohort::cache::connections_to_each(2));  // bytes/s
  if (setsockopt(file, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof rate) != 0) {
    std::perror("paced_link: SO_MAX_PACING_RATE");
    std::abort();
  }
  return file;
}
