// SPDX-License-Identifier: Apache-2.0
// What the job_submit plugin uses of slurmctld beyond the installed headers, declared by hand and
// bound when slurmctld loads the plugin. Weak symbols may be missing; then their address is null.
#pragma once

extern "C" {
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <slurm/slurm_version.h>

struct job_record;  // of slurmctld, opaque

void* slurm_xcalloc(size_t count, size_t size, bool clear, bool may_fail, const char* file,
                    int line, const char* function);
char* slurm_xstrdup(const char* text);
void slurm_xfree(void** pointer);
void slurm_info(const char* format, ...) __attribute__((format(printf, 1, 2)));
void slurm_error(const char* format, ...) __attribute__((format(printf, 1, 2)));

extern slurm_conf_t slurm_conf __attribute__((weak));
job_desc_msg_t* copy_job_record_to_job_desc(job_record* job) __attribute__((weak));
extern List active_feature_list __attribute__((weak));
int list_find_feature(void* feature, void* name) __attribute__((weak));
void* slurm_list_find_first(List list, ListFindF find, void* key) __attribute__((weak));
int64_t slurm_bit_ffs(void* bitmap) __attribute__((weak));
void slurm_free_job_desc_msg(job_desc_msg_t* description) __attribute__((weak));
}
