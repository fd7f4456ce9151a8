/* toml_write: lines of TOML that read back to the same values, and a checksum over them. */
#ifndef GW_BASE_TOML_WRITE_H
#define GW_BASE_TOML_WRITE_H

#include "buf.h"

#include <stddef.h>
#include <stdint.h>

/* key = "text", escaped. */
void toml_write_text(struct buf *out, const char *key, const char *text);

/* key = a float, to the last bit; nan if v is not finite. */
void toml_write_real(struct buf *out, const char *key, double v);

/* FNV-1a over n bytes, started with TOML_SUM_START: detects cut or edited files, but not an
 * attack. */
#define TOML_SUM_START UINT64_C(0xcbf29ce484222325)
uint64_t toml_sum(uint64_t sum, const char *p, size_t n);

#endif
