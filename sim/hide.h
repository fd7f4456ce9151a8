/* hide: makes exported symbols of this library disappear and reappear. */
#ifndef SIM_HIDE_H
#define SIM_HIDE_H

#include <stddef.h>

/* Afterwards dlsym() fails for exactly these n names; symbols that were hidden before are back.
 * Names that the library does not export are ignored. */
void hide_symbols(char *const *names, size_t n);

#endif
