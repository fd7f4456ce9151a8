/* Fills a database with history, one reading per second and GPU, for bench/service.
 *
 * bench-fill FILE SECONDS UUID... */
#include "daemon/store.h"

#include "base/clock.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
	uint64_t seconds = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
	uint64_t now = clock_wall_ns(clock_real());
	char message[400] = "";
	struct store *s;

	if (argc < 4 ||
	    store_open(argv[1], UINT64_C(1) << 30, &s, message, sizeof(message)) != 0) {
		fprintf(stderr, "usage: bench-fill FILE SECONDS UUID...\n");
		return 2;
	}
	for (uint64_t i = seconds; i > 0; i--) {
		double v[VIEW_HISTORIES];

		for (int g = 3; g < argc; g++) {
			for (unsigned q = 0; q < VIEW_HISTORIES; q++)
				v[q] = 300 + 100 * sin((double)i / (20.0 + q + g));
			store_add_reading(s, argv[g], now - i * NS_PER_S, v);
		}
		if (i % 60 == 0) {
			store_commit(s);
			store_flush(s, 10 * NS_PER_S);
		}
	}
	store_save(s);
	store_commit(s);
	store_flush(s, 10 * NS_PER_S);
	store_close(s);
	return 0;
}
