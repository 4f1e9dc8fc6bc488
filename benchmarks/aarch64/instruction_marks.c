/* A plugin for QEMU that counts the instructions of a program up to each call of getppid().
 *
 *     qemu-aarch64 -plugin instruction_marks.so,to=FILE PROGRAM
 *
 * Each line of FILE is the number of instructions that have run at a call. The counts of threads
 * are added up without a lock, so only one thread may compute.
 *
 * The functions of QEMU are declared here as its documentation of plugins does (API version 1), so
 * that no headers of QEMU are needed.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct qemu_plugin_tb;
typedef uint64_t plugin_id;
enum { ADD_U64 = 0, GETPPID = 173 };

void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id, void (*)(plugin_id, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *, int, void *, uint64_t);
void qemu_plugin_register_vcpu_syscall_cb(plugin_id,
    void (*)(plugin_id, unsigned, int64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
        uint64_t, uint64_t, uint64_t));
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);

__attribute__((visibility("default"))) int qemu_plugin_version = 1;

static uint64_t instructions;
static FILE *marks;

static void translated(plugin_id id, struct qemu_plugin_tb *block)
{
    (void)id;
    qemu_plugin_register_vcpu_tb_exec_inline(
        block, ADD_U64, &instructions, qemu_plugin_tb_n_insns(block));
}

static void called(plugin_id id, unsigned cpu, int64_t number, uint64_t a, uint64_t b, uint64_t c,
    uint64_t d, uint64_t e, uint64_t f, uint64_t g, uint64_t h)
{
    (void)id, (void)cpu, (void)a, (void)b, (void)c, (void)d, (void)e, (void)f, (void)g, (void)h;
    if (number != GETPPID)
        return;
    fprintf(marks, "%llu\n", (unsigned long long)instructions);
    fflush(marks);
}

__attribute__((visibility("default"))) int qemu_plugin_install(
    plugin_id id, const void *info, int count, char **words)
{
    (void)info;
    for (int i = 0; i < count; ++i) {
        if (strncmp(words[i], "to=", 3) == 0)
            marks = fopen(words[i] + 3, "w");
    }
    if (!marks)
        return 1;
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    qemu_plugin_register_vcpu_syscall_cb(id, called);
    return 0;
}
