// Mock of the CUDA driver and NVML with the host as device, reduced to what kgen calls: memory comes from malloc,
// stream operations run synchronously, and events record the time of day. A graph replay takes one millisecond and runs
// nothing. With the variable MOCK_CLOCK events record the time that kernels claim, which no load of the host changes; each
// process has a slightly slower clock than those before it, which it counts in the file that the variable names.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef unsigned long long ptr;

// Milliseconds that kernels and graphs have claimed; kernels find it by name.
double mock_device_ms;
static long earlier_processes;

static void count_processes(void) {
    FILE* count = getenv("MOCK_CLOCK") ? fopen(getenv("MOCK_CLOCK"), "a") : NULL;
    if (count == NULL) return;
    fseek(count, 0, SEEK_END);
    earlier_processes = ftell(count);
    fputc('.', count);
    fclose(count);
}

static double now_ms(void) {
    if (getenv("MOCK_CLOCK")) return mock_device_ms * (1 + 1e-5 * earlier_processes);
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

int cuInit(unsigned flags) { return count_processes(), (int)flags; }
int cuDriverGetVersion(int* version) { return *version = 13000, 0; }
int cuDeviceGet(int* device, int ordinal) { return *device = ordinal, 0; }
int cuDeviceGetName(char* name, int length, int device) { return snprintf(name, length, "Mock GPU %d", device), 0; }
int cuDeviceGetPCIBusId(char* id, int length, int device) { return snprintf(id, length, "0000:0%d:00.0", device), 0; }
int cuDeviceGetAttribute(int* value, int attribute, int device) {
    switch (attribute) {
        case 13: *value = 1000000; break;  // clock of the multiprocessors, kHz
        case 16: *value = 10; break;       // multiprocessors
        case 36: *value = 1000000; break;  // clock of the memory, kHz
        case 37: *value = 4096; break;     // width of its bus
        case 38: *value = 1 << 16; break;  // L2
        case 75: *value = 9; break;        // compute capability
        default: *value = 0;
    }
    return device;
}
int cuDevicePrimaryCtxRetain(void** context, int device) { return *context = (void*)1, device; }
int cuCtxSetCurrent(void* context) { return context == NULL; }
int cuCtxSynchronize(void) { return 0; }
int cuGetErrorString(int code, const char** text) { return *text = code ? "a mock's error" : "no error", 0; }
int cuMemAlloc_v2(ptr* address, size_t bytes) { return *address = (ptr)aligned_alloc(256, (bytes + 255) / 256 * 256), 0; }
int cuMemFree_v2(ptr address) { return free((void*)address), 0; }
int cuMemcpyHtoD_v2(ptr to, const void* from, size_t bytes) { return memcpy((void*)to, from, bytes), 0; }
int cuMemcpyDtoH_v2(void* to, ptr from, size_t bytes) { return memcpy(to, (void*)from, bytes), 0; }
int cuMemsetD8_v2(ptr to, unsigned char value, size_t bytes) { return memset((void*)to, value, bytes), 0; }
int cuStreamCreate(void** stream, unsigned flags) { return *stream = malloc(1), (int)(flags & 2); }
int cuStreamDestroy_v2(void* stream) { return free(stream), 0; }
int cuStreamSynchronize(void* stream) { return stream == NULL; }
int cuStreamBeginCapture_v2(void* stream, int mode) { return stream == NULL || mode < 0; }
int cuStreamEndCapture(void* stream, void** graph) { return *graph = malloc(1), stream == NULL; }
int cuGraphInstantiateWithFlags(void** executable, void* graph, ptr flags) { return *executable = malloc(1), graph == NULL || flags; }
int cuGraphDestroy(void* graph) { return free(graph), 0; }
int cuGraphExecDestroy(void* executable) { return free(executable), 0; }
int cuGraphLaunch(void* executable, void* stream) {
    struct timespec millisecond = {0, 1000000};
    mock_device_ms += 1;
    if (!getenv("MOCK_CLOCK")) nanosleep(&millisecond, NULL);
    return executable == NULL || stream == NULL;
}
int cuEventCreate(void** event, unsigned flags) { return *event = malloc(sizeof(double)), (int)flags; }
int cuEventRecord(void* event, void* stream) { return *(double*)event = now_ms(), stream == NULL; }
int cuEventElapsedTime_v2(float* ms, void* from, void* to) { return *ms = (float)(*(double*)to - *(double*)from), 0; }
int cuEventSynchronize(void* event) { return event == NULL; }
int cuEventDestroy_v2(void* event) { return free(event), 0; }

int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char* id, void** card) { return *card = (void*)1, strcmp(id, "0000:00:00.0"); }
int nvmlSystemGetDriverVersion(char* text, unsigned length) { return snprintf(text, length, "999.1"), 0; }
int nvmlDeviceGetClockInfo(void* card, int kind, unsigned* mhz) { return *mhz = 1234, card == NULL || kind != 1; }
int nvmlDeviceGetTemperature(void* card, int kind, unsigned* celsius) { return *celsius = 56, card == NULL || kind != 0; }
int nvmlDeviceGetPowerUsage(void* card, unsigned* milliwatts) { return *milliwatts = 250500, card == NULL; }
