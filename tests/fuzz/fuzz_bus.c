/* Any bytes from the system bus: no crash and no read past the end; an accepted message lies
 * within the input. */
#include "daemon/bus_message.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *end = data + size;

	for (long n = 1; n > 0; data += n, size -= (size_t)n) {
		struct bus_message m;
		bool value;

		n = bus_read(data, size, &m);
		if (n <= 0)
			return 0;
		if ((size_t)n > size || m.body + m.body_size > end ||
		    (m.member && m.member + strlen(m.member) >= (const char *)end))
			abort();
		(void)bus_read_bool(&m, &value);
	}
	return 0;
}
