/* Any content of a sensor file: no crash; a refusal has a message; an accepted sensor is
 * written and parsed again with the same bits. The input is the text after the hash; the hash
 * is set to match. */
#include "text.h"

#include "base/buf.h"
#include "base/text.h"
#include "base/toml_write.h"
#include "measure/sensor.h"

#include <inttypes.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sensor a, b;
	struct buf once, twice;
	char why[300] = "";
	int err;

	buf_init(&once, 1 << 20);
	buf_addf(&once, "hash = \"%016" PRIx64 "\"\n",
		 text_hash(TEXT_HASH_START, (const char *)data, size));
	buf_add(&once, (const char *)data, size);
	err = sensor_parse(once.p, once.len, &a, why, sizeof(why));
	buf_done(&once);
	if (err) {
		if (!*why)
			abort();
		return 0;
	}
	buf_init(&once, 1 << 16);
	buf_init(&twice, 1 << 16);
	if (sensor_compose(&once, &a) != 0 ||
	    sensor_parse(once.p, once.len, &b, why, sizeof(why)) != 0 ||
	    sensor_compose(&twice, &b) != 0 || strcmp(once.p, twice.p) != 0)
		abort();
	buf_done(&once);
	buf_done(&twice);
	return 0;
}
