/* mps: does a worker share its GPU through NVIDIA's multi-process service?  Such a process cannot be
 * checkpointed: its memory is the server's. */
#ifndef GW_GUARD_MPS_H
#define GW_GUARD_MPS_H

#include "classify.h"

/* v: one a process of s.  A worker's process is listed as a client, or the service runs on a GPU that a worker
 * is on. */
bool mps_serves_worker(const struct scene *s, const struct verdict *v);

#endif
