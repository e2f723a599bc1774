// A port of the loopback interface, for benchmarks.
#pragma once

#include <arpa/inet.h>
#include <sys/socket.h>

#include "base/check.h"
#include "base/file_descriptor.h"

namespace cohort {

struct Listener {
  Listener() : file(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
    socklen_t bytes = sizeof address;
    auto* any = reinterpret_cast<sockaddr*>(&address);
    base::require(::bind(file.get(), any, bytes) == 0 && ::listen(file.get(), 64) == 0, "a socket that listens");
    getsockname(file.get(), any, &bytes);
    port = ntohs(address.sin_port);
  }
  base::FileDescriptor file;
  int port = 0;
};

}  // namespace cohort
