/* The built-in scenarios, embedded from scenarios/. */
#include <string.h>

#include "scenario.h"

#define SCENARIO(id, name)                                                               \
	extern const char sim_text_##id[] __attribute__((visibility("hidden")));         \
	extern const char sim_end_##id[] __attribute__((visibility("hidden")));          \
	__asm__(".pushsection .rodata\n"                                                 \
		".hidden sim_text_" #id "\n.globl sim_text_" #id "\nsim_text_" #id ":\n" \
		".incbin \"" SCENARIO_DIR "/" name ".toml\"\n"                           \
		".hidden sim_end_" #id "\n.globl sim_end_" #id "\nsim_end_" #id ":\n"    \
		".byte 0\n.popsection\n");
#include "scenarios.def"
#undef SCENARIO

#define SCENARIO(id, name) name,
const char *const scenario_names[] = {
#include "scenarios.def"
	NULL
};
#undef SCENARIO

const char *scenario_text(const char *name, size_t *size)
{
#define SCENARIO(id, text) { sim_text_##id, sim_end_##id },
	static const struct {
		const char *begin, *end;
	} texts[] = {
#include "scenarios.def"
	};
#undef SCENARIO

	for (size_t i = 0; scenario_names[i] != NULL; i++) {
		if (strcmp(scenario_names[i], name) != 0)
			continue;
		*size = (size_t)(texts[i].end - texts[i].begin);
		return texts[i].begin;
	}
	return NULL;
}
