/* libnvidia-ml.so.1, as far as nvidia-ml-py asks it; see records.h.

   sys;driver=580.95.05;prints=TEXT
   gpu;name=;uuid=;pci=0000:17:00.0;total=;used=;util=;cc=9.0;mig=1;slots=7
   mig;of=UUID of the gpu;slot=0;uuid=;total=;used=
   process;on=UUID;pid=;memory=;lives=1  without memory: not available; lives: told as long as it
                                         does, and its memory counts as used beside the gpu's */
#include "records.h"

#include <signal.h>

enum {
  SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6,
  INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9
};

static int begin(const char *function) {
  if (look("NVML_DESCRIPTION")) return DRIVER_NOT_LOADED;
  int said = outcome(sys(), function, SUCCESS);
  if (said) return said;
  return starts || !strcmp(function, "nvmlInitWithFlags") ? SUCCESS : UNINITIALIZED;
}

static int begin_device(const char *function, handle device, long *at) {
  int failed = begin(function);
  if (failed) return failed;
  *at = (long)device - 1;
  if (!is(*at, "gpu") && !is(*at, "mig")) return INVALID_ARGUMENT;
  return outcome(*at, function, (int)number(*at, "error", SUCCESS));
}

static int put(char *buffer, u32 length, const char *text) {
  if (strlen(text) + 1 > length) return INSUFFICIENT_SIZE;
  strcpy(buffer, text);
  return SUCCESS;
}

#define OF_DEVICE                                           \
  long at;                                                  \
  int failed = begin_device(__func__, device, &at);         \
  if (failed) return failed;

int nvmlInitWithFlags(u32 flags) {
  (void)flags;
  int failed = begin(__func__);
  const char *printed = value(sys(), "prints", NULL);
  if (printed) printf("%s\n", printed), fflush(stdout);
  if (!failed) starts++;
  return failed;
}

int nvmlSystemGetDriverVersion(char *buffer, u32 length) {
  int failed = begin(__func__);
  return failed ? failed : put(buffer, length, value(sys(), "driver", "580.95.05"));
}

int nvmlDeviceGetCount_v2(u32 *count) {
  int failed = begin(__func__);
  *count = 0;
  for (long at = 0; at < records; at++) *count += is(at, "gpu");
  return failed;
}

int nvmlDeviceGetHandleByIndex_v2(u32 index, handle *device) {
  int failed = begin(__func__);
  if (failed) return failed;
  for (long at = 0; at < records; at++)
    if (is(at, "gpu") && !index--) {
      *device = (handle)(at + 1);
      return begin_device(__func__, *device, &at);
    }
  return INVALID_ARGUMENT;
}

int nvmlDeviceGetName(handle device, char *buffer, u32 length) {
  OF_DEVICE
  return put(buffer, length, value(at, "name", "NVIDIA H100 80GB HBM3"));
}

int nvmlDeviceGetUUID(handle device, char *buffer, u32 length) {
  OF_DEVICE
  return put(buffer, length, value(at, "uuid", ""));
}

struct pci {
  char legacy[16];
  u32 domain, bus, device, id, subsystem;
  char text[32];
};

int nvmlDeviceGetPciInfo_v3(handle device, struct pci *pci) {
  OF_DEVICE
  memset(pci, 0, sizeof *pci);
  sscanf(value(at, "pci", "0:0:0.0"), "%x:%x:%x", &pci->domain, &pci->bus, &pci->device);
  snprintf(pci->text, sizeof pci->text, "%08X:%02X:%02X.0", pci->domain, pci->bus, pci->device);
  return SUCCESS;
}

struct memory {
  u64 total, free, used;
};

static int is_on(long process, long at) {
  if (!is(process, "process") || strcmp(value(process, "on", ""), value(at, "uuid", "-"))) return 0;
  return !value(process, "lives", NULL) || !kill((pid_t)number(process, "pid", 0), 0);
}

int nvmlDeviceGetMemoryInfo(handle device, struct memory *memory) {
  OF_DEVICE
  memory->total = number(at, "total", 0);
  memory->used = number(at, "used", 0);
  for (long other = 0; other < records; other++)
    if (is_on(other, at) && value(other, "lives", NULL)) memory->used += number(other, "memory", 0);
  memory->free = memory->total - memory->used;
  return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(handle device, u32 *rates) {
  OF_DEVICE
  if (is(at, "mig")) return NOT_SUPPORTED;
  rates[0] = (u32)number(at, "util", 0);
  rates[1] = 0;
  return SUCCESS;
}

int nvmlDeviceGetCudaComputeCapability(handle device, int *major, int *minor) {
  OF_DEVICE
  sscanf(value(at, "cc", "9.0"), "%d.%d", major, minor);
  return SUCCESS;
}

struct process {
  u32 pid;
  u64 memory;
  u32 gpu_instance, compute_instance;
};

int nvmlDeviceGetComputeRunningProcesses_v3(handle device, u32 *count, struct process *out) {
  OF_DEVICE
  u32 room = *count, seen = 0;
  for (long other = 0; other < records; other++) {
    if (!is_on(other, at)) continue;
    if (out && seen < room) {
      out[seen].pid = (u32)number(other, "pid", 0);
      out[seen].memory = number(other, "memory", ~0ull);
      out[seen].gpu_instance = out[seen].compute_instance = NOTHING;
    }
    seen++;
  }
  *count = seen;
  return seen > room ? INSUFFICIENT_SIZE : SUCCESS;
}

int nvmlDeviceGetMigMode(handle device, u32 *now, u32 *pending) {
  OF_DEVICE
  if (!value(at, "mig", NULL)) return NOT_SUPPORTED;
  *now = *pending = (u32)number(at, "mig", 0);
  return SUCCESS;
}

int nvmlDeviceGetMaxMigDeviceCount(handle device, u32 *count) {
  OF_DEVICE
  *count = (u32)number(at, "slots", 7);
  return SUCCESS;
}

int nvmlDeviceGetMigDeviceHandleByIndex(handle device, u32 slot, handle *instance) {
  OF_DEVICE
  for (long other = 0; other < records; other++)
    if (is(other, "mig") && !strcmp(value(other, "of", ""), value(at, "uuid", "-")) &&
        number(other, "slot", 0) == slot) {
      *instance = (handle)(other + 1);
      return SUCCESS;
    }
  return NOT_FOUND;
}
