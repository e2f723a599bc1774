// Linked into programs that run with glibc 2.28 (old_system.cmake): what newer headers and libstdc++ use of later
// versions. Each definition is hidden, and of the target that it is linked into.
#include <pthread.h>
#include <semaphore.h>
#include <sys/random.h>
#include <cerrno>
#include <ctime>

#if defined(__x86_64__)
#define FIRST_VERSION "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define FIRST_VERSION "GLIBC_2.17"
#endif

#define HIDDEN extern "C" __attribute__((visibility("hidden")))

// 2.29 has versions of these that differ from the first in what they report of bad arguments, not in values. The names
// that the compiler knows as built-in functions are those of symbols alone.
#define FIRST(name) __asm__(".symver first_" #name "," #name "@" FIRST_VERSION)
FIRST(exp);
FIRST(log);
FIRST(pow);
extern "C" double first_exp(double);
extern "C" double first_log(double);
extern "C" double first_pow(double, double);
HIDDEN double old_exp(double x) __asm__("exp");
HIDDEN double old_log(double x) __asm__("log");
HIDDEN double old_pow(double x, double y) __asm__("pow");
double old_exp(double x) { return first_exp(x); }
double old_log(double x) { return first_log(x); }
double old_pow(double x, double y) { return first_pow(x, y); }

// 2.32: libstdc++ counts references without atomic instructions while there is one thread. Here it always uses them.
extern "C" {
extern __attribute__((visibility("hidden"))) char __libc_single_threaded;
char __libc_single_threaded = 0;
}

// 2.36: for std::random_device.
HIDDEN unsigned arc4random() {
  unsigned value = 0;
  while (getrandom(&value, sizeof value, 0) != sizeof value) {
  }
  return value;
}

namespace {

constexpr long kNanoseconds = 1'000'000'000;

timespec now(clockid_t clock) {
  timespec time;
  clock_gettime(clock, &time);
  return time;
}

bool is_past(clockid_t clock, const timespec& until) {
  const timespec time = now(clock);
  return time.tv_sec > until.tv_sec || (time.tv_sec == until.tv_sec && time.tv_nsec >= until.tv_nsec);
}

// The same moment on the wall clock, which the older calls wait by.
timespec wall_time(clockid_t clock, const timespec& until) {
  const timespec from = now(clock), wall = now(CLOCK_REALTIME);
  timespec time = {wall.tv_sec + until.tv_sec - from.tv_sec, wall.tv_nsec + until.tv_nsec - from.tv_nsec};
  if (time.tv_nsec >= kNanoseconds) time = {time.tv_sec + 1, time.tv_nsec - kNanoseconds};
  if (time.tv_nsec < 0) time = {time.tv_sec - 1, time.tv_nsec + kNanoseconds};
  return time;
}

}  // namespace

// 2.30: waits by the steady clock. Who sets the wall clock forward meanwhile ends a wait by it too early: it goes on.
HIDDEN int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                                  const timespec* until) {
  int status = 0;
  do {
    const timespec wall = wall_time(clock, *until);
    status = pthread_cond_timedwait(condition, mutex, &wall);
  } while (status == ETIMEDOUT && !is_past(clock, *until));
  return status;
}

HIDDEN int sem_clockwait(sem_t* semaphore, clockid_t clock, const timespec* until) {
  int status = 0;
  do {
    const timespec wall = wall_time(clock, *until);
    status = sem_timedwait(semaphore, &wall);
  } while (status != 0 && errno == ETIMEDOUT && !is_past(clock, *until));
  return status;
}
