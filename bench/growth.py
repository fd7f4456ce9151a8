def section(table, build, quick): pass
