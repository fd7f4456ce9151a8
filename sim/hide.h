/* hide: makes exported symbols of this library disappear and reappear. */
#ifndef SIM_HIDE_H
#define SIM_HIDE_H

#include <stddef.h>

/* Hides exactly these n names: dlsym() fails for them, and all other symbols that were hidden
 * before are visible again. Names that the library does not export are ignored. */
void hide_symbols(char *const *names, size_t n);

#endif
