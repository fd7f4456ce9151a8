/* cleared: gives memory back to the kernel that a loaded library has cleared and does not use.
 *
 * A library that clears large static tables when it starts makes them resident, though they hold
 * zeros and mostly stay so.  A page of zeros that is given back reads as zeros again and comes
 * back when it is written, so the library cannot tell.  That holds only while nobody writes to it
 * meanwhile: no thread may be inside the library. */
#ifndef GW_BASE_MEM_TRIM_H
#define GW_BASE_MEM_TRIM_H

#include <stddef.h>

/* The zero pages of the cleared data (.bss) of the library that `inside` points into.  The bytes
 * that were given back; 0 too when no library is there. */
size_t mem_trim_unused(const void *inside);

#endif
