/* A program without Python that loads plugin.so, and with it an interpreter and
 * localsplus, RTLD_LOCAL: none of their symbols is visible process-wide.
 *
 *     host PATH/plugin.so
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int
main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: host PLUGIN\n");
        return 2;
    }
    void *plugin = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (plugin == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 2;
    }
    if (dlsym(RTLD_DEFAULT, "Py_IsInitialized") != NULL) {
        fprintf(stderr, "Python is visible process-wide: this run proves nothing\n");
        return 2;
    }
    void *symbol = dlsym(plugin, "run_plugin");
    int (*run_plugin)(void);
    memcpy(&run_plugin, &symbol, sizeof(symbol));
    return symbol == NULL ? 2 : run_plugin();
}
