/* fleet_text: prints a fleet as text: a summary, what needs attention, and tables. */
#ifndef GW_CLI_FLEET_TEXT_H
#define GW_CLI_FLEET_TEXT_H

struct fleet;

/* Prints the fleet. top: maximum number of rows per table. */
void fleet_text_print(const struct fleet *f, unsigned top);

/* Prints where a job fits, after fleet_fit(). */
void fleet_text_fit(const struct fleet *f, double bytes, unsigned gpus, unsigned top);

#endif
