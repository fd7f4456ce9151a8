#include "fault.h"

#include <unistd.h>

bool fault_applies(const struct fault *f, int call, bool lifecycle, int device, unsigned field,
		   uint64_t t_ns)
{
	if (f->call < 0 ? lifecycle : f->call != call)
		return false;
	if (f->device >= 0 && f->device != device)
		return false;
	if (f->field != field)
		return false;
	if (t_ns < f->from_ns || (f->until_ns != 0 && t_ns >= f->until_ns))
		return false;
	return f->file[0] == 0 || access(f->file, F_OK) == 0;
}

struct fault fault_find(const struct fault *faults, size_t n, int call, bool lifecycle,
			int device, unsigned field, uint64_t t_ns)
{
	struct fault all = { .call = call, .device = device, .field = field };

	for (size_t i = 0; i < n; i++) {
		const struct fault *f = &faults[i];

		if (!fault_applies(f, call, lifecycle, device, field, t_ns))
			continue;
		all.hang = all.hang || f->hang;
		if (f->delay_ns > all.delay_ns)
			all.delay_ns = f->delay_ns;
		if (f->has_code && !all.has_code) {
			all.has_code = true;
			all.code = f->code;
		}
		if (f->has_value && !all.has_value) {
			all.has_value = true;
			all.value = f->value;
		}
	}
	return all;
}
