#include "tessera/base/processors.h"

#ifdef __linux__
#include <sched.h>
#endif

namespace tessera::internal {

#ifdef __linux__

void BindThisThread(int index) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return;
  int before = index % CPU_COUNT(&allowed);
  for (int processor = 0; processor < CPU_SETSIZE; ++processor) {
    if (!CPU_ISSET(processor, &allowed) || before-- > 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(processor, &one);
    sched_setaffinity(0, sizeof(one), &one);
    return;
  }
}

#else

void BindThisThread(int) {}

#endif

}  // namespace tessera::internal
