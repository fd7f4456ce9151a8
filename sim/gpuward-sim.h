/* gpuward-sim: functions with which a test controls the simulated NVML library
 * (libnvidia-ml.so.1).
 *
 * Any program that uses NVML can use the simulated library. The variable GPUWARD_SIM is the
 * name of a built-in scenario (default: "demo") or the path of a TOML file:
 *
 *     GPUWARD_SIM=two-gpus LD_LIBRARY_PATH=build/sim nvml-program
 *
 * For more control a program opens the library with dlopen() and finds these functions with
 * dlsym(). They may be called from any thread and before nvmlInit. */
#ifndef GPUWARD_SIM_H
#define GPUWARD_SIM_H

#include <stddef.h>
#include <stdint.h>

/* Name and version of the simulator. A library that exports this symbol is a simulator. */
extern const char gpuward_simulator[];

/* Replaces the world by a scenario (a built-in name or a path). For clients this is like a
 * driver reload: older handles become invalid. Returns 0, or -1 with "FILE:LINE:COLUMN:
 * sentence" in error. */
int gpuward_sim_load(const char *scenario, char *error, size_t size);

/* Works like gpuward_sim_load(), but takes the text of a scenario; `name` is the file name in
 * messages. */
int gpuward_sim_load_text(const char *name, const char *text, char *error, size_t size);

/* gpuward_sim_scenarios() returns the names of the built-in scenarios, NULL-terminated.
 * gpuward_sim_describe() returns the first comment line of a built-in scenario. */
const char *const *gpuward_sim_scenarios(void);
const char *gpuward_sim_describe(const char *scenario);

/* Return a time of the simulated world in ns. gpuward_sim_now_ns() returns the time since the
 * start of the world. gpuward_sim_wall_ns() returns the world's wall clock, which includes the
 * clock steps of the scenario. */
uint64_t gpuward_sim_now_ns(void);
uint64_t gpuward_sim_wall_ns(void);

/* Switches to stepped time and sets the time to the start of the scenario. Call it right after
 * loading, so that the world does not depend on how long loading took. */
void gpuward_sim_stepped(void);

/* Advances stepped time by ns. Stepped time begins with gpuward_sim_stepped() or with
 * `time.mode = "stepped"` in the scenario. */
void gpuward_sim_step(uint64_t ns);

/* Returns the number of calls of a symbol since the world began. If symbol is NULL, returns the
 * number of calls of all symbols. */
uint64_t gpuward_sim_calls(const char *symbol);

/* From now on, `symbol` returns `code` for `device` and leaves its outputs unchanged. If symbol
 * is NULL, the fault applies to every call except init and shutdown. If device is -1, the fault
 * applies to all devices. Code 0 ends the fault. */
void gpuward_sim_fault(const char *symbol, int device, int code);

/* From now on, `symbol` does not return for `device` (-1: for all devices).
 * gpuward_sim_unhang() ends all hangs. */
void gpuward_sim_hang(const char *symbol, int device);
void gpuward_sim_unhang(void);

/* Return the true power of a device now (W) and its true energy since the world began (J),
 * without sensor errors. */
double gpuward_sim_true_watts(unsigned device);
double gpuward_sim_true_joules(unsigned device);

/* Sets the number of bytes that a process uses on a device. 0 removes the process. This
 * function is for tests that act as a worker. Returns 0, or -1 if there is no such device or no
 * memory. */
int gpuward_sim_process(unsigned device, uint32_t pid, uint64_t bytes, int graphics);

#endif
