/* output: writes documents to a file or to standard output, prints values with their units,
 * escapes text for HTML and SVG, and parses the options for the cost of energy. */
#ifndef GW_CLI_OUTPUT_H
#define GW_CLI_OUTPUT_H

#include "option.h"

#include "base/number.h"
#include "serve/render.h"

#include <gpuward.h>
#include <stdbool.h>
#include <stddef.h>

/* The row for --output in a table of options. */
#define OUTPUT_OPTION(at) \
	OPTION_ROW(TEXT, 'o', "output", at, "FILE", "write to FILE instead of standard output")

/* Writes text to path, or to standard output if path is NULL or "-". A regular file is replaced
 * in one step, so that the old file stays unchanged if the disk is full. If a file is replaced,
 * prints a note unless `quiet` is set. A device or a FIFO is written to and not replaced.
 * Returns an exit code. */
int output_write(const char *path, const struct buf *text, bool quiet);

/* output_print() writes to standard output at once, without a buffer. output_possible() checks
 * whether a file can be written at path; call it before work that takes long. Both return an
 * exit code. */
int output_print(const char *text, size_t n);
int output_possible(const char *path);

/* Writes the result of a measurement. Writes it to a file if path is neither NULL nor "-", and
 * to standard output if path is "-" or `print` is set. The previous content of the file is kept
 * as path.old. Returns an exit code. */
int output_result(const char *path, bool print, const struct buf *text, bool quiet);

/* output_spares_input() checks that the output at path is neither the input file nor a file in
 * the input bundle, because writing the output would destroy or change the input.
 * output_spares() checks n inputs. Both return EXIT_OK or EXIT_USAGE. */
int output_spares(const char *path, char **inputs, int n);
int output_spares_input(const char *path, const char *input);

/* Returns true if the output goes to the file at `path`. This file need not exist yet: it is
 * then the file that the output would create. */
bool output_is_same(const char *output, const char *path);

/* Prints a key and a value in one line. All values start in the same column. If the line is too
 * narrow for the value, the value is printed in the next line. */
void figure_line(const char *key, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Prints a number with its unit. The end of the key decides the unit. */
void figure_number(const char *key, double v);

/* Units that a key can end with, as in "power_watts", "power_watts.max" and "seconds". */
enum figure_unit {
	UNIT_NONE,
	UNIT_BYTES,
	UNIT_WATTS,
	UNIT_CELSIUS,
	UNIT_HERTZ,
	UNIT_SECONDS,
	UNIT_JOULES,
	UNIT_RATIO,
	UNIT_LANES
};
enum figure_unit figure_unit(const char *key);

/* Write a value with a suitable unit and return out. NAN becomes "-".
 *
 * figure_bytes()     "140.4 GiB"
 * figure_span()      a rounded time: "12 s", "10 min", "1.5 h"
 * figure_run_time()  a time in its two largest units: "12s", "3m05s", "1h01m", "2d03h" */
static inline const char *figure_bytes(char out[static BYTES_TEXT], double bytes)
{
	return bytes_text(out, bytes, 1);
}
const char *figure_span(char out[static 16], double seconds);
const char *figure_run_time(char out[static 16], double seconds);

/* Copies the text, with sizes such as "8192 MiB" or "100 of 8192 MiB" in a suitable unit, as
 * figure_bytes() writes it. Returns out. */
const char *figure_sizes(char *out, size_t size, const char *text);

/* Returns the type of a process (GW_PROCESS_...) as letters: "C+G", or "-" if it is unknown. */
const char *figure_process_type(unsigned type);

/* Adds a GPU to a list such as "0, 1 (NVIDIA H200), 2 (NVIDIA L4)". `next` is the name of the
 * GPU that is added after this one; NULL: there is none. */
void figure_add_gpu(struct buf *list, unsigned index, const char *name, const char *next);

/* Prints a quantity of a device. If the value is unknown, prints the reason if `reasons` is
 * set, and nothing otherwise. */
void figure_value(const struct gw_device *d, unsigned quantity, bool reasons);

/* Adds s to out, escaped for texts and quoted attributes in HTML and SVG. s may be NULL.
 * Invalid UTF-8 and characters that XML forbids become U+FFFD. */
void markup_text(struct buf *out, const char *s);

/* Adds s like markup_text(). If s is wider than `columns`, cuts it and adds "…". */
void markup_cut(struct buf *out, const char *s, size_t columns);

/* The options for the price and the carbon intensity of energy.  An option that is not given is
 * read from the environment variable that the service uses for the same setting, such as
 * GPUWARD_ENERGY_PRICE_PER_KWH. */
struct cost_options {
	const char *price, *currency, *gco2;
};

/* Rows for a table of options. `member` is the struct cost_options in the struct `type`. */
#define COST_OPTIONS(type, member)                                                             \
	OPTION_ROW(TEXT, 0, "price-per-kwh", offsetof(type, member.price), "PRICE",            \
		   "price of one kilowatt-hour; also shows the energy in kWh, and its cost"),  \
		OPTION_ROW(TEXT, 0, "price-currency", offsetof(type, member.currency), "WORD", \
			   "currency of that price, such as EUR"),                             \
		OPTION_ROW(TEXT, 0, "gco2-per-kwh", offsetof(type, member.gco2), "GRAMS",      \
			   "grams of CO2 per kilowatt-hour; also shows the energy as grams "   \
			   "of CO2")

/* Parses the options.  Returns EXIT_OK, or prints an error and returns EXIT_USAGE. */
int cost_options_read(const struct cost_options *o, struct energy_cost *ret);

#endif
