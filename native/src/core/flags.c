/* The flags that a snapshot holds, from the list that the Python schema generates. */
#include "core.h"

static const struct {
    const char *name;
    int32_t kind;
    const char *choices;
} flags[] = {
#define FLAG(name, NAME, kind, choices) {name, BCFG_##kind, choices},
#include "backendcfg_flags.inc"
#undef FLAG
};

uint32_t bcfg_flag_count(void) { return sizeof flags / sizeof *flags; }

bcfg_status bcfg_flag_at(uint32_t id, bcfg_flag *flag) {
    if (flag == NULL || id >= bcfg_flag_count()) return BCFG_E_ARGUMENT;
    if (flag->abi != BCFG_ABI || flag->size != sizeof *flag) return BCFG_E_ABI;
    flag->name = flags[id].name;
    flag->kind = flags[id].kind;
    flag->choices = flags[id].choices;
    return BCFG_OK;
}
