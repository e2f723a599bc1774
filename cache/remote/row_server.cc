#include "cache/remote/row_server.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/checksum.h"
#include "base/prefetch.h"

namespace cohort::cache {

using namespace std::chrono_literals;

namespace {

constexpr std::size_t kRowsAt = 64;  // in the memory of a reply, whose head ends there: rows that begin a line

}  // namespace

RowServer::RowServer(base::FileDescriptor listener, RunIdentity identity, std::chrono::milliseconds patience)
    : listener_(std::move(listener)),
      stop_(::eventfd(0, EFD_CLOEXEC)),
      identity_(std::move(identity)),
      patience_(patience) {
  if (!stop_) base::fail_errno("rows for other machines", "an eventfd", errno);
  acceptor_ = std::thread([this] { accept_all(); });
}

RowServer::RowServer(base::FileDescriptor listener, RunIdentity identity, std::vector<ServedTable> tables,
                     std::chrono::milliseconds patience)
    : RowServer(std::move(listener), std::move(identity), patience) {
  share(identity_.tables, std::move(tables));
}

void RowServer::share(uint32_t digest, std::vector<ServedTable> tables) {
  base::require(!is_ready_.load(), "rows that are shared once");
  identity_.tables = digest;
  tables_ = std::move(tables);
  is_ready_.store(true, std::memory_order_release);
}

RowServer::~RowServer() {
  const uint64_t one = 1;
  base::write_all(stop_, bytes_of(one), "the end of the rows for other machines");
  acceptor_.join();
  for (Client& client : clients_) client.socket.shut_down();
  for (Client& client : clients_) client.thread.join();
}

void RowServer::accept_all() {
  while (true) {
    std::array<pollfd, 2> polled = {pollfd{listener_.get(), POLLIN, 0}, pollfd{stop_.get(), POLLIN, 0}};
    if (::poll(polled.data(), polled.size(), -1) < 0 && errno != EINTR) return;
    if (polled[1].revents != 0) return;
    if (polled[0].revents == 0) continue;  // a signal
    base::FileDescriptor connected(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!connected) {  // who came has gone again; or there are no descriptors left, and some may come free
      std::this_thread::sleep_for(10ms);
      continue;
    }
    remove_ended();
    const std::lock_guard lock(mutex_);
    Client& client = clients_.emplace_back(Socket(std::move(connected), "a machine that asks for rows", ""));
    try {
      client.thread = std::thread([this, &client] {
        serve(client.socket);
        client.socket.shut_down();
        client.has_ended = true;
      });
    } catch (const std::system_error&) {  // no threads are left: who came sees the connection's end
      clients_.pop_back();
    }
  }
}

void RowServer::remove_ended() {
  const std::lock_guard lock(mutex_);
  std::erase_if(clients_, [](Client& client) {
    if (!client.has_ended) return false;
    client.thread.join();
    return true;
  });
}

void RowServer::wait_for_others(const std::function<bool()>& gives_up) {
  while (!gives_up()) {
    remove_ended();
    {
      const std::lock_guard lock(mutex_);
      if (clients_.empty()) return;
    }
    std::this_thread::sleep_for(20ms);
  }
}

bool RowServer::greets(const Socket& client) const {
  const TimeLimit limit(patience_);
  Hello hello;
  client.receive(bytes_of(hello), limit);
  if (hello.magic != kHelloMagic) return false;  // it speaks another language
  const bool is_ready = is_ready_.load(std::memory_order_acquire);
  Welcome welcome;
  welcome.machine = static_cast<uint32_t>(identity_.machine);
  if (!std::ranges::equal(hello.key, identity_.key)) {
    welcome.answer = Answer::kOtherRun;
  } else if (!is_ready) {
    welcome.answer = Answer::kLoading;
  } else if (hello.tables != identity_.tables) {
    welcome.answer = Answer::kOtherRows;
  }
  client.send(bytes_of(welcome), limit);
  return welcome.answer == Answer::kWelcome;
}

// A client that goes away, or does not take what it has asked for, loses its connection and sees that; nobody here
// waits for it.
void RowServer::serve(const Socket& client) const {
  Work work;
  try {
    if (!greets(client)) return;
    while (client.awaits_bytes()) {
      const TimeLimit limit(patience_);
      Request request;
      client.receive(bytes_of(request), limit);
      if (request.magic != kRequestMagic || request.num_rows > kMostRowsOfRequest) return;
      work.ids.resize(request.num_rows);
      client.receive(std::as_writable_bytes(std::span(work.ids)), limit);
      if (!reply(client, request, work)) return;
    }
  } catch (const std::exception&) {  // it has gone, or asks for more than there is memory
    return;
  }
}

bool RowServer::locate(const Request& request, Work& work) const {
  if (request.table >= tables_.size()) return false;
  const ServedTable& table = tables_[request.table];
  work.stored = planes_of(table.rows.ref, request.plane_a != 0);
  work.numbers.clear();
  for (std::size_t i = 0; i < work.ids.size(); ++i) {
    base::ask_ahead(work.ids, i, [&](uint32_t next) { table.chosen.prefetch(next); });
    if (work.ids[i] >= table.num_rows) return false;
    work.numbers.push_back(table.chosen.find(work.ids[i]));
    if (work.numbers.back() < 0 && !table.disk) return false;
  }
  work.spans.clear();
  for (std::size_t i = 0; i < work.ids.size(); ++i) {
    base::ask_ahead(work.numbers, i, [&](int64_t next) { prefetch_place(work.stored, std::max<int64_t>(0, next)); });
    const uint32_t id = work.ids[i];
    const int64_t number = work.numbers[i];
    ibp::RowSpan& row = work.spans.emplace_back();
    if (number >= 0) {
      row = ibp::locate(work.stored, number);
    } else {
      row = ibp::locate(planes_of(table.disk->encoded().ref, request.plane_a != 0), id);
      row.begin = nullptr;
    }
  }
  return true;
}

std::size_t RowServer::gather(const ServedTable& table, bool plane_a, std::size_t first, Work& work) {
  constexpr std::size_t kAhead = 4;  // rows that come from memory meanwhile: a core waits for some 16 lines at once
  constexpr uint32_t kLine = 64;
  const auto most = std::max<std::size_t>(kMostBytesOfReply, staged_bytes(work.stored, work.spans[first]));
  std::byte* const rows = work.reply.reserve(kRowsAt + most).data() + kRowsAt;
  std::vector<int64_t> on_disk;
  std::vector<std::byte*> places;  // of these rows
  work.bytes = 0;
  std::size_t i = first;
  for (; i < work.spans.size(); ++i) {
    if (i + kAhead < work.spans.size()) {
      const ibp::RowSpan& next = work.spans[i + kAhead];
      for (uint32_t at = 0; next.begin && at < next.bytes; at += kLine) __builtin_prefetch(next.begin + at);
    }
    const ibp::RowSpan& row = work.spans[i];
    const uint32_t filled = staged_bytes(work.stored, row), own = ibp::joined_bytes(work.stored, row);
    if (work.bytes + filled > most) break;
    std::byte* to = rows + work.bytes;
    if (row.begin) {
      ibp::copy_joined(work.stored, row, to);
    } else {
      on_disk.push_back(work.ids[i]);
      places.push_back(to);
    }
    std::fill(to + own, to + filled, std::byte{});
    work.bytes += filled;
  }
  if (on_disk.empty()) return i;
  const auto take = [&](std::size_t number, const ibp::RowSpan& row) {
    ibp::copy_joined(work.stored, row, places[number]);
  };
  table.disk->fetch(on_disk, plane_a, take, Turn::kNext).finish();
  return i;
}

void RowServer::send(const Socket& client, const Request& request, Answer answer, Work& work) const {
  const std::span<std::byte> all = work.reply.reserve(kRowsAt + work.bytes).first(kRowsAt + work.bytes);
  const Reply head{.answer = answer,
                   .number = request.number,
                   .bytes = static_cast<uint32_t>(work.bytes),
                   .checksum = base::crc32c(all.subspan(kRowsAt))};
  std::ranges::copy(bytes_of(head), all.begin() + kRowsAt - sizeof head);
  client.send(all.subspan(kRowsAt - sizeof head), TimeLimit(patience_));
}

void RowServer::send_zeros(const Socket& client, const Request& request, Work& work) const {
  work.bytes = kMostBytesOfReply;
  std::ranges::fill(work.reply.reserve(kRowsAt + work.bytes).subspan(kRowsAt, work.bytes), std::byte{});
  for (int64_t sent = 0; sent < kMostBytesOfRequest; sent += kMostBytesOfReply) {
    send(client, request, Answer::kWelcome, work);
  }
}

bool RowServer::reply(const Socket& client, const Request& request, Work& work) const {
  if (request.table == kNoTable && request.num_rows == 0) {
    send_zeros(client, request, work);
    return true;
  }
  work.bytes = 0;
  if (!locate(request, work)) {
    send(client, request, Answer::kNoSuchRow, work);
    return false;
  }
  int64_t bytes = 0;
  for (const ibp::RowSpan& row : work.spans) bytes += staged_bytes(work.stored, row);
  if (bytes > kMostBytesOfRequest && work.spans.size() > 1) return false;  // nobody asks for so much
  for (std::size_t next = 0; next < work.spans.size();) {
    try {
      next = gather(tables_[request.table], request.plane_a != 0, next, work);
    } catch (const base::Error& error) {
      const std::string_view text = std::string_view(error.what()).substr(0, kMostBytesOfText);
      work.bytes = text.size();
      std::ranges::copy(std::as_bytes(std::span(text)), work.reply.reserve(kRowsAt + text.size()).begin() + kRowsAt);
      send(client, request, Answer::kUnreadable, work);
      return false;
    }
    send(client, request, Answer::kWelcome, work);
  }
  return true;
}

}  // namespace cohort::cache
