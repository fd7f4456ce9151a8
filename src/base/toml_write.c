#include "toml_write.h"

#include "number.h"

#include <math.h>
#include <string.h>

void toml_write_text(struct buf *out, const char *key, const char *text)
{
	buf_addf(out, "%s = \"", key);
	for (; *text; text++) {
		if (*text == '"' || *text == '\\')
			buf_addf(out, "\\%c", *text);
		else if ((unsigned char)*text < 0x20 || *text == 0x7f)
			buf_addf(out, "\\u%04x", (unsigned)(unsigned char)*text);
		else
			buf_addc(out, *text);
	}
	buf_adds(out, "\"\n");
}

void toml_write_real(struct buf *out, const char *key, double v)
{
	char text[NUMBER_SIZE] = "nan";

	if (isfinite(v))
		number_format(v, text);
	/* A whole number must still be a float. */
	buf_addf(out, "%s = %s%s\n", key, text, strpbrk(text, ".en") ? "" : ".0");
}

uint64_t toml_sum(uint64_t sum, const char *p, size_t n)
{
	while (n--)
		sum = (sum ^ (unsigned char)*p++) * UINT64_C(0x100000001b3);
	return sum;
}
