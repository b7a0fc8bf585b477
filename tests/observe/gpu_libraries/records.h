/* The machine that the libraries here pretend to see: a text file, read anew at every call.

   A line is a record, `kind;key=value;…`. The record `sys` is the library itself. On it, and on the
   record of a device, FUNCTION=CODE lets that function fail with that code; `error=CODE` on a device
   lets all fail that do not say otherwise, FUNCTION=hang or FUNCTION=abort does not return. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef unsigned int u32;
typedef unsigned long long u64;
typedef void *handle; /* the number of the record, from 1 */

#define RECORDS 256
#define NOTHING (~0u)

static char record[RECORDS][1024];
static int records;
static int starts;

static const char *value(long at, const char *key, const char *otherwise) {
  static char kept[16][512];
  static int next;
  char pattern[128];
  snprintf(pattern, sizeof pattern, ";%s=", key);
  char *found = at >= 0 && at < records ? strstr(record[at], pattern) : NULL;
  if (!found) return otherwise;
  char *out = kept[next++ % 16];
  snprintf(out, sizeof kept[0], "%s", found + strlen(pattern));
  out[strcspn(out, ";\n")] = 0;
  return out;
}

static u64 number(long at, const char *key, u64 otherwise) {
  const char *text = value(at, key, NULL);
  return text ? strtoull(text, NULL, 0) : otherwise;
}

static int is(long at, const char *kind) {
  size_t length = strlen(kind);
  return at >= 0 && at < records && !strncmp(record[at], kind, length) && record[at][length] == ';';
}

static long sys(void) {
  for (long at = 0; at < records; at++)
    if (is(at, "sys")) return at;
  return -1;
}

/* What a record says of a function: its code, or its otherwise. */
static int outcome(long at, const char *function, int otherwise) {
  const char *text = value(at, function, NULL);
  if (!text) return otherwise;
  if (!strcmp(text, "hang"))
    for (;;) pause();
  if (!strcmp(text, "abort")) abort();
  return (int)strtol(text, NULL, 0);
}

/* Reads the file; -1: there is none. */
static int look(const char *variable) {
  const char *path = getenv(variable);
  FILE *file = path ? fopen(path, "r") : NULL;
  records = 0;
  if (!file) return -1;
  while (records < RECORDS && fgets(record[records], sizeof record[0], file)) records++;
  fclose(file);
  return 0;
}
