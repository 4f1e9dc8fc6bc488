/* A plugin for QEMU that counts the guest's instructions between two functions.
 *
 *     -plugin instruction_count.so,begin=ADDRESS,end=ADDRESS,to=FILE
 *
 * Counting starts when the function at `begin` is entered and stops when the one at `end` is. Each
 * line of FILE has the address of a block of instructions, its length, and how often it ran. The
 * count is exact: nothing else runs on the emulated processor, and no interrupt is enabled.
 *
 * The functions of QEMU are declared here as its documentation of plugins does (API version 1), so
 * that no headers of QEMU are needed.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct qemu_plugin_tb;
typedef uint64_t plugin_id;
enum { NO_REGISTERS = 0 };

void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id, void (*)(plugin_id, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *, void (*)(unsigned, void *), int,
    void *);
void qemu_plugin_register_atexit_cb(plugin_id, void (*)(plugin_id, void *), void *);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *);

__attribute__((visibility("default"))) int qemu_plugin_version = 1;

typedef struct block {
    uint64_t address, length, runs;
    struct block *next;
} block;

static block *blocks;
static uint64_t begin, end;
static int counting;
static char file[4096];

static void executed(unsigned cpu, void *data)
{
    block *at = data;

    (void)cpu;
    if (at->address == begin)
        counting = 1;
    else if (at->address == end)
        counting = 0;
    else if (counting)
        ++at->runs;
}

static void translated(plugin_id id, struct qemu_plugin_tb *tb)
{
    block *made = calloc(1, sizeof *made);

    (void)id;
    made->address = qemu_plugin_tb_vaddr(tb);
    made->length = qemu_plugin_tb_n_insns(tb);
    made->next = blocks;
    blocks = made;
    qemu_plugin_register_vcpu_tb_exec_cb(tb, executed, NO_REGISTERS, made);
}

static void finished(plugin_id id, void *data)
{
    FILE *to = fopen(file, "w");

    (void)id;
    (void)data;
    if (!to)
        return;
    for (const block *at = blocks; at; at = at->next) {
        if (at->runs)
            fprintf(to, "%llu %llu %llu\n", (unsigned long long)at->address,
                (unsigned long long)at->length, (unsigned long long)at->runs);
    }
    fclose(to);
}

__attribute__((visibility("default"))) int qemu_plugin_install(
    plugin_id id, const void *info, int count, char **words)
{
    (void)info;
    for (int i = 0; i < count; ++i) {
        if (strncmp(words[i], "begin=", 6) == 0)
            begin = strtoull(words[i] + 6, NULL, 0);
        else if (strncmp(words[i], "end=", 4) == 0)
            end = strtoull(words[i] + 4, NULL, 0);
        else if (strncmp(words[i], "to=", 3) == 0)
            snprintf(file, sizeof file, "%s", words[i] + 3);
    }
    if (!begin || !end || !file[0])
        return 1;
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    qemu_plugin_register_atexit_cb(id, finished, NULL);
    return 0;
}
