/* Prints gpuward-quantities(7) from the tables in include/gpuward: what is measured, why a
 * value can be missing, and what can be wrong. */
#include <stdio.h>

/* Escapes the characters that scdoc treats as markup. */
static void text(const char *s)
{
	for (; *s; s++) {
		if (*s == '_' || *s == '*' || *s == '\\' || *s == '#' || *s == '[')
			putchar('\\');
		putchar(*s);
	}
}

/* Prints s with a capital first letter. */
static void sentence_of(const char *s)
{
	if (*s >= 'a' && *s <= 'z')
		putchar(*s++ - 'a' + 'A');
	text(s);
}

static void entry(const char *key, const char *kind, const char *when, const char *help)
{
	printf("*");
	text(key);
	printf("*");
	if (*kind)
		printf(" (%s%s%s)", kind, *when ? ", " : "", when);
	printf("\n\t");
	sentence_of(help);
	printf(".\n\n");
}

static void heading(const char *title, const char *intro)
{
	printf("# %s\n\n%s\n\n", title, intro);
}

#define GAUGE   "gauge"
#define COUNTER "counter"
#define FLAG    "flag"
#define ENUM    "word"
#define MASK    "words"

#define STATIC     "once"
#define FAST       "every time"
#define SLOW       "at most once per second"
#define ENERGY     "at most once per second, expensive"
#define HEALTH     "at most every ten seconds"
#define LIMITS     "at most every ten seconds; also when an energy window begins or ends"
#define ON_REQUEST "only on request"
#define PROFILE    "only on request"

#define OK    "ok"
#define NOTE  "note"
#define ERROR "problem"

static void quantities(void)
{
	heading("FIGURES OF A GPU",
		"A name ends with its unit. Ratios are 0 to 1. A counter grows as long as "
		"the driver stays loaded. The value of a word is one of several names, "
		"and words are a set of such names. The text after the kind says how "
		"often gpuward reads the figure from the driver; in between, the last "
		"reading is used.");
#define Q(symbol, key, kind, tier, help) entry(key, kind, tier, help);
#include <gpuward/quantity.def>
#undef Q
}

static void machine(void)
{
	heading("FIGURES OF THE MACHINE", "Read at most once per second.");
#define H(symbol, key, kind, help) entry(key, kind, "", help);
#include <gpuward/host.def>
#undef H
}

static void words(void)
{
	heading("TEXTS OF A GPU", "Null if the driver does not report them.");
#define T(symbol, key) \
	printf("- ");  \
	text(key);     \
	putchar('\n');
#include <gpuward/text.def>
#undef T
	putchar('\n');
}

static void absences(void)
{
	heading("WHY A FIGURE IS MISSING",
		"The reasons in every *absent* object in JSON. *not_read* does not "
		"appear there: a figure that was not requested is left out. The last "
		"two are only for *cuda_ordinal*, which is not a figure; in C they are "
		"-1 and -2.");
#define A(symbol, key, sentence) entry(key, "", "", sentence);
#include <gpuward/absence.def>
#undef A
	entry("not_visible", "cuda_ordinal", "",
	      "CUDA_VISIBLE_DEVICES hides it from CUDA programs, or it is not an NVIDIA GPU");
	entry("order_unknown", "cuda_ordinal", "",
	      "CUDA numbers these GPUs by speed, which gpuward cannot determine");
}

static void cause(const char *key, const char *severity, const char *sentence,
		  const char *remedy)
{
	printf("*");
	text(key);
	printf("* (%s)\n\t", severity);
	sentence_of(sentence);
	printf(".");
	if (*remedy) {
		printf(" ");
		text(remedy);
	}
	printf("\n\n");
}

static void causes(void)
{
	heading("WHAT CAN BE WRONG",
		"The values of *cause* in JSON and the findings of *gpuward-doctor*(1).");
#define C(symbol, key, severity, sentence, remedy) cause(key, severity, sentence, remedy);
#include <gpuward/cause.def>
#undef C
}

int main(void)
{
	printf("gpuward-quantities(7)\n\n# NAME\n\n"
	       "gpuward-quantities - what gpuward measures, and the names it uses\n\n# "
	       "DESCRIPTION\n\nThese names are the same in JSON, on the terminal and "
	       "in the C library. In C, the prefix of a figure is GW_Q_, of a reason "
	       "GW_ABSENT_ and of a cause GW_CAUSE_: see the files in "
	       "_/usr/include/gpuward_ (or _/usr/local/include/gpuward_).\n\n");
	quantities();
	machine();
	words();
	absences();
	causes();
	printf("# SEE ALSO\n\n*gpuward*(1), *gpuward-snapshot*(1), *gpuward-doctor*(1), "
	       "*gpuward*(3)\n");
	return 0;
}
