/* tables: names of the values of enum gw_process_type. gpuward.h has the enum, but no function
 * for the names. */
#ifndef GW_DEVICE_TABLES_H
#define GW_DEVICE_TABLES_H

/* Returns the name of the process type with bit i in enum gw_process_type, or NULL if there is
 * no such type. */
const char *process_type_name(unsigned i);

/* Returns the process type with this name, or 0 if there is none. */
unsigned process_type_named(const char *name);

#endif
