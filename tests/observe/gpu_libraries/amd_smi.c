/* libamd_smi.so, as far as we ask it through the Python module amdsmi; see records.h.

   sys;prints=TEXT
   gpu;name=;gfx=0x942;pci=0000:0c:00.0;uuid=GPU-…;hip=0;total=;used=;gtt=;gtt_used=;util=
   process;on=PCI address;pid=;memory=

   The module binds every function of the library at once: what is not here comes from stubs. */
#include "records.h"

enum {
  SUCCESS = 0, INVALID = 1, OUT_OF_RESOURCES = 15, NOT_INIT = 32, DRIVER_NOT_LOADED = 34
};

static int begin(const char *function) {
  if (look("AMD_SMI_DESCRIPTION")) return DRIVER_NOT_LOADED;
  int said = outcome(sys(), function, SUCCESS);
  if (said) return said;
  return starts || !strcmp(function, "amdsmi_init") ? SUCCESS : NOT_INIT;
}

static int begin_device(const char *function, handle device, long *at) {
  int failed = begin(function);
  if (failed) return failed;
  *at = (long)device - 1;
  if (!is(*at, "gpu")) return INVALID;
  return outcome(*at, function, (int)number(*at, "error", SUCCESS));
}

#define OF_DEVICE                                           \
  long at;                                                  \
  int failed = begin_device(__func__, device, &at);         \
  if (failed) return failed;

int amdsmi_init(u64 flags) {
  (void)flags;
  int failed = begin(__func__);
  const char *printed = value(sys(), "prints", NULL);
  if (printed) printf("%s\n", printed), fflush(stdout);
  if (!failed) starts++;
  return failed;
}

/* One socket for each GPU: the two handles are the same number. */
static int list(const char *function, handle socket, u32 *count, handle *out) {
  int failed = begin(function);
  if (failed) return failed;
  u32 room = *count, seen = 0;
  for (long at = 0; at < records; at++) {
    if (!is(at, "gpu") || (socket && socket != (handle)(at + 1))) continue;
    if (out && seen < room) out[seen] = (handle)(at + 1);
    seen++;
  }
  *count = seen;
  return SUCCESS;
}

int amdsmi_get_socket_handles(u32 *count, handle *out) { return list(__func__, NULL, count, out); }

int amdsmi_get_processor_handles(handle socket, u32 *count, handle *out) {
  return list(__func__, socket, count, out);
}

struct asic {
  char name[256];
  u32 vendor;
  char vendor_name[256];
  u32 subvendor;
  u64 device;
  u32 revision;
  char serial[256];
  u32 oam, units;
  u64 gfx;
  u32 subsystem, reserved[21];
};

int amdsmi_get_gpu_asic_info(handle device, struct asic *asic) {
  OF_DEVICE
  memset(asic, 0, sizeof *asic);
  snprintf(asic->name, sizeof asic->name, "%s", value(at, "name", "AMD Instinct MI300X"));
  asic->vendor = 0x1002;
  asic->gfx = number(at, "gfx", 0x942);
  asic->oam = asic->units = asic->subvendor = asic->subsystem = NOTHING;
  return SUCCESS;
}

int amdsmi_get_gpu_memory_total(handle device, u32 kind, u64 *bytes) {
  OF_DEVICE
  *bytes = number(at, kind == 2 ? "gtt" : "total", 0);
  return SUCCESS;
}

int amdsmi_get_gpu_memory_usage(handle device, u32 kind, u64 *bytes) {
  OF_DEVICE
  *bytes = number(at, kind == 2 ? "gtt_used" : "used", 0);
  return SUCCESS;
}

int amdsmi_get_gpu_device_bdf(handle device, u64 *address) {
  OF_DEVICE
  u32 domain = 0, bus = 0, slot = 0, function = 0;
  sscanf(value(at, "pci", "0:0:0.0"), "%x:%x:%x.%x", &domain, &bus, &slot, &function);
  *address = function | (u64)slot << 3 | (u64)bus << 8 | (u64)domain << 16;
  return SUCCESS;
}

struct numbers {
  u32 render, card, hsa, hip;
  char uuid[256];
};

int amdsmi_get_gpu_enumeration_info(handle device, struct numbers *numbers) {
  OF_DEVICE
  memset(numbers, 0, sizeof *numbers);
  numbers->render = (u32)number(at, "render", NOTHING);
  numbers->hsa = NOTHING;
  numbers->hip = (u32)number(at, "hip", NOTHING);
  snprintf(numbers->uuid, sizeof numbers->uuid, "%s", value(at, "uuid", "GPU-XX"));
  return SUCCESS;
}

int amdsmi_get_gpu_activity(handle device, u32 *activity) {
  OF_DEVICE
  memset(activity, 0, 64);
  activity[0] = (u32)number(at, "util", 0xffff);
  return SUCCESS;
}

struct process {
  char name[256];
  u32 pid;
  u64 memory, engines[2];
  u32 reserved[12];
  u64 gtt, cpu, vram;
  u32 reserved_too[10];
  char container[256];
  u32 occupancy, reserved_last[11];
};

int amdsmi_get_gpu_process_list(handle device, u32 *count, struct process *out) {
  OF_DEVICE
  u32 room = *count, seen = 0;
  for (long other = 0; other < records; other++) {
    if (!is(other, "process") || strcmp(value(other, "on", ""), value(at, "pci", "-"))) continue;
    if (out && seen < room) {
      memset(out + seen, 0, sizeof *out);
      out[seen].pid = (u32)number(other, "pid", 0);
      out[seen].vram = number(other, "memory", 0);
      out[seen].memory = out[seen].vram + 4096;
    }
    seen++;
  }
  *count = seen;
  return out && seen > room ? OUT_OF_RESOURCES : SUCCESS;
}
