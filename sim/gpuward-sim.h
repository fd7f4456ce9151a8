/* gpuward-sim: what a test can say to the simulated NVML library.
 *
 * The simulator is a libnvidia-ml.so.1.  Any program that uses NVML can be run on it:
 *
 *	GPUWARD_SIM=two-gpus LD_LIBRARY_PATH=build/sim nvml-program
 *
 * GPUWARD_SIM names a scenario: one of the built-in names or the path of a TOML file; unset, it
 * is "demo".  A program that wants more control opens the library with dlopen and looks these
 * functions up.  They are safe to call from any thread and before nvmlInit. */
#ifndef GPUWARD_SIM_H
#define GPUWARD_SIM_H

#include <stddef.h>
#include <stdint.h>

/* Names the simulator and its version; its presence marks the library as one. */
extern const char gpuward_simulator[];

/* Replaces the world by a scenario (a built-in name or a path).  Clients see what they would
 * see of a driver reload: handles of before are invalid.  0, or -1 with "FILE:LINE:COLUMN:
 * sentence" in error. */
int gpuward_sim_load(const char *scenario, char *error, size_t size);

/* The same from text; `name` stands for the file in sentences. */
int gpuward_sim_load_text(const char *name, const char *text, char *error, size_t size);

/* Names of the built-in scenarios, NULL-terminated, and the first comment line of each. */
const char *const *gpuward_sim_scenarios(void);
const char *gpuward_sim_describe(const char *scenario);

/* Time of the world, ns since its start; its monotonic clock and its wall clock (with the
 * scenario's steps in it). */
uint64_t gpuward_sim_now_ns(void);
uint64_t gpuward_sim_wall_ns(void);

/* Moves stepped time on (scenario `time.mode = "stepped"`, or after gpuward_sim_stepped()). */
void gpuward_sim_stepped(void);
void gpuward_sim_step(uint64_t ns);

/* Calls of a symbol since the world began; symbol NULL: of all. */
uint64_t gpuward_sim_calls(const char *symbol);

/* From now on `symbol` (NULL: every call but init and shutdown) answers `code` for `device`
 * (-1: all), leaving its outputs alone; code 0 ends that. */
void gpuward_sim_fault(const char *symbol, int device, int code);

/* From now on `symbol` does not return for `device` (-1: all) until gpuward_sim_unhang(). */
void gpuward_sim_hang(const char *symbol, int device);
void gpuward_sim_unhang(void);

/* True power of a device now (W) and its true energy since the world began (J): what a perfect
 * meter would read. */
double gpuward_sim_true_watts(unsigned device);
double gpuward_sim_true_joules(unsigned device);

/* Sets the bytes a process holds on a device; 0 removes it.  For tests that play a worker. */
int gpuward_sim_process(unsigned device, uint32_t pid, uint64_t bytes, int graphics);

#endif
