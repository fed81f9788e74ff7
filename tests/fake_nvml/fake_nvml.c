/* A libnvidia-ml.so.1 for machines without NVIDIA's driver: what stands below the real pynvml in the tests.

   FAKE_NVML_GPUS is how many GPUs there are (8). FAKE_NVML_FILE names a file of commands, one a line, that is only
   appended to; each process reads on in it at every call, and while it waits for events. GPU may be '*'.

     xid GPU N              an event of type 8 with N as its data, as for every critical XID
     event GPU TYPE DATA    any other event: 0x2 double-bit ECC, 0x4000 GPU unavailable, 0x8000 recovery action, ...
     set GPU KEY VALUE      a counter or gauge; the keys stand beside the functions below; fieldN is field value N
     proc GPU PID           a compute process runs on it; "endproc GPU PID" ends it
     mig GPU COUNT          it is cut into COUNT MIG devices; 0 = MIG is off
     lost GPU | found GPU   calls for it return GPU_IS_LOST, and so does a wait for its events, as the driver's does
     fail FUNC CODE         FUNC, or * for all, returns CODE; 0 = works again
     hang FUNC SECONDS      each call of FUNC, or * for all, takes so long
     stuck                  waits for events do not return any more, whatever their timeout

   As NVIDIA's documentation says of the driver: events from before nvmlDeviceRegisterEvents are not recorded and never
   delivered; later ones are kept until they are waited for; on Linux each XID is delivered with its own number; events
   cannot be registered for MIG devices, those of all instances come for the GPU, with the instance where it is known. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#define GPUS 64
#define MIGS 7
#define KEYS 64
#define EVENTS 4096
#define NAME 64
#define POLL_US 2000

enum { OK = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, SMALL = 7, TIMED_OUT = 10, LOST = 15 };
typedef unsigned long long u64;
typedef unsigned int u32;

struct device {
    int gpu, mig; /* mig: -1 for the GPU itself */
};
struct gpu {
    struct device self, part[MIGS];
    int parts, lost, keys, procs;
    struct { char name[NAME]; u64 value; } key[KEYS];
    u32 proc[NAME];
};
struct rule {
    char function[NAME];
    int code;
    double hang_s;
};
struct event {
    int gpu;
    u64 type, data;
};
struct event_set {
    u64 types[GPUS];
    int since[GPUS], next;
};

static struct gpu all[GPUS];
static struct rule rules[NAME];
static struct event events[EVENTS];
static int rule_count, event_count, initialized, stuck;
static long read_to;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int gpu_count(void) {
    const char *given = getenv("FAKE_NVML_GPUS");
    int n = given ? atoi(given) : 8;
    return n < 0 ? 0 : n > GPUS ? GPUS : n;
}

static u64 *slot(struct gpu *g, const char *name) {
    for (int i = 0; i < g->keys; i++)
        if (!strcmp(g->key[i].name, name)) return &g->key[i].value;
    if (g->keys == KEYS) abort();
    snprintf(g->key[g->keys].name, NAME, "%s", name);
    g->key[g->keys].value = 0;
    return &g->key[g->keys++].value;
}

static u64 value(int gpu, const char *name, u64 unset) {
    for (int i = 0; i < all[gpu].keys; i++)
        if (!strcmp(all[gpu].key[i].name, name)) return all[gpu].key[i].value;
    return unset;
}

static struct rule *rule_of(const char *function) {
    for (int i = 0; i < rule_count; i++)
        if (!strcmp(rules[i].function, function)) return &rules[i];
    if (rule_count == NAME) abort();
    snprintf(rules[rule_count].function, NAME, "%s", function);
    return &rules[rule_count++];
}

/* --- the commands ------------------------------------------------------------------------------------------------ */
static void one_gpu(int n, const char *word, const char *a, const char *b) {
    struct gpu *g = &all[n];
    if (!strcmp(word, "lost")) g->lost = 1;
    else if (!strcmp(word, "found")) g->lost = 0;
    else if (!strcmp(word, "set")) *slot(g, a) = strtoull(b, 0, 0);
    else if (!strcmp(word, "mig")) g->parts = atoi(a) < MIGS ? atoi(a) : MIGS;
    else if (!strcmp(word, "proc") && g->procs < NAME) g->proc[g->procs++] = strtoul(a, 0, 0);
    else if (!strcmp(word, "endproc")) {
        for (int i = 0; i < g->procs; i++)
            if (g->proc[i] == strtoul(a, 0, 0)) g->proc[i--] = g->proc[--g->procs];
    } else if (event_count < EVENTS && !strcmp(word, "xid"))
        events[event_count++] = (struct event){n, 8, strtoull(a, 0, 0)};
    else if (event_count < EVENTS && !strcmp(word, "event"))
        events[event_count++] = (struct event){n, strtoull(a, 0, 0), strtoull(b, 0, 0)};
}

static void obey(const char *line) {
    char word[NAME] = "", who[NAME] = "", a[NAME] = "", b[NAME] = "";
    if (sscanf(line, "%63s %63s %63s %63s", word, who, a, b) < 1) return;
    if (!strcmp(word, "stuck")) stuck = 1;
    else if (!strcmp(word, "fail")) rule_of(who)->code = atoi(a);
    else if (!strcmp(word, "hang")) rule_of(who)->hang_s = atof(a);
    else
        for (int n = 0; n < gpu_count(); n++)
            if (!strcmp(who, "*") || atoi(who) == n) one_gpu(n, word, a, b);
}

static void read_on(void) {
    const char *path = getenv("FAKE_NVML_FILE");
    FILE *file = path ? fopen(path, "r") : NULL;
    if (!file) return;
    char line[4 * NAME];
    fseek(file, read_to, SEEK_SET);
    while (fgets(line, sizeof line, file) && strchr(line, '\n')) {
        read_to = ftell(file);
        obey(line);
    }
    fclose(file);
}

static void rest(double seconds) {
    struct timespec t = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&t, NULL);
}

static int enter(const char *function, const struct device *d) {
    pthread_mutex_lock(&lock);
    for (int n = 0; n < GPUS && !initialized; n++) {
        all[n].self = (struct device){n, -1};
        for (int m = 0; m < MIGS; m++) all[n].part[m] = (struct device){n, m};
    }
    read_on();
    int code = OK;
    double hang_s = 0;
    for (int i = 0; i < rule_count; i++)
        if (!strcmp(rules[i].function, function) || !strcmp(rules[i].function, "*")) {
            code = rules[i].code ? rules[i].code : code;
            hang_s = rules[i].hang_s > hang_s ? rules[i].hang_s : hang_s;
        }
    if (!code && !initialized && strncmp(function, "nvmlInit", 8)) code = UNINITIALIZED;
    if (!code && d && all[d->gpu].lost) code = LOST;
    pthread_mutex_unlock(&lock);
    rest(hang_s);
    return code;
}
#define ENTER(device) do { int code_ = enter(__func__, device); if (code_) return code_; } while (0)

/* --- the library, and which devices there are -------------------------------------------------------------------- */
int nvmlInitWithFlags(u32 flags) { (void)flags; ENTER(NULL); initialized++; return OK; }
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { ENTER(NULL); initialized--; return OK; }

const char *nvmlErrorString(int code) {
    switch (code) {
    case OK: return "Success";
    case UNINITIALIZED: return "Uninitialized";
    case INVALID: return "Invalid Argument";
    case NOT_SUPPORTED: return "Not Supported";
    case 4: return "Insufficient Permissions";
    case NOT_FOUND: return "Not Found";
    case 9: return "Driver Not Loaded";
    case TIMED_OUT: return "Timeout";
    case LOST: return "GPU is lost";
    case 18: return "Driver/library version mismatch";
    default: return "Unknown Error";
    }
}

int nvmlSystemGetDriverVersion(char *text, u32 n) { ENTER(NULL); snprintf(text, n, "580.65.06"); return OK; }
int nvmlDeviceGetCount_v2(u32 *n) { ENTER(NULL); *n = gpu_count(); return OK; }

int nvmlDeviceGetHandleByIndex_v2(u32 i, struct device **d) {
    ENTER(NULL);
    if (i >= (u32)gpu_count()) return INVALID;
    if (all[i].lost) return LOST;
    *d = &all[i].self;
    return OK;
}

static void name_of(const struct device *d, char *text, u32 n) {
    if (d->mig < 0) snprintf(text, n, "GPU-%08x-fa4e-4000-8000-%012x", 0xa0000000u + d->gpu, d->gpu);
    else snprintf(text, n, "MIG-%08x-fa4e-5000-8000-%012x", 0xb0000000u + 16 * d->gpu + d->mig, d->mig);
}

int nvmlDeviceGetUUID(struct device *d, char *text, u32 n) { ENTER(d); name_of(d, text, n); return OK; }

int nvmlDeviceGetHandleByUUID(const char *text, struct device **d) {
    ENTER(NULL);
    char name[NAME];
    for (int n = 0; n < gpu_count(); n++)
        for (int m = -1; m < all[n].parts; m++) {
            struct device *one = m < 0 ? &all[n].self : &all[n].part[m];
            name_of(one, name, NAME);
            if (!strcmp(name, text)) { *d = one; return OK; }
        }
    return NOT_FOUND;
}

struct pci { char legacy[16]; u32 domain, bus, device, id, subsystem; char address[32]; };
int nvmlDeviceGetPciInfo_v3(struct device *d, struct pci *p) {
    ENTER(d);
    memset(p, 0, sizeof *p);
    p->bus = 0x1b + 0x10 * (d->gpu % 14);
    p->domain = d->gpu / 14;
    p->id = 0x233010de;
    snprintf(p->address, sizeof p->address, "%08X:%02X:00.0", p->domain, p->bus);
    snprintf(p->legacy, sizeof p->legacy, "%04X:%02X:00.0", p->domain, p->bus);
    return OK;
}

int nvmlDeviceGetMigMode(struct device *d, u32 *now, u32 *later) {
    ENTER(d);
    *now = *later = all[d->gpu].parts > 0;
    return OK;
}
int nvmlDeviceGetMaxMigDeviceCount(struct device *d, u32 *n) { ENTER(d); *n = MIGS; return OK; }
int nvmlDeviceGetMigDeviceHandleByIndex(struct device *d, u32 i, struct device **part) {
    ENTER(d);
    if (i >= (u32)all[d->gpu].parts) return NOT_FOUND;
    *part = &all[d->gpu].part[i];
    return OK;
}
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(struct device *part, struct device **d) {
    ENTER(part);
    *d = &all[part->gpu].self;
    return OK;
}
int nvmlDeviceGetGpuInstanceId(struct device *d, u32 *n) { ENTER(d); if (d->mig < 0) return INVALID; *n = d->mig + 1; return OK; }
int nvmlDeviceGetComputeInstanceId(struct device *d, u32 *n) { ENTER(d); if (d->mig < 0) return INVALID; *n = 0; return OK; }

/* --- counters and gauges: keys ecc_volatile_{un,}corrected, ecc_aggregate_..., remap_*, pcie_replay, clocks_reasons, use */
int nvmlDeviceGetTotalEccErrors(struct device *d, u32 type, u32 counter, u64 *n) {
    ENTER(d);
    char key[NAME];
    snprintf(key, NAME, "ecc_%s_%s", counter ? "aggregate" : "volatile", type ? "uncorrected" : "corrected");
    *n = value(d->gpu, key, 0);
    return OK;
}
int nvmlDeviceGetEccMode(struct device *d, u32 *now, u32 *later) { ENTER(d); *now = *later = value(d->gpu, "ecc_mode", 1); return OK; }
int nvmlDeviceGetRemappedRows(struct device *d, u32 *corrected, u32 *uncorrected, u32 *pending, u32 *failed) {
    ENTER(d);
    *corrected = value(d->gpu, "remap_corrected", 0);
    *uncorrected = value(d->gpu, "remap_uncorrected", 0);
    *pending = value(d->gpu, "remap_pending", 0);
    *failed = value(d->gpu, "remap_failed", 0);
    return OK;
}
int nvmlDeviceGetPcieReplayCounter(struct device *d, u32 *n) { ENTER(d); *n = value(d->gpu, "pcie_replay", 0); return OK; }
int nvmlDeviceGetCurrentClocksEventReasons(struct device *d, u64 *n) { ENTER(d); *n = value(d->gpu, "clocks_reasons", 0); return OK; }
int nvmlDeviceGetCurrentClocksThrottleReasons(struct device *d, u64 *n) { ENTER(d); *n = value(d->gpu, "clocks_reasons", 0); return OK; }
struct utilization { u32 gpu, memory; }; /* in percent; not for a GPU with MIG devices, nor for those */
int nvmlDeviceGetUtilizationRates(struct device *d, struct utilization *u) {
    ENTER(d);
    if (all[d->gpu].parts) return NOT_SUPPORTED;
    *u = (struct utilization){value(d->gpu, "use", 0), 0};
    return OK;
}
int nvmlDeviceGetMemoryInfo(struct device *d, u64 *m) {
    ENTER(d);
    m[0] = value(d->gpu, "memory_total", 80ull << 30);
    m[2] = value(d->gpu, "memory_used", 600ull << 20);
    m[1] = m[0] - m[2];
    return OK;
}
int nvmlDeviceGetName(struct device *d, char *text, u32 n) { ENTER(d); snprintf(text, n, "NVIDIA H100 80GB HBM3"); return OK; }
int nvmlDeviceGetTemperature(struct device *d, u32 sensor, u32 *n) { (void)sensor; ENTER(d); *n = value(d->gpu, "temperature", 45); return OK; }

int nvmlDeviceGetNvLinkState(struct device *d, u32 link, u32 *up) {
    ENTER(d);
    char key[NAME];
    snprintf(key, NAME, "nvlink%u_up", link);
    if (link >= 18) return INVALID;
    *up = value(d->gpu, key, 1);
    return OK;
}
int nvmlDeviceGetNvLinkErrorCounter(struct device *d, u32 link, u32 counter, u64 *n) {
    static const char *const kind[] = {"replay", "recovery", "crc_flit", "crc_data", "ecc"};
    ENTER(d);
    char key[NAME];
    if (link >= 18 || counter > 4) return INVALID;
    snprintf(key, NAME, "nvlink%u_%s", link, kind[counter]);
    *n = value(d->gpu, key, 0);
    return OK;
}

struct field { u32 id, scope; long long at_us, latency_us; u32 type; int code; union { double d; u32 i; u64 l; } value; };
int nvmlDeviceGetFieldValues(struct device *d, int n, struct field *f) {
    ENTER(d);
    for (int i = 0; i < n; i++) {
        char key[NAME];
        snprintf(key, NAME, "field%u", f[i].id);
        f[i].type = f[i].id == 230 ? 1 : 3; /* an unsigned int, an unsigned long long */
        f[i].code = OK;
        if (f[i].type == 1) f[i].value.i = value(d->gpu, key, 0);
        else f[i].value.l = value(d->gpu, key, 0);
    }
    return OK;
}

struct process { u32 pid; u64 memory; u32 gpu_instance, compute_instance; };
int nvmlDeviceGetComputeRunningProcesses_v3(struct device *d, u32 *n, struct process *p) {
    ENTER(d);
    pthread_mutex_lock(&lock);
    u32 there = all[d->gpu].procs, room = *n;
    *n = there;
    for (u32 i = 0; p && i < there && i < room; i++) p[i] = (struct process){all[d->gpu].proc[i], 1 << 30, ~0u, ~0u};
    pthread_mutex_unlock(&lock);
    return there > (p ? room : 0) ? SMALL : OK;
}
int nvmlDeviceGetComputeRunningProcesses_v2(struct device *d, u32 *n, struct process *p) {
    return nvmlDeviceGetComputeRunningProcesses_v3(d, n, p);
}

/* --- events ------------------------------------------------------------------------------------------------------ */
int nvmlEventSetCreate(struct event_set **s) {
    ENTER(NULL);
    *s = calloc(1, sizeof **s);
    return OK;
}
int nvmlEventSetFree(struct event_set *s) { free(s); return OK; }
int nvmlDeviceGetSupportedEventTypes(struct device *d, u64 *types) {
    ENTER(d);
    *types = value(d->gpu, "event_types", 0xff9f);
    return OK;
}
int nvmlDeviceRegisterEvents(struct device *d, u64 types, struct event_set *s) {
    ENTER(d);
    if (d->mig >= 0 || types & ~value(d->gpu, "event_types", 0xff9f)) return NOT_SUPPORTED;
    pthread_mutex_lock(&lock);
    s->types[d->gpu] |= types;
    s->since[d->gpu] = event_count;
    pthread_mutex_unlock(&lock);
    return OK;
}

struct event_data { struct device *device; u64 type, data; u32 gpu_instance, compute_instance; };
static int next_event(struct event_set *s, struct event_data *out) {
    int code = TIMED_OUT;
    pthread_mutex_lock(&lock);
    while (code == TIMED_OUT && s->next < event_count) {
        int i = s->next++;
        const struct event *e = &events[i];
        if (!(s->types[e->gpu] & e->type) || i < s->since[e->gpu]) continue;
        *out = (struct event_data){&all[e->gpu].self, e->type, e->data, ~0u, ~0u};
        code = OK;
    }
    for (int n = 0; code == TIMED_OUT && n < GPUS; n++)
        if (s->types[n] && all[n].lost) code = LOST;
    pthread_mutex_unlock(&lock);
    return code;
}

/* For tests: what was delivered, in a file beside the commands. */
static void note(const struct event_data *e) {
    char path[4096];
    snprintf(path, sizeof path, "%s.delivered", getenv("FAKE_NVML_FILE"));
    FILE *file = fopen(path, "a");
    if (!file) return;
    fprintf(file, "%d %llu %llu\n", e->device->gpu, e->type, e->data);
    fclose(file);
}

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int nvmlEventSetWait_v2(struct event_set *s, struct event_data *out, u32 timeout_ms) {
    double end_s = now_s() + timeout_ms / 1000.0;
    for (;;) {
        ENTER(NULL);
        int code = stuck ? TIMED_OUT : next_event(s, out);
        if (code == OK) note(out);
        if (code != TIMED_OUT || (!stuck && now_s() >= end_s)) return code;
        usleep(POLL_US);
    }
}
int nvmlEventSetWait(struct event_set *s, struct event_data *out, u32 timeout_ms) {
    return nvmlEventSetWait_v2(s, out, timeout_ms);
}
