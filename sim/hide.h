/* hide: makes exported symbols of this library disappear and come back. */
#ifndef SIM_HIDE_H
#define SIM_HIDE_H

#include <stddef.h>

/* After it dlsym() of anybody fails for these n names alone; what was hidden before is back.
 * Names that the library does not export are passed over. */
void hide_symbols(char *const *names, size_t n);

#endif
