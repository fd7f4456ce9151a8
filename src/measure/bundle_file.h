/* bundle_file: file names that the writer and the reader of a bundle share. */
#ifndef GW_MEASURE_BUNDLE_FILE_H
#define GW_MEASURE_BUNDLE_FILE_H

#include "energy.h"

#define BUNDLE_MANIFEST "manifest.toml"
#define BUNDLE_SETUP    "setup.toml"
#define BUNDLE_SENSOR   "sensor.toml"
#define BUNDLE_EVENTS   "events"
#define BUNDLE_WINDOWS  "windows.tsv"
#define BUNDLE_SUMS     "SHA256SUMS"
#define BUNDLE_HEADER   "# gpuward events 1\n"

/* Writes dir/name or, if gpu is not negative, dir/gpuN.name. */
const char *bundle_path(char *out, size_t size, const char *dir, const char *name, int gpu);

/* Computes the SHA-256 of a file. Returns 0 or -1. */
int bundle_sum(const char *path, char out[static 65]);

/* Returns the name of an enum energy_shape in files: "ring", "instant", ... */
const char *bundle_shape_name(unsigned shape);

#endif
